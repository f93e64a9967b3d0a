"""The protocol of a webhook format: it writes a delivery's message, and finds a failure behind HTTP 200.

A hint in words for people is a title, and lines of a name and a text. Each format escapes them in its own way.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery
from store.records.event import format_time
from store.records.hint import Evidence, evidence_of
from store.visible_text import visible

# In a chat `watch` would be a flood, and `avoid` nearly one.
LOUD_ACTIONS = ("cordon", "drain", "requeue", "swap")


@dataclass(frozen=True, slots=True)
class AnswerFailure:
    """What a receiver's answer complains of. `slow`: it wants fewer messages, rather than another one."""

    detail: str
    slow: bool = False


@dataclass(frozen=True, slots=True)
class MessageFormat:
    """One format.

    `write` makes the message of a delivery with the secrets in force, newest last, as of the real time.
    `failure` reads the body of a 2xx answer; None: it is none. `check_secret` raises SecretError.
    """

    write: Callable[[Delivery, Sequence[str], datetime], WebhookMessage]
    failure: Callable[[bytes], AnswerFailure | None]
    check_secret: Callable[[str], object]
    needs_secret: bool = True
    # People are told, no scheduler acts: that it was delivered does not make a hint `sent`.
    is_notice: bool = False
    of_verdicts: bool = False  # it is told of verdicts, and of no hint
    actions: tuple[str, ...] = ()  # that are sent unless the configuration names others; none: all


def no_failure(_body: bytes) -> AnswerFailure | None:
    """Of receivers whose status says it all."""
    return None


def any_secret(_secret: str) -> None:
    """Of formats whose secrets have no form of their own."""


# What a chat makes of bare text: a link of an address, a mention of a name.
_LIVE = re.compile(r"(?<=:)(?=//)|(?<=www)(?=\.)|(?<=@)(?=\w)", re.IGNORECASE)


def chat_text(value: object) -> str:
    """Text from outside in a message for people: on one line, with nothing hidden, no bare link and no mention."""
    return _LIVE.sub(" ", visible(" ".join(str(value).split())))


_DONE = {
    "withdrawn": "withdrawn",
    "expired": "lapsed",
    "released": "the node is well",
    "closed": "it is over",
    "explained": "another cause explains it",
}


def title(data: Mapping[str, Any]) -> str:
    """One line: `cordon gpu-017`, `approve? cordon gpu-017`, `released gpu-017`."""
    node = chat_text(data["node"])
    if data["action"] == "verdict":
        return f"{data['verdict']['class']} {node}"
    if data["action"] == "release":
        return f"over: {node} ({_DONE.get(str(data.get('state')), 'ended')})"
    if data["action"] == "ticket":
        return f"repair {node}"
    if data.get("state") == "proposed":
        return f"approve? {chat_text(data.get('asks', data['action']))} {node}"
    shadow = "shadow: " if data.get("mode") == "shadow" else ""
    return f"{shadow}{chat_text(data['action'])} {node}"


def _risk(evidence: Evidence) -> str | None:
    """The risk, and of when it is: a message is read hours later."""
    if evidence.score is None:
        return None
    return f"{evidence.score:.0%}" + ("" if evidence.scored is None else f", as of {format_time(evidence.scored)}")


def lines(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What there is to know: names and texts; a thing that is not known has no line."""
    evidence = evidence_of(data.get("evidence") or {})
    found = [
        ("reason", data.get("reason")),
        ("job", data.get("job")),
        ("risk", _risk(evidence)),
        ("spare", evidence.spare),
        ("probability", None if "verdict" not in data else f"{data['verdict']['probability']:.0%}"),
        ("valid until", data.get("valid_until")),
        ("ticket", data.get("ticket")),
        ("verdict" if "verdict" in data else "hint", data.get("id")),
    ]
    if data.get("state") == "proposed":
        found.append(("to approve", f"foreshock hints approve {data.get('id')}"))
    return [(name, chat_text(text)[:500]) for name, text in found if text]

"""How values are said: times relative and in UTC, durations, shares, devices, faults and actions in plain words.

Everything here is a pure function of its arguments; an unknown value is a dash, never a 0.
"""

import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Literal, TypeAlias

from wire.cluster import ClusterJson
from wire.events import IncidentJson
from wire.nodes import ReasonJson
from wire.words import values
from wire.words.values import (
    ACTIONS,
    CLOCK_AHEAD,
    DASH,
    DEVICES,
    HINT_STATES,
    STATES,
    STOPS,
    ZONE,
    action,
    ago,
    at,
    blind,
    count,
    device,
    due,
    due_at,
    duration,
    event_text,
    hint_ground,
    hint_state,
    is_ahead,
    is_held_back,
    local,
    many,
    name_of,
    place,
    remedy,
    replay_over,
    risk,
    share,
    shown,
    state,
    to_do,
    utc,
    what,
    when,
    zone_name,
)

# The same words as on the pages that the API serves.
__all__ = (
    "ACTIONS",
    "CLOCK_AHEAD",
    "DASH",
    "DEVICES",
    "HINT_STATES",
    "STATES",
    "STOPS",
    "ZONE",
    "action",
    "ago",
    "at",
    "blind",
    "count",
    "device",
    "due",
    "due_at",
    "duration",
    "event_text",
    "hint_ground",
    "hint_state",
    "is_ahead",
    "is_held_back",
    "local",
    "many",
    "name_of",
    "place",
    "remedy",
    "replay_over",
    "risk",
    "share",
    "shown",
    "state",
    "to_do",
    "utc",
    "what",
    "when",
    "zone_name",
)

# The words, colours and signs of the API's vocabulary: states, severities, actions, devices, hints.
#
# The API itself explains kinds and codes of events, from the catalogue.

STATE_MEANINGS = {
    "faulty": "a fatal hardware fault that happened, or that a gauge showed, in the last 24 h",
    "out": "the scheduler has taken it out of service",
    "at_risk": "likely to fail within a day",
    "cordoned": "kept free of new work at our request",
    "silent": "no word from it for 15 minutes: not the same as well",
    "ok": "nothing known against it",
    "unknown": "it names itself; no scheduler, nodes.csv or operator does: it is not counted and never held",
}
# Readable on white and on black, and distinct without green and red alone.
STATE_COLOURS = {
    "faulty": "#d6403b",
    "out": "#8454a6",
    "at_risk": "#e9a11a",
    "cordoned": "#3b7dd8",
    "silent": "#8d949c",
    "ok": "#3a9d74",
    "unknown": "#a0785a",
}
STATE_MARKS = {"faulty": "✕", "out": "–", "at_risk": "!", "cordoned": "▪", "silent": "?", "ok": "", "unknown": "·"}
Tint: TypeAlias = Literal["red", "orange", "blue", "green", "violet", "gray"]
STATE_TINTS: dict[str, Tint] = {
    "faulty": "red",
    "out": "violet",
    "at_risk": "orange",
    "cordoned": "blue",
    "silent": "gray",
    "ok": "green",
    "unknown": "gray",
}
SEVERITY_COLOURS = {"fatal": "#d6403b", "error": "#dd6b20", "warning": "#c98a12", "info": "#8d949c"}

HINT_TINTS: dict[str, Tint] = {
    "proposed": "orange",
    "approved": "blue",
    "sent": "blue",
    "confirmed": "violet",
    "shadow": "gray",
}
MODES = {
    "shadow": "shadow: hints are recorded, never sent to the scheduler",
    "approve": "approve: a hint goes to the scheduler once a person approves it",
    "act": "act: hints go to the scheduler by themselves, within the budgets",
}


_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+\-.!|<>~$:&])")
# What Streamlit's page makes of text after its escapes are read: links of bare addresses, its logo. A blank ends that.
_ADDRESS = re.compile(r"[A-Za-z0-9._%+-]{1,128}@[A-Za-z0-9.-]{1,128}", re.ASCII)
_BARE_LINK = re.compile(
    r"(?<=https:)(?=//)|(?<=http:)(?=//)|(?<=www)(?=\.)|(?<=[-.\w+])(?=@[-\w]+\.)|(?<=:)(?=streamlit:)", re.IGNORECASE
)


def plain(text: str) -> str:
    """Text from outside, safe inside Markdown: no link, image, formula or markup of a log line comes to life."""
    return _MARKDOWN.sub(r"\\\1", _BARE_LINK.sub(" ", shown(text)))


def named(name: str) -> str:
    """A person's name: an e-mail address as it is written, and no link; any other text as `plain` has it."""
    return f"`{name}`" if _ADDRESS.fullmatch(name) else plain(name)


def someone(actor: str) -> str:
    """An actor of the audit as a person reads it: `person:alice@example.com` is alice@example.com."""
    name, _, by = actor.partition(" token:")
    return named(name.removeprefix("person:")) + (f" (through {plain(by)})" if by else "")


def drawn(text: str) -> str:
    """Text from outside in a figure: Plotly reads some tags in hover text, names of ticks and labels."""
    return shown(text)[:120].replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


_DAY = timedelta(days=1)


def newest_fatal(incidents: Iterable[IncidentJson], node: str, now: datetime) -> IncidentJson | None:
    """A node's newest fatal fault that happened, or that a gauge showed, within a day.

    Args:
        incidents: the newest first.
    """
    recent = (one for one in incidents if one.severity == "fatal" and now - (one.shown or one.end) < _DAY)
    return next((one for one in recent if one.node == node), None)


def fault(fatal: IncidentJson, now: datetime) -> str:
    """A fault with its device and its age, as Markdown; of one that a gauge shows, when it did last."""
    others = len(fatal.devices) - 1
    where = device(fatal.device, name=fatal.name) + (f" and {others} more" if others > 0 else "")
    moment = ago(fatal.start, now)
    last = f", last shown {ago(fatal.shown, now)}" if fatal.shown is not None else ""
    return f"{plain(what(fatal))} ({plain(where)}, {moment}{last})"


def is_rest(reason: ReasonJson) -> bool:
    """Whether a reason is only the remainder of a score: it is shown last, and never in place of a named one."""
    return reason.text.startswith("the base rate")


def headline(cluster: ClusterJson) -> tuple[str, str]:
    """The answer first, as Markdown: how bad it is (`error`, `warning`, `success`, `info`), and a sentence."""
    return values.headline(cluster, plain)

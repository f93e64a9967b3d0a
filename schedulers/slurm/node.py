"""Nodes as `scontrol show node` prints them, one line each (`-o`, every version) or as JSON (from 23.02 on).

    read_text(text) -> {"gpu-001": Node("gpu-001", frozenset({"IDLE", "DRAIN"}), reason="fan", weight=1, ...)}

Reasons and comments are people's free text: a node that is told twice in one list (a comment with a line break can
forge a line), or whose comment holds other fields' names, is marked `is_doubtful`, and is not touched.
"""

import itertools
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

_HEAD = re.compile(r"NodeName=(\S+) ", re.ASCII)
_STATE = re.compile(r" State=([A-Z_+*~#!%$@^-]+) ", re.ASCII)
_WEIGHT = re.compile(r" Weight=(\d+) ", re.ASCII)
_FEATURES = re.compile(r" AvailableFeatures=(\S+) ", re.ASCII)
# Free text stands behind these, which every version prints: CfgTRES, AllocTRES.
_FREE = re.compile(r" AllocTRES=", re.ASCII)
_REASON = re.compile(r"(.*) \[([^\[\]@ ]*)@(?:\d{4}-\d\d-\d\dT[\d:]+|Unknown)\](.*)", re.ASCII | re.DOTALL)
_BEHIND_REASON = re.compile(r" (?:Comment|Extra|ResumeAfterTime)=", re.ASCII)
_COMMENT = re.compile(r" Comment=(.*?)(?= Extra=| Reason=| ResumeAfterTime=|\s*$)", re.ASCII | re.DOTALL)
_EXTRA = re.compile(r" Extra=(.*?)(?= Comment=| Reason=| ResumeAfterTime=|\s*$)", re.ASCII | re.DOTALL)
# More of them in the free text without its reason, and it cannot be told where a comment ends.
_MOST_OFTEN = {" Comment=": 1, " Extra=": 1, " Reason=": 0}
_SIGNS = "*~#!%$@^-"
_NOTHING = frozenset({"", "(null)", "none"})


@dataclass(frozen=True, slots=True)
class Node:
    """One node. `states` are Slurm's words, the base state among them."""

    name: str
    states: frozenset[str]
    reason: str = ""
    user: str = ""  # who set the reason
    weight: int | None = None
    comment: str = ""
    extra: str = ""
    features: tuple[str, ...] = ()
    is_doubtful: bool = False

    @property
    def state(self) -> str:
        """As scontrol prints it, in a fixed order."""
        return "+".join(sorted(self.states))


def read_text(text: str) -> dict[str, Node]:
    """The nodes of `scontrol -o show node`, by name; a line that is none is part of the free text before it."""
    found: dict[str, Node] = {}
    for record in _records(text):
        node = _node_of_line(record)
        if node is not None:
            found[node.name] = replace(node, is_doubtful=True) if node.name in found else node
    return found


def read_json(text: str) -> dict[str, Node]:
    """The nodes of `scontrol show node --json`, whatever its data_parser.

    Raises:
        ValueError: it is no such answer.
    """
    answer = orjson.loads(text)
    rows = answer.get("nodes") if isinstance(answer, dict) else None
    if not isinstance(rows, list):
        raise ValueError("the answer has no list of nodes")  # noqa: TRY004 - one error for every wrong form
    return {node.name: node for row in rows if (node := _node_of_row(row)) is not None}


def _records(text: str) -> Iterable[str]:
    starts = [match.start() for match in re.finditer(r"^NodeName=", text, re.MULTILINE)]
    for start, end in itertools.pairwise([*starts, len(text)]):
        yield text[start:end]


def _node_of_line(record: str) -> Node | None:
    head, state = _HEAD.match(record), _STATE.search(record)
    if head is None or state is None:
        return None
    free = _FREE.search(record, state.end())
    tail = record[free.end() :] if free else record[state.end() :]
    weight, features = _WEIGHT.search(record), _FEATURES.search(record)
    reason, user, rest = _reason(tail)
    return Node(
        name=head[1],
        states=_states(state[1].split("+")),
        reason=reason,
        user=user,
        weight=int(weight[1]) if weight else None,
        comment=_found(_COMMENT, rest),
        extra=_found(_EXTRA, rest),
        features=tuple(features[1].split(",")) if features and features[1] != "(null)" else (),
        is_doubtful=any(rest.count(key) > most for key, most in _MOST_OFTEN.items()),
    )


def _reason(tail: str) -> tuple[str, str, str]:
    """The reason, who set it, and the free text without it; a reason's further lines stand behind its stamp."""
    before, found, rest = tail.partition(" Reason=")
    if not found:
        return "", "", tail
    behind = _BEHIND_REASON.search(rest)
    told = rest[: behind.start()] if behind else rest
    others = before + (rest[behind.start() :] if behind else "")
    stamped = _REASON.fullmatch(told.rstrip())
    if stamped is None:
        return told.strip(), "", others
    return " ".join([stamped[1], *stamped[3].split()]), stamped[2], others


def _found(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return "" if found is None or found[1].strip().lower() in _NOTHING else found[1].strip()


def _node_of_row(row: Any) -> Node | None:
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        return None
    states = [*_words(row.get("state")), *_words(row.get("state_flags"))]
    return Node(
        name=row["name"],
        states=_states(states),
        reason=_text(row.get("reason")),
        user=_text(row.get("reason_set_by_user")),
        weight=_number(row.get("weight")),
        comment=_text(row.get("comment")),
        extra=_text(row.get("extra")),
        features=tuple(_words(row.get("features"))),
    )


def _states(words: Iterable[str]) -> frozenset[str]:
    states = {word.strip().rstrip(_SIGNS).upper() for word in words}
    # A sign stands for a flag in short forms; `*` is the one that matters.
    return frozenset(states | ({"NOT_RESPONDING"} if any("*" in word for word in words) else set())) - {""}


def _words(value: Any) -> list[str]:
    if isinstance(value, str):
        return [word for word in re.split(r"[,+]", value) if word]
    return [str(word) for word in value] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) and value.lower() not in _NOTHING else ""


def _number(value: Any) -> int | None:
    """A whole number, or `{"set": true, "infinite": false, "number": 1}` of newer versions."""
    if isinstance(value, Mapping):
        value = value.get("number") if value.get("set", True) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None

"""Slurm's nodes, as `scontrol show node` prints them, and our marks on them. Pure.

    read_text(text) -> {"gpu-001": SlurmNode("gpu-001", frozenset({"IDLE", "DRAIN"}), reason="fan", weight=1, ...)}

One line a node (`-o`, every version), or JSON (from 23.02 on). Our mark stands at the end of the reason or comment:

    Reason=foreshock: Xid 79 on GPU 3 (p=0.93) action=cordon id=h-17          cordon and drain
    Comment=rack 7, slot 2 [foreshock: avoid id=h-17 weight=1000000 was=10]   watch and avoid; the rest stays

Reasons and comments are free text of people. A node that appears twice in one list (a comment with a line break can
forge a line), or whose comment holds the names of other fields, is marked `is_doubtful` and is not touched.
"""

import itertools
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from schedulers.reconcile.actuator import Hold
from schedulers.slurm.commands import SlurmSettings
from store.records.hint import HintAction

# Slurm takes reasons of thousands of letters; people read them in a column of sinfo.
MOST_REASON = 300
_IDENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,119}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", re.ASCII)
_MARK_IN_REASON = re.compile(
    r"foreshock:.*?(?: action=(cordon|drain))? id=([A-Za-z0-9][A-Za-z0-9._:-]{0,119})", re.ASCII
)
# In the lines of scontrol a field is a capitalised word and `=`, and [user@time] ends a reason.
_FIELD = re.compile(r"\b([A-Z][A-Za-z]*)=", re.ASCII)
_ROUND = str.maketrans("[]", "()")
_MARK_IN_COMMENT = re.compile(
    r"\s*\[foreshock: (watch|avoid) id=([A-Za-z0-9][A-Za-z0-9._:-]{0,119})(?: weight=(\d+) was=(\d+))?\]", re.ASCII
)


@dataclass(frozen=True, slots=True)
class SlurmMark:
    """Whose a hold is. `weight` is what we set a node's to, `was` what it had been."""

    action: HintAction
    hint: str
    weight: int | None = None
    was: int | None = None


def is_ident(text: str) -> bool:
    """Whether a hint's id can be written into a mark and read back."""
    return _IDENT.fullmatch(text) is not None


def is_name(text: str) -> bool:
    """Whether a node's name can be none but one node's: no list, no option, no keyword of scontrol."""
    return _NAME.fullmatch(text) is not None and text.upper() != "ALL"


def reason_of(text: str, action: HintAction, hint: str) -> str:
    """A reason that bears our mark: one line that reads as no other field and no stamp, cut to what a person reads."""
    said = " ".join("".join(letter if letter.isprintable() else " " for letter in text).split())
    said = _FIELD.sub(r"\1:", said).translate(_ROUND).removeprefix("foreshock:").strip()[:MOST_REASON]
    return f"foreshock: {said} action={action} id={hint}"


def read_reason(text: str) -> SlurmMark | None:
    """Our mark in a reason, if it is all ours: begins and ends as we write it."""
    found = _MARK_IN_REASON.fullmatch(text)
    if found is None:
        return None
    return SlurmMark("drain" if found[1] is None else _ACTIONS[found[1]], found[2])


def read_comment(text: str) -> SlurmMark | None:
    """Our mark in a comment."""
    found = _MARK_IN_COMMENT.search(text)
    if found is None:
        return None
    weight, was = (int(found[3]), int(found[4])) if found[3] else (None, None)
    return SlurmMark(_ACTIONS[found[1]], found[2], weight, was)


def comment_without(text: str) -> str:
    """A comment with nothing of ours in it."""
    return _MARK_IN_COMMENT.sub("", text).strip()


def comment_with(text: str, mark: SlurmMark) -> str:
    """A comment that ends in our mark and holds no other of ours."""
    weight = "" if mark.weight is None else f" weight={mark.weight} was={mark.was}"
    return f"{comment_without(text)} [foreshock: {mark.action} id={mark.hint}{weight}]".strip()


_ACTIONS: dict[str, HintAction] = {"watch": "watch", "avoid": "avoid", "cordon": "cordon", "drain": "drain"}


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
class SlurmNode:
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


def read_text(text: str) -> dict[str, SlurmNode]:
    """The nodes of `scontrol -o show node`, by name; a line that is none is part of the free text before it."""
    found: dict[str, SlurmNode] = {}
    for record in _records(text):
        node = _node_of_line(record)
        if node is not None:
            found[node.name] = replace(node, is_doubtful=True) if node.name in found else node
    return found


def read_json(text: str) -> dict[str, SlurmNode]:
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


def _node_of_line(record: str) -> SlurmNode | None:
    head, state = _HEAD.match(record), _STATE.search(record)
    if head is None or state is None:
        return None
    free = _FREE.search(record, state.end())
    tail = record[free.end() :] if free else record[state.end() :]
    weight, features = _WEIGHT.search(record), _FEATURES.search(record)
    reason, user, rest = _reason(tail)
    return SlurmNode(
        name=head[1],
        states=_states(state[1].split("+")),
        reason=reason,
        user=user,
        weight=int(weight[1]) if weight else None,
        comment=_field(_COMMENT, rest),
        extra=_field(_EXTRA, rest),
        features=tuple(features[1].split(",")) if features and features[1] != "(null)" else (),
        is_doubtful=any(rest.count(key) > most for key, most in _MOST_OFTEN.items()),
    )


def _reason(tail: str) -> tuple[str, str, str]:
    """The reason, who set it, and the free text without it; a reason's further lines stand behind its stamp."""
    before, found, rest = tail.partition(" Reason=")
    if not found:
        return "", "", tail
    behind = _BEHIND_REASON.search(rest)
    text = rest[: behind.start()] if behind else rest
    others = before + (rest[behind.start() :] if behind else "")
    stamped = _REASON.fullmatch(text.rstrip())
    if stamped is None:
        return text.strip(), "", others
    return " ".join([stamped[1], *stamped[3].split()]), stamped[2], others


def _field(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return "" if found is None or found[1].strip().lower() in _NOTHING else found[1].strip()


def _node_of_row(row: Any) -> SlurmNode | None:
    if not isinstance(row, Mapping) or not isinstance(row.get("name"), str):
        return None
    states = [*_words(row.get("state")), *_words(row.get("state_flags"))]
    return SlurmNode(
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


# Words of a node's state that keep work off it, by somebody's decision or Slurm's own. NOT_RESPONDING and UNKNOWN pass
# by themselves, POWERED_DOWN is saving, RESERVED and PLANNED are work.
_OUT = frozenset(
    {"DRAIN", "DRAINED", "DRAINING", "DOWN", "FAIL", "FAILING", "ERROR", "MAINT", "REBOOT_REQUESTED", "REBOOT_ISSUED"}
    | {"REBOOT", "INVALID_REG", "INVAL"}
)
_HELD = frozenset({"DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING"})
# Words by which it does not respond, or Slurm has given it up; a drain alone says neither.
_DOWN = frozenset(
    {"DOWN", "ERROR", "NOT_RESPONDING", "UNKNOWN", "FUTURE", "POWERED_DOWN", "POWERING_DOWN", "POWER_DOWN"}
)
_SAID = 200


@dataclass(frozen=True, slots=True)
class NodeOwnership:
    """`hard`: our drain or FAIL. `soft`: our mark in the Comment. `foreign`: who else, and why."""

    hard: SlurmMark | None
    soft: SlurmMark | None
    foreign: str | None
    is_opted_out: bool

    @property
    def mark(self) -> SlurmMark | None:
        """The gravest thing of ours."""
        return self.hard or self.soft


def ownership_of(node: SlurmNode, settings: SlurmSettings) -> NodeOwnership:
    """Read a node. A drain is ours if its reason is, from the first letter to the last; any other is not."""
    out = node.states & _OUT
    ours = read_reason(node.reason)
    hard = ours if node.states & _HELD else None
    foreign = None
    if node.is_doubtful:
        hard, foreign = None, "listed twice, or its comment looks like other fields: not touched"
    elif out and hard is None:
        by = f" [{node.user}]" if node.user else ""
        foreign = f"{'+'.join(sorted(out))}: {node.reason[:_SAID] or 'no reason'}{by}"
    return NodeOwnership(hard, read_comment(node.comment), foreign, _is_opted_out(node, settings.opt_out))


def hold_of(node: SlurmNode, settings: SlurmSettings, reserved: Collection[str]) -> Hold:
    """A node as the reconciler wants it told.

    Args:
        reserved: the hints that have a reservation; without it an `avoid` by reservation is a `watch`.
    """
    found = ownership_of(node, settings)
    mark = found.mark
    action = None if mark is None else mark.action
    if mark is not None and mark.action == "avoid" and settings.soft == "reservation" and mark.hint not in reserved:
        action = "watch"
    return Hold(
        node=node.name,
        state=node.state,
        action=action,
        hint=None if mark is None else mark.hint,
        foreign=found.foreign,
        is_opted_out=found.is_opted_out,
        is_up=not node.states & _DOWN,
    )


def _is_opted_out(node: SlurmNode, word: str) -> bool:
    return word in node.features or word in node.comment or word in node.extra

"""What we leave on a node so that it is known as ours: at the end of its reason, or of its Comment.

Reason=foreshock: Xid 79 on GPU 3 (p=0.93) action=cordon id=h-17          cordon and drain
Comment=rack 7, slot 2 [foreshock: avoid id=h-17 weight=1000000 was=10]   watch and avoid; what stood there stays
"""

import re
from dataclasses import dataclass

from store.hint import HintAction

# Slurm takes reasons of thousands of letters; people read them in a column of sinfo.
MOST_REASON = 300
_IDENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,119}", re.ASCII)
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,254}", re.ASCII)
_REASON = re.compile(r"foreshock:.*?(?: action=(cordon|drain))? id=([A-Za-z0-9][A-Za-z0-9._:-]{0,119})", re.ASCII)
# In the lines of scontrol a field is a capitalised word and `=`, and [user@time] ends a reason.
_FIELD = re.compile(r"\b([A-Z][A-Za-z]*)=", re.ASCII)
_ROUND = str.maketrans("[]", "()")
_COMMENT = re.compile(
    r"\s*\[foreshock: (watch|avoid) id=([A-Za-z0-9][A-Za-z0-9._:-]{0,119})(?: weight=(\d+) was=(\d+))?\]", re.ASCII
)


@dataclass(frozen=True, slots=True)
class Mark:
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


def read_reason(text: str) -> Mark | None:
    """Our mark in a reason, if it is all ours: begins and ends as we write it."""
    found = _REASON.fullmatch(text)
    if found is None:
        return None
    return Mark("drain" if found[1] is None else _ACTIONS[found[1]], found[2])


def read_comment(text: str) -> Mark | None:
    """Our mark in a comment."""
    found = _COMMENT.search(text)
    if found is None:
        return None
    weight, was = (int(found[3]), int(found[4])) if found[3] else (None, None)
    return Mark(_ACTIONS[found[1]], found[2], weight, was)


def comment_without(text: str) -> str:
    """A comment with nothing of ours in it."""
    return _COMMENT.sub("", text).strip()


def comment_with(text: str, mark: Mark) -> str:
    """A comment that ends in our mark and holds no other of ours."""
    weight = "" if mark.weight is None else f" weight={mark.weight} was={mark.was}"
    return f"{comment_without(text)} [foreshock: {mark.action} id={mark.hint}{weight}]".strip()


_ACTIONS: dict[str, HintAction] = {"watch": "watch", "avoid": "avoid", "cordon": "cordon", "drain": "drain"}

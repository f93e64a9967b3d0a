"""Verdicts in sentences: which one comes first, what a cause is called, who suffers and what to do about it."""

from collections.abc import Callable, Sequence

from wire.verdicts import VerdictJson
from wire.words import values

CLASSES = {
    "gpu": "GPU",
    "nvlink": "NVLink",
    "nvswitch": "NVSwitch",
    "nic": "fabric adapter",
    "cable": "cable",
    "optic": "optic",
    "port": "port",
    "switch": "switch",
    "node": "node",
    "rack": "rack",
    "power": "power of",
    "cooling": "cooling of",
    "storage": "file server",
    "driver": "driver",
    "firmware": "firmware",
    "application": "program",
    "planned": "planned work on",
    "job": "job",
}
# What is no fault of a machine: nobody has to run.
_CALM = ("planned", "application", "job")
_SURE = 0.5


def standing(verdicts: Sequence[VerdictJson]) -> list[VerdictJson]:
    """Those that stand now, the likeliest first; "unknown" after every cause that is more likely than not."""
    found = [one for one in verdicts if one.state in ("open", "revised")]
    return sorted(found, key=lambda one: (one.cause_class == "unknown", one.rank or len(found), -one.probability))


def first_of(verdicts: Sequence[VerdictJson]) -> VerdictJson | None:
    """The one that a page begins with: the likeliest cause, or that the cause is not known; None where none stands.

    One that nobody has taken yet goes before those that are in somebody's hands.
    """
    found = sorted(standing(verdicts), key=is_taken)
    named = [one for one in found if one.cause_class != "unknown" and one.probability >= _SURE]
    unknown = [one for one in found if one.cause_class == "unknown"]
    return next(iter(named or unknown or found), None)


def is_taken(verdict: VerdictJson) -> bool:
    """Whether somebody is at it, or has had it silenced."""
    life = verdict.life
    return life is not None and (life.state != "open" or life.silenced_until is not None)


def title(verdict: VerdictJson) -> str:
    """`switch leaf004`, `power of r12`, `GPU 0000:0f:00.0 of gpu-017`, `cause unknown`. As text, not as Markdown."""
    if verdict.cause_class == "unknown":
        return "cause unknown"
    kind = CLASSES.get(verdict.cause_class, verdict.cause_class)
    node, _, part = verdict.name.partition("/")
    if part and node == verdict.node:
        number = part.removeprefix("gpu")  # a GPU of which its index alone is known
        return f"{kind} {number if number.isdecimal() else part} of {node}"
    return verdict.name if verdict.name.lower().startswith(kind.lower()) else f"{kind} {verdict.name}"


def headline(verdict: VerdictJson, more: int = 0, as_text: Callable[[str], str] = values.shown) -> tuple[str, str]:
    """The answer: how bad it is, and what is the cause, who suffers, how sure that is.

    Args:
        more: how many other causes stand.
        as_text: makes text from outside safe for where it is shown.
    """
    name = as_text(values.shown(title(verdict))[:120])
    felt, sure = suffering(verdict), values.risk(verdict.probability)
    if verdict.cause_class == "unknown":
        text = f"Something is wrong and its cause is not known{_and(felt)} ({sure} that it is none known here)"
    elif verdict.cause_class in _CALM:
        text = f"{name[:1].upper()}{name[1:]}: no machine is to blame{_and(felt)}; probability {sure}"
    else:
        whether = "is" if verdict.probability >= _SURE else "may be"
        text = f"{name[:1].upper()}{name[1:]} {whether} the cause{_and(felt) or ' of what is seen'}; probability {sure}"
    if more:
        text += f". {values.many(more, 'other verdict')} below"
    if verdict.cause_class in _CALM:
        return "info", f"{text}."
    return ("error" if verdict.probability >= _SURE and verdict.cause_class != "unknown" else "warning"), f"{text}."


def suffering(verdict: VerdictJson) -> str:
    """Who suffers beside its own node: "64 nodes of 2 jobs"; nothing where nobody does."""
    others = sum(1 for node in verdict.nodes if node != verdict.node)
    nodes = values.many(others, "node") if others else ""
    jobs = values.many(len(verdict.jobs), "job") if verdict.jobs else ""
    return " of ".join(part for part in (nodes, jobs) if part)


def _and(felt: str) -> str:
    one = felt.startswith(("1 node", "1 job"))
    return f": {felt} suffer{'s' if one else ''}" if felt else ""


def to_do(verdict: VerdictJson) -> str:
    """What to do, in values."""
    return values.action(verdict.action)

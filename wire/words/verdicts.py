"""Verdicts in sentences: which one comes first, what a cause is called, who suffers and what to do about it."""

from collections.abc import Callable, Sequence
from datetime import datetime

from wire.events import IncidentJson
from wire.money.price import aside
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
    "application": "program of",
    "planned": "planned work on",
    "job": "job",
}
# The same of other makers: their accelerators, and the links between them.
_OF_MAKERS = {
    **{("gpu", device): values.DEVICES[device] for device in ("npu", "mlu", "hpu")},
    ("nvlink", "npu"): "HCCS of NPU",
    ("nvlink", "mlu"): "MLU-Link of MLU",
}
# What is no fault of a machine: nobody has to run.
_CALM = ("planned", "application", "job")
_SURE = 0.5
# Nobody has to get up for these, and less for the later one.
_IDLE = ("watch", "none")
# Characters of what was seen and of a job's name, jobs that are called by their names, GPU-hours that are worth a word.
_MOST_SIGNS, _MOST_NAME, _FEW_JOBS, _LEAST_STAKE = 200, 60, 2, 0.5


def standing(verdicts: Sequence[VerdictJson]) -> list[VerdictJson]:
    """Those that stand now, the likeliest first; "unknown" after every cause that is more likely than not."""
    found = [one for one in verdicts if one.state in ("open", "revised")]
    return sorted(found, key=lambda one: (one.cause_class == "unknown", one.rank or len(found), -one.probability))


def by_urgency(verdicts: Sequence[VerdictJson]) -> list[VerdictJson]:
    """Those that stand, in the order in which they want somebody: the one order of every page.

    What nobody has taken goes before what is in somebody's hands. Then a cause that is more likely than not, then that
    the cause is not known, then guesses; what is no machine's fault comes after what is. Then what the running jobs
    would lose, as likely as it is; what there is something to do about; and the likeliest. Its date plays no part: a
    host whose clock is ahead of the page's has faults, too.
    """
    return sorted(standing(verdicts), key=_urgency)


def _urgency(one: VerdictJson) -> tuple[float, ...]:
    is_known = one.cause_class != "unknown"
    is_sure = is_known and one.probability >= _SURE
    stake = one.gpu_hours_at_stake * one.probability if one.jobs else 0.0
    return (
        is_taken(one),
        0 if is_sure else 1 if not is_known else 2,
        one.cause_class in _CALM,
        -stake if stake >= _LEAST_STAKE else 0.0,
        _IDLE.index(one.action) if one.action in _IDLE else -1,
        -one.probability,
    )


def first_of(verdicts: Sequence[VerdictJson]) -> VerdictJson | None:
    """The one that a page begins with; None where none stands."""
    return next(iter(by_urgency(verdicts)), None)


def is_ahead(verdict: VerdictJson, now: datetime) -> bool:
    """Whether it is dated later than the page's clock: beside a replay, or by a host whose clock runs ahead."""
    return values.is_ahead(verdict.since, now)


def since(verdict: VerdictJson, now: datetime) -> str:
    """How long ago it began; its date where that is still to come by the page's clock."""
    return values.ago(verdict.since, now)


def is_taken(one: VerdictJson | IncidentJson) -> bool:
    """Whether somebody is at it, or has had it silenced."""
    life = one.life
    return life is not None and (life.state != "open" or life.silenced_until is not None)


def title(verdict: VerdictJson) -> str:
    """`switch leaf004`, `power of r12`, `GPU 5 of gpu-017`, `cause unknown`.

    A GPU is called by its index, as its maker's tool and schedulers do; by its PCI address where nobody told the index.
    """
    if verdict.cause_class == "unknown":
        return "cause unknown"
    kind = CLASSES.get(verdict.cause_class, verdict.cause_class)
    kind = _OF_MAKERS.get((verdict.cause_class, verdict.device.type), kind)
    if verdict.cause_class == "nvlink" and "XGMI" in verdict.reason:
        kind = "XGMI"
    node, _, part = verdict.name.partition("/")
    if part and node == verdict.node:
        number = part.removeprefix("gpu")  # a GPU of which its index alone is known
        numbered = verdict.cause_class == "gpu" or (verdict.cause_class, verdict.device.type) in _OF_MAKERS
        index = verdict.device.index if numbered else None
        return f"{kind} {index if index is not None else number if number.isdecimal() else part} of {node}"
    return verdict.name if verdict.name.lower().startswith(kind.lower()) else f"{kind} {verdict.name}"


def headline(
    verdict: VerdictJson, now: datetime, more: int = 0, as_text: Callable[[str], str] = values.shown
) -> tuple[str, str, str]:
    """The answer: how bad it is; what is the cause, and what it did when; who suffers and what to do.

    Args:
        more: how many other causes stand.
        as_text: makes text from outside safe for where it is shown.
    """
    name, sure = as_text(values.shown(title(verdict))[:120]), values.risk(verdict.probability)
    name = name[:1].upper() + name[1:]
    said = _sufferers(verdict, as_text)
    if verdict.action != "none":
        said.append(f"Do: {as_text(to_do(verdict))}")
    said.append(f"Probability{' that it is none known here' if verdict.cause_class == 'unknown' else ''}: {sure}")
    if more:
        said.append(f"{values.many(more, 'other verdict')} below")
    return _level(verdict), f"{_cause(verdict, name)}. {_signs(verdict, now, as_text)}.", ". ".join(said) + "."


def _cause(verdict: VerdictJson, name: str) -> str:
    if verdict.cause_class == "unknown":
        return "Something is wrong and its cause is not known"
    if verdict.cause_class in _CALM:
        return f"{name}: no machine is to blame"
    return f"{name} {'is' if verdict.probability >= _SURE else 'may be'} the cause"


def _signs(verdict: VerdictJson, now: datetime, as_text: Callable[[str], str]) -> str:
    """What was seen, and how long ago it began."""
    what = values.shown(happened(verdict)).rstrip(".")[:_MOST_SIGNS]
    began = since(verdict, now)
    return f"{as_text(what[:1].upper() + what[1:])}, {began}" if what else f"It began {began}"


def happened(verdict: VerdictJson) -> str:
    """What a cause did, out of its reason, without its name: the title has it."""
    name = f"{verdict.cause_class} {verdict.name}"
    if verdict.reason.startswith(f"{name}: "):
        return verdict.reason.removeprefix(f"{name}: ")
    return "" if verdict.reason == name else verdict.reason.removesuffix(f": {name}")


def _sufferers(verdict: VerdictJson, as_text: Callable[[str], str]) -> list[str]:
    """Who suffers, by name where it is one run or two, and what they would lose."""
    felt = suffering(verdict)
    if not felt:
        return []
    few = verdict.jobs if len(verdict.jobs) <= _FEW_JOBS else []
    named = as_text(" and ".join(job[:_MOST_NAME] for job in few))
    text = f"{felt} suffer{'s' if felt.startswith(('1 node', '1 job')) else ''}{f' ({named})' if named else ''}"
    if verdict.jobs and verdict.gpu_hours_at_stake >= _LEAST_STAKE:
        text += f", {values.count(verdict.gpu_hours_at_stake)} GPU-hours at stake{aside(verdict.money_at_stake)}"
    return [text]


def stake(verdict: VerdictJson) -> str:
    """GPU-hours that running jobs would lose, and what those cost; a dash where no job is known to run."""
    return f"{values.count(verdict.gpu_hours_at_stake)}{aside(verdict.money_at_stake)}" if verdict.jobs else values.DASH


def _level(verdict: VerdictJson) -> str:
    if verdict.cause_class in _CALM:
        return "info"
    return "error" if verdict.probability >= _SURE and verdict.cause_class != "unknown" else "warning"


def suffering(verdict: VerdictJson) -> str:
    """Who suffers beside its own node: "64 nodes of 2 jobs"; nothing where nobody does."""
    others = sum(1 for node in verdict.nodes if node != verdict.node)
    nodes = values.many(others, "node") if others else ""
    jobs = values.many(len(verdict.jobs), "job") if verdict.jobs else ""
    return " of ".join(part for part in (nodes, jobs) if part)


def to_do(verdict: VerdictJson) -> str:
    """What to do, in words; what is no more likely than not decides nothing, so that is said."""
    told = values.action(verdict.action, verdict.device.type)
    is_guess = verdict.probability <= _SURE and verdict.cause_class != "unknown" and verdict.action != "none"
    return f"{told}, if it is the cause" if is_guess else told

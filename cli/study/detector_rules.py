"""Detectors as data: what each looks at, from `cli/study/detectors/*.toml`, and on which samples of a tape it speaks.

    detector = read_detectors()["gpud"]
    holds_of(detector, tape)        # [DetectorHold("node_1", start, end, ("Xid of the table",))]

A rule looks at one thing, as of each sample, and never ahead:

    on = "xid"       the Xid gauge of a GPU changes to one of `codes` (or any but `codes_except`, or of a `severity` of
                     our catalogue), `count` times on one GPU within `within_h`; a tape's first value is no change
    on = "level"     a metric of any GPU, port or the node is `above` or `below` a value, for `for_min` minutes
    on = "rise"      a counter has risen by more than `above` since the sample before, for `for_min` minutes
    on = "missing"   fewer GPUs have a row than before; `while_up`: the node itself says it, so not while it is down
    on = "not_on_tape"   a rule of the source that these tapes cannot judge: it is named, and says nothing

A hold that stays `until = "reboot"` ends with the first boot after its rules were last true, one `until = "clear"` with
that. Two holds that are less than a day apart are one.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from cli.study.tapes import NodeTape
from store.records import fault_catalog

FOLDER = Path(__file__).with_name("detectors")
XID = "DCGM_FI_DEV_XID_ERRORS"
ONE_HOLD = timedelta(hours=24)

RuleKind: TypeAlias = Literal["xid", "level", "rise", "missing", "not_on_tape"]
Ending: TypeAlias = Literal["reboot", "clear"]
Truths: TypeAlias = npt.NDArray[np.bool_]


class DetectorError(ValueError):
    """A detector's file that says something else than a rule; the message names file and key."""


@dataclass(frozen=True, slots=True)
class DetectorRule:
    """One condition of a detector. `codes` None: all but `codes_except`."""

    name: str
    on: RuleKind
    metric: str = ""
    codes: frozenset[int] | None = None
    codes_except: frozenset[int] = frozenset()
    severity: str | None = None
    count: int = 1
    within_h: float = 24.0
    above: float | None = None
    below: float | None = None
    for_min: float = 0.0
    while_up: bool = False
    until: Ending = "reboot"
    note: str = ""

    def means(self, code: int) -> bool:
        """Whether an Xid is one of the rule's."""
        if self.severity is not None:
            known = fault_catalog.xid(code)
            return known is not None and known.severity == self.severity
        return code in self.codes if self.codes is not None else code not in self.codes_except


@dataclass(frozen=True, slots=True)
class DetectorSource:
    """Where a detector's rules were read, and when."""

    url: str
    read: date


@dataclass(frozen=True, slots=True)
class Detector:
    """Rules after what somebody has published; `reading` says how far they are it."""

    name: str
    title: str
    reading: str
    sources: tuple[DetectorSource, ...]
    rules: tuple[DetectorRule, ...] = field(default_factory=tuple)

    def holds_line(self, code: int) -> bool:
        """Whether one Xid in the kernel log is enough for a hold."""
        return any(rule.on == "xid" and rule.count == 1 and rule.means(code) for rule in self.rules)


@dataclass(frozen=True, slots=True)
class DetectorHold:
    """A node that a detector would have taken out of use; it ends with the tape at the latest."""

    node: str
    start: datetime
    end: datetime
    rules: tuple[str, ...] = ()


def read_detectors(folder: Path = FOLDER) -> dict[str, Detector]:
    """Every detector of a folder, by name.

    Raises:
        DetectorError: a file is no detector.
    """
    found = [_detector(path) for path in sorted(folder.glob("*.toml"))]
    return {one.name: one for one in found}


def _detector(path: Path) -> Detector:
    try:
        with path.open("rb") as file:
            said = tomllib.load(file)
        sources = tuple(DetectorSource(one["url"], one["read"]) for one in said["source"])
        rules = tuple(_rule(path, one) for one in said.get("rule", ()))
        return Detector(said["name"], said["title"], " ".join(said["reading"].split()), sources, rules)
    except KeyError as error:
        raise DetectorError(f"{path.name}: {error} is missing") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DetectorError(f"{path.name}: {error}") from error


def _rule(path: Path, said: Mapping[str, Any]) -> DetectorRule:
    given = dict(said)
    where = f"{path.name}: rule {given.get('name', '?')!r}"
    unknown = given.keys() - set(DetectorRule.__dataclass_fields__)
    if unknown:
        raise DetectorError(f"{where}: no such key: {', '.join(sorted(unknown))}")
    if given["on"] not in get_args(RuleKind):
        raise DetectorError(f"{where}: `on` is one of {', '.join(get_args(RuleKind))}, not {given['on']!r}")
    if given.get("until", "reboot") not in get_args(Ending):
        raise DetectorError(f"{where}: `until` is one of {', '.join(get_args(Ending))}, not {given['until']!r}")
    for key in ("codes", "codes_except"):
        if key in given:
            given[key] = frozenset(given[key])
    return DetectorRule(**given)


def holds_of(detector: Detector, tape: NodeTape) -> list[DetectorHold]:
    """The nodes' holds that a detector would have made of a tape, in order."""
    found = []
    for rule in detector.rules:
        for begin, end in _stretches(rule, tape, speaks(rule, tape)):
            stop = tape.moment(len(tape.times) - 1 if end is None else end)
            found.append(DetectorHold(tape.node, tape.moment(begin), stop, (rule.name,)))
    return joined(found)


def speaks(rule: DetectorRule, tape: NodeTape) -> Truths:
    """Whether a rule is true, as of each sample of a tape: a tape that ends there says the same."""
    if rule.on == "xid":
        return _xid(rule, tape)
    if rule.on == "missing":
        here = tape.gpus_present()
        few = here < np.maximum.accumulate(here)
        return _lasting(few & tape.up() if rule.while_up else few, tape, rule.for_min)
    values = tape.values(rule.metric) if rule.on != "not_on_tape" else None
    if values is None:
        return np.zeros(len(tape.times), dtype=np.bool_)
    if rule.on == "rise":
        values = _rises(values)
    over = np.zeros(len(tape.times), dtype=np.bool_)
    if rule.above is not None:
        over |= np.any(values > rule.above, axis=1)
    if rule.below is not None:
        over |= np.any(values < rule.below, axis=1)
    return _lasting(over, tape, rule.for_min)


def _xid(rule: DetectorRule, tape: NodeTape) -> Truths:
    found = np.zeros(len(tape.times), dtype=np.bool_)
    within = np.timedelta64(round(rule.within_h * 3600), "s")
    before: dict[int, list[np.datetime64]] = {}
    for place, gpu, code in xid_changes(tape):
        if rule.means(code):
            moments = before.setdefault(gpu, [])
            moments.append(tape.times[place])
            found[place] |= sum(tape.times[place] - moment <= within for moment in moments) >= rule.count
    return found


def xid_changes(tape: NodeTape) -> list[tuple[int, int, int]]:
    """(sample, GPU, code) of each change of the Xid gauge to another code; what it began with is none."""
    values = tape.values(XID)
    if values is None:
        return []
    found = []
    for gpu in range(values.shape[1]):
        last: float | None = None
        for place in np.flatnonzero(~np.isnan(values[:, gpu])):
            value = values[place, gpu]
            if last is not None and value != last and value > 0:
                found.append((int(place), gpu, int(value)))
            last = value
    return sorted(found)


def _rises(values: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """By how much each counter has risen since it was last there; one that fell began anew."""
    risen = np.zeros_like(values)
    for column in range(values.shape[1]):
        known = np.flatnonzero(~np.isnan(values[:, column]))
        risen[known[1:], column] = np.maximum(0.0, np.diff(values[known, column]))
    return risen


def _lasting(true: Truths, tape: NodeTape, for_min: float) -> Truths:
    """Where something is true, and was at every sample for so long."""
    if not for_min:
        return true
    found, since = np.zeros_like(true), None
    least = np.timedelta64(round(for_min * 60), "s")
    for place, here in enumerate(true):
        since = None if not here else since if since is not None else tape.times[place]
        found[place] = since is not None and tape.times[place] - since >= least
    return found


def _stretches(rule: DetectorRule, tape: NodeTape, true: Truths) -> list[tuple[int, int | None]]:
    """From which sample to which the rule holds a node; None: to the end."""
    found: list[tuple[int, int | None]] = []
    places = np.flatnonzero(true)
    for run in np.split(places, np.flatnonzero(np.diff(places) > 1) + 1):
        if not len(run):
            continue
        begin, last = int(run[0]), int(run[-1])
        if rule.until == "clear":
            end = last + 1 if last + 1 < len(tape.times) else None
        else:
            end = next((boot for boot in tape.boots() if boot > last), None)
        found.append((begin, end))
    return found


def joined(holds: Collection[DetectorHold]) -> list[DetectorHold]:
    """Holds of one node that overlap, or follow within a day, are one."""
    found: list[DetectorHold] = []
    for hold in sorted(holds, key=lambda one: (one.node, one.start)):
        last = found[-1] if found and found[-1].node == hold.node else None
        if last is not None and hold.start - last.end < ONE_HOLD:
            rules = tuple(dict.fromkeys((*last.rules, *hold.rules)))
            found[-1] = DetectorHold(last.node, last.start, max(last.end, hold.end), rules)
        else:
            found.append(hold)
    return found


def unjudged(detector: Detector, tapes: Sequence[NodeTape]) -> list[str]:
    """The rules of a detector whose metric no tape has."""
    return [
        rule.name
        for rule in detector.rules
        if rule.on == "not_on_tape" or (rule.metric and all(tape.values(rule.metric) is None for tape in tapes))
    ]

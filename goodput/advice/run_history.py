"""What a run went through, in the terms that advice and replays need: each stop with its way back, the work between.

history = history_of(ledger)
history.failures_per_node_day, history.mean("detection")
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from itertools import pairwise
from typing import Any, Literal, TypeAlias

import numpy as np

from goodput.advice import checkpoint
from goodput.advice.mtbf import component_of
from goodput.formulas.failure_rates import Floats, mean_draws, mean_interval, rate_draws
from goodput.ledger import Ledger
from goodput.timeline import DAY_S, Bucket, Segment
from goodput.wall_time.attempts import Interruption
from goodput.wall_time.saves import interval_s, save_s

Part: TypeAlias = Literal["detection", "waiting", "startup", "checkpoint_load"]
PARTS: tuple[Part, ...] = ("detection", "waiting", "startup", "checkpoint_load")
# What a run spends without getting on; anything else is work, and the first of it ends a way back.
_IDLE: frozenset[Bucket] = frozenset({*PARTS, "unknown"})
_MOST_SAVES = 100  # kept of the lengths of a long run's saves: evenly spaced in their order


@dataclass(frozen=True, slots=True)
class RunStop:
    """One interruption: when (seconds since the run's start), on which node, what it took back, and the way back.

    `paused_s`: what else the run did not work until the next stop (planned waits, time that nobody can account for).
    """

    time_s: float
    node: str | None
    component: str
    lost_s: float
    detection: float
    waiting: float
    startup: float
    checkpoint_load: float
    paused_s: float

    @property
    def back_s(self) -> float:
        """The way back: from the fault to the next iteration."""
        return self.detection + self.waiting + self.startup + self.checkpoint_load


@dataclass(frozen=True, slots=True)
class RunHistory:
    """A run's stops and saves. Times in seconds; `start_s` since 1970, None for a run without dates.

    Attributes:
        saving_s: what all finished saves stalled together.
        first_pause_s: what the run did not work before its first stop (the first wait and start).
        kept_share: of the time at work outside of saves, what was productive (the rest: evaluation, slow iterations).
        save_s: the mean stall of a save, as it saves now (`goodput/wall_time/saves.py`); None where nobody saved.
        saves_s: these stalls (a sample, where there were many).
        interval_s: the median time between two of these saves; None where nobody saved twice.
        gpus: how many it holds, where that is known.
    """

    run: str
    nodes: int
    start_s: float | None
    wall_s: float
    productive_s: float
    saving_s: float
    kept_share: float
    first_pause_s: float
    stops: tuple[RunStop, ...]
    save_s: float | None
    saves_s: tuple[float, ...]
    interval_s: float | None
    gpus: int | None = None

    @property
    def node_days(self) -> float:
        """How long how many nodes were watched."""
        return self.nodes * self.wall_s / DAY_S

    @property
    def paused_s(self) -> float:
        """What it did not work beside the ways back."""
        return self.first_pause_s + sum(stop.paused_s for stop in self.stops)

    @property
    def goodput(self) -> float:
        """Productive share of wall time (0-1)."""
        return self.productive_s / self.wall_s if self.wall_s else 0.0

    def mean(self, part: Part) -> float:
        """The mean length of a part of the way back, seconds; 0 without a stop."""
        return sum(getattr(stop, part) for stop in self.stops) / len(self.stops) if self.stops else 0.0

    def to_json(self) -> dict[str, Any]:
        """As plain values, as JSON gives them back; a stop is a list: it is stored with every ledger."""
        return {**asdict(self), "stops": [list(astuple(stop)) for stop in self.stops], "saves_s": list(self.saves_s)}


def from_json(reported: Mapping[str, Any] | None) -> RunHistory | None:
    """The history that `to_json` told; None where there is none, or another version of this program wrote it."""
    if reported is None:
        return None
    try:
        # A stop of another length or by names is another version's.
        stops = tuple(RunStop(*(stop if isinstance(stop, list) else ())) for stop in reported["stops"])
        return RunHistory(**{**reported, "stops": stops, "saves_s": tuple(reported["saves_s"])})
    except (KeyError, TypeError):
        return None


def history_of(ledger: Ledger) -> RunHistory | None:
    """A ledger's stops and saves; None where it knows no node, no time or no productive work."""
    buckets = ledger.buckets_ms
    if not ledger.nodes or not ledger.wall_ms or not buckets["productive"]:
        return None
    cuts = sorted(ledger.interruptions, key=lambda cut: cut.time_ms)
    edges = [ledger.start_ms, *(max(cut.time_ms, ledger.start_ms) for cut in cuts), ledger.end_ms]
    stretches = [list(_within(ledger.segments, since, until)) for since, until in pairwise(edges)]
    at_work = ledger.wall_ms - sum(buckets[name] for name in (*_IDLE, "lost_work", "checkpoint_save"))
    return RunHistory(
        run=ledger.run,
        nodes=ledger.nodes,
        start_s=ledger.start_ms / 1000 if ledger.dated else None,
        wall_s=ledger.wall_ms / 1000,
        productive_s=buckets["productive"] / 1000,
        saving_s=buckets["checkpoint_save"] / 1000,
        kept_share=buckets["productive"] / at_work,
        first_pause_s=sum(s.length_ms for s in stretches[0] if s.bucket in _IDLE) / 1000,
        stops=tuple(_stop(cut, part, ledger.start_ms) for cut, part in zip(cuts, stretches[1:], strict=True)),
        save_s=save_s(ledger.saves_now),
        saves_s=_sample([save.length_ms / 1000 for save in ledger.saves_now]),
        interval_s=interval_s(ledger.saves_now),
        gpus=ledger.gpus,
    )


def _within(segments: Sequence[Segment], since_ms: int, until_ms: int) -> Iterable[Segment]:
    """The segments of a window, cut at its ends; they lie in their order, without overlap."""
    for place in range(bisect_right(segments, since_ms, key=lambda segment: segment.end_ms), len(segments)):
        segment = segments[place]
        if segment.start_ms >= until_ms:
            return
        start, end = max(segment.start_ms, since_ms), min(segment.end_ms, until_ms)
        if start < end:
            yield Segment(start, end, segment.bucket)


def _stop(cut: Interruption, stretch: list[Segment], start_ms: int) -> RunStop:
    """One stop with its way back: up to the first work after it."""
    begun = next((i for i, segment in enumerate(stretch) if segment.bucket not in _IDLE), len(stretch))
    back: dict[Part, float] = dict.fromkeys(PARTS, 0.0)
    paused = 0.0
    for i, segment in enumerate(stretch):
        part = next((part for part in PARTS if part == segment.bucket), None)
        if i < begun and part is not None:
            back[part] += segment.length_ms / 1000
        elif segment.bucket in _IDLE:
            paused += segment.length_ms / 1000
    culprit = cut.culprit
    device, kind, code = (None, None, None) if culprit is None else (culprit.device.type, culprit.kind, culprit.code)
    return RunStop(
        time_s=(cut.time_ms - start_ms) / 1000,
        node=None if culprit is None else culprit.node,
        component=component_of(device, kind, code, cut.cause),
        lost_s=cut.lost_work_ms / 1000,
        paused_s=paused,
        **back,
    )


def _sample(lengths_s: list[float]) -> tuple[float, ...]:
    """All, or as many as are kept, evenly spaced in their order."""
    ordered = sorted(lengths_s)
    step = max(1.0, len(ordered) / _MOST_SAVES)
    return tuple(ordered[int((i + 0.5) * step)] for i in range(min(len(ordered), _MOST_SAVES)))


def checkpoint_inputs(ledger: Ledger, history: RunHistory | None) -> checkpoint.CheckpointInputs | None:
    """What a ledger and its history measured of saves and stops; None where they tell of no finished save.

    The figures are those that gains and what-ifs go by: `run_model.model_of`.
    """
    if history is None or not history.save_s:
        return None
    ways_back = [stop.back_s for stop in history.stops] or [_first_startup_ms(ledger) / 1000]
    save_low, save_high = mean_interval(history.saves_s) or (None, None)
    restart_low, restart_high = mean_interval(ways_back) or (None, None)
    return checkpoint.CheckpointInputs(
        nodes=history.nodes,
        failures=len(history.stops),
        node_days=history.node_days,
        save_s=history.save_s,
        restart_s=sum(ways_back) / len(ways_back),
        interval_s=history.interval_s,
        save_low_s=save_low,
        save_high_s=save_high,
        restart_low_s=restart_low,
        restart_high_s=restart_high,
        memory_share=_memory_share(ledger),
    )


def _memory_share(ledger: Ledger) -> float | None:
    """The share of stops that took one node at most: a copy in another's memory outlives them; None of none known."""
    known = [cut for cut in ledger.interruptions if cut.culprit is not None or cut.cause == "application"]
    one_node = [cut for cut in known if cut.culprit is None or cut.culprit.device.type != "switch"]
    # As many of as many: never quite all (Jeffreys).
    return (len(one_node) + 0.5) / (len(known) + 1) if known else None


def _first_startup_ms(ledger: Ledger) -> int:
    """What a start costs, of a run that was never interrupted."""
    buckets = ledger.buckets_ms
    return (buckets["startup"] + buckets["checkpoint_load"]) // max(1, ledger.attempts)


# A run in a handful of figures, and the goodput that follows from them: the analytic side of gains and what-ifs.
#
#     model = model_of(history)
#     goodput(replace(model, detection=60.0)) - goodput(model)
#
# Each figure may be one number or an array of draws. The form is the exact memoryless one
# (`goodput/formulas/checkpoint_interval.py`), times the share of wall time that neither pauses nor evaluation took.

Figure: TypeAlias = float | Floats
_TOO_FAR = 700.0
_NEVER = 1e-15  # failures per second of a run that never fails


@dataclass(frozen=True, slots=True)
class RunModel:
    """Failures per second of the whole run; seconds of each part of a failure; `kept` of the time at work (0-1).

    `moves_s`: seconds that planned moves take of each second.
    """

    rate: Figure
    interval_s: Figure
    save_s: Figure
    write_s: Figure
    detection: Figure
    waiting: Figure
    startup: Figure
    checkpoint_load: Figure
    kept: float
    moves_s: Figure = 0.0

    @property
    def back_s(self) -> Figure:
        """The way back after a failure, and the writing that it may cut off."""
        return self.detection + self.waiting + self.startup + self.checkpoint_load + self.write_s


def goodput(model: RunModel) -> Floats:
    """Productive share of wall time (0-1), of each draw."""
    rate = np.maximum(np.asarray(model.rate, dtype=np.float64), _NEVER)
    exponent = np.minimum(rate * (model.interval_s + model.save_s), _TOO_FAR)
    share = rate * model.interval_s / (np.exp(np.minimum(rate * model.back_s, _TOO_FAR)) * np.expm1(exponent))
    return np.asarray(share * model.kept * np.maximum(0.0, 1.0 - np.asarray(model.moves_s)), dtype=np.float64)


def model_of(history: RunHistory) -> RunModel:
    """The figures that a run's history measured.

    Raises:
        ValueError: it saved less than twice: its interval is not known.
    """
    if history.save_s is None or not history.interval_s:
        raise ValueError(
            f"run {history.run!r} shows no two finished saves: ingest its training log with save timings first"
        )
    return RunModel(
        rate=len(history.stops) / history.wall_s,
        interval_s=history.interval_s,
        save_s=history.save_s,
        write_s=0.0,
        detection=history.mean("detection"),
        waiting=history.mean("waiting"),
        startup=history.mean("startup"),
        checkpoint_load=history.mean("checkpoint_load"),
        kept=history.kept_share * (1 - history.paused_s / history.wall_s),
    )


def draws_of(history: RunHistory, dice: np.random.Generator) -> tuple[RunModel, RunModel]:
    """The same with each figure drawn: the rate for lower limits in the first, for upper ones in the second."""
    model = model_of(history)
    low, high = rate_draws(len(history.stops), history.wall_s, dice)
    drawn = replace(model, save_s=mean_draws(np.asarray(history.saves_s)[:, None], dice)[:, 0])
    if history.stops:
        parts = np.array([[getattr(stop, part) for part in PARTS] for stop in history.stops])
        # Whole stops are drawn: a long wait and a long start may go together.
        means = np.maximum(0.0, mean_draws(parts, dice))
        drawn = replace(
            drawn, detection=means[:, 0], waiting=means[:, 1], startup=means[:, 2], checkpoint_load=means[:, 3]
        )
    return replace(drawn, rate=low), replace(drawn, rate=high)

"""What a replayed policy would have saved of what the runs lost, and what it would have taken, in GPU-hours. Pure.

    account(lived, Ground(losses, stays, outages, fleet), policy.costs)

Losses are the accountant's (`store/runs/losses.py`): lost work and the way back of each interruption, times the run's
GPUs.

- *Averted*: the fault was the node's (hardware, driver, fabric, host), and a hold or `avoid` stood on that node when
  the job that it struck was started: the job would have been elsewhere. Only where idle nodes without a hint were
  enough then for all that the job would have been kept from; else none of that start counts (`short`). The share
  `averted` of the costs counts: a spare may fail as well.
- *Saved by a checkpoint*: one that was asked of the struck job, and done (`save_s`) before the end: the work up to
  where it began, of what was lost since the last save.
- *Saved by a swap or requeue*: asked after the fault, before the job had ended: the rest of the time in which nobody
  had noticed. What it may save of the queue and the startup is not known.
- *It takes*: GPU-hours of holds (`schedulers/backtest/measures.py`, an upper bound); `save_s` of the whole job for each
  checkpoint; `restart_s` of the whole job for each swap or requeue of a job that was not interrupted while it stood.
  What `avoid` keeps idle is told apart: where idle nodes are enough it costs no work, only choice.

A job that would not have been given a node is not asked about it, and one that was moved off it is not asked again.
History is not lived again: each loss is looked at by itself, and what averting one changes for the next is not known.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from schedulers.backtest.episode import Episode, ReplayResult
from schedulers.backtest.measures import NodeService, working
from schedulers.policy.facts import HOLDING
from schedulers.policy.settings import Costs
from store.records.outage import Outage
from store.runs.losses import OF_THE_NODE, Loss

_KEEPS_OFF = (*HOLDING, "avoid")
_MOVES = ("swap", "requeue")
# A fault may be told by another clock than the interruption that it makes.
_BEFORE = timedelta(minutes=10)
_HOUR, _HOUR_MS = timedelta(hours=1), 3_600_000.0


@dataclass(frozen=True, slots=True)
class JobPlacement:
    """A job's time on its nodes; `end` None: not yet."""

    run: str
    start: datetime
    end: datetime | None
    nodes: frozenset[str]


@dataclass(frozen=True, slots=True)
class ReplayHistory:
    """What happened: interruptions, jobs, outages (planned ones, too) and the nodes in service."""

    losses: Sequence[Loss]
    jobs: Sequence[JobPlacement]
    outages: Sequence[Outage]
    fleet: Sequence[NodeService]


@dataclass(frozen=True, slots=True)
class Savings:
    """GPU-hours, and how many interruptions they come from.

    `unknown`: interruptions whose GPUs nobody knows: in no sum. `short`: that would have been averted, had there been
    idle nodes enough. `needless_moves`: swaps and requeues of jobs that lived on.
    """

    interruptions: int
    lost_gpu_h: float
    unknown: int
    averted: int
    short: int
    averted_gpu_h: float
    saved_by_checkpoint_gpu_h: float
    saved_by_move_gpu_h: float
    held_gpu_h: float
    checkpoints: int
    checkpoint_gpu_h: float
    needless_moves: int
    moves_gpu_h: float
    avoided_gpu_h: float

    @property
    def saved_gpu_h(self) -> float:
        """By all means."""
        return self.averted_gpu_h + self.saved_by_checkpoint_gpu_h + self.saved_by_move_gpu_h

    @property
    def net_gpu_h(self) -> float:
        """What is left after holds, checkpoints and needless moves."""
        return self.saved_gpu_h - self.held_gpu_h - self.checkpoint_gpu_h - self.moves_gpu_h

    @property
    def net_at_worst_gpu_h(self) -> float:
        """The same, had every avoided node had work that no other could take."""
        return self.net_gpu_h - self.avoided_gpu_h


def account(lived: ReplayResult, history: ReplayHistory, costs: Costs) -> Savings:
    """What a replay's episodes come to, against the interruptions of its span."""
    books = _SavingsLedger(lived, history, costs)
    losses = [loss for loss in history.losses if lived.span.since <= loss.time < lived.span.until]
    known = [loss for loss in losses if loss.lost_gpu_ms is not None]
    averted, short = [], 0
    saved = {"checkpoint": 0.0, "move": 0.0}
    for loss in known:
        job = books.job_of(loss)
        verdict = books.would_be_elsewhere(loss, job)
        if verdict:
            averted.append(loss)
            continue
        short += verdict is None
        if job is not None:
            saved["checkpoint"] += books.saved_by_checkpoint(loss, job)
            saved["move"] += books.saved_by_move(loss, job)
    held, avoided = (books.kept_gpu_h(actions) for actions in (HOLDING, ("avoid",)))
    checkpoints, needless = books.stalls()
    return Savings(
        len(losses),
        sum(_gpu_h(loss, _lost_ms(loss)) for loss in known),
        len(losses) - len(known),
        len(averted),
        short,
        costs.averted * sum(_gpu_h(loss, _lost_ms(loss)) for loss in averted),
        saved["checkpoint"],
        saved["move"],
        held,
        len(checkpoints),
        sum(checkpoints) * costs.save_s / 3600.0,
        len(needless),
        sum(needless) * costs.restart_s / 3600.0,
        avoided,
    )


class _SavingsLedger:
    """The episodes and what happened, by node and by run."""

    def __init__(self, lived: ReplayResult, history: ReplayHistory, costs: Costs) -> None:
        self._lived, self._history, self._costs = lived, history, costs
        hints = [one for one in lived.episodes if one.held_back is None or not one.is_hold]
        self._keeping = _by_node(one for one in hints if one.action in _KEEPS_OFF)
        self._gpus = {node.node: node.gpus for node in history.fleet}
        self._outages: dict[str, list[Outage]] = defaultdict(list)
        for outage in history.outages:
            self._outages[outage.node].append(outage)
        self._job_hints = self._hints_by_job(one for one in hints if one.run is not None)

    def _hints_by_job(self, hints: Iterable[Episode]) -> Mapping[JobPlacement, list[Episode]]:
        """What each job would have been asked: nothing of a node that it would not have had, or has been moved off."""
        found: dict[JobPlacement, list[Episode]] = defaultdict(list)
        for one in sorted(hints, key=lambda hint: hint.since):
            job = next((job for job in self._history.jobs if _is_of(one, job)), None)
            if job is None or self._is_kept_off(one.node, job.start):
                continue
            if not any(before.node == one.node and before.action in _MOVES for before in found[job]):
                found[job].append(one)
        return found

    def job_of(self, loss: Loss) -> JobPlacement | None:
        """The job that an interruption ended: of its run the one that had been started last."""
        mine = (job for job in self._history.jobs if job.run == loss.run and job.start <= loss.time)
        return max(mine, key=lambda job: job.start, default=None)

    def would_be_elsewhere(self, loss: Loss, job: JobPlacement | None) -> bool | None:
        """Whether the struck job would not have had the node; None: it would, for want of idle nodes."""
        if loss.node is None or loss.cause not in OF_THE_NODE or job is None or loss.node not in job.nodes:
            return False
        if not self._is_kept_off(loss.node, job.start):
            return False
        wanted = sum(self._is_kept_off(node, job.start) for node in job.nodes)
        return True if self._idle(job) >= wanted else None

    def _is_kept_off(self, node: str, at: datetime) -> bool:
        return any(one.since < at and (one.until is None or at < one.until) for one in self._keeping.get(node, ()))

    def _idle(self, job: JobPlacement) -> int:
        """Nodes that a job could have had instead when it was started: in service, of nobody, without a hint."""
        at = job.start
        taken = set(job.nodes)
        for other in self._history.jobs:
            if other is not job and other.start <= at and (other.end is None or other.end > at):
                taken |= other.nodes
        return sum(
            node.node not in taken and _serves(node, at) and not self._is_out(node.node, at)
            and not self._is_kept_off(node.node, at)
            for node in self._history.fleet
        )  # fmt: skip

    def _is_out(self, node: str, at: datetime) -> bool:
        return any(one.start <= at and (one.end is None or one.end > at) for one in self._outages.get(node, ()))

    def saved_by_checkpoint(self, loss: Loss, job: JobPlacement) -> float:
        """GPU-hours of work that a checkpoint would have kept which was asked of the job and done in time."""
        save = timedelta(seconds=self._costs.save_s)
        begun = [one.since for one in self._requests(job, ("checkpoint",)) if one.since + save <= loss.time]
        if not begun:
            return 0.0
        still_lost_ms = (loss.time - max(begun) - save) / timedelta(milliseconds=1)
        return _gpu_h(loss, max(0.0, loss.lost_work_ms - still_lost_ms))

    def saved_by_move(self, loss: Loss, job: JobPlacement) -> float:
        """GPU-hours between the first swap or requeue that was asked after the fault and the end of the job."""
        begun = [one.since for one in self._requests(job, _MOVES) if one.since >= loss.time - _BEFORE]
        if not begun or job.end is None:
            return 0.0
        earlier_ms = (job.end - max(min(begun), loss.time)) / timedelta(milliseconds=1)
        return _gpu_h(loss, min(max(0.0, earlier_ms), float(loss.restart_ms)))

    def _requests(self, job: JobPlacement, actions: Sequence[str]) -> Iterator[Episode]:
        return (one for one in self._job_hints.get(job, ()) if one.action in actions)

    def kept_gpu_h(self, actions: Sequence[str]) -> float:
        """GPU-hours for which nodes that were not out anyway were kept from work."""
        kept = 0.0
        for node, episodes in self._keeping.items():
            mine = (one for one in episodes if one.action in actions)
            outages, span = self._outages.get(node, ()), self._lived.span
            kept += self._gpus.get(node, 0) * sum(working(one, outages, span) / _HOUR for one in mine)
        return kept

    def stalls(self) -> tuple[list[int], list[int]]:
        """The GPUs of each job that was asked to save, and of each that was moved and would not have been stopped."""
        saves, needless = [], []
        for job, hints in self._job_hints.items():
            gpus = sum(self._gpus.get(node, 0) for node in job.nodes)
            saves += [gpus for one in hints if one.action == "checkpoint"]
            needless += [gpus for one in hints if one.action in _MOVES and not self._is_struck(one)]
        return saves, needless

    def _is_struck(self, one: Episode) -> bool:
        """Whether the run that was asked to move was interrupted, up to the end of the hint."""
        until = one.until or self._lived.span.until
        return any(loss.run == one.run and one.since - _BEFORE <= loss.time <= until for loss in self._history.losses)


def _by_node(episodes: Iterable[Episode]) -> Mapping[str, list[Episode]]:
    found: dict[str, list[Episode]] = defaultdict(list)
    for one in episodes:
        found[one.node].append(one)
    return found


def _is_of(one: Episode, job: JobPlacement) -> bool:
    """Whether a hint was asked of a job, while it ran."""
    return one.run == job.run and job.start <= one.since and (job.end is None or one.since < job.end)


def _serves(node: NodeService, at: datetime) -> bool:
    return (node.since is None or node.since <= at) and (node.until is None or at < node.until)


def _lost_ms(loss: Loss) -> float:
    return float(loss.lost_work_ms + loss.restart_ms)


def _gpu_h(loss: Loss, part_ms: float) -> float:
    """A part of what an interruption cost, in GPU-hours; `lost_gpu_ms` is that of the whole."""
    whole = _lost_ms(loss)
    return 0.0 if not whole else (loss.lost_gpu_ms or 0) / _HOUR_MS * part_ms / whole

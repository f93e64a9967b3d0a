"""A training program's log: iterations, checkpoints, evaluations, errors, restarts and the end, whoever prints it.

     [2025-03-01 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | lm loss: 7.6 | ...
    -> {"kind": "iteration", "time": "2025-03-01T04:05:06Z",
        "attributes": {"run": "llm-70b", "iteration": 10, "total": 1000, "iterations": 10, "elapsed_ms": 3171.3, ...}}

`parsers/training/` holds each trainer's lines and the errors that end an attempt. Old releases print no time
on many lines: it stays None. `iterations` is how many iterations the line covers (since the line before, or since the
checkpoint loaded); `elapsed_ms` of each of them, from the times of both lines where the trainer prints none.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime

from parsers.text.parser import Context, Format, FormatSigns, ParseError, holds_any
from parsers.text.stamp import Stamps
from parsers.training.ascend import NPU
from parsers.training.checkpoints import Checkpoints
from parsers.training.collectives import SIGNS as WAIT_SIGNS
from parsers.training.collectives import CollectiveWaits
from parsers.training.error_report import AttemptErrors, ErrorReader, ErrorReport
from parsers.training.exceptions import JAX, NCCL, NVML, PYTHON, glog_of
from parsers.training.failed_calls import CUDA
from parsers.training.frameworks import HF_TRAINER, NEMO
from parsers.training.launchers import (
    BOX_SIGNS,
    LAUNCHERS,
    SLURM,
    TORCHRUN,
    ProgramLine,
    RootCause,
    program_line,
)
from parsers.training.loops import DEEPSPEED, MEGATRON, TORCHTITAN
from parsers.training.progress import CLOCK, STRAGGLER_SIGNS, ModelShape, Stragglers, TrainingProgress
from parsers.training.trainer import Trainer, TrainerReport
from store.records.event import Attribute, Event
from store.records.fault_catalog import with_kind_meaning

# What a trainer's line is as an event: its kind, and its words where the line itself is not shown.

MESSAGES: Mapping[str, str] = {
    "saving": "saving checkpoint at iteration",
    "pausing": "saving checkpoint at iteration",
    "saved": "saved checkpoint at iteration",
    "loaded": "loaded checkpoint of iteration",
    "save_timer": "save-checkpoint",
    "load_timer": "load-checkpoint",
}
KINDS: Mapping[str, str] = {
    "saving": "checkpoint_save_start",
    "scheduled": "checkpoint_save_start",
    "pausing": "checkpoint_save_start",
    "handed": "checkpoint_save_start",
    "saved": "checkpoint_save",
    "save_timer": "checkpoint_save",
    "loading": "checkpoint_load",
    "loaded": "checkpoint_load",
    "load_timer": "checkpoint_load",
    "evaluated": "evaluation",
    "start": "training_start",
    "end": "training_end",
    "phase": "training_phase",
    "initialized": "training_phase",
}


# A trainer that is built upon another stands before it: where both report an iteration or a save, the first has it.
TRAINERS: tuple[Trainer, ...] = (MEGATRON, NEMO, TORCHTITAN, HF_TRAINER, DEEPSPEED)
# Tried in this order.
READERS: tuple[ErrorReader, ...] = (SLURM, NVML, NPU, NCCL, TORCHRUN, LAUNCHERS, JAX, PYTHON, CUDA)
SIGNS = tuple(sign for reader in READERS for sign in reader.signs)


def report_of(text: str) -> ErrorReport | None:
    """What a line reports of an attempt's end, or None. The text is without launcher prefix and time."""
    for reader in READERS:
        if any(sign in text for sign in reader.signs) and (report := reader.read(text)):
            return report
    return None


# Lines without any of these say nothing.
LITERALS = tuple(
    dict.fromkeys(
        [*(sign for trainer in TRAINERS for sign in trainer.signs), *SIGNS, *BOX_SIGNS, *STRAGGLER_SIGNS, *WAIT_SIGNS]
    )
)
_SIGN = holds_any(LITERALS)
CHECKPOINT_LINES = frozenset(
    ("loading", "loaded", "load_timer", "saving", "scheduled", "saved", "pausing", "handed", "save_timer")
)
# So far apart, by the bar's own clock, are iterations that only a bar shows.
BAR_EVERY_S = 60.0
# What only the trainer itself prints: it has the log from then on.
_LEADS = frozenset({"spoke", "initialized", "iteration"})
# A smaller share of an iteration is what any program takes to fetch its batch.
_WAIT_SHARE = 0.01
_SAVES = frozenset({"saving", "scheduled", "saved", "handed"})
# A bar is written over with carriage returns, and what another logger or rank says may follow it without a line's end.
_PARTS = re.compile(
    r"\r|(?<=\])(?=\[(?:(?:INFO|WARNING|ERROR)\||rank\d|[EWF]\d{0,4} |NeMo |20\d\d-)|WARNING:|ERROR:|Traceback"
    r"|(?:slurmstepd|srun): error: |(?:HW Exception|Memory access fault) by GPU )"
    r"|(?<= )(?=(?:WARNING|ERROR):torch\.)",
    re.ASCII,
)


class TrainingParser:
    """Decodes lines of one run's log. Holds what later lines complete: a load, a save, errors that ranks repeat."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._leader: Trainer | None = None
        self._saves = False  # the leader tells its saves to their end
        self._progress = TrainingProgress()
        self._checkpoints = Checkpoints()
        self._errors = AttemptErrors()
        self._waits = CollectiveWaits()
        self._box = RootCause()
        self._waiting: Event | None = None  # an iteration that a trainer above may tell too
        self._paused: Attribute = None  # iteration of a save that work waits for
        self._told = False  # a line told an iteration of this attempt: bars alone need not
        self._evaluate_ms: Attribute = None
        self._worked: tuple[int, int, Attribute] | None = None  # the last line: iteration, count, ms of each
        self._stragglers = Stragglers()
        self._shape = ModelShape()
        self._seen: datetime | None = None
        self._bar_line: int | None = None
        self._reported: set[str] = set()  # what every rank repeats, since the last iteration

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line; a progress bar's parts, parted by carriage returns, are lines of their own.

        Raises:
            ParseError: an iteration line that is cut short.
        """
        if not _SIGN.search(text):
            return []
        late = self._reported_errors() if self._errors.late(line) else []
        parts = _PARTS.split(text) if "\r" in text or "%|" in text else [text]
        return [*late, *(event for part in parts if part for event in self._part(part, line))]

    def flush(self) -> Iterable[Event]:
        """What waits for lines that did not come; where no line told an iteration, what the bar shows."""
        held = self._held()
        if not self._told and self._leader in (None, HF_TRAINER):
            held += self._shown(
                Event(None, self._context.node, "training", "", line=self._bar_line, cause="unknown"), 0
            )
        return held

    def _shown(self, base: Event, since_s: float) -> list[Event]:
        """The iteration that the bar shows, after so many seconds of its clock; nothing where it stands still."""
        numbers = self._progress.unprinted(since_s)
        iteration = numbers.get("iteration")
        if not isinstance(iteration, int):
            return []
        total = self._progress.total
        attributes = {"iteration": iteration, **({} if total is None else {"total": total}), **numbers}
        of = "" if total is None else f"/{total}"
        return [self._event(base, "iteration", f"iteration {iteration}{of}", attributes)]

    def _held(self) -> list[Event]:
        """What waits for lines that did not come."""
        held = [] if self._waiting is None else [self._waiting]
        self._waiting = None
        held += [*self._checkpoints.held(), *self._reported_errors()]
        return sorted(held, key=lambda event: event.line or 0)

    def _reported_errors(self) -> list[Event]:
        """The errors that are held, and who waits in a collective: the log's node is where that was read."""
        base = Event(None, self._context.node, "training", "", cause="unknown", attributes={"run": self._context.run})
        return [*self._errors.release(), *self._waits.release(base)]

    def _part(self, text: str, line: int) -> Iterator[Event]:
        found = program_line(text)
        time = None if found.time is None else self._stamps.iso(found.time.replace(",", "."))
        self._seen = time or self._seen
        node = found.node or self._context.node
        base = Event(time, node, "training", kind="", line=line, cause="unknown")
        if any(sign in found.text for sign in WAIT_SIGNS):
            self._waits.read(found, time or self._glog(glog_of(found.text)), line)
        for trainer in TRAINERS:
            reports = list(trainer.reports(found.text))
            if reports and self._heeds(trainer, reports):
                for one in reports:
                    yield from self._trainer(trainer, one, base)
                return
        slow = self._stragglers.read(found.text)
        yield from (with_kind_meaning(self._event(base, "straggler", "slower than the others", rank)) for rank in slow)
        if "Exception ignored in" in found.text:
            self._errors.ignore(line)
            return
        report = self._box.read(found.text, line) or report_of(found.text)
        if report and not (report.traceback and self._errors.ignored(line)):
            yield from self._report(report, found, base)

    def _glog(self, told: tuple[int, str, str] | None) -> datetime | None:
        """The moment of a month, day and clock, nearest to the newest time of the log."""
        return None if told is None else self._stamps.glog(*told, seen=self._seen)

    def _heeds(self, trainer: Trainer, reports: list[TrainerReport]) -> bool:
        """Whether a trainer's line counts: one built upon another tells the same, and has the log once it spoke.

        Of the one below, saves count where the leader does not tell them to their end.
        """
        if trainer is self._leader:
            self._saves = self._saves or (trainer.ends and any(one.what in _SAVES for one in reports))
            return True
        if self._leader is not None and TRAINERS.index(self._leader) < TRAINERS.index(trainer):
            return not self._saves and all(one.what in _SAVES for one in reports)
        leads = any(one.what in _LEADS for one in reports)
        if leads:
            if self._leader is not None:
                self._progress.forget()
                self._waiting = None
            self._leader, self._saves = trainer, False
        return leads or self._leader is None

    def _trainer(self, trainer: Trainer, report: TrainerReport, base: Event) -> Iterator[Event]:
        """The events of what a trainer's line tells."""
        what, numbers, time = (
            report.what,
            report.numbers,
            None if report.time is None else self._stamps.iso(report.time),
        )
        base = replace(base, time=time or base.time)
        if what.endswith("_timer") and "duration_ms" not in numbers:
            return
        if what == "iteration":
            yield from self._iteration(trainer, report, base)
        elif what in CHECKPOINT_LINES:
            yield from self._checkpoint(what, numbers, base)
        elif what == "bar":
            self._progress.shows(numbers)
            self._bar_line = base.line
            if not self._told and trainer is HF_TRAINER and self._progress.planned is not None:
                yield from self._shown(base, BAR_EVERY_S)
        elif what == "speed":
            yield from self._speed(trainer, report, base)
        elif what in ("start", "end", "phase", "initialized"):
            yield from self._phase(trainer, report, base)
        elif what == "evaluated":
            yield from self._evaluated(numbers, base)
        elif what == "data_timer":
            yield from self._waited(numbers, base)
        elif what == "arguments":
            shape = self._shape.take()
            if shape is not None:
                yield with_kind_meaning(
                    self._event(base, "training_phase", "arguments", {"phase": "arguments", **shape})
                )
        else:
            self._note(what, numbers)

    def _note(self, what: str, numbers: Mapping[str, Attribute]) -> None:
        """What says something of later lines, and nothing by itself."""
        if what == "evaluate_timer":
            self._evaluate_ms = numbers.get("duration_ms")
        elif what == "argument":
            self._shape.add(numbers)
        elif what == "fresh":
            self._progress.loaded(0)
        elif what == "background":
            self._checkpoints.background = True
        elif what in ("plan", "interval"):
            self._progress.plans(numbers)

    def _speed(self, trainer: Trainer, report: TrainerReport, base: Event) -> Iterator[Event]:
        """Samples a second: of the step that waits for more, else, where no line tells a step, of the timer's own."""
        if self._waiting is not None:
            speed = {name: value for name, value in report.numbers.items() if name == "samples_per_s"}
            self._waiting = replace(self._waiting, attributes={**self._waiting.attributes, **speed})
        elif not self._told:
            yield from self._iteration(trainer, report, base)
            self._told = False

    def _iteration(self, trainer: Trainer, report: TrainerReport, base: Event) -> Iterator[Event]:
        numbers, iteration = report.numbers, report.numbers.get("iteration")
        if not isinstance(iteration, int):
            iteration = self._progress.step_of(numbers.get("epoch"))
        if iteration is None:
            return
        if report.cut:
            raise ParseError(f"iteration {iteration} bears no elapsed time: the line may be cut short")
        if trainer.once and self._progress.repeats(iteration):
            if self._waiting is not None:  # another line of the same step
                self._waiting = replace(self._waiting, attributes={**self._waiting.attributes, **numbers})
            return
        yield from self._held()
        yield from self._resumed(base)
        self._told = True
        covered, elapsed_ms = self._progress.advance(iteration, base.time, numbers)
        self._errors.forget()
        self._reported.clear()
        attributes: dict[str, Attribute] = {"iteration": iteration}
        total = numbers.get("total") or self._progress.total
        total = None if isinstance(total, int) and total < iteration else total  # of an epoch
        attributes |= {"iterations": covered} if total is None else {"total": total, "iterations": covered}
        if elapsed_ms is not None:
            attributes["elapsed_ms"] = elapsed_ms
        attributes.update({name: value for name, value in numbers.items() if name not in ("total", *CLOCK)})
        of = "" if total is None else f"/{total}"
        self._worked = (iteration, covered, attributes.get("elapsed_ms"))
        event = self._event(base, "iteration", f"iteration {iteration}{of}", attributes)
        if trainer.waits:
            self._waiting = event
        else:
            yield event

    def _resumed(self, base: Event) -> Iterator[Event]:
        """Work goes on: the save that it waited for is done. How long it took is not told."""
        iteration, self._paused = self._paused, None
        if iteration is not None:
            self._checkpoints.over(iteration)
            yield self._event(base, "checkpoint_save", f"{MESSAGES['saved']} {iteration}", {"iteration": iteration})

    def _waited(self, numbers: Mapping[str, Attribute], base: Event) -> Iterator[Event]:
        """What the iterations just told waited for data, each; a hundredth of their time or less is no wait."""
        wait = numbers.get("duration_ms")
        if self._worked is None or not isinstance(wait, float):
            return
        (iteration, covered, elapsed), self._worked = self._worked, None
        if not isinstance(elapsed, float) or wait > _WAIT_SHARE * elapsed:
            report = {"iteration": iteration, "duration_ms": round(wait * covered, 3)}
            yield self._event(base, "data_wait", f"waited for data up to iteration {iteration}", report)

    def _checkpoint(self, what: str, numbers: Mapping[str, Attribute], base: Event) -> Iterator[Event]:
        """A load or save; errors and an iteration that wait are reported before it."""
        held, self._waiting = self._waiting, None
        yield from [*([] if held is None else [held]), *self._reported_errors()]
        iteration = numbers.get("iteration")
        at = "" if iteration is None else f" {iteration}"
        words = MESSAGES.get(what, what) if at else MESSAGES.get(what, what).partition(" at ")[0].partition(" of ")[0]
        event = self._event(base, KINDS[what], f"{words}{at}", numbers)
        self._paused = iteration if what == "pausing" else None
        what = "saving" if what == "pausing" else what
        if what in ("loading", "loaded") and isinstance(iteration, int):
            self._progress.loaded(iteration)
        if what == "saving" and not self._checkpoints.goes_on(iteration):
            yield from self._checkpoints.held()
        if what == "loading":
            self._checkpoints.loading(event)
        else:
            yield from getattr(self._checkpoints, what)(event)

    def _evaluated(self, numbers: Mapping[str, Attribute], base: Event) -> Iterator[Event]:
        yield from self._held()
        attributes = dict(numbers)
        if self._evaluate_ms is not None:
            attributes["duration_ms"] = self._evaluate_ms
            self._evaluate_ms = None
        yield self._event(base, "evaluation", "validation", attributes)

    def _phase(self, trainer: Trainer, report: TrainerReport, base: Event) -> Iterator[Event]:
        """A start, an end, a step of the startup: reported once, however many ranks say so."""
        kind = KINDS[report.what]
        if trainer.once:
            same = f"{kind} {report.words}" if kind == "training_phase" else kind
            if same in self._reported:
                return
            self._reported.add(same)
        yield from self._held()
        if report.what == "end":  # a program that ends in order has written what it began to write
            yield from self._resumed(base)
        if report.what in ("start", "initialized"):
            self._paused, self._told = None, False
            self._errors.forget()  # an attempt that died before its first iteration was another one
            self._progress.restart(base.time if report.what == "start" else None)
        if report.what == "initialized":
            self._checkpoints.reset()
        if report.what == "start" and isinstance(iteration := report.numbers.get("iteration"), int):
            self._progress.loaded(iteration)
        more: Mapping[str, Attribute] = {"phase": report.words} if kind == "training_phase" else {}
        if report.what == "end":
            more = self._progress.unprinted()
        event = self._event(base, kind, report.words, more)
        yield with_kind_meaning(event) if kind == "training_phase" else event

    def _report(self, report: ErrorReport, found: ProgramLine, base: Event) -> Iterator[Event]:
        """An error or what the launcher says: held, for other ranks may repeat it."""
        time = None if report.time is None else self._stamps.iso(report.time)
        time = time or self._glog(report.glog) or base.time
        # Whose log it is says nothing of where the error was: only a launcher's prefix or the error names a node.
        base = replace(base, time=time, node=report.node or found.node)
        attributes = report.event_attributes(found.rank, found.local_rank, found.job_rank)
        event = with_kind_meaning(self._event(base, report.kind, report.message, attributes), report.variant)
        held = self._checkpoints.held()
        if self._errors.add(report.key(), event):
            self._reported.clear()
            waiting, self._waiting = self._waiting, None
            yield from [*([] if waiting is None else [waiting]), *held]

    def _event(self, base: Event, kind: str, message: str, attributes: Mapping[str, Attribute]) -> Event:
        return replace(base, kind=kind, message=message, attributes={"run": self._context.run, **attributes})


FORMAT = Format(
    name="training",
    description="Log of Megatron-LM, Megatron-DeepSpeed, NeMo, torchtitan, DeepSpeed or the Hugging Face Trainer",
    sample=" [2025-03-01 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | "
    "lm loss: 7.645013E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    make=TrainingParser,
    testimony="iterations",
    recognises=re.compile(
        r"iteration[ =]\s*\d+/\s*\d+ \||elapsed time per iteration \(m?s\)|\] datetime: \d{4}-"
        r"|\bglobal_batch_size \.\.\."
        r"|(?:saving|saved|loaded) checkpoint (?:at|from)|building GPT model|train_step_timing in s"
        r"|Global Checkpoint Save :|[, ]v_num="
        r"|- INFO - (?:\x1b\[\d+m)?step: +\d|\[titan\] \d{4}|\{'loss': |'train_runtime': |\*{5} Running training \*{5}"
        r"|\[Rank \d+\] step=\d+, skipped=|iter time \(s\): |\[Torch\] Checkpoint global_step"
        r"|\[NeMo [A-Z] \d{4}-|Epoch \d+, global step \d+: '|\tJob ID: .{0,40}\t# GPUs: \d|SamplesPerSec=\d"
        r"|async checkpoint request with id=|\(PID:\d+, Device:\d+, RankID:-?\d+\) ERR\d"
        r"|\bE[A-Z]\d{4}: (?:\[PID: ?\d|\d{4}-\d\d-\d\d-\d\d:)|\w_\w+\(E[A-Z]\d{4}\): "
        r"|function error: \w.{0,80}error code is \d"
        r"|CUDA_ERROR_[A-Z_]{4,40}: |CUDA error: |NVLink SHARP \(NVLS\)|(?:Xla|Jax)RuntimeError: |NVMLError_\w+: "
        r"|validation loss at "
        r"|error: \*\*\* .{4,60} (?:STEPD TERMINATED|CANCELLED AT)|^\s*\d{1,3}%\|[^|]{1,400}\| \d+/\d+ \[[\d:]+<"
        r"|\[[A-Z]+\|trainer\.py:\d+\] |\] \[[A-Z]+\] \[\w+\.py:\d+:\w+\] "
        r"|loading fused kernels|will not load any checkpoints|using world size: \d|time across ranks \(ms\)"
        r"|Watchdog caught collective operation|torch[./]distributed[./]elastic|NCCL WARN "
        r"|slurmstepd(?:-[\w.-]{1,200})?: error: (?:\*\*\*|Detected|Exceeded|Container|pyxis: |Prolog hung on )"
        r"|ProcessGroupNCCL\.cpp:\d+\]|srun: error: (?:\S+: tasks? [\d,-]+: |Node failure on |Nodes \S+ are still not"
        r"|Task launch for )|has been marked dead because the detector|^\(raylet\) "
        r"|nvidia-container-cli: \w{1,20} error: |Unexpected error from cudaGetDeviceCount|\[cnrtError\] \["
        r"|Transport retry count exceeded on |CUDART Error: |(?:NCCL|CUDA|Cuda) failure [\w./-]+\.\w+:\d"
        r"|CUDA error at .{1,200}:\d+ code=\d"
        r"|coordination_service(?:_agent)?\.cc:\d+\]|Coordination service agent in error status"
        r"|\[rank\d+\]: (?:Traceback |[\w.]+(?:Error|Exception): )"
        r"|torch\.[\w.]+(?:Error|Exception): |RuntimeError: (?:CUDA|HIP|NCCL|ACL|HCCL|synStatus)[ =]"
        r"|AssertionError: Rank \d+: found "
        r"|\[rank: \d+\] Child process with PID |ray\.exceptions\.\w+Error: |NPU (?:error|warning), error code is \d",
        re.ASCII,
    ),
    signs=FormatSigns(LITERALS),
)

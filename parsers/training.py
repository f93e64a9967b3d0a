"""A training program's log, as Megatron-LM and Megatron-DeepSpeed print it: iterations, checkpoints, errors, the end.

     [2025-03-01 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | lm loss: 7.6 | ...
    -> {"kind": "iteration", "time": "2025-03-01T04:05:06Z",
        "attributes": {"run": "llm-70b", "iteration": 10, "total": 1000, "iterations": 10, "elapsed_ms": 3171.3, ...}}

Old releases print no time on these lines: it stays None. A launcher may put a rank or host before each line.
What `iterations` is: how many iterations the line covers (since the line before, or since the checkpoint loaded).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from math import isfinite

from parsers.parser import Context, Format, ParseError
from parsers.stamp import Stamps
from parsers.training_errors import TrainingError, error_of
from store.event import Attribute, Event

# Lines without any of these say nothing.
LITERALS = (
    "return code",
    "exitcode",
    "iteration",
    "checkpoint",
    "datetime:",
    "rror",
    "log_interval",
    "evaluat",
    "xception",
    "Watchdog",
    "slurm",
    "srun:",
)
# Errors told apart between two iterations; thousands of ranks repeat the same few.
MAX_ERRORS = 64

_LAUNCHER = re.compile(r"(?:\[(?:default|rank)\d{1,6}\]: ?|\d{1,6}: ?|(?P<node>[A-Za-z][\w.-]*\d[\w.-]*): )", re.ASCII)
_TIME = re.compile(r"\s*\[(?P<time>\d{4}-\d{2}-\d{2}[ T]\d{2}:\d{2}:\d{2}(?:[.,]\d{1,6})?)\] ?", re.ASCII)
_ITERATION = re.compile(
    r"(?:^|\s)iteration\s+(?P<iteration>\d{1,12})/\s*(?P<total>\d{1,12}) \|(?P<fields>.*)", re.ASCII
)
_TIMER = re.compile(
    r"(?P<name>load-checkpoint|save-checkpoint|evaluate|eval-time)(?: \.+)?: "
    r"(?:\((?P<low>[\d.]{1,24}), (?P<high>[\d.]{1,24})\)|(?P<ms>[\d.]{1,24}))",
    re.ASCII,
)
_LOADED = re.compile(r"successfully loaded checkpoint .*\bat iteration\s+(?P<iteration>\d{1,12})", re.ASCII)
_LOADING = re.compile(r"loading (?:\w+ )?checkpoint .*\bat iteration\s+(?P<iteration>\d{1,12})", re.ASCII)
_SAVING = re.compile(r"saving checkpoint at iteration\s+(?P<iteration>\d{1,12})", re.ASCII)
_SAVED = re.compile(r"successfully saved checkpoint (?:at|from) iteration\s+(?P<iteration>\d{1,12})", re.ASCII)
_VALIDATED = re.compile(r"validation loss at (?:iteration (?P<iteration>\d{1,12})|the end of training)", re.ASCII)
_DATETIME = re.compile(
    r"\[(?P<what>before the start of training step|after training is done|exiting program at iteration +\d{1,12})\]"
    r" datetime: (?P<time>\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,6})?)",
    re.ASCII,
)
_LOG_INTERVAL = re.compile(r"(?:^|\s)log_interval \.+ (?P<interval>\d{1,9})", re.ASCII)
_NUMBERS = {
    "elapsed time per iteration (ms)": "elapsed_ms",
    "lm loss": "loss",
    "lm-loss": "loss",
    "grad norm": "grad_norm",
    "throughput per GPU (TFLOP/s/GPU)": "tflops_per_gpu",
}
_COUNTS = {"number of skipped iterations": "skipped", "number of nan iterations": "nan"}


class TrainingParser:
    """Decodes lines of one run's log. Holds a load or save until the timer that tells how long it took."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._stamps = Stamps(context)
        self._last: int | None = None  # iteration of the last iteration line
        self._from: int | None = None  # iteration that the attempt started from
        self._interval: int | None = None
        self._load: Event | None = None
        self._save: Event | None = None
        self._evaluate_ms: float | None = None
        self._seen: datetime | None = None
        self._errors: set[str] = set()

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The events of one line; a progress bar's parts, parted by carriage returns, are lines of their own.

        Raises:
            ParseError: an iteration line that is cut short.
        """
        if not any(literal in text for literal in LITERALS):
            return []
        parts = text.split("\r") if "\r" in text else [text]
        return [event for part in parts for event in self._part(part, line)]

    def flush(self) -> Iterable[Event]:
        """A load or save whose timer never came."""
        held = [event for event in (self._load, self._save) if event is not None]
        self._load = self._save = None
        return held

    def _part(self, text: str, line: int) -> Iterator[Event]:
        named = None
        if match := _LAUNCHER.match(text):
            named, text = match["node"], text[match.end() :]
        time = None
        if match := _TIME.match(text):
            time, text = self._stamps.iso(match["time"].replace(",", ".")), text[match.end() :]
        self._seen = time or self._seen
        base = Event(time, named or self._context.node, "training", kind="", line=line, cause="unknown")
        if match := _ITERATION.search(text):
            yield from self.flush()
            yield self._iteration(match, base)
        elif ("checkpoint" in text or "eval" in text) and (told := [*self._checkpoint(text, base)]):
            yield from told
        elif "[after megatron is initialized]" in text:
            self._errors.clear()  # an attempt that died before its first iteration was another one
        elif match := _DATETIME.search(text):
            yield from self.flush()
            yield self._phase(match["what"], self._stamps.iso(match["time"]), base)
        elif match := _VALIDATED.search(text):
            yield self._validated(match["iteration"], base)
        elif match := _LOG_INTERVAL.search(text):
            self._interval = int(match["interval"]) or None
        elif (error := error_of(text, self._stamps, self._seen)) and self._is_new(error):
            yield from self.flush()
            # Whose log it is says nothing of where the error was: only a launcher's prefix or the error names a node.
            yield self._error(error, replace(base, node=named))

    def _iteration(self, match: re.Match[str], base: Event) -> Event:
        iteration = int(match["iteration"])
        numbers = _fields(match["fields"])
        if "elapsed_ms" not in numbers:
            raise ParseError(f"iteration {iteration} bears no elapsed time: the line may be cut short")
        covered = self._covered(iteration)
        self._last, self._from = iteration, None
        self._errors.clear()
        attributes = {"iteration": iteration, "total": int(match["total"]), "iterations": covered, **numbers}
        return self._event(base, "iteration", f"iteration {iteration}/{match['total']}", attributes)

    def _covered(self, iteration: int) -> int:
        """How many iterations the line speaks of."""
        if self._from is not None and iteration > self._from:
            return iteration - self._from
        if self._last is not None and iteration > self._last and self._from is None:
            self._interval = self._interval or iteration - self._last
            return iteration - self._last
        # The log's beginning is not there: the interval between lines, else this one alone.
        return min(self._interval or 1, max(iteration, 1))

    def _checkpoint(self, text: str, base: Event) -> Iterator[Event]:
        if match := _SAVED.search(text):
            yield from self.flush()
            saved = {"iteration": int(match["iteration"])}
            self._save = self._event(
                base, "checkpoint_save", f"saved checkpoint at iteration {match['iteration']}", saved
            )
        elif match := _SAVING.search(text):
            yield from self.flush()
            saving = {"iteration": int(match["iteration"])}
            yield self._event(
                base, "checkpoint_save_start", f"saving checkpoint at iteration {match['iteration']}", saving
            )
        elif match := _LOADED.search(text):
            self._from = int(match["iteration"])
            loaded = {"iteration": self._from}
            self._load = self._event(base, "checkpoint_load", f"loaded checkpoint of iteration {self._from}", loaded)
        elif match := _LOADING.search(text):
            self._from = int(match["iteration"])
        elif "will not load any checkpoints" in text:
            self._from = 0
        else:
            for timer in _TIMER.finditer(text):
                yield from self._timer(timer["name"], float_of(timer["high"] or timer["ms"]), base)

    def _timer(self, name: str, duration_ms: float | None, base: Event) -> Iterator[Event]:
        if duration_ms is None:
            return
        if name == "load-checkpoint":
            event, self._load = self._load or self._event(base, "checkpoint_load", "load-checkpoint", {}), None
        elif name == "save-checkpoint":
            event, self._save = self._save or self._event(base, "checkpoint_save", "save-checkpoint", {}), None
        else:
            self._evaluate_ms = duration_ms
            return
        yield replace(event, time=event.time or base.time, attributes={**event.attributes, "duration_ms": duration_ms})

    def _validated(self, iteration: str | None, base: Event) -> Event:
        attributes: dict[str, Attribute] = {} if iteration is None else {"iteration": int(iteration)}
        if self._evaluate_ms is not None:
            attributes["duration_ms"] = self._evaluate_ms
            self._evaluate_ms = None
        return self._event(base, "evaluation", "validation", attributes)

    def _phase(self, what: str, time: datetime | None, base: Event) -> Event:
        kind = "training_start" if what.startswith("before") else "training_end"
        if kind == "training_start":
            self._errors.clear()
        return self._event(replace(base, time=time or base.time), kind, what, {})

    def _is_new(self, error: TrainingError) -> bool:
        """Whether no rank has told of this error since the last iteration."""
        if error.key() in self._errors or len(self._errors) >= MAX_ERRORS:
            return False
        self._errors.add(error.key())
        return True

    def _error(self, error: TrainingError, base: Event) -> Event:
        told = replace(
            base,
            time=error.time or base.time,
            node=error.node or base.node,
            severity=error.severity,
            cause=error.cause,
            action=error.action,
        )
        return self._event(told, "training_error", error.message, {"error": error.name})

    def _event(self, base: Event, kind: str, message: str, attributes: Mapping[str, Attribute]) -> Event:
        return replace(base, kind=kind, message=message, attributes={"run": self._context.run, **attributes})


def float_of(text: str) -> float | None:
    """A finite number, or None."""
    try:
        value = float(text)
    except ValueError:
        return None
    return value if isfinite(value) else None


def _fields(text: str) -> dict[str, Attribute]:
    """The numbers of an iteration line; a NaN loss is left out (the line counts it as a nan iteration)."""
    found: dict[str, Attribute] = {}
    for part in text.split("|"):
        name, colon, value = part.partition(": ")
        name, number = name.strip(), float_of(value) if colon else None
        if number is None:
            continue
        if name in _NUMBERS:
            found[_NUMBERS[name]] = number
        elif name in _COUNTS:
            found[_COUNTS[name]] = int(number)
    return found


FORMAT = Format(
    name="training",
    description="Log of Megatron-LM or Megatron-DeepSpeed",
    sample=" [2025-03-01 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | "
    "lm loss: 7.645013E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |",
    make=TrainingParser,
    recognises=re.compile(
        r"iteration\s+\d+/\s*\d+ \||elapsed time per iteration \(ms\)|\] datetime: \d{4}-|\bglobal_batch_size \.\.\."
        r"|(?:saving|saved|loaded) checkpoint (?:at|from)|building GPT model",
        re.ASCII,
    ),
)

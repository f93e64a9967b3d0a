"""A range of a Prometheus's history in windows of whole hours, each small enough to hold, none asked for twice.

    reader = HistoryReader(server, HistoryChoice())
    for window in reader.windows(since_ms, until_ms): ...

How much one question may ask for is learned: a window is as many hours, and a question as many metrics, as gave about
so many samples before. What the server, or this program, finds too much is asked for in halves.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from cli.console.errors import Failure
from cli.history.series import is_known
from cli.history.server import HistoryServer, LimitError, SeriesSamples

HOUR_MS = 3_600_000
# Samples of a window, and of one question: they bound memory. A sample takes 16 bytes here and 27 in an answer.
WINDOW_SAMPLES = 1_000_000
QUESTION_SAMPLES = 250_000
# What one hour may hold at most: a window is never less than an hour.
HOUR_SAMPLES = 10_000_000
MOST_HOURS = 7 * 24
# The first: enough to tell hourly samples from daily ones.
_FIRST_HOURS = 4
_FASTER = 4  # a window is at most so many times as long as the one before
# Of a metric of which nothing is known yet: no question is of over 16 of them.
_UNKNOWN_PER_HOUR = 16_000
_SHORTEST_MS = 1000
_SELECTOR = re.compile(r"\s*(?P<name>[A-Za-z_:][A-Za-z0-9_:]*)?\s*(?:\{(?P<matchers>.*)\})?\s*", re.ASCII | re.DOTALL)


@dataclass(frozen=True, slots=True)
class HistoryChoice:
    """What is asked for: `selectors` in place of the metrics that are known; `step_ms` thins the samples."""

    selectors: tuple[str, ...] = ()
    step_ms: int = 0


@dataclass(frozen=True, slots=True)
class HistoryWindow:
    """Everything of some whole hours: since_ms <= time < until_ms."""

    since_ms: int
    until_ms: int
    series: tuple[SeriesSamples, ...]

    @property
    def samples(self) -> int:
        """How many."""
        return sum(len(one.time_ms) for one in self.series)


@dataclass(slots=True)
class HistoryReader:
    """Reads a range. `questions` counts them, `refused` those that had to be halved."""

    server: HistoryServer
    choice: HistoryChoice
    questions: int = 0
    refused: int = 0
    _per_hour: dict[str, float] = field(default_factory=dict)

    def windows(self, since_ms: int, until_ms: int) -> Iterator[HistoryWindow]:
        """The windows of a range of whole hours, in order.

        Raises:
            Failure: a refusal, or an hour that holds too much.
            AwayError: the server gives no answer any more; what was given before is whole.
        """
        names = self._names(since_ms, until_ms)
        begin, hours = since_ms, _FIRST_HOURS
        while begin < until_ms:
            end = min(until_ms, begin + hours * HOUR_MS)
            series = self._read(names, begin, end)
            if series is None:
                hours = max(1, (end - begin) // HOUR_MS // 2)
                continue
            window = HistoryWindow(begin, end, series)
            yield window
            per_hour = window.samples / ((end - begin) / HOUR_MS)
            fits = int(WINDOW_SAMPLES / per_hour) if per_hour else MOST_HOURS
            begin, hours = end, max(1, min(fits, hours * _FASTER, MOST_HOURS))

    def _names(self, since_ms: int, until_ms: int) -> list[str]:
        found = self.server.names(since_ms, until_ms, self.choice.selectors)
        names = found if self.choice.selectors else [name for name in found if is_known(name)]
        if not names:
            what = " that --match selects" if self.choice.selectors else f" that is known, among {len(found)}"
            raise Failure(
                f"{self.server.access.url} has no metric{what} in this time (hours that are over count, whole): see "
                "--since, --until and its retention, or select series with --match '{job=\"...\"}'"
            )
        return names

    def _read(self, names: Sequence[str], since_ms: int, until_ms: int) -> tuple[SeriesSamples, ...] | None:
        """Every series of a window; None where it is more than one should hold."""
        hours = (until_ms - since_ms) / HOUR_MS
        most = HOUR_SAMPLES if hours <= 1 else 2 * WINDOW_SAMPLES
        found: dict[frozenset[tuple[str, str]], list[SeriesSamples]] = {}
        held = 0
        for batch in self._batches(names, hours):
            counts = dict.fromkeys(batch, 0.0)
            for part in self._asked(batch, since_ms, until_ms):
                for one in part:
                    found.setdefault(frozenset(one.labels.items()), []).append(one)
                    counts[one.labels["__name__"]] += len(one.time_ms)
                held += sum(len(one.time_ms) for one in part)
                if held > most and hours > 1:
                    return None
                if held > most:
                    raise Failure(
                        f"{self.server.access.url}: one hour holds over {HOUR_SAMPLES} samples: "
                        "import a part at a time with --match '{instance=~\"...\"}', or thin them with --step 5m"
                    )
            for name, count in counts.items():
                self._per_hour[name] = max(count / hours, self._per_hour.get(name, 0.0) / 2)
        return tuple(_joined(parts) for parts in found.values())

    def _batches(self, names: Sequence[str], hours: float) -> Iterator[list[str]]:
        batch: list[str] = []
        room = 0.0
        for name in names:
            wanted = self._per_hour.get(name, _UNKNOWN_PER_HOUR) * hours
            if batch and room < wanted:
                yield batch
                batch = []
            if not batch:
                room = QUESTION_SAMPLES
            batch.append(name)
            room -= wanted
        if batch:
            yield batch

    def _asked(self, names: Sequence[str], since_ms: int, until_ms: int) -> Iterator[list[SeriesSamples]]:
        """The series of some metrics, in one answer or, where that is too much, in several."""
        for selector in self.choice.selectors or ("",):
            yield from self._halved(selector, names, since_ms, until_ms)

    def _halved(
        self, selector: str, names: Sequence[str], since_ms: int, until_ms: int
    ) -> Iterator[list[SeriesSamples]]:
        step_ms = self.choice.step_ms
        self.questions += 1
        try:
            found = self.server.samples(_narrowed(selector, names), since_ms, until_ms, step_ms)
        except LimitError as error:
            self.refused += 1
            reason = str(error)
        else:
            yield found
            return
        if len(names) > 1:
            half = len(names) // 2
            parts = [(names[:half], since_ms, until_ms), (names[half:], since_ms, until_ms)]
        else:
            shortest = step_ms or _SHORTEST_MS
            middle = since_ms + (until_ms - since_ms) // 2 // shortest * shortest
            if not since_ms < middle < until_ms:
                raise Failure(
                    f"{self.server.access.url} refuses even {(until_ms - since_ms) / 1000:g} s of {names[0]} "
                    f"({reason}): raise its limit (--query.max-samples), or select less with --match"
                )
            parts = [(names, since_ms, middle), (names, middle, until_ms)]
        for some, begin, end in parts:
            yield from self._halved(selector, some, begin, end)


def read_selector(text: str) -> str:
    """The matchers of a selector `NAME{LABEL="VALUE"}`, as they stand between braces.

    Raises:
        Failure: it is none.
    """
    match = _SELECTOR.fullmatch(text)
    if match is None or not (match["name"] or (match["matchers"] or "").strip()):
        raise Failure(f"--match {text!r} is no selector of series: write one as in --match 'DCGM_FI_DEV_GPU_TEMP'")
    own = [f'__name__="{match["name"]}"'] if match["name"] else []
    return ",".join([*own, *filter(None, [(match["matchers"] or "").strip().rstrip(",")])])


def _narrowed(selector: str, names: Sequence[str]) -> str:
    """The selector, of some metrics alone."""
    own = read_selector(selector) if selector else ""
    pattern = "|".join(map(re.escape, names)).replace("\\", "\\\\").replace('"', '\\"')
    which = f'__name__=~"{pattern}"'
    return f"{{{own},{which}}}" if own else f"{{{which}}}"


def _joined(parts: Sequence[SeriesSamples]) -> SeriesSamples:
    """One series of its parts: parts of its time, or the same where two selectors choose it."""
    if len(parts) == 1:
        return parts[0]
    moments, places = np.unique(np.concatenate([part.time_ms for part in parts]), return_index=True)
    return SeriesSamples(parts[0].labels, moments, np.concatenate([part.values for part in parts])[places])

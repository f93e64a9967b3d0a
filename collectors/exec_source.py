"""`exec:FORMAT:COMMAND...`: runs a program every minute and decodes what it prints.

    exec:ibqueryerrors:/usr/sbin/ibqueryerrors --report-port
    exec:sinfo:sinfo -R

The words are split as a shell splits them, and no shell runs them (`sh -c '...'` where one is wanted). Never two at
once: a run that takes long delays the next. What it prints is what stands at that moment, so only what the run before
did not print becomes an event (`collectors/repeats.py`), of the moment when the run began. A crash before it was saved
loses that run's observation alone: the next run makes it again, as a new one.
"""

import logging
import shlex
import shutil
import time
from datetime import UTC, datetime

from collectors import repeats
from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.command import PATH, Command, Outcome
from collectors.device_events import exporter_event
from collectors.repeats import Repeats
from collectors.wake import Wake
from parsers.parser import Context, ParseError, parse
from parsers.registry import PARSERS
from parsers.ruled import make_parser
from store.event import Event

_LOG = logging.getLogger("foreshock.sidecar")
_INTERVAL_S = 60.0
_TIMEOUT_S = 30.0
# While a program runs a stop is looked for so often.
_RUNNING_S = 0.5
# One failure may be a moment's; after so many in a row it is an event.
_FAILURES = 2


class ExecCollector:
    """One program."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is FORMAT:COMMAND.

        Raises:
            SourceError: no known format, or no command.
        """
        self._spec = f"exec:{rest}"
        self._format, _colon, text = rest.partition(":")
        self._words = _split(self._spec, text)
        if self._format not in PARSERS or PARSERS[self._format].shape == "page":
            names = ", ".join(sorted(name for name in PARSERS if PARSERS[name].shape != "page"))
            raise SourceError(f"{self._spec}: {self._format!r} is no format of a program's output: use one of {names}")
        self._settings = settings
        self.wake = Wake()
        self._interval_s = settings.interval_s or _INTERVAL_S
        self._timeout_s = settings.timeout_s or _TIMEOUT_S
        self._repeats = Repeats()
        self._running: Command | None = None
        self._began = datetime.now(UTC)
        self._due = 0.0
        self._failures = 0
        self._told: str | None = None
        self._left_out_told = False

    @property
    def spec(self) -> str:
        """What names it."""
        return self._spec

    def open(self, position: Position | None) -> None:
        """Take up what the last run printed; the first run is at once.

        Raises:
            SourceError: there is no such program.
        """
        if shutil.which(self._words[0], path=PATH) is None:
            raise SourceError(f"{self._spec}: there is no program {self._words[0]} in {PATH}: give its whole path")
        state = position or {}
        self._repeats = Repeats(state.get("repeats"))
        self._failures = int(state.get("failures", 0))
        self._left_out_told = bool(state.get("left_out"))
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> Collected:
        """What a run printed that ended within at most `wait_s`."""
        now_s = time.monotonic()
        if self._running is None:
            if self._due > now_s + wait_s:
                self.wake.wait(wait_s)
                return Collected()
            self.wake.wait(self._due - now_s)
            if self.wake.is_set:
                return Collected()
            self._due = max(self._due + self._interval_s, time.monotonic())
            self._began = datetime.now(UTC)
            try:
                self._running = Command(self._words, self._timeout_s)
            except OSError as error:
                return self._ended(Outcome(b"", f"cannot be started: {error}"))
        outcome = self._running.wait(min(wait_s, _RUNNING_S))
        if outcome is None:
            return Collected()
        self._running = None
        self._due = max(self._due, time.monotonic())  # a run that took longer than the interval is not caught up with
        return self._ended(outcome)

    def close(self) -> None:
        """End a program that still runs: what it printed so far is not whole."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def _ended(self, outcome: Outcome) -> Collected:
        broken: list[ParseError] = []
        printed = list(self._decoded(outcome.output, broken))
        failed = outcome.trouble is not None and not printed
        events = self._judge_run(failed, outcome.trouble or "")
        if not failed:
            events += self._repeats.add(printed, self._began, f"{self._spec}:{self._began.isoformat()}")
            events += self._left_out()
        return Collected(
            events=tuple(events),
            lines=outcome.output.count(b"\n"),
            errors=len(broken) + (outcome.trouble is not None),
            position={
                "repeats": self._repeats.state(),
                "failures": self._failures,
                "left_out": self._left_out_told,
            },
        )

    def _decoded(self, output: bytes, broken: list[ParseError]) -> list[Event]:
        settings = self._settings
        year = self._began.astimezone(settings.zone).year
        context = Context(node=settings.node, year=year, until=self._began, zone=settings.zone)
        parser = make_parser(self._format, context, settings.rules)
        return list(parse(parser, output.splitlines(), lambda _line, error: broken.append(error)))

    def _judge_run(self, failed: bool, trouble: str) -> list[Event]:
        """Tell of a failure: in the log when its words change, as an event when it stays, and when it is over."""
        if trouble and trouble != self._told:
            _LOG.error("source %s: the program %s", self._spec, trouble)
        if self._told and not trouble:
            _LOG.info("source %s: the program ends well again", self._spec)
        self._told = trouble or None
        before, self._failures = self._failures, self._failures + 1 if failed else 0
        if self._failures == _FAILURES:
            return [self._event("exporter_down", f"The program {trouble}")]
        if before >= _FAILURES and not failed:
            return [self._event("exporter_up", "The program ends well again")]
        return []

    def _left_out(self) -> list[Event]:
        """Tell once that the program prints more counters than are followed."""
        if not self._repeats.left_out or self._left_out_told:
            return []
        self._left_out_told = True
        message = (
            f"{self._repeats.left_out} counters are not followed: {repeats.MOST_COUNTERS} of one program are. "
            "Run it on parts of the fabric"
        )
        _LOG.warning("source %s: %s", self._spec, message)
        return [self._event("measures_left_out", message)]

    def _event(self, kind: str, message: str) -> Event:
        return exporter_event(self._settings.node, self._began, kind, message, self._spec, "exec")


def _split(spec: str, text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SourceError(f"{spec}: the command cannot be split ({error}): quote it as for a shell") from error
    if not words:
        raise SourceError(f"{spec}: names no program: write exec:FORMAT:PROGRAM ARGUMENTS, as in exec:sinfo:sinfo -R")
    return words

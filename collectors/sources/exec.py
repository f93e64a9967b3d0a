"""`exec:FORMAT:COMMAND...`: runs a program every minute and decodes what it prints.

    exec:ibqueryerrors:/usr/sbin/ibqueryerrors --report-port
    exec:sinfo:sinfo -R

The words are split as a shell splits them, and no shell runs them (`sh -c '...'` where one is wanted). Never two at
once: a run that takes long delays the next. What it prints is what stands at that moment, so only what the run before
did not print becomes an event (`collectors/decoder.py`), of the moment when the run began. A crash before it was saved
loses that run's observation alone: the next run makes it again, as a new one.
"""

import logging
import os
import selectors
import shlex
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.decoder import MOST_COUNTERS, RepeatFilter
from collectors.telemetry.device_events import exporter_event
from collectors.trust import trust_of
from parsers.registry import PARSERS, make_parser
from parsers.text.parser import Context, ParseError, parse
from parsers.trust import RefusedLineError
from store.plural import many
from store.records.event import Event

# One run of a program beside us: bounded in time and output, at the lowest priority, ended with all that it started.
#
# No shell reads it, nothing of our environment but the zone reaches it, and it waits for no input. A status other than
# 0 with output and without a word of complaint is no trouble: so ibqueryerrors tells that it found errors.

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_OUTPUT_BYTES = 16 * 2**20
_CHUNK = 64 * 1024
_SAID_BYTES = 2000
# What a program left behind may hold its output open: after its end no more than this is waited for.
_AFTER_END_S = 0.2
_NICE = 19


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """How a run ended. `trouble` is None where it ended well; else a sentence's end."""

    output: bytes
    trouble: str | None


class Command:
    """A running program."""

    def __init__(self, words: Sequence[str], timeout_s: float) -> None:
        """Start it.

        Raises:
            OSError: it cannot be started.
        """
        self._timeout_s = timeout_s
        self._until = time.monotonic() + timeout_s
        self._output, self._said = bytearray(), bytearray()
        self._ended_at: float | None = None
        self._process = subprocess.Popen(  # noqa: S603 - the operator's own words, and no shell
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
            cwd="/",
            start_new_session=True,
        )
        self._selector = selectors.DefaultSelector()
        for stream, kept in ((self._process.stdout, self._output), (self._process.stderr, self._said)):
            if stream is not None:
                self._selector.register(stream, selectors.EVENT_READ, kept)
        with suppress(OSError):  # it has ended already, or the kernel has no such policy
            os.setpriority(os.PRIO_PROCESS, self._process.pid, _NICE)
            os.sched_setscheduler(self._process.pid, os.SCHED_IDLE, os.sched_param(0))

    def wait(self, wait_s: float) -> CommandOutcome | None:
        """Its outcome, if it ends within that time."""
        deadline = time.monotonic() + wait_s
        while True:
            now = time.monotonic()
            if (trouble := self._too_much(now)) is not None:
                return self._end(trouble)
            if self._is_over(now):
                return self._end(None)
            if now >= deadline:
                return None
            self._read(min(deadline, self._until, now + _AFTER_END_S) - now)

    def kill(self) -> None:
        """End it with everything that it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for key in list(self._selector.get_map().values()):
            self._close(key.fileobj)  # type: ignore[arg-type]  # streams alone are registered
        self._selector.close()

    def _read(self, wait_s: float) -> None:
        if not self._selector.get_map():
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(max(0.0, wait_s))
            return
        for key, _events in self._selector.select(max(0.0, wait_s)):
            chunk = os.read(key.fd, _CHUNK)
            if chunk:
                key.data.extend(chunk)
            else:
                self._close(key.fileobj)  # type: ignore[arg-type]
        del self._said[:-_SAID_BYTES]

    def _close(self, stream: IO[bytes]) -> None:
        self._selector.unregister(stream)
        stream.close()

    def _is_over(self, now: float) -> bool:
        if self._process.poll() is None:
            return False
        self._ended_at = self._ended_at or now
        return not self._selector.get_map() or now - self._ended_at > _AFTER_END_S

    def _too_much(self, now: float) -> str | None:
        if len(self._output) > MOST_OUTPUT_BYTES:
            return f"wrote more than {MOST_OUTPUT_BYTES >> 20} MiB and was ended"
        if now >= self._until and not self._is_over(now):
            return f"took longer than {self._timeout_s:g} s and was ended"
        return None

    def _end(self, trouble: str | None) -> CommandOutcome:
        self.kill()
        status = self._process.returncode
        said = bytes(self._said).decode("utf-8", errors="replace").strip().split("\n")[-1][:300]
        if trouble is None and (status < 0 or (status > 0 and (said or not self._output))):
            ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            trouble = f"{ended}: {said}" if said else ended
        return CommandOutcome(bytes(self._output[:MOST_OUTPUT_BYTES]), trouble)


def environment() -> dict[str, str]:
    """The environment of a program: where programs are, plain English, our zone."""
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/", **zone}


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
        self.spec = f"exec:{rest}"
        self._format, _colon, text = rest.partition(":")
        self._words = _split(self.spec, text)
        if self._format not in PARSERS or PARSERS[self._format].shape == "page":
            names = ", ".join(sorted(name for name in PARSERS if PARSERS[name].shape != "page"))
            raise SourceError(f"{self.spec}: {self._format!r} is no format of a program's output: use one of {names}")
        self._settings = settings
        self._trust = trust_of(self.spec, settings.trust).trust
        self.wake = Wake()
        self._interval_s = settings.interval_s or _INTERVAL_S
        self._timeout_s = settings.timeout_s or _TIMEOUT_S
        self._repeats = RepeatFilter()
        self._running: Command | None = None
        self._began = datetime.now(UTC)
        self._due = 0.0
        self._failures = 0
        self._reported: str | None = None
        self._left_out_reported = False

    def open(self, position: Position | None) -> None:
        """Take up what the last run printed; the first run is at once.

        Raises:
            SourceError: there is no such program.
        """
        if shutil.which(self._words[0], path=PATH) is None:
            raise SourceError(f"{self.spec}: there is no program {self._words[0]} in {PATH}: give its whole path")
        state = position or {}
        self._repeats = RepeatFilter(state.get("repeats"))
        self._failures = int(state.get("failures", 0))
        self._left_out_reported = bool(state.get("left_out"))
        self._due = time.monotonic()

    def collect(self, wait_s: float) -> CollectorTurn:
        """What a run printed that ended within at most `wait_s`."""
        if self._running is None:
            if not self.wake.wait_until(self._due, wait_s):
                return CollectorTurn()
            self._due = max(self._due + self._interval_s, time.monotonic())
            self._began = datetime.now(UTC)
            try:
                self._running = Command(self._words, self._timeout_s)
            except OSError as error:
                return self._ended(CommandOutcome(b"", f"cannot be started: {error}"))
        outcome = self._running.wait(min(wait_s, _RUNNING_S))
        if outcome is None:
            return CollectorTurn()
        self._running = None
        self._due = max(self._due, time.monotonic())  # a run that took longer than the interval is not caught up with
        return self._ended(outcome)

    def close(self) -> None:
        """End a program that still runs: what it printed so far is not whole."""
        running, self._running = self._running, None
        if running is not None:
            running.kill()

    def _ended(self, outcome: CommandOutcome) -> CollectorTurn:
        wrong: list[ParseError] = []
        printed = list(self._decoded(outcome.output, wrong))
        refused: Counter[str] = Counter(error.reason for error in wrong if isinstance(error, RefusedLineError))
        failed = outcome.trouble is not None and not printed
        events = self._judge_run(failed, outcome.trouble or "")
        if not failed:
            events += self._repeats.add(printed, self._began, f"{self.spec}:{self._began.isoformat()}")
            events += self._left_out()
        return CollectorTurn(
            events=tuple(events),
            lines=outcome.output.count(b"\n"),
            errors=len(wrong) - refused.total() + (outcome.trouble is not None),
            refused=refused,
            position={
                "repeats": self._repeats.state(),
                "failures": self._failures,
                "left_out": self._left_out_reported,
            },
        )

    def _decoded(self, output: bytes, wrong: list[ParseError]) -> list[Event]:
        settings = self._settings
        year = self._began.astimezone(settings.zone).year
        context = Context(settings.node, year, self._began, settings.zone, trust=self._trust)
        parser = make_parser(self._format, context, settings.rules)
        return list(parse(parser, output.splitlines(), lambda _line, error: wrong.append(error)))

    def _judge_run(self, failed: bool, trouble: str) -> list[Event]:
        """Tell of a failure: in the log when its words change, as an event when it stays, and when it is over."""
        if trouble and trouble != self._reported:
            _LOG.error("source %s: the program %s", self.spec, trouble)
        if self._reported and not trouble:
            _LOG.info("source %s: the program ends well again", self.spec)
        self._reported = trouble or None
        before, self._failures = self._failures, self._failures + 1 if failed else 0
        if self._failures == _FAILURES:
            return [self._event("exporter_down", f"The program {trouble}")]
        if before >= _FAILURES and not failed:
            return [self._event("exporter_up", "The program ends well again")]
        return []

    def _left_out(self) -> list[Event]:
        """Tell once that the program prints more counters than are followed."""
        if not self._repeats.left_out or self._left_out_reported:
            return []
        self._left_out_reported = True
        message = (
            f"{many(self._repeats.left_out, 'counter is', 'counters are')} not followed, {MOST_COUNTERS} are. "
            "Run it on parts of the fabric"
        )
        _LOG.warning("source %s: %s", self.spec, message)
        return [self._event("measures_left_out", message)]

    def _event(self, kind: str, message: str) -> Event:
        return exporter_event(self._settings.node, self._began, kind, message, self.spec, "exec")


def _split(spec: str, text: str) -> list[str]:
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise SourceError(f"{spec}: the command cannot be split ({error}): quote it as for a shell") from error
    if not words:
        raise SourceError(f"{spec}: names no program: write exec:FORMAT:PROGRAM ARGUMENTS, as in exec:sinfo:sinfo -R")
    return words

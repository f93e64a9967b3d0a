"""One run of a program beside us: bounded in time and output, at the lowest priority, ended with all that it started.

No shell reads it, nothing of our environment but the zone reaches it, and it waits for no input. A status other than 0
with output and without a word of complaint is no trouble: so ibqueryerrors tells that it found errors.
"""

import os
import selectors
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import IO

PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
MOST_OUTPUT_BYTES = 16 * 2**20
_CHUNK = 64 * 1024
_SAID_BYTES = 2000
# What a program left behind may hold its output open: after its end no more than this is waited for.
_AFTER_END_S = 0.2
_NICE = 19


@dataclass(frozen=True, slots=True)
class Outcome:
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

    def wait(self, wait_s: float) -> Outcome | None:
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

    def _end(self, trouble: str | None) -> Outcome:
        self.kill()
        status = self._process.returncode
        said = bytes(self._said).decode("utf-8", errors="replace").strip().split("\n")[-1][:300]
        if trouble is None and (status < 0 or (status > 0 and (said or not self._output))):
            ended = f"was ended by signal {-status}" if status < 0 else f"ended with status {status}"
            trouble = f"{ended}: {said}" if said else ended
        return Outcome(bytes(self._output[:MOST_OUTPUT_BYTES]), trouble)


def environment() -> dict[str, str]:
    """What a program is told: where programs are, plain English, our zone."""
    zone = {"TZ": os.environ["TZ"]} if "TZ" in os.environ else {}
    return {"PATH": PATH, "LC_ALL": "C.UTF-8", "HOME": "/", **zone}

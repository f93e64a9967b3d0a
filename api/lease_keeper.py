"""The lease of one server: whoever holds it runs the loops that shall run once.

A thread of its own renews it every `RENEW_S`; so a long turn does not lose it. A server that dies is followed within
`TTL_S` and one `RENEW_S`, which is under 5 s. What the holder believes ends before the lease itself does, by a clock
that also runs while the process or the machine sleeps: one that was stopped for 10 s wakes and knows that it is none.
"""

import logging
import threading
import time
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

TTL_S = 3.5
RENEW_S = 1.0
# The belief ends so much before the lease: what was begun on it has this long to reach the database.
MARGIN_S = 0.5
_log = logging.getLogger(__name__)


def uptime() -> float:
    """Seconds that no change of the wall clock touches, and that go on while the machine sleeps."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) if hasattr(time, "CLOCK_BOOTTIME") else time.monotonic()


class LeaseKeeper:
    """Keeps asking for one lease.

    Args:
        ask: takes or renews the lease for `TTL_S`; False while another holds it; raises when the database is away.
        give_back: gives it back.
        clock: seconds, monotonic.
    """

    def __init__(
        self, ask: Callable[[], bool], give_back: Callable[[], None], clock: Callable[[], float] = uptime
    ) -> None:
        self._ask, self._give_back, self._clock = ask, give_back, clock
        self._until = float("-inf")
        self._held = threading.Event()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="loop-lease", daemon=True)

    def holds(self) -> bool:
        """Whether the lease is surely ours; no database is asked."""
        return self._clock() < self._until

    def wait(self, timeout_s: float) -> bool:
        """Whether the lease is ours; waits for it so long at most, or until the keeper is stopped."""
        if self.holds():
            return True
        if not self._stop.is_set():
            self._held.clear()  # a belief that ran out: nobody shall take it for news, again and again
        self._held.wait(timeout_s)
        return self.holds()

    def renew(self) -> None:
        """Ask once. Without an answer, what is believed holds until its time is up."""
        asked = self._clock()  # before the database takes the call: the lease is at least as long from here
        try:
            ours = self._ask()
        except SQLAlchemyError as error:
            _log.warning("the lease cannot be renewed: %s", " ".join(str(error).split()))
        else:
            self._until = asked + TTL_S - MARGIN_S if ours else float("-inf")
        if self.holds():
            self._held.set()
        elif not self._stop.is_set():
            self._held.clear()

    def start(self) -> None:
        """Begin to ask."""
        self._thread.start()

    def interrupt(self) -> None:
        """Ask no more, and let nobody wait; what is believed holds until its time is up."""
        self._stop.set()
        self._held.set()

    def stop(self) -> None:
        """Give the lease back, so that another has it at once."""
        self.interrupt()
        if self._thread.is_alive():
            self._thread.join(TTL_S)
        self._until = float("-inf")
        try:
            self._give_back()
        except SQLAlchemyError as error:
            _log.warning("the lease lapses by itself: %s", error)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.renew()
            self._stop.wait(RENEW_S)

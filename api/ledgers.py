"""The runs' ledgers, kept for a few seconds: every open dashboard asks for them, and they read a run's whole log."""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import sqlalchemy as sa

from goodput.ledger import Ledger
from goodput.reading import read_ledgers

KEEP_S = 10.0
_MAX_RUNS = 1000


@dataclass(slots=True)
class LedgerCache:
    """One server's ledgers. One request at a time computes; the others wait for it rather than do the same."""

    monotonic: Callable[[], float] = time.monotonic
    _kept: dict[str, tuple[float, Ledger | None]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, connection: sa.Connection, run: str) -> Ledger | None:
        """The ledger of a run, at most `KEEP_S` old; None for a run that is not known."""
        with self._lock:
            made, ledger = self._kept.get(run, (float("-inf"), None))
            if self.monotonic() - made > KEEP_S:
                ledger = next(iter(read_ledgers(connection, run)), None)
                if len(self._kept) >= _MAX_RUNS:
                    self._kept.clear()
                self._kept[run] = (self.monotonic(), ledger)
            return ledger

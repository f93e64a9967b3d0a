"""An answer that is costly to make and seldom changes: kept for a while, with the tag by which a client asks again."""

import hashlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class KeptAnswer:
    """The bytes of one answer. One request at a time makes it; the others take the one of before, if there is one."""

    keep_s: float
    monotonic: Callable[[], float] = time.monotonic
    _made: float = float("-inf")
    _kept: tuple[bytes, str] | None = None  # with its tag: who reads while another is made shall not mix the two
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, make: Callable[[], bytes]) -> tuple[bytes, str]:
        """The answer and its ETag."""
        kept = self._kept
        if kept is not None and self.monotonic() - self._made < self.keep_s:
            return kept
        if not self._lock.acquire(blocking=kept is None) and kept is not None:
            return kept
        try:
            if self._kept is None or self.monotonic() - self._made >= self.keep_s:
                return self.renew(make)
            return self._kept
        finally:
            self._lock.release()

    def renew(self, make: Callable[[], bytes]) -> tuple[bytes, str]:
        """Make the answer now, however old the one of before is."""
        fresh = make()
        self._kept = kept = fresh, f'"{hashlib.blake2b(fresh, digest_size=12).hexdigest()}"'
        self._made = self.monotonic()
        return kept

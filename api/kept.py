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
    _body: bytes | None = None
    _tag: str = ""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, make: Callable[[], bytes]) -> tuple[bytes, str]:
        """The answer and its ETag."""
        body, tag = self._body, self._tag
        if body is not None and self.monotonic() - self._made < self.keep_s:
            return body, tag
        if not self._lock.acquire(blocking=body is None) and body is not None:
            return body, tag
        try:
            if self._body is None or self.monotonic() - self._made >= self.keep_s:
                fresh = make()
                self._tag = f'"{hashlib.blake2b(fresh, digest_size=12).hexdigest()}"'
                self._body, self._made = fresh, self.monotonic()
            return self._body, self._tag
        finally:
            self._lock.release()

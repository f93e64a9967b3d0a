"""How much one caller may send: token buckets on requests and on body bytes, per token, else per client address.

A bucket may go below nothing (a body's size is known when it was read): then its caller waits until it is paid back.
"""

import math
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field

from api.settings import Limits

# Callers remembered; the one not heard of for longest is forgotten first.
_MOST_CALLERS = 10_000


@dataclass(slots=True)
class _Bucket:
    """What a caller may still send, as of `at` (monotonic seconds)."""

    requests: float
    body_bytes: float
    at: float


@dataclass(slots=True)
class RateLimiter:
    """The buckets of every caller. Safe for several threads."""

    limits: Limits
    monotonic: Callable[[], float] = time.monotonic
    _buckets: OrderedDict[str, _Bucket] = field(default_factory=OrderedDict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def wait_s(self, caller: str) -> tuple[float, str]:
        """Take one request out of a caller's bucket: 0 s where it may go on, else how long to wait and for what."""
        limits = self.limits
        with self._lock:
            bucket = self._filled(caller)
            short = 1.0 - bucket.requests if limits.requests_per_s else 0.0
            if short > 0:
                return short / limits.requests_per_s, "requests"
            if limits.bytes_per_s and bucket.body_bytes < 0:
                return -bucket.body_bytes / limits.bytes_per_s, "bytes"
            bucket.requests -= 1.0
        return 0.0, ""

    def charge(self, caller: str, body_bytes: int) -> None:
        """Take a body that was read out of a caller's bucket."""
        with self._lock:
            self._filled(caller).body_bytes -= body_bytes

    def _filled(self, caller: str) -> _Bucket:
        now, limits = self.monotonic(), self.limits
        most = (max(1.0, limits.requests_per_s * limits.burst_s), limits.bytes_per_s * limits.burst_s)
        bucket = self._buckets.pop(caller, None) or _Bucket(*most, now)
        passed = now - bucket.at
        bucket.requests = min(most[0], bucket.requests + passed * limits.requests_per_s)
        bucket.body_bytes = min(most[1], bucket.body_bytes + passed * limits.bytes_per_s)
        bucket.at = now
        self._buckets[caller] = bucket
        if len(self._buckets) > _MOST_CALLERS:
            self._buckets.popitem(last=False)
        return bucket


def whole_seconds(wait_s: float) -> str:
    """Seconds as the header Retry-After takes them: whole, at least one."""
    return str(max(1, math.ceil(wait_s)))

"""Load that the server cannot take now is refused early, with 503 and Retry-After, and nothing hangs.

At most so many requests write at a time, and so many read; another waits a little for its turn and is then refused.
"""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from api.metrics import Metrics
from api.problem import Problem

# Whoever waits holds a body in memory, as it was sent; `BodyRoom` bounds those.
WAITING_PER_SLOT = 48
_MOST_RETRY_AFTER_S = 5


@dataclass(slots=True)
class Slots:
    """Requests that may work at a time, and those that wait for it. For one event loop."""

    kind: str
    limit: int
    wait_s: float
    metrics: Metrics
    waiting: int = 0
    _free: asyncio.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self._free = asyncio.Semaphore(self.limit)

    @asynccontextmanager
    async def held(self) -> AsyncIterator[None]:
        """A slot for as long as the block lasts.

        Raises:
            Problem: 503, there was none in time.
        """
        began = asyncio.get_running_loop().time()
        if self._free.locked():
            await self._wait()
        else:
            await self._free.acquire()
        self.metrics.slot_wait.labels(self.kind).observe(asyncio.get_running_loop().time() - began)
        self.metrics.in_flight.labels(self.kind).inc()
        try:
            yield
        finally:
            self.metrics.in_flight.labels(self.kind).dec()
            self._free.release()

    async def _wait(self) -> None:
        if self.waiting >= self.limit * WAITING_PER_SLOT:
            raise self._refusal()
        self.waiting += 1
        try:
            async with asyncio.timeout(self.wait_s):
                await self._free.acquire()
        except TimeoutError:
            raise self._refusal() from None
        finally:
            self.waiting -= 1

    def _refusal(self) -> Problem:
        self.metrics.shed.labels(f"{self.kind}s").inc()
        queue = self.waiting / (self.limit * WAITING_PER_SLOT)
        detail = f"the server is busy: {self.limit} requests {self.kind} at a time, {self.waiting} wait: try again"
        return Problem(503, detail, {"Retry-After": retry_after(queue)})


@dataclass(slots=True)
class BodyRoom:
    """Bytes of request bodies that may be in memory at a time, as sent. For one event loop."""

    limit_bytes: int
    metrics: Metrics
    taken_bytes: int = 0

    def take(self, size: int) -> None:
        """Room for a part of a body.

        Raises:
            Problem: 503, there is none.
        """
        if self.taken_bytes + size > self.limit_bytes:
            self.metrics.shed.labels("bodies").inc()
            detail = f"{self.taken_bytes} bytes of bodies are in memory already: try again"
            raise Problem(503, detail, {"Retry-After": retry_after(1.0)})
        self.taken_bytes += size

    def give_back(self, size: int) -> None:
        """A body is done with."""
        self.taken_bytes -= size


def retry_after(queue: float) -> str:
    """Whole seconds until another try: 1 to 5, more the longer the queue (0 to 1), never the same for all."""
    most = 1 + round(min(1.0, max(0.0, queue)) * (_MOST_RETRY_AFTER_S - 1))
    return str(random.randint(1, most))  # noqa: S311  # jitter, no secret

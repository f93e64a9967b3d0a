"""Whether the event loop keeps pace: a request that it comes to late is refused at once, so that the next is in time.

Without it an overload is a collapse: every request is worked on, each after its sender gave up and came again.
"""

import asyncio
import time
from dataclasses import dataclass

_TICK_S = 0.1


@dataclass(slots=True)
class Pace:
    """When the loop was to look at its clock next; while nobody runs it, the loop counts as being in time."""

    _due: float | None = None

    def behind_s(self) -> float:
        """How late the loop is, within a turn of it too; seconds."""
        return 0.0 if self._due is None else max(0.0, time.monotonic() - self._due)

    async def run(self) -> None:
        """Look at the clock, until cancelled."""
        try:
            while True:
                self._due = time.monotonic() + _TICK_S
                await asyncio.sleep(_TICK_S)
        finally:
            self._due = None

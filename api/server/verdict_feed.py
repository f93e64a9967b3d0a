"""Who listens to the verdicts: wakes them when one has changed, and keeps their number bounded.

A listener holds no queue: it reads on from its own place in the database, a page at a time, when it is woken. One that
reads slowly is behind, costs nobody anything, and is let go once it takes nothing for `DROP_S`.
"""

import asyncio
import threading
from dataclasses import dataclass, field

# Open streams of one process.
MOST_STREAMS = 64
# A comment goes out so often, so that whoever stands between sees the stream is alive.
HEARTBEAT_S = 15.0
# A listener that takes nothing for so long is let go.
DROP_S = 30.0


@dataclass(slots=True)
class VerdictFeed:
    """The listeners of one process. `wake` may be called from any thread."""

    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listeners: set["FeedListener"] = field(default_factory=set)

    def listen(self) -> "FeedListener | None":
        """A place; None where all are taken. Called in the event loop that will wait."""
        with self._lock:
            if len(self._listeners) >= MOST_STREAMS:
                return None
            listener = FeedListener(asyncio.get_running_loop(), asyncio.Event())
            self._listeners.add(listener)
            return listener

    def leave(self, listener: "FeedListener") -> None:
        """Give a place back."""
        with self._lock:
            self._listeners.discard(listener)

    def wake(self) -> None:
        """There is news: everybody looks."""
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            if not listener.loop.is_closed():
                listener.loop.call_soon_threadsafe(listener.news.set)

    def __len__(self) -> int:
        return len(self._listeners)


@dataclass(frozen=True, slots=True, eq=False)
class FeedListener:
    """One stream: the loop that serves it, and the event that wakes it."""

    loop: asyncio.AbstractEventLoop
    news: asyncio.Event

"""Answers of the API that the sessions of one dashboard share: who asks the same a moment later gets the same object.

    shared = SharedAnswers(FRESH_S)
    shared.get(key, ask)

Fifty open pages ask for the same six things every few seconds. One of them asks, the others wait for its answer; a
failure is shared as well, so that nobody waits in a row for an API that does not answer.
"""

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from threading import Lock, Thread
from typing import Any, TypeVar

T = TypeVar("T")

# How old an answer may be that is given once more. The page itself asks every second or more seldom.
FRESH_S = 0.5
MOST = 1000  # answers held: with more of them the old ones go


class SharedAnswers:
    """What was answered last, by what was asked; safe to share between threads."""

    def __init__(self, fresh_s: float) -> None:
        self._fresh_s = fresh_s
        self._lock = Lock()
        self._asking: dict[Hashable, Lock] = {}
        self._held: dict[Hashable, tuple[float, Any]] = {}  # until when it is fresh, and the answer or the failure

    def get(self, key: Hashable, ask: Callable[[], T], fresh_s: Callable[[T], float] | None = None) -> T:
        """The answer that is held, while it is fresh; else a new one.

        Args:
            fresh_s: how long an answer is fresh, where it is a large one. Nobody waits for a new one of those, unless
                the old one is twice as old: it is fetched behind.

        Raises:
            Exception: what `ask` raises; again for whoever asks while an answer would be fresh.
        """
        began = time.monotonic()
        until, held = self._held.get(key, (0.0, None))
        if began < until:
            fresh: T = self._given(held)
            return fresh
        with self._lock:
            turn = self._asking.setdefault(key, Lock())
        if fresh_s is not None and held is not None and not isinstance(held, Exception):
            old: T = held
            if began < until + fresh_s(old):
                if turn.acquire(blocking=False):
                    try:
                        Thread(target=self._renew, args=(key, ask, fresh_s, turn), daemon=True).start()
                    except RuntimeError:  # the system has no thread to give: the next who asks tries again
                        turn.release()
                return old
        with turn:
            until, held = self._held.get(key, (0.0, None))
            # What came while this one waited is new to it, however long it then took to get its turn.
            if until <= began:
                try:
                    found: T = ask()
                    kept_s = self._fresh_s if fresh_s is None else fresh_s(found)
                    until, held = time.monotonic() + kept_s, found
                except Exception as error:  # noqa: BLE001  # it is raised below, for all who wait
                    until, held = time.monotonic() + self._fresh_s, error
                self._hold(key, until, held)
        answer: T = self._given(held)
        return answer

    @staticmethod
    def _given(held: Any) -> Any:
        if isinstance(held, Exception):
            raise held
        return held

    def _renew(self, key: Hashable, ask: Callable[[], T], fresh_s: Callable[[T], float], turn: Lock) -> None:
        try:
            with suppress(Exception):  # whoever asks once the old answer is too old gets it
                found = ask()
                self._hold(key, time.monotonic() + fresh_s(found), found)
        finally:
            turn.release()

    def _hold(self, key: Hashable, until: float, held: Any) -> None:
        with self._lock:
            if len(self._held) >= MOST:
                self._forget(time.monotonic())
            self._held[key] = (until, held)

    def forget(self) -> None:
        """Let no answer be given once more: something was changed."""
        with self._lock:
            self._forget(float("inf"))

    def _forget(self, before: float) -> None:
        for key in [key for key, (until, _) in self._held.items() if until < before]:
            del self._held[key]
            self._asking.pop(key, None)

"""The errors of an attempt, each told once: thousands of ranks repeat the same few.

The first rank's error is held while others may repeat it, and says how many did (`repeats`).
"""

from dataclasses import replace

from store.event import Event

# Errors told apart between two iterations.
MAX_ERRORS = 64
# An error is held no longer than for these lines.
MAX_LINES = 20_000
# Python's traceback of an exception that it ignores is no longer than these lines, other ranks' among them.
MAX_IGNORED = 200


class HeldErrors:
    """Holds the errors since the last iteration, and knows which of them were told."""

    def __init__(self) -> None:
        self._held: dict[str, Event] = {}
        self._seen: set[str] = set()
        self._first = 0
        self._ignored: list[int] = []  # lines that told of an exception that Python ignores

    def ignore(self, line: int) -> None:
        """The next error of a traceback ends nothing: it was raised while an object was taken down."""
        if len(self._ignored) < MAX_ERRORS:
            self._ignored.append(line)

    def ignored(self, line: int) -> bool:
        """Whether an error of a traceback is one of those."""
        self._ignored = [since for since in self._ignored if line - since <= MAX_IGNORED]
        return bool(self._ignored) and self._ignored.pop(0) > 0

    def add(self, key: str, event: Event) -> bool:
        """Hold an error, or count it as one more of its kind. False where it was told before."""
        if (first := self._held.get(key)) is not None:
            repeats = first.attributes.get("repeats", 1)
            count = repeats + 1 if isinstance(repeats, int) else 2
            self._held[key] = replace(
                first, time=first.time or event.time, attributes={**first.attributes, "repeats": count}
            )
            return True
        if key in self._seen or len(self._seen) >= MAX_ERRORS:
            return False
        self._seen.add(key)
        self._held[key] = event
        self._first = self._first or event.line or 0
        return True

    def late(self, line: int) -> bool:
        """Whether the first error is held for long enough."""
        return bool(self._held) and line - self._first > MAX_LINES

    def release(self) -> list[Event]:
        """The errors held, in their order; repeats of them that follow are told no more."""
        held, self._held, self._first = list(self._held.values()), {}, 0
        return held

    def forget(self) -> None:
        """Work went on: the same error would be a new one."""
        self._seen = set(self._held)

"""How long to wait before the next try: longer each time, never the same for two nodes."""

import random


class Backoff:
    """Doubling waits with jitter between half and the whole of each step, in seconds."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._step_s = first_s

    def next_s(self) -> float:
        """The wait before the next try."""
        step, self._step_s = self._step_s, min(self._step_s * 2, self._most_s)
        # Jitter spreads the sidecars of a cluster whose server comes back; nothing secret hangs on it.
        return step * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        """It worked: the next wait is short again."""
        self._step_s = self._first_s

"""Whether a page's own times stand still: its exporter answers, and has nothing new to say. Pure; plain JSON as state.

DCGM's page bears no times, and values that do not move are normal: only times that are written tell anything.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from store.telemetry import Sample

# npu-exporter's slowest group of metrics is renewed each minute.
STALE_S = 300.0


class Still:
    """The newest time that a page bore, and since when it is that one."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        saved = state or {}
        self._newest_s: float | None = saved.get("newest_s")
        self._since_s: float = saved.get("since_s", 0.0)
        self._stale: bool = saved.get("stale", False)

    def look(self, samples: Sequence[Sample], now: datetime) -> list[tuple[str, str]]:
        """One scrape: the kind and the words of the event that it is, if it is one."""
        if not samples:
            return []
        newest_s = max(sample.time for sample in samples).timestamp()
        if newest_s != self._newest_s:
            was_stale, self._stale = self._stale, False
            self._newest_s, self._since_s = newest_s, now.timestamp()
            return [("exporter_up", "The times on the exporter's page move again.")] if was_stale else []
        if self._stale or now.timestamp() - self._since_s < STALE_S:
            return []
        self._stale = True
        minutes = (now.timestamp() - self._since_s) / 60
        return [("exporter_stale", f"The newest time on the exporter's page has been the same for {minutes:.0f} min.")]

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {"newest_s": self._newest_s, "since_s": self._since_s, "stale": self._stale}

"""What the sidecar says of itself once a minute: its sources, its spool, its losses. Never kept: the newest counts.

A thread and a connection of its own, so that a report neither waits for events nor delays them.
"""

import logging
import random
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.metrics import SidecarMetrics
from collectors.ship.transport import ServerClient
from store.records.event import format_time

if TYPE_CHECKING:
    from collectors.spool.spool import Spool

_LOG = logging.getLogger("foreshock.sidecar")
_PATH = "/api/v1/heartbeats"
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_FIRST_S = 5.0  # a sidecar that was just started says so soon


class HeartbeatSender:
    """One thread's work: `run` until stopped. `client` and `interval_s` may be changed meanwhile."""

    def __init__(self, say: Callable[[float], Mapping[str, Any]], client: ServerClient, interval_s: float) -> None:
        """`say` gives the report, told the interval in seconds."""
        self._say = say
        self._client = client
        self._next: ServerClient | None = None
        self.interval_s = interval_s
        self.beats: Callable[[bool], None] = lambda _taken: None  # told how each one went
        self._told = False

    def run(self, stop: threading.Event) -> None:
        """A report every interval, give or take a tenth, until the stop event."""
        # Spread from the first one on: a whole cluster may have been started in the same second.
        wait_s = random.uniform(0.1, 1.0) * min(_FIRST_S, self.interval_s)  # noqa: S311
        while not stop.wait(wait_s):
            self.beat()
            wait_s = self.interval_s * random.uniform(0.9, 1.1)  # noqa: S311
        self.close()

    def beat(self) -> None:
        """One report; one that fails is not sent again: the next says it all."""
        if self._next is not None:
            self._client.close()
            self._client, self._next = self._next, None
        try:
            answer = self._client.post(_PATH, [self._say(self.interval_s)])
            taken = 200 <= answer.status < 300
            reason = answer.why()
        except Exception as error:  # noqa: BLE001 - a report that cannot be made must not end the reports
            taken, reason = False, f"{type(error).__name__}: {error}"
        self.beats(taken)
        if taken == self._told:
            self._told = not taken
            (_LOG.info if taken else _LOG.warning)(
                "heartbeats are %s", "taken again" if taken else f"not taken: {reason}"
            )

    def use(self, client: ServerClient) -> None:
        """From the next report on, another client; the present one is closed."""
        self._next = client

    def close(self) -> None:
        """Let go of the connections."""
        for client in (self._client, self._next):
            if client is not None:
                client.close()


def report(node: str, metrics: SidecarMetrics, spool: "Spool", interval_s: float) -> dict[str, Any]:
    """One heartbeat (`wire.sidecars.HeartbeatJson`, whose library a node does without); counts since the start."""
    lost = spool.lost()
    sources = list(metrics.sources.values())
    missing = lost["events", "missing"] + lost["telemetry", "missing"]
    return {
        "node": node,
        "time": format_time(datetime.now(UTC)),
        "version": metrics.version,
        "boot": boot_id(),
        "started": format_time(datetime.fromtimestamp(metrics.started_at, UTC)),
        "interval_s": interval_s,
        "sources": [
            {
                "source": source.spec,
                "up": source.is_up,
                "blocked": source.is_blocked,
                "trust": source.trust,
                "refused": sum(source.refused.values()),
                **source.totals,
            }
            for source in sources
        ],
        "spool": {
            "events_bytes": spool.backlog_bytes("events"),
            "telemetry_bytes": spool.backlog_bytes("telemetry"),
            "oldest_s": round(spool.oldest_s(), 3),
            "limit_bytes": spool.max_bytes,
        },
        "lost": {
            "records": sum(source.totals["lost"] for source in sources) + missing,
            "events": lost["events", "full"],
            "rollups": lost["telemetry", "full"],
            "damaged_bytes": lost["events", "damaged"] + lost["telemetry", "damaged"],
        },
        "rejected": metrics.rejected_total,
    }


def boot_id() -> str | None:
    """Which boot of this machine it is; None where the kernel does not say."""
    try:
        return _BOOT_ID.read_text(encoding="ascii").strip() or None
    except OSError:
        return None

"""A real sidecar beside the simulated ones: a line is appended to its log, and GET /events asked until it is there."""

import threading
import time
from datetime import UTC, datetime, timedelta
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from urllib.parse import quote, urlsplit

import orjson

NODE = "probe-1"
EVERY_S = 0.5
PATIENCE_S = 60.0
_LINE = "{stamp} {node} kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={serial}, name=probe, GPU has fallen off the bus.\n"


class Probe(threading.Thread):
    """Until stopped. `took` is (phase, seconds) of each line; `lost` those not seen within PATIENCE_S."""

    def __init__(self, server: str, log: Path, phase: "list[str]") -> None:
        super().__init__(name="probe", daemon=True)
        self._address = urlsplit(server).netloc
        self._log = log
        self._phase = phase  # its one item is the present phase
        self._stop_event = threading.Event()
        self.took: list[tuple[str, float]] = []
        self.lost = 0

    def run(self) -> None:
        """A line at a time; the next one half a second after the last one's, or at once where that took longer."""
        connection = HTTPConnection(self._address, timeout=30)
        serial = 0
        while not self._stop_event.is_set():
            serial += 1
            began = time.perf_counter()
            phase = self._phase[0]
            moment = datetime.now(UTC)
            with self._log.open("ab", buffering=0) as file:
                file.write(_LINE.format(stamp=moment.isoformat(), node=NODE, serial=serial).encode())
            took = self._seen(connection, serial, moment - timedelta(seconds=1), began)
            if took is None:
                self.lost += 1
            else:
                self.took.append((phase, took))
            self._stop_event.wait(max(0.0, EVERY_S - (time.perf_counter() - began)))
        connection.close()

    def stop(self) -> None:
        """After the present line."""
        self._stop_event.set()
        self.join()

    @staticmethod
    def _seen(connection: HTTPConnection, serial: int, since: datetime, began: float) -> float | None:
        path = f"/api/v1/events?node={NODE}&limit=100&since={quote(since.isoformat())}"
        time.sleep(0.05)
        while (took := time.perf_counter() - began) < PATIENCE_S:
            try:
                connection.request("GET", path)
                with connection.getresponse() as reply:
                    content = reply.read()
                    found = reply.status == 200
            except (OSError, HTTPException):
                connection.close()
                continue
            took = time.perf_counter() - began
            if found and any(item["attributes"].get("pid") == serial for item in orjson.loads(content)["items"]):
                return took
            time.sleep(0.02 if took < 1 else 0.1)
        return None

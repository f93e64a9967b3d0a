"""A fault line written to /dev/kmsg until GET /events shows it, and until GET /incidents counts it: one node."""

import os
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
from real.foreshock import serve, sidecar

from benchmarks.result import Result, quantile, unmeasured
from store.records.event import format_time

EVENTS = "fault line in /dev/kmsg until it is an event in the API"
INCIDENTS = "fault line in /dev/kmsg until its incident counts it in the API"
WHAT = INCIDENTS
BUDGET = "p99 < 1 s on one node"
LINES, PATIENCE_S = 1000, 10.0
# With the pauses a line takes some 80 ms: the whole ends within two minutes also where single lines wait.
_PAUSE_S, _LIMIT_S = 0.01, 110.0
_LOOK_S = 0.004
NODE = "bench"
KMSG = Path("/dev/kmsg")


@dataclass(slots=True)
class Watched:
    """One kind of answer: seconds that each line took to be in it."""

    what: str
    look: Callable[[], int]  # how many of our lines it shows
    took: list[float] = field(default_factory=list)
    lost: int = 0


@dataclass(slots=True)
class Newest:
    """The last of our events that was seen."""

    time: str
    serial: int = -1


def measure(folder: Path) -> Iterator[Result]:
    """Lines of several GPUs and codes, one after the other, each by a descriptor of its own."""
    if not os.access(KMSG, os.R_OK | os.W_OK):
        yield unmeasured(EVENTS, BUDGET, "/dev/kmsg may not be read and written here")
        return
    with serve(f"sqlite:///{folder / 'x.db'}", folder) as server, sidecar(server, folder, "kmsg", node=NODE):
        time.sleep(1)  # what the ring held before is read first
        name = f"bench{os.getpid()}"
        watched = [
            Watched(EVENTS, _asker(server.url, f"/api/v1/events?node={NODE}&kind=xid&limit=1000", name)),
            Watched(INCIDENTS, _counter(server.url, f"/api/v1/incidents?node={NODE}")),
        ]
        _drive(name, watched)
    yield from (_result(each) for each in watched)


def _drive(name: str, watched: list[Watched]) -> None:
    """Write lines; before the next one both answers show the last, or have been given up."""
    until = time.monotonic() + _LIMIT_S
    number = 0
    while number < LINES and time.monotonic() < until:
        before = [each.look() for each in watched]
        began = time.perf_counter()
        _write(name, number)
        threads = [
            threading.Thread(target=_await, args=(each, was, began)) for each, was in zip(watched, before, strict=True)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        number += 1
        time.sleep(_PAUSE_S)


def _await(watched: Watched, before: int, began: float) -> None:
    while time.perf_counter() - began < PATIENCE_S:
        if watched.look() > before:
            watched.took.append(time.perf_counter() - began)
            return
        time.sleep(_LOOK_S)
    watched.lost += 1


def _write(name: str, number: int) -> None:
    pci, code = f"0000:{number % 8 + 16:02x}:00", 79 if number % 2 else 48
    # A descriptor of its own for each line: the kernel drops what one writes more than ten times in five seconds.
    # And a line end: without one the kernel may hold the record back until the next comes.
    with KMSG.open("wb", buffering=0) as kmsg:
        kmsg.write(f"<3>NVRM: Xid (PCI:{pci}): {code}, pid={number}, name={name}, foreshock benchmark\n".encode())


def _asker(server: str, path: str, name: str) -> Callable[[], int]:
    """How many of our events there are: the newest one's serial, plus one."""
    ask = _connection(server)
    newest = Newest(time=format_time(datetime.now(UTC)))

    def look() -> int:
        for item in ask(f"{path}&since={newest.time}")["items"]:
            serial = item["attributes"].get("pid", -1)
            if item["attributes"].get("process") == name and serial > newest.serial:
                newest.serial, newest.time = serial, item["time"]
        return newest.serial + 1

    return look


def _counter(server: str, path: str) -> Callable[[], int]:
    """The events of all incidents of this node."""
    ask = _connection(server)
    return lambda: sum(incident["count"] for incident in ask(path)["items"] if incident["device"]["pci"])


def _connection(server: str) -> Callable[[str], dict[str, Any]]:
    connection = HTTPConnection(urlsplit(server).netloc, timeout=30)

    def ask(path: str) -> dict[str, Any]:
        connection.request("GET", path)
        with connection.getresponse() as reply:
            return orjson.loads(reply.read())  # type: ignore[no-any-return]

    return ask


def _result(watched: Watched) -> Result:
    took = watched.took or [float("inf")]
    p99 = quantile(took, 0.99)
    lines = len(watched.took) + watched.lost
    return Result(
        watched.what,
        BUDGET,
        f"p50 {quantile(took, 0.5) * 1000:.0f} ms, p99 {p99 * 1000:.0f} ms, max {max(took) * 1000:.0f} ms",
        "-",
        None,
        "met" if p99 < 1 and not watched.lost else "not met",
        f"{lines} lines, {watched.lost} not seen within {PATIENCE_S:.0f} s; SQLite; an absolute budget",
    )

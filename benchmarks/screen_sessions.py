"""Many open sessions of the dashboard at once, and how fast the API answers meanwhile.

A session is a WebSocket that does what the page's script does in a browser: it asks for the first page, and again for
each part that is to be redrawn, as often as the page says. It draws nothing, so the browsers' own work is left out.
"""

import asyncio
import http.client
import os
import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from urllib.parse import urlsplit

from streamlit.proto.BackMsg_pb2 import BackMsg
from streamlit.proto.ForwardMsg_pb2 import ForwardMsg
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.typing import Origin, Subprotocol

from benchmarks.result import Result, quantile

SESSIONS = 50
OPEN_S, WARM_S = 60.0, 20.0
BUDGET_S = 0.3
PATHS = ("cluster", "verdicts?state=open&limit=100", "incidents?limit=300", "events?limit=200", "nodes?limit=100")
_PAUSE_S = 0.1


@dataclass(slots=True)
class Crowd:
    """What was measured, in seconds: the API's answers, and the dashboard's turns from request to end of script."""

    answers: list[float] = field(default_factory=list)
    turns: list[float] = field(default_factory=list)
    alone: list[float] = field(default_factory=list)
    dropped: int = 0  # sessions that the dashboard closed

    def result(self, nodes: int) -> Result:
        """The row."""
        p95 = quantile(self.answers, 0.95)
        return Result(
            f"{nodes:,} nodes: the API's answers while {SESSIONS} sessions are open",
            f"p95 < {BUDGET_S * 1000:.0f} ms",
            f"p50 {quantile(self.answers, 0.5) * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms",
            "-",
            None,
            "met" if p95 < BUDGET_S else "not met",
            f"{len(self.answers)} answers of {len(PATHS)} paths in {OPEN_S:.0f} s, p95 without sessions "
            f"{quantile(self.alone, 0.95) * 1000:.0f} ms; WebSocket sessions on the first page, {len(self.turns)} "
            f"turns of it, p95 {quantile(self.turns, 0.95):.2f} s, {self.dropped} dropped; "
            f"SQLite, {datetime.now(UTC):%Y-%m-%d}; load average {os.getloadavg()[0]:.1f}",
        )


def crowd(api: str, dashboard: str) -> Crowd:
    """Open the sessions, and ask the API all the while."""
    found = Crowd()
    _ask(api, found.alone, time.monotonic() + 10)
    until = time.monotonic() + WARM_S + OPEN_S
    thread = threading.Thread(target=_ask, args=(api, found.answers, until, time.monotonic() + WARM_S))
    thread.start()
    asyncio.run(_open(dashboard, found, until))
    thread.join()
    return found


def _ask(api: str, took: list[float], until: float, since: float = 0.0) -> None:
    """One path after the other, over one connection."""
    connection = http.client.HTTPConnection(urlsplit(api).netloc, timeout=60)
    while time.monotonic() < until:
        for path in PATHS:
            began = time.perf_counter()
            try:
                connection.request("GET", f"/api/v1/{path}")
                with connection.getresponse() as reply:
                    if reply.read() and reply.status != 200:
                        raise RuntimeError(f"{path}: {reply.status}")
            except http.client.RemoteDisconnected:  # it was idle for long: a connection of five seconds ago is closed
                connection.close()
                continue
            if time.monotonic() > since:
                took.append(time.perf_counter() - began)
            time.sleep(_PAUSE_S)
    connection.close()


async def _open(dashboard: str, found: Crowd, until: float) -> None:
    async with asyncio.TaskGroup() as group:
        for number in range(SESSIONS):
            # Within the first seconds, as people come: not all in one moment.
            group.create_task(_session(dashboard, found, until, number * WARM_S / 2 / SESSIONS))


async def _session(dashboard: str, found: Crowd, until: float, after_s: float) -> None:
    await asyncio.sleep(after_s)
    url = f"ws://{urlsplit(dashboard).netloc}/_stcore/stream"
    try:
        async with connect(
            url, subprotocols=[Subprotocol("streamlit")], origin=Origin(dashboard), max_size=None, proxy=None
        ) as socket:
            await Session(socket, found).follow(until)
    except (ConnectionClosed, TimeoutError):
        found.dropped += 1


class Session:
    """One open page: what it asks for, and when that was done."""

    def __init__(self, socket: ClientConnection, found: Crowd) -> None:
        self._socket = socket
        self._found = found
        self._timers: dict[str, asyncio.Task[None]] = {}
        self._began: float | None = None

    async def follow(self, until: float) -> None:
        """Draw the page, and what of it is to be drawn again, until a moment of the monotonic clock."""
        await self._rerun("")
        try:
            async with asyncio.timeout_at(asyncio.get_running_loop().time() + until - time.monotonic()):
                while True:
                    self._take(ForwardMsg.FromString(await self._socket.recv(decode=False)))
        except TimeoutError:
            pass
        finally:
            for one in self._timers.values():
                one.cancel()

    def _take(self, told: ForwardMsg) -> None:
        kind = told.WhichOneof("type")
        if kind == "auto_rerun" and told.auto_rerun.fragment_id not in self._timers:
            again = self._again(told.auto_rerun.interval, told.auto_rerun.fragment_id)
            self._timers[told.auto_rerun.fragment_id] = asyncio.create_task(again)
        elif kind == "script_finished" and self._began is not None:
            self._found.turns.append(time.monotonic() - self._began)
            self._began = None

    async def _again(self, interval_s: float, fragment: str) -> None:
        while True:
            await asyncio.sleep(interval_s)
            await self._rerun(fragment)

    async def _rerun(self, fragment: str) -> None:
        """Ask for the page, or for a part of it again."""
        asked = BackMsg()
        asked.rerun_script.query_string = ""
        if fragment:
            asked.rerun_script.fragment_id = fragment
            asked.rerun_script.is_auto_rerun = True
        self._began = self._began or time.monotonic()
        await self._socket.send(asked.SerializeToString())

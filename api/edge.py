"""What stands before every route: how much each caller may send, and how much is worked on at a time."""

from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Annotated

from fastapi import Depends, Request

from api.limits import RateLimiter, whole_seconds
from api.metrics import Metrics
from api.pace import Pace
from api.problem import Problem
from api.settings import ApiSettings
from api.shedding import BodyRoom, Slots, retry_after

# Probes and scrapes that may wait for a database at a time: one that hangs must not take every thread.
_PROBES = 4
_PROBE_WAIT_S = 1.0
# Senders wait 10 s for an answer: a request that the event loop comes to so late is not begun. Loading a library may
# hold it up for a second.
_MOST_BEHIND_S = 2.5


@dataclass(frozen=True, slots=True)
class Edge:
    """One server's edge. Writes, reads and probes have slots of their own: none can starve another."""

    limiter: RateLimiter | None
    writes: Slots
    reads: Slots
    probes: Slots
    metrics: Metrics
    bodies: BodyRoom
    pace: Pace = field(default_factory=Pace)

    def keep_pace(self) -> None:
        """Let a request pass while the event loop is in time.

        Raises:
            Problem: 503, it is not.
        """
        behind_s = self.pace.behind_s()
        if behind_s > _MOST_BEHIND_S:
            self.metrics.shed.labels("behind").inc()
            detail = f"the server is {behind_s:.1f} s behind its requests: try again"
            raise Problem(503, detail, {"Retry-After": retry_after(behind_s / _MOST_BEHIND_S - 1.0)})

    def admit(self, request: Request, caller: str) -> None:
        """Count a request of a caller.

        Raises:
            Problem: 429, it sends too much; 503 at /alerts, for Alertmanager takes a 429 as final.
        """
        if self.limiter is None:
            return
        request.state.caller = caller
        wait_s, of_what = self.limiter.wait_s(caller)
        if wait_s > 0:
            self.metrics.shed.labels("rate").inc()
            status = 503 if request.url.path.endswith("/alerts") else 429
            detail = f"too many {of_what} of one sender: send less, or raise `limits` in the server's configuration"
            raise Problem(status, detail, {"Retry-After": whole_seconds(wait_s)})

    def charge(self, request: Request, body_bytes: int) -> None:
        """Count a body that was read."""
        caller = getattr(request.state, "caller", None)
        if self.limiter is not None and caller is not None:
            self.limiter.charge(caller, body_bytes)


def make_edge(settings: ApiSettings, metrics: Metrics) -> Edge:
    """The edge that the settings ask for. Without tokens only this machine can call: nobody is limited."""
    limits = settings.limits
    return Edge(
        RateLimiter(limits) if settings.tokens else None,
        Slots("write", limits.max_writes, limits.slot_wait_s, metrics),
        Slots("read", limits.max_reads, limits.slot_wait_s, metrics),
        Slots("probe", _PROBES, _PROBE_WAIT_S, metrics),
        metrics,
        BodyRoom(max(limits.bodies_bytes, settings.body_limit_bytes), metrics),
    )


async def _edge(request: Request) -> Edge:
    edge: Edge = request.app.state.edge
    return edge


AtEdge = Annotated[Edge, Depends(_edge)]


async def write_slot(edge: AtEdge) -> AsyncIterator[None]:
    """A slot to write, for as long as the route works."""
    async with edge.writes.held():
        yield


async def read_slot(edge: AtEdge) -> AsyncIterator[None]:
    """A slot to read."""
    async with edge.reads.held():
        yield


async def _probe_slot(edge: AtEdge) -> AsyncIterator[None]:
    async with edge.probes.held():
        yield


# Given back before the answer is sent: a client that reads slowly holds none.
ProbeSlot = Annotated[None, Depends(_probe_slot, scope="function")]

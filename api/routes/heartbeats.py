"""`POST /heartbeats`: what each sidecar says of itself, once a minute."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool

from api.answers.reply import reply
from api.edge.auth import Caller, Ingester
from api.edge.body import Packed, records_body, small_body, unpack
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.edge.work_budget import WorkBudget, uncounted, working
from api.intake.entries import MAX_REJECTED_SHOWN, IntakeResult, count_rejected, records, sift
from api.intake.heartbeat_record import own_report, read_heartbeat
from api.server.state import Server, State
from wire.events import BatchResultJson

router = APIRouter(prefix=PREFIX, tags=["sidecars"])

_EXAMPLE: dict[str, Any] = {
    "node": "gpu-017",
    "time": "2025-03-01T04:05:06Z",
    "version": "0.1.0",
    "boot": "4f2a8c1e-0d1b-4c55-9e5e-1f1d6a3b2c10",
    "started": "2025-03-01T00:00:00Z",
    "interval_s": 60,
    "sources": [
        {
            "source": "kmsg",
            "up": True,
            "blocked": False,
            "lines": 1,
            "events": 0,
            "errors": 0,
            "lost": 0,
            "failures": 0,
        }
    ],
    "spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 268435456},
    "lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0},
    "rejected": 0,
}


@router.post(
    "/heartbeats",
    operation_id="post_heartbeats",
    summary="Take heartbeats of sidecars",
    responses=answer(BatchResultJson),
    openapi_extra=records_body(_EXAMPLE, "Counts are totals since `started`. The newest of each node is kept."),
)
async def post_heartbeats(caller: Ingester, server: Server, packed: Packed, request: Request) -> Response:
    """Note that nodes are alive, and how their sidecars fare; written within a second or two."""
    with uncounted():
        small = small_body(request, packed)
        if small is not None:
            return _take(caller, server, small)
    with working(WorkBudget(server.settings.limits.work_s)):
        return await run_in_threadpool(lambda: _take(caller, server, unpack(request, server, packed)))


def _take(caller: Caller, server: State, body: bytes) -> Response:
    now = server.wall()
    entries = records(body)
    reports, rejected = sift(entries, lambda value: own_report(caller, read_heartbeat(value, now)))
    caller.count((report.node for report in reports), "heartbeats")
    count_rejected(server.metrics, "heartbeats", rejected)
    if server.heartbeats.put(reports):
        raise Problem(503, "too many heartbeats wait for the database: try again", {"Retry-After": "5"})
    return reply(IntakeResult(len(reports), 0, rejected[:MAX_REJECTED_SHOWN]))

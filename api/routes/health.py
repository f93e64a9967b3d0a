"""`/livez`, `/readyz`, `/healthz`: for load balancers and init systems; no token needed."""

from collections.abc import Mapping
from datetime import datetime

from fastapi import APIRouter, Response
from sqlalchemy.exc import SQLAlchemyError

from api.answers.reply import reply
from api.edge.admission import ProbeSlot
from api.edge.openapi import answer
from api.gauges.left_schedulers import scheduler_names
from api.server.state import Server, State
from store.database.connections import newest_revision, revision
from store.database.integrity import is_damage, remedy_of
from store.events.incident_intake import IntakeBacklog, read_waiting
from store.hints.holds import orphan_holds
from store.models.registry import model_trouble
from store.plural import many
from wire.cluster import CheckJson

router = APIRouter(tags=["health"])

# Incidents follow events within a second; so much later something is wrong.
_BEHIND_S = 10.0


@router.get("/livez", operation_id="livez", summary="Is the process alive", responses=answer(CheckJson))
async def livez() -> Response:
    """Ok while the process answers at all; needs neither database nor thread."""
    return reply({"status": "ok", "checks": {}})


@router.get("/readyz", operation_id="readyz", summary="Can the server do its work", responses=answer(CheckJson))
def readyz(server: Server, _slot: ProbeSlot) -> Response:
    """Names each check; 503 when one that the server cannot do without fails. A missing model is no failure."""
    checks = run_checks(server)
    failed = any(text.startswith("failed") for text in checks.values())
    return reply({"status": "failed" if failed else "ok", "checks": checks}, 503 if failed else 200)


@router.get("/healthz", operation_id="healthz", summary="As /readyz", responses=answer(CheckJson))
def healthz(server: Server, _slot: ProbeSlot) -> Response:
    """The same as /readyz, under the name that some tools look for."""
    return readyz(server, _slot)


def run_checks(server: State) -> dict[str, str]:
    """Each check's outcome: `ok`, or a word on what is wrong; what begins with `failed` is fatal.

    Incidents that lag and a loop that fails are said, and are no reason to send requests elsewhere: another server
    on the same database would answer no better.
    """
    failing = ", ".join(sorted(server.metrics.failing))
    checks = dict.fromkeys(("database", "migrations", "intake", "model", "schedulers"), "unknown")
    checks["loops"] = f"failing: {failing}" if failing else "ok"
    checks["policy"] = _policy(server)
    checks["configuration"] = _configuration(server)
    checks["disk"] = _disk(server)
    try:
        at, newest = revision(server.engine), newest_revision()
        checks["database"] = "ok"
        if at != newest:
            return checks | {"migrations": f"failed: the schema is at {at}, this program needs {newest}"}
        checks["migrations"] = "ok"
        with server.engine.connect() as connection:
            checks["intake"] = _intake(read_waiting(connection), server.clock())
            checks["model"] = model_trouble(connection) or "ok"
            checks["schedulers"] = _schedulers(orphan_holds(connection, scheduler_names(server.settings)))
    except SQLAlchemyError as error:
        why = remedy_of(str(getattr(error, "orig", error))) if is_damage(error) else type(error).__name__
        checks["database"] = f"failed: {why}"
    return checks


def _policy(server: State) -> str:
    """Whether the policy in force is the one that stands in its file."""
    source = server.started.policy_source
    problem = None if source is None else source.problem
    return "ok" if problem is None else f"an older one is in force: {problem}"


def _configuration(server: State) -> str:
    """Whether the configuration in force is the one that stands in its file."""
    source = server.started.source
    if source is None:
        return "ok"
    if source.problem is not None:
        return f"an older one is in force: {source.problem}"
    return f"waits for a restart: {', '.join(source.restart)}" if source.restart else "ok"


def _disk(server: State) -> str:
    """Whether there is room for what is to be stored. A server that can store nothing shall get no requests."""
    problem = None if server.disk is None else server.disk.problem()
    return "ok" if problem is None else f"failed: {problem}"


def _schedulers(left: Mapping[str, int]) -> str:
    """Whether each scheduler that holds nodes for us is configured."""
    found = ", ".join(f"{name} ({many(count, 'node')})" for name, count in left.items())
    return f"holding nodes, and not configured any more: {found}" if left else "ok"


def _intake(waiting: IntakeBacklog, now: datetime) -> str:
    """Whether incidents follow events."""
    if waiting.set_aside:
        return f"{many(waiting.set_aside, 'event')} could not be made incidents of: the log says why"
    behind_s = 0.0 if waiting.oldest is None else (now - waiting.oldest).total_seconds()
    return (
        "ok"
        if behind_s < _BEHIND_S
        else f"behind: {many(waiting.events, 'event waits', 'events wait')}, the oldest for {behind_s:.0f} s"
    )

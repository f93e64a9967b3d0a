"""The application: `create_app(settings, engine, clock)`; its background loops live as long as it does."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from datetime import datetime

import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.concurrency import run_in_threadpool
from sqlalchemy.exc import SQLAlchemyError

from api.answers.reply import reply
from api.edge import openapi, problem
from api.edge.admission import Edge, make_edge
from api.edge.hosts import ServedHosts
from api.edge.middleware import AnswerWithin, LeanRoutes, MeasureRequests, packed_route, sending_route
from api.edge.openapi import PREFIX
from api.loops.runner import make_loops
from api.routes import (
    advice,
    alerts,
    audit,
    budget,
    checks,
    cluster,
    controls,
    days,
    deliveries,
    enrollment,
    events,
    fabric_map,
    goodput,
    health,
    heartbeats,
    hint_outcomes,
    hints,
    incidents,
    lemons,
    links,
    logs,
    metrics,
    models,
    node_telemetry,
    node_timeline,
    nodes,
    otlp_metrics,
    outages,
    phone,
    placement,
    policies,
    print_pages,
    riskiest,
    rma,
    rules,
    run_hints,
    runs,
    scores,
    search,
    sidecars,
    telemetry,
    threads,
    tickets,
    topology,
    traces,
    validations,
    verdicts,
    what_if,
    whoami,
)
from api.server.heartbeats import HeartbeatWriter
from api.server.known_tokens import TokenReader
from api.server.settings import ApiSettings
from api.server.state import State
from parsers.site_rules.rules import RulesFile, no_rules
from store.database.integrity import DiskWatch

_JOIN_S = 3.0
RESOURCES = (
    events,
    logs,
    traces,
    otlp_metrics,
    alerts,
    telemetry,
    heartbeats,
    enrollment,
    outages,
    incidents,
    verdicts,
    threads,
    print_pages,
    budget,
    cluster,
    nodes,
    days,
    node_telemetry,
    node_timeline,
    riskiest,
    rma,
    scores,
    models,
    checks,
    lemons,
    links,
    runs,
    goodput,
    advice,
    what_if,
    hint_outcomes,
    hints,
    validations,
    tickets,
    run_hints,
    deliveries,
    placement,
    controls,
    policies,
    audit,
    rules,
    topology,
    fabric_map,
    search,
    sidecars,
    whoami,
    health,
    metrics,
    phone,
)
# What thousands of sidecars send: see `api.edge.middleware`. Heartbeats wait for no database, and so need no watch
# over that.
_AT_ONCE = {("POST", f"{PREFIX}/heartbeats"): packed_route("post_heartbeats", heartbeats.post_heartbeats)}
_WRITING = {
    ("POST", f"{PREFIX}/events"): sending_route("post_events", events.send_body, reply),
    ("POST", f"{PREFIX}/telemetry"): sending_route("post_telemetry", telemetry.send_body, reply),
}

_TAGS = [
    {"name": "events", "description": "What happened, where, when."},
    {"name": "telemetry", "description": "Roll-ups of a node and hour."},
    {"name": "outages", "description": "Nodes out of service."},
    {"name": "nodes", "description": "How each node is, and how likely it fails."},
    {"name": "incidents", "description": "The faults, coalesced from events."},
    {"name": "verdicts", "description": "The causes of what is seen: which device, since when, with evidence."},
    {"name": "cluster", "description": "The cluster as a whole."},
    {"name": "scores", "description": "The probability of an unplanned outage, with reasons."},
    {"name": "runs", "description": "Where the training hours went."},
    {"name": "advice", "description": "What to do about it."},
    {"name": "hints", "description": "Requests to schedulers, and every change of them."},
    {"name": "rules", "description": "How the site reads faults."},
    {"name": "sidecars", "description": "What watches each node, and how it fares."},
    {"name": "health", "description": "For load balancers and init systems."},
]


def _lifespan(state: State, edge: Edge) -> Callable[[FastAPI], AbstractAsyncContextManager[None]]:
    """What runs beside the requests, from the first to the last of them."""

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        loops = make_loops(state)
        failed = state.metrics.failures.labels("heartbeats").inc
        writer = HeartbeatWriter(state.heartbeats, state.engine, failed, state.refresh_names)
        tokens = TokenReader(state.tokens, state.engine, state.metrics.failures.labels("tokens").inc)
        pace = asyncio.create_task(edge.pace.run())
        loops.start()
        writer.start()
        tokens.start()
        yield
        pace.cancel()
        await run_in_threadpool(loops.stop)
        await run_in_threadpool(writer.stop, _JOIN_S)
        await run_in_threadpool(tokens.stop, _JOIN_S)

    return lifespan


def _make_state(
    settings: ApiSettings, engine: sa.Engine, clock: Callable[[], datetime], wall: Callable[[], datetime] | None
) -> State:
    """What every route is handed, its metrics shown."""
    followed = None if settings.rules is None else RulesFile(settings.rules)
    rules_source = no_rules if followed is None else followed.current
    state = State(settings, engine, clock, rules=rules_source, wall=wall or clock, disk=DiskWatch(engine))
    if followed is not None:
        state.metrics.watch_rules(followed)
    if settings.policy_source is not None:
        state.metrics.watch_policy(settings.policy_source)
    if settings.source is not None:
        state.metrics.watch_settings(settings.source)
    with suppress(SQLAlchemyError):  # it is read again each second; until then nobody is let in without a token
        state.tokens.read(engine)
    state.metrics.database.register(metrics.StoreCollector(state))
    state.names.refresh_at_start(engine, state.settings.inventory)
    return state


def create_app(
    settings: ApiSettings,
    engine: sa.Engine,
    clock: Callable[[], datetime],
    wall: Callable[[], datetime] | None = None,
) -> FastAPI:
    """The API over a migrated database.

    Args:
        settings: tokens, policy, limits.
        engine: of a database whose schema is the newest.
        clock: the present, aware UTC; a replay hands in its own.
        wall: the present of the sidecars, where `clock` is a replay's.

    Raises:
        RulesError: the site's rules cannot be read.
    """
    state = _make_state(settings, engine, clock, wall)
    edge = make_edge(settings, state.metrics)
    state.followers.append(edge.follow)
    app = FastAPI(
        title="Foreshock",
        version="1",
        description="Which device is failing, which node fails next and why, and where the training hours went.",
        openapi_tags=_TAGS,
        lifespan=_lifespan(state, edge),
        redirect_slashes=False,  # it would lead to whatever host the request names
    )
    app.state.foreshock = state
    app.state.edge = edge
    problem.install(app)
    openapi.publish(app)
    app.add_middleware(LeanRoutes, routes=_WRITING)
    app.add_middleware(AnswerWithin, limits=lambda: state.settings.limits, metrics=state.metrics)
    app.add_middleware(LeanRoutes, routes=_AT_ONCE)
    app.add_middleware(ServedHosts, state=state)
    app.add_middleware(MeasureRequests, metrics=state.metrics)
    for resource in RESOURCES:
        app.routes.extend(resource.router.routes)
    return app

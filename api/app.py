"""The application: `create_app(settings, engine, clock)`; its background loops live as long as it does."""

from collections.abc import Callable
from datetime import datetime

import sqlalchemy as sa
from fastapi import FastAPI

from api import openapi, problem
from api.measure import MeasureRequests
from api.routes import events, health, nodes, outages, telemetry
from api.settings import ApiSettings
from api.state import State

PREFIX = "/api/v1"
RESOURCES = (events, telemetry, outages, nodes)
OUTSIDE = (health,)

_TAGS = [
    {"name": "events", "description": "What happened, where, when."},
    {"name": "telemetry", "description": "Roll-ups of a node and hour."},
    {"name": "outages", "description": "Nodes out of service."},
    {"name": "nodes", "description": "How each node is, and how likely it fails."},
    {"name": "health", "description": "For load balancers and init systems."},
]


def create_app(settings: ApiSettings, engine: sa.Engine, clock: Callable[[], datetime]) -> FastAPI:
    """The API over a migrated database.

    Args:
        settings: tokens, policy, limits.
        engine: of a database whose schema is the newest.
        clock: the present, aware UTC; a replay hands in its own.
    """
    app = FastAPI(
        title="Foreshock",
        version="1",
        description="Which device is failing, which node fails next and why, and where the training hours went.",
        openapi_tags=_TAGS,
    )
    state = State(settings, engine, clock)
    app.state.foreshock = state
    problem.install(app)
    openapi.publish(app)
    app.add_middleware(MeasureRequests, metrics=state.metrics)
    for resource in RESOURCES:
        app.include_router(resource.router, prefix=PREFIX)
    for resource in OUTSIDE:
        app.include_router(resource.router)
    return app

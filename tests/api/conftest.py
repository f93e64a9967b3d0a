"""A server over a fresh database, at a fixed moment."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.testclient import TestClient

from api.app import create_app
from api.loops.ledgers import LedgerTurns
from api.server.settings import ApiSettings, Intervals

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
QUIET = ApiSettings(intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0))


class Clock:
    """The present, moved by hand."""

    def __init__(self, now: datetime) -> None:
        self.now = now

    def __call__(self) -> datetime:
        """The present."""
        return self.now

    def forward(self, **amount: float) -> None:
        """Let time pass."""
        self.now += timedelta(**amount)


@pytest.fixture
def clock() -> Clock:
    """Stands at noon, 1 March 2025."""
    return Clock(NOW)


@pytest.fixture
def app(engine: sa.Engine, clock: Clock) -> FastAPI:
    """The application without tokens and without background loops."""
    return create_app(QUIET, engine, clock)


@pytest.fixture
def any_client(any_engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """The same over either kind of database."""
    with TestClient(create_app(QUIET, any_engine, clock), raise_server_exceptions=False) as client:
        yield client


@pytest.fixture
def client(app: FastAPI) -> Iterator[TestClient]:
    """A client of it; a crash is an answer, as over the network."""
    with TestClient(app, raise_server_exceptions=False) as client:
        yield client


class Ticks:
    """A monotonic clock that stands still, unless something costs time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The seconds so far."""
        return self.now


@pytest.fixture
def ticks() -> Ticks:
    """Zero seconds."""
    return Ticks()


@pytest.fixture
def turns(engine: sa.Engine, clock: Clock, ticks: Ticks) -> LedgerTurns:
    """A loop's turns, made by hand."""
    return LedgerTurns(engine, clock, ticks)

"""A server in this process whose tokens a test names, and what a sidecar sends to it.

with made_client(engine, (Token(...),)) as client:
    client.post("/api/v1/heartbeats", json=[beat("gpu-001")], headers=bearer("secret"))
"""

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Intervals, RequestLimits, Token

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
TIME = "2025-03-01T11:00:00Z"
QUIET = Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0)


def bearer(secret: str) -> dict[str, str]:
    """The header of a token."""
    return {"authorization": f"Bearer {secret}"}


def beat(node: str) -> dict[str, Any]:
    """What a sidecar says of itself."""
    known = {"node": node, "time": TIME, "version": "0.1.0", "started": TIME, "interval_s": 60}
    return {**known, "sources": [], "lost": {}, "rejected": 0}


@contextmanager
def made_client(
    engine: sa.Engine, tokens: tuple[Token, ...] = (), limits: RequestLimits | None = None
) -> Iterator[TestClient]:
    """A client of a server; the tokens' times are real ones."""
    settings = ApiSettings(tokens=tokens, intervals=QUIET, limits=limits or RequestLimits())
    app = create_app(settings, engine, lambda: NOW, wall=lambda: datetime.now(UTC))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client

"""The state of every node: out, cordoned, faulty, at_risk, silent, ok. The database judges; this reads a page of it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from api.settings import ApiSettings
from store.read_fleet import Fleet, NodePage, node_page
from store.read_states import last_reports, newest_scoring

NodeState: TypeAlias = Literal["ok", "at_risk", "faulty", "out", "cordoned", "silent"]
FAULTY_FOR = timedelta(hours=24)
HORIZONS_H = (24, 168)
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # of a cursor whose order is not by time


@dataclass(frozen=True, slots=True)
class NodeView:
    """One node as the API shows it; `scored_at` and the scores are None until a model has scored it."""

    node: str
    rack: str | None
    leaf: str | None
    gpu_model: str | None
    gpus: int | None
    driver: str | None
    last_seen: datetime | None
    state: NodeState
    score_24h: float | None
    score_7d: float | None
    scored_at: datetime | None
    hint: dict[str, str] | None


def present(connection: sa.Connection, settings: ApiSettings, now: datetime) -> Fleet:
    """What every node is judged by at a moment."""
    quiet_for = timedelta(seconds=settings.silent_after_s)
    return Fleet(
        now=now,
        faulty_since=now - FAULTY_FOR,
        watch=settings.policy.thresholds.watch,
        silent_before=now - quiet_for if last_reports(connection, now, quiet_for) is not None else None,
        scored={horizon_h: newest_scoring(connection, horizon_h, now) for horizon_h in HORIZONS_H},
    )


def node_views(
    connection: sa.Connection, settings: ApiSettings, now: datetime, page: NodePage | None = None
) -> Sequence[NodeView]:
    """Every known node by name, or those of a page."""
    fleet = present(connection, settings, now)
    scored_at = fleet.scored[HORIZONS_H[0]]
    return [_view(row, scored_at) for row in node_page(connection, fleet, page or NodePage())]


def _view(row: Any, scored_at: datetime | None) -> NodeView:
    hint = {"id": row.hint_id, "action": row.hint_action, "state": row.hint_state}
    return NodeView(
        node=row.node,
        rack=row.rack,
        leaf=row.leaf,
        gpu_model=row.gpu_model,
        gpus=row.gpus,
        driver=row.driver,
        last_seen=row.last_seen,
        state=row.state,
        score_24h=row.score_24h,
        score_7d=row.score_7d,
        scored_at=None if row.score_24h is None else scored_at,
        hint=None if row.hint_id is None else hint,
    )

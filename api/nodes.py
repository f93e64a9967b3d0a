"""The state of every node, worst first: out, cordoned, faulty, at_risk, silent, ok."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from api.settings import ApiSettings
from store.read_states import fatal_incidents, last_reports, newest_scores, node_rows, nodes_out, open_hints

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


def node_views(connection: sa.Connection, settings: ApiSettings, now: datetime) -> list[NodeView]:
    """Every known node, by name."""
    out = nodes_out(connection, now)
    faulty = {incident.node for incident in fatal_incidents(connection, now - FAULTY_FOR, now)}
    hints = open_hints(connection)
    day, week = (newest_scores(connection, horizon_h, now) for horizon_h in HORIZONS_H)
    quiet_since = now - timedelta(seconds=settings.silent_after_s)
    somebody = last_reports(connection, now, timedelta(seconds=settings.silent_after_s)) is not None
    views = []
    for row in node_rows(connection):
        score, hint = day.get(row.node), hints.get(row.node)
        silent = somebody and (row.last_seen is None or row.last_seen < quiet_since)
        state: NodeState = "silent" if silent else "ok"
        if score is not None and score.score >= settings.policy.thresholds.watch:
            state = "at_risk"
        if row.node in faulty:
            state = "faulty"
        if hint is not None and holds_out(hint):
            state = "cordoned"
        if row.node in out:
            state = "out"
        views.append(_view(row, state, (score, week.get(row.node)), hint))
    return views


def holds_out(hint: Any) -> bool:
    """Whether a hint keeps work off its node: ours, sent or about to be."""
    return hint.action in ("cordon", "drain") and hint.state in ("approved", "sent")


def _view(row: Any, state: NodeState, scores: tuple[Any, Any], hint: Any) -> NodeView:
    day, week = scores
    return NodeView(
        node=row.node,
        rack=row.rack,
        leaf=row.leaf,
        gpu_model=row.gpu_model,
        gpus=row.gpus,
        driver=row.driver,
        last_seen=row.last_seen,
        state=state,
        score_24h=None if day is None else day.score,
        score_7d=None if week is None else week.score,
        scored_at=None if day is None else day.time,
        hint=None if hint is None else {"id": hint.id, "action": hint.action, "state": hint.state},
    )

"""The state of every node, worst first: out, cordoned, faulty, at_risk, silent, ok."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, TypeAlias

import sqlalchemy as sa

from api.settings import ApiSettings
from store.read_states import last_reports, newest_scores, node_rows, nodes_out, open_hints, unrepaired_faults

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


def node_views(
    connection: sa.Connection, settings: ApiSettings, now: datetime, node: str | None = None
) -> list[NodeView]:
    """Every known node by name, or the one that is asked for."""
    out = nodes_out(connection, now, node)
    faulty = unrepaired_faults(connection, now - FAULTY_FOR, now)
    hints = open_hints(connection, node)
    (scored_at, day), (_, week) = (newest_scores(connection, horizon_h, now, node) for horizon_h in HORIZONS_H)
    quiet_for = timedelta(seconds=settings.silent_after_s)
    silent_before = now - quiet_for if last_reports(connection, now, quiet_for) is not None else None
    views = []
    for row in node_rows(connection, node):
        name, score = row.node, day.get(row.node)
        hint = hints.get(name)
        state: NodeState = "ok"
        if name in out:
            state = "out"
        elif hint is not None and holds_out(hint):
            state = "cordoned"
        elif name in faulty:
            state = "faulty"
        elif score is not None and score >= settings.policy.thresholds.watch:
            state = "at_risk"
        elif silent_before is not None and (row.last_seen is None or row.last_seen < silent_before):
            state = "silent"
        views.append(_view(row, state, (score, week.get(name), scored_at), hint))
    return views


def holds_out(hint: Any) -> bool:
    """Whether a hint keeps work off its node: ours, sent or about to be."""
    return hint.action in ("cordon", "drain") and hint.state in ("approved", "sent")


def _view(
    row: Any, state: NodeState, scores: tuple[float | None, float | None, datetime | None], hint: Any
) -> NodeView:
    day, week, scored_at = scores
    return NodeView(
        node=row.node,
        rack=row.rack,
        leaf=row.leaf,
        gpu_model=row.gpu_model,
        gpus=row.gpus,
        driver=row.driver,
        last_seen=row.last_seen,
        state=state,
        score_24h=day,
        score_7d=week,
        scored_at=None if day is None else scored_at,
        hint=None if hint is None else {"id": hint.id, "action": hint.action, "state": hint.state},
    )

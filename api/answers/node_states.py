"""The state of each node: unknown, out, cordoned, faulty, at_risk, silent or ok. The database judges; this reads it."""

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from api.server.settings import ApiSettings
from store.database.known_nodes import knowers
from store.hints.control_group import ControlGroup, read_control_key
from store.nodes.fleet import FleetQuery, NodePage, node_page, withheld_scores
from store.nodes.node_states import heard_until, newest_scoring, scores_of_some
from store.records import fault_catalog
from store.records.event import format_time

# What an event or incident means to people: the catalogue's description of its kind and code.


def with_meaning(row: dict[str, Any]) -> dict[str, Any]:
    """An event or incident of an answer, with what it means."""
    row["meaning"] = fault_catalog.kind_description(row["kind"], row["code"], row["severity"], row["cause"])
    return row


FAULTY_FOR = timedelta(hours=24)
HORIZONS_H = (24, 168)
NO_TIME = datetime(1970, 1, 1, tzinfo=UTC)  # of a cursor whose order is not by time


def present(connection: sa.Connection, settings: ApiSettings, now: datetime) -> FleetQuery:
    """What every node is judged by at a moment.

    Where nobody reports at all every node is silent: what is known of it is old.
    """
    return FleetQuery(
        now=now,
        faulty_since=now - FAULTY_FOR,
        watch=settings.policy.thresholds.watch,
        silent_before=now - timedelta(seconds=settings.silent_after_s),
        scored={horizon_h: newest_scoring(connection, horizon_h, now) for horizon_h in HORIZONS_H},
    )


def last_heard(connection: sa.Connection, settings: ApiSettings, now: datetime) -> tuple[datetime | None, bool]:
    """Until when nodes were heard of, and whether that is so long ago that nobody knows how they are."""
    until = heard_until(connection, now)
    return until, until is None or now - until > timedelta(seconds=settings.silent_after_s)


def risks_now(
    connection: sa.Connection, settings: ApiSettings, now: datetime, nodes: Iterable[str]
) -> dict[str, tuple[float, datetime]]:
    """The newest risk of some nodes within 24 h and of when it is; none of one whose risk is withheld."""
    wanted = set(nodes)
    moment = newest_scoring(connection, HORIZONS_H[0], now) if wanted else None
    if moment is None:
        return {}
    scores = scores_of_some(connection, HORIZONS_H[0], moment, sorted(wanted), "score")
    withheld = withheld_scores(connection, present(connection, settings, now), sorted(scores))
    return {node: (score, moment) for node, score in scores.items() if node not in withheld}


def node_objects(
    connection: sa.Connection, settings: ApiSettings, now: datetime, page: NodePage
) -> list[dict[str, Any]]:
    """The nodes of a page as the API shows them; `scored_at` and the scores are None until a model has scored one."""
    fleet = present(connection, settings, now)
    moment = fleet.scored[HORIZONS_H[0]]
    scored_at = None if moment is None else format_time(moment)
    control = settings.policy.control
    group = ControlGroup.of(read_control_key(connection), control.percent, control.period_days)
    found = [_in_words(row, scored_at) for row in node_page(connection, fleet, page)]
    named = knowers(connection, [row["node"] for row in found])
    notes = settings.inventory.notes
    return [
        {
            **row,
            "control": group is not None and group.holds(row["node"], now),
            "known_by": named.get(row["node"]),
            "note": notes.get(row["node"]),
        }
        for row in found
    ]


def _in_words(row: dict[str, Any], scored_at: str | None) -> dict[str, Any]:
    del row["rank"]
    hint = {"id": row.pop("hint_id"), "action": row.pop("hint_action"), "state": row.pop("hint_state")}
    row["hint"] = None if hint["id"] is None else hint
    row["scored_at"] = None if row["score_24h"] is None else scored_at
    row["reasons"] = row["reasons"] or []
    return row

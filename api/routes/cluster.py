"""`GET /cluster`: the whole cluster in one answer, for a page's head."""

from datetime import datetime, timedelta
from typing import Any, Protocol, get_args, runtime_checkable

import sqlalchemy as sa
from fastapi import APIRouter, Response

from api.answers.node_states import last_heard, present
from api.answers.reply import reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.loops.ledgers import ledger_of
from api.server.settings import SettingsSource
from api.server.state import Server
from goodput.stored.computation import account_of
from schedulers.policy.kill_switch import effective_stop
from store.database.known_nodes import count_known, never_heard
from store.models.registry import newest_champion
from store.nodes.fleet import count_states
from store.nodes.inventory import count_incidents, newest_run, recent_sources
from store.nodes.sidecars import count_sidecars
from store.records.node import NodeState
from wire.cluster import ClusterJson

router = APIRouter(prefix=PREFIX, tags=["cluster"])

# The share of productive hours that pages draw as the line to reach.
TARGET = 0.95
# So many of the nodes that never reported are named.
NAMED = 20


@router.get("/cluster", operation_id="get_cluster", summary="The cluster in numbers", responses=answer(ClusterJson))
def get_cluster(_who: Reader, server: Server) -> Response:
    """Nodes by state, recent incidents and events, the newest run's goodput, the model, the sources."""
    now = server.clock()
    with server.engine.connect() as connection:
        states = count_states(connection, present(connection, server.settings, now))
        # A node that the inventory does not know is told of, and is no part of the cluster.
        counted = {state: found for state, found in states.items() if state != "unknown"}
        gpus = [count for _nodes, count in counted.values() if count is not None]
        sources = recent_sources(connection, now)
        run = newest_run(connection)
        ledger = ledger_of(connection, run, now) if run else None
        unheard = never_heard(connection)
        until, is_stale = last_heard(connection, server.settings, now)
        return reply(
            {
                "now": now,
                "heard_until": until,
                "stale": is_stale,
                "mode": server.settings.mode,
                "stop": effective_stop(connection, server.settings.policy),
                "nodes": sum(count for count, _gpus in counted.values()),
                "gpus": sum(gpus) if gpus else None,
                "states": {state: states.get(state, (0, None))[0] for state in get_args(NodeState)},
                "incidents_24h": count_incidents(connection, now - timedelta(hours=24), now),
                "events_1h": sum(source["events_1h"] for source in sources),
                "goodput": None if ledger is None else account_of(ledger)["goodput"],
                "run": run,
                "target": TARGET,
                "model": _model(connection),
                "sources": sources,
                "sidecars": count_sidecars(connection, server.wall()),
                "inventory": count_known(connection),
                "never_heard": {"count": len(unheard), "first": unheard[:NAMED]},
                "configuration": _configuration(server.started.source),
                "replay": _replay(server.clock),
            }
            | ({} if (price := server.settings.gpu_hour_price) is None else {"gpu_hour_price": price.to_json()})
        )


@runtime_checkable
class _Replay(Protocol):
    """A clock of a past stretch of time, as the demo's."""

    end: datetime
    ends: datetime
    again: datetime | None


def _replay(clock: object) -> dict[str, Any] | None:
    return {"end": clock.end, "ends": clock.ends, "again": clock.again} if isinstance(clock, _Replay) else None


def _configuration(source: SettingsSource | None) -> dict[str, Any] | None:
    if source is None:
        return None
    return {
        "place": source.place,
        "version": source.version,
        "loaded": source.loaded,
        "errors": source.errors,
        "problem": source.problem,
        "restart": list(source.restart),
    }


def _model(connection: sa.Connection) -> dict[str, Any] | None:
    row = newest_champion(connection)
    if row is None:
        return None
    return {"id": row.id, "created": row.created, "trained_until": row.trained_until, "metrics": row.metrics}

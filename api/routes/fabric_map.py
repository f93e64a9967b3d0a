"""`GET /map`: the fabric on one screen, in columns: every node inside its leaf, and the links that err."""

from collections.abc import Sequence
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Header, Query, Response

from api.answers.node_states import present
from api.answers.reply import dump
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.server.state import Server, State
from predictor.history.families import BY_KIND
from store.nodes.fabric_map import (
    LinkErrors,
    read_link_errors,
    read_map_nodes,
    read_spines,
    read_temperatures,
)
from store.records.node import NodeState
from store.runs.jobs import running_jobs
from wire.nodes import MapJson

router = APIRouter(prefix=PREFIX, tags=["cluster"])

LINK_KINDS = sorted(kind for kind, family in BY_KIND.items() if family in ("link_flap", "link_error"))
STATES: tuple[str, ...] = get_args(NodeState)
GROUP = 32  # nodes of a block where nobody tells of leaves or racks
MOST_AGE_S = 15.0  # an answer of before is given while the next is made, unless it is that old
_NO_PLACE = "place not known"


@router.get(
    "/map",
    operation_id="get_map",
    summary="The fabric's map",
    responses=answer(MapJson) | {304: {"description": "It is still what the `ETag` of `If-None-Match` names."}},
)
def get_map(
    _who: Reader,
    server: Server,
    since: Annotated[str | None, Query(max_length=64, description="An earlier answer's `ETag`.")] = None,
    if_none_match: Annotated[str | None, Header()] = None,
) -> Response:
    """Every node that counts, in columns, at most 15 s old; with `since` the rows that have changed, if known."""
    body, tag = server.map.get_before(lambda: dump(_columns(server)), MOST_AGE_S)
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    told = server.map_revisions.answer(tag, body, since)
    return Response(told, media_type="application/json", headers=headers)


def _columns(server: State) -> dict[str, Any]:
    now = server.clock()
    with server.engine.connect() as connection:
        nodes = read_map_nodes(connection, present(connection, server.settings, now))
        heat = read_temperatures(connection, now)
        errors = read_link_errors(connection, LINK_KINDS, now)
        jobs = running_jobs(connection, now)
        spines = read_spines(connection)
    run_of = {node: run for _job, run, names in jobs for node in names}
    runs = sorted({run for run in (run_of.get(row.node) for row in nodes) if run is not None})
    number = {run: place for place, run in enumerate(runs)}
    blocks_by, names, blocks = _blocks(nodes)
    states = [*STATES, *sorted({row.state for row in nodes} - set(STATES))]
    return {
        "since": None,
        "rows": None,
        "blocks_by": blocks_by,
        "blocks": names,
        "spines": spines,
        "states": states,
        "runs": runs,
        "node": [row.node for row in nodes],
        "block": blocks,
        "state": [states.index(row.state) for row in nodes],
        "risk": [None if row.score_24h is None else round(row.score_24h, 4) for row in nodes],
        "temperature_c": [None if (c := heat.get(row.node)) is None else round(c) for row in nodes],
        "link_errors": [errors.nodes.get(row.node, 0) for row in nodes],
        "run": [number.get(run_of.get(row.node, "")) for row in nodes],
        "links": _links(errors),
    }


def _blocks(nodes: Sequence[Any]) -> tuple[str, list[str], list[int]]:
    """By what nodes stand together, the blocks' names in order, and the block of each node."""
    if any(row.leaf for row in nodes):
        by, of = "leaf", [row.leaf or _NO_PLACE for row in nodes]
    elif any(row.rack for row in nodes):
        by, of = "rack", [row.rack or _NO_PLACE for row in nodes]
    else:
        heads = [nodes[place - place % GROUP].node for place in range(len(nodes))]
        by, of = "name", [f"from {head}" for head in heads]
    names = sorted(set(of), key=lambda name: (name == _NO_PLACE, name))
    place = {name: number for number, name in enumerate(names)}
    return by, names, [place[name] for name in of]


def _links(errors: LinkErrors) -> list[dict[str, Any]]:
    return [
        {
            "switch": link.switch,
            "port": link.port,
            "peer": link.peer,
            "peer_type": "hca" if link.is_host else "switch",
            "errors": link.errors,
            "kind": link.kind,
        }
        for link in errors.links
    ]

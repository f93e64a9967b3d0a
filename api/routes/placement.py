"""`GET` and `POST /placement`: which nodes a job is better not given, and which it is."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api.auth import Reader, requires
from api.edge import read_slot
from api.json_body import described, json_of
from api.nodes import HORIZONS_H, present
from api.problem import Problem
from api.reply import reply
from api.state import Server, State
from api.wire_deliveries import MOST_NODES, PlacementAdviceOut, PlacementIn
from schedulers.placement_advice import Candidate, Need, PlacementAdvice, advise
from schedulers.thresholds import steps
from store.control import ControlGroup, read_control_key
from store.event import RecordError
from store.hostlist import compress, expand
from store.read_fleet import node_risks
from store.read_placement import Place, read_places, standing_hints
from store.read_states import newest_scoring

router = APIRouter(tags=["hints"])
_TEXT: dict[int | str, dict[str, Any]] = {200: {"content": {"text/plain": {"schema": {"type": "string"}}}}}
_MOST_TEXT = 60_000  # characters of a hostlist in an address


class Form(BaseModel):
    """How the answer looks; `hostlist` is one line of text, for Slurm's `--exclude=`."""

    format: Literal["json", "hostlist"] = "json"
    list: Literal["avoid", "prefer"] = Field(default="avoid", description="What a `hostlist` answer names.")


class PlacementQuery(Form):
    """The question in an address."""

    nodes: str | None = Field(default=None, min_length=1, max_length=_MOST_TEXT, examples=["gpu-[001-064]"])
    count: int | None = Field(default=None, ge=1, le=MOST_NODES)
    gpus_per_node: int | None = Field(default=None, ge=1, le=1024)


@router.get(
    "/placement",
    operation_id="get_placement",
    summary="Where to place a job",
    response_model=PlacementAdviceOut,
    responses=_TEXT,
)
def get_placement(_who: Reader, server: Server, asked: Annotated[PlacementQuery, Query()]) -> Response:
    """Which nodes to avoid and which to prefer, of some (a hostlist) or of all in service."""
    try:
        names = None if asked.nodes is None else expand(asked.nodes)
    except RecordError as error:
        raise Problem(422, f"nodes: {error}") from error
    return _answer(server, names, Need(asked.count, asked.gpus_per_node), asked)


@router.post(
    "/placement",
    operation_id="ask_placement",
    summary="Where to place a job, of many nodes",
    response_model=PlacementAdviceOut,
    responses=_TEXT,
    openapi_extra=described(PlacementIn, {"nodes": ["gpu-001", "gpu-002", "gpu-003"], "count": 2, "gpus_per_node": 8}),
)
def ask_placement(
    _who: Annotated[str, Depends(requires("read"))],
    server: Server,
    form: Annotated[Form, Query()],
    asked: Annotated[PlacementIn, Depends(json_of(PlacementIn))],
    _slot: Annotated[None, Depends(read_slot, scope="function")],
) -> Response:
    """The same question with a list of nodes in the body. It changes nothing."""
    return _answer(server, asked.nodes, Need(asked.count, asked.gpus_per_node), form)


def _answer(server: State, names: Sequence[str] | None, need: Need, form: Form) -> Response:
    policy, now = server.settings.policy, server.clock()
    with server.engine.connect() as connection:
        places = read_places(connection, now)
        wanted = places.keys() if names is None else set(names) & places.keys()
        candidates = _candidates(connection, server, {node: places[node] for node in wanted}, now)
        scored_at = newest_scoring(connection, HORIZONS_H[0], now)
    job_gpus = (need.count or 0) * (need.gpus_per_node or policy.costs.node_gpus) or policy.costs.job_gpus
    avoid_from = steps(policy.thresholds, policy.costs, job_gpus, need.gpus_per_node or policy.costs.node_gpus).avoid
    found = advise(candidates, need, avoid_from, policy.thresholds.watch)
    if form.format == "hostlist":
        return Response(compress(getattr(found, form.list)) + "\n", media_type="text/plain")
    head = {
        "as_of": now,
        "scored_at": scored_at,
        "avoid_from": avoid_from,
        "unknown": sorted(set(names or ()) - places.keys()),
    }
    return reply(head | _object(candidates, found))


def _candidates(
    connection: sa.Connection, server: State, places: Mapping[str, Place], now: datetime
) -> list[Candidate]:
    """What is known of each node; the risk of those that are left alone counts for nothing."""
    policy = server.settings.policy
    group = ControlGroup.of(read_control_key(connection), policy.control.percent, policy.control.period_days)
    hints = standing_hints(connection)
    alone = set() if group is None else group.among(places, now)
    alone |= {node for pattern in policy.opt_out for node in places if fnmatchcase(node, pattern)}
    return [
        Candidate(node, places[node], state, day, week, hints.get(node), node in alone)
        for node, state, day, week in node_risks(connection, present(connection, server.settings, now))
        if node in places
    ]


def _object(candidates: Sequence[Candidate], found: PlacementAdvice) -> dict[str, Any]:
    return {
        "avoid": list(found.avoid),
        "avoid_hostlist": compress(found.avoid),
        "prefer": found.prefer,
        "prefer_hostlist": compress(found.prefer),
        "leaves": found.leaves,
        "short": found.short,
        "nodes": [_node(one, found.avoid.get(one.node)) for one in candidates],
    }


def _node(one: Candidate, why: str | None) -> dict[str, Any]:
    hint = one.hint
    return {
        "node": one.node,
        "state": one.state,
        "risk_24h": one.risk_24h,
        "risk_7d": one.risk_7d,
        "leaf": one.place.leaf,
        "rack": one.place.rack,
        "nvlink_domain": one.place.nvlink_domain,
        "gpus": one.place.gpus,
        "hint": None if hint is None else {"id": hint.id, "action": hint.action, "state": hint.state},
        "left_alone": one.left_alone,
        "avoid": why,
    }

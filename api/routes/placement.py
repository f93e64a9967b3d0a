"""`GET` and `POST /placement`: which nodes a job is better not given, and which it is."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from fnmatch import translate
from typing import Annotated, Any, Literal

import sqlalchemy as sa
from fastapi import APIRouter, Depends, Query, Response
from pydantic import BaseModel, Field

from api.answers.node_states import HORIZONS_H, last_heard, present
from api.answers.reply import reply
from api.edge.admission import read_slot
from api.edge.auth import Caller, Reader, requires
from api.edge.body import described, json_of
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server, State
from schedulers.policy.placement_advice import JobNeed, PlacementAdvice, PlacementLimits, advise
from schedulers.policy.settings import Policy
from schedulers.policy.thresholds import steps
from store.hints.control_group import ControlGroup, read_control_key
from store.nodes.fleet import WEEK_H, SchedulableNode
from store.records.event import RecordError
from store.records.hostlist import compress, expand
from store.runs.jobs import busy_nodes
from wire.policy import MOST_NODES, PlacementAdviceJson, PlacementRequestJson

router = APIRouter(prefix=PREFIX, tags=["hints"])
_MOST_TEXT = 60_000  # characters of a hostlist in an address
_LIMIT = 1000
# Whoever reports jobs has one that runs, or that ended within this time.
_JOBS_WITHIN = timedelta(days=1)


class PlacementFormat(BaseModel):
    """How the answer looks; `hostlist` is one line of text, for Slurm's `--exclude=`."""

    format: Literal["json", "hostlist"] = "json"
    list: Literal["avoid", "prefer"] = Field(default="avoid", description="What a `hostlist` answer names.")
    limit: int = Field(
        default=_LIMIT, ge=1, le=MOST_NODES, description="The most in `nodes`, and without a count in `prefer`."
    )


class PlacementQuery(PlacementFormat):
    """The question in an address."""

    nodes: str | None = Field(
        default=None, min_length=1, max_length=_MOST_TEXT, pattern=r"^[^\x00]*$", examples=["gpu-[001-064]"]
    )
    count: int | None = Field(default=None, ge=1, le=MOST_NODES)
    gpus_per_node: int | None = Field(default=None, ge=1, le=1024)


@router.get(
    "/placement",
    operation_id="get_placement",
    summary="Where to place a job",
    responses=answer(PlacementAdviceJson, or_text=True),
)
def get_placement(_who: Reader, server: Server, query: Annotated[PlacementQuery, Query()]) -> Response:
    """Which nodes to avoid and which to prefer, of some (a hostlist) or of all in service."""
    try:
        names = None if query.nodes is None else expand(query.nodes)
    except RecordError as error:
        raise Problem(422, f"nodes: {error}") from error
    return _answer(server, names, JobNeed(query.count, query.gpus_per_node, query.limit), query)


@router.post(
    "/placement",
    operation_id="ask_placement",
    summary="Where to place a job, of many nodes",
    responses=answer(PlacementAdviceJson, or_text=True),
    openapi_extra=described(
        PlacementRequestJson, {"nodes": ["gpu-001", "gpu-002", "gpu-003"], "count": 2, "gpus_per_node": 8}
    ),
)
def ask_placement(
    _who: Annotated[Caller, Depends(requires("read"))],
    server: Server,
    form: Annotated[PlacementFormat, Query()],
    body: Annotated[PlacementRequestJson, Depends(json_of(PlacementRequestJson))],
    _slot: Annotated[None, Depends(read_slot, scope="function")],
) -> Response:
    """The same question with a list of nodes in the body. It changes nothing."""
    return _answer(server, body.nodes, JobNeed(body.count, body.gpus_per_node, form.limit), form)


def _answer(server: State, names: Sequence[str] | None, need: JobNeed, form: PlacementFormat) -> Response:
    policy, now = server.settings.policy, server.clock()
    with server.engine.connect() as connection:
        fleet = present(connection, server.settings, now)
        if last_heard(connection, server.settings, now)[1]:  # our reporting is broken: a scheduler still needs nodes
            fleet = replace(fleet, silent_before=None)
        places = server.schedulable.read(connection, fleet, names)
        weeks = server.schedulable.scores.read(connection, WEEK_H, fleet.scored[WEEK_H])
        # Who names nodes knows better than we do which of them are free.
        busy = busy_nodes(connection, now, _JOBS_WITHIN) if names is None else None
        alone = _left_alone(connection, policy, [place.node for place in places], now)
    node_gpus = need.gpus_per_node or policy.costs.node_gpus
    job_gpus = (need.count or 0) * node_gpus or policy.costs.job_gpus
    avoid_from = steps(policy.thresholds, policy.costs, job_gpus, node_gpus).avoid
    limits = PlacementLimits(avoid_from, policy.thresholds.watch, alone, busy)
    found = advise(places, need, limits)
    if form.format == "hostlist":
        return Response(compress(getattr(found, form.list)) + "\n", media_type="text/plain")
    head = {
        "as_of": now,
        "scored_at": fleet.scored[HORIZONS_H[0]],
        "avoid_from": avoid_from,
        "jobs_known": None if names is not None else busy is not None,
        "unknown": [] if names is None else sorted(set(names).difference(place.node for place in places)),
    }
    shown = _nodes_to_describe(places, found, form.limit)
    nodes = [_node(place, limits, found.avoid.get(place.node), weeks) for place in shown]
    return reply(head | _lists(found) | {"nodes": nodes})


def _left_alone(connection: sa.Connection, policy: Policy, names: Sequence[str], now: datetime) -> frozenset[str]:
    """Nodes of which the risk counts for nothing: of the control group, or opted out."""
    group = ControlGroup.of(read_control_key(connection), policy.control.percent, policy.control.period_days)
    alone = frozenset[str]() if group is None else group.among(names, now)
    if not policy.opt_out:
        return alone
    out = re.compile("|".join(map(translate, policy.opt_out)))
    return alone.union(node for node in names if out.match(node))


def _nodes_to_describe(
    places: Sequence[SchedulableNode], found: PlacementAdvice, limit: int
) -> Sequence[SchedulableNode]:
    """The nodes that the answer tells of: those to avoid come before those to prefer."""
    if len(places) <= limit:
        return places
    names = {*list({**found.avoid, **dict.fromkeys(found.prefer)})[:limit]}
    return [place for place in places if place.node in names]


def _lists(found: PlacementAdvice) -> dict[str, Any]:
    return {
        "avoid": list(found.avoid),
        "avoid_hostlist": compress(found.avoid),
        "prefer": found.prefer,
        "prefer_hostlist": compress(found.prefer),
        "usable": found.usable,
        "busy": found.busy,
        "leaves": found.leaves,
        "nvlink_domains": found.domains,
        "short": found.short,
    }


def _node(
    place: SchedulableNode, limits: PlacementLimits, why: str | None, weeks: Mapping[str, float]
) -> dict[str, Any]:
    node, state, risk_24h, withheld, leaf, rack, domain, gpus, hint, action, hint_state = place
    return {
        "node": node,
        "state": state,
        "risk_24h": risk_24h,
        "risk_7d": weeks.get(node) if withheld is None else None,
        "leaf": leaf,
        "rack": rack,
        "nvlink_domain": domain,
        "gpus": gpus,
        "hint": None if hint is None else {"id": hint, "action": action, "state": hint_state},
        "left_alone": node in limits.left_alone,
        "idle": None if limits.busy is None else node not in limits.busy,
        "avoid": why,
    }

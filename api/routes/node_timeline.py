"""`GET /nodes/{node}/timeline` and `GET /nodes/{node}/gpus`: what ran and erred on a node, its GPUs."""

from dataclasses import asdict
from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Query, Response
from pydantic import BaseModel

from api.answers.paging import Moment
from api.answers.reply import listing, reply
from api.edge.auth import Reader
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.server.state import Server
from predictor.history.families import BY_KIND
from store.nodes.node_history import node_errors, node_gpus
from store.runs.jobs import jobs_on_node
from store.telemetry.hours import node_is_known
from wire.message import Page
from wire.nodes import NodeGpuJson, NodeTimelineJson

router = APIRouter(prefix=PREFIX, tags=["nodes"])

_PAST = timedelta(days=30)
_GROUPS = {"ecc_sbe": "corrected", "memory": "uncorrected"} | dict.fromkeys(
    ("nvlink", "link_flap", "link_error"), "links"
)
ERROR_KINDS = {kind: _GROUPS[family] for kind, family in BY_KIND.items() if family in _GROUPS}
# What is read of the newest: jobs of the cluster, events of the node.
MOST_JOBS, MOST_EVENTS, MOST_NAMES = 5_000, 10_000, 2_000
Node = Annotated[str, Path(max_length=255)]


class TimelineQuery(BaseModel):
    """Which time; of the last 30 days where nothing is said."""

    since: Moment | None = None
    until: Moment | None = None


@router.get(
    "/nodes/{node}/timeline",
    operation_id="get_node_timeline",
    summary="What ran and erred on a node",
    responses=answer(NodeTimelineJson),
)
def get_node_timeline(_who: Reader, server: Server, node: Node, query: Annotated[TimelineQuery, Query()]) -> Response:
    """The jobs of a node, and its memory and link errors by the hour; what a counter rose by counts as many times."""
    until = query.until or server.clock()
    since = query.since or until - _PAST
    with server.engine.connect() as connection:
        if "\x00" in node or not node_is_known(connection, node):
            raise Problem(404, f"no node {node!r} has been heard of")
        jobs, jobs_since = jobs_on_node(connection, node, since, until, MOST_JOBS)
        errors, errors_since = node_errors(connection, node, ERROR_KINDS, since, until, MOST_EVENTS)
    told = [
        {"job": j.job_id, "run": j.run, "state": j.state, "start": j.start, "end": j.end, "nodes": j.nodes}
        for j in jobs
    ]
    hours = [{"time": hour, "corrected": 0, "uncorrected": 0, "links": 0, **errors[hour]} for hour in sorted(errors)]
    window = {"node": node, "since": since, "until": until}
    return reply({**window, "jobs": told, "jobs_since": jobs_since, "errors": hours, "errors_since": errors_since})


@router.get(
    "/nodes/{node}/gpus",
    operation_id="get_node_gpus",
    summary="What a node's GPUs are called",
    responses=answer(Page[NodeGpuJson]),
)
def get_node_gpus(_who: Reader, server: Server, node: Node) -> Response:
    """Index, PCI address, UUID and serial number of each GPU of which somebody told one of them."""
    with server.engine.connect() as connection:
        if "\x00" in node or not node_is_known(connection, node):
            raise Problem(404, f"no node {node!r} has been heard of")
        return listing([asdict(gpu) for gpu in node_gpus(connection, node, MOST_NAMES)])

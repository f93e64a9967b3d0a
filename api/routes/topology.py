"""`GET /topology`: where the nodes stand, and how the fabric is cabled; `POST /topology`: what is known of it."""

from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Header, Query, Response

from api.answers.reply import dump, reply
from api.edge.auth import Caller, Ingester, Reader
from api.edge.body import Body, records_body
from api.edge.openapi import PREFIX, answer
from api.edge.problem import Problem
from api.edge.work_budget import limited
from api.intake.entries import (
    MAX_REJECTED_SHOWN,
    ForeignRecordError,
    IntakeResult,
    Rejected,
    check_name,
    count_rejected,
    own_node,
    records,
    rejection,
)
from api.server.state import Server, State
from parsers.text.parser import ParseError
from parsers.topology.topology_sources import read_topology
from store.database.connections import transact
from store.nodes.inventory import read_node_places
from store.nodes.topology import (
    MOST_OF_A_NODE,
    append_own_links,
    append_topology,
    read_cables,
    replace_own_names,
)
from store.records.event import RecordError
from store.records.hostlist import is_node_name
from store.records.node import (
    GROUP_CLASSES,
    LINK_NUMBERS,
    LINK_TEXTS,
    NAME_KINDS,
    NAMED_CLASSES,
    DeviceName,
    FabricLink,
    NodeGroup,
    TopologyReport,
)
from wire.events import BatchResultJson
from wire.nodes import TopologyJson

router = APIRouter(prefix=PREFIX, tags=["cluster"])

TopologyForm = Literal[
    "json", "ibnetdiscover", "iblinkinfo", "opensm", "ufm", "lldp", "slurm", "slurm_yaml", "kubernetes", "nodes"
]
_EXAMPLE = {"switch": "leaf04", "port": 12, "peer": "gpu-017", "peer_port": 1, "peer_type": "hca", "hca": "mlx5_3"}
_MOST_PORT = 2**31 - 1


@router.get(
    "/topology",
    operation_id="get_topology",
    summary="Nodes and cables",
    responses=answer(TopologyJson) | {304: {"description": "It is still what the `ETag` of `If-None-Match` names."}},
)
def get_topology(_who: Reader, server: Server, if_none_match: Annotated[str | None, Header()] = None) -> Response:
    """Every node with its rack and leaf, and every cable known; at most half a minute old."""
    body, tag = server.topology.get(lambda: _topology_answer(server))
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    if if_none_match is not None and tag in (part.strip() for part in if_none_match.split(",")):
        return Response(status_code=304, headers=headers)
    return Response(body, media_type="application/json", headers=headers)


def _topology_answer(server: State) -> bytes:
    with server.engine.connect() as connection:
        links = [link._asdict() for link in read_cables(connection)]
        return dump({"nodes": read_node_places(connection), "links": links})


@dataclass(slots=True)
class _TopologyBody:
    """What a body tells: by an operator or the fabric, and by each node of itself."""

    told: list[FabricLink | DeviceName | NodeGroup] = field(default_factory=list)
    own: dict[str, list[FabricLink | DeviceName]] = field(default_factory=dict)
    rejected: list[Rejected] = field(default_factory=list)
    lines: dict[tuple[str, int], int] = field(default_factory=dict)  # of each cable's port

    def add(self, caller: Caller, record: FabricLink | DeviceName | NodeGroup, line: int) -> None:
        """Take a record.

        Raises:
            RecordError: the caller may not tell it.
        """
        if isinstance(record, FabricLink):
            self.lines[record.switch, record.port] = line
        if "ingest:fleet" in caller.scopes and caller.nodes.is_every:
            self.told.append(record)
            return
        node = _owner(record)
        if node is None or isinstance(record, NodeGroup):
            text = f"token {caller.name!r} tells of its own nodes' ports alone: the fabric takes the scope ingest:fleet"
            raise ForeignRecordError(text, "fleet")
        own_node(caller, node)
        mine = self.own.setdefault(node, [])
        if len(mine) >= MOST_OF_A_NODE:
            raise RecordError(f"a node has {MOST_OF_A_NODE} ports and names at most")
        mine.append(record._replace(known_by=node))


@router.post(
    "/topology",
    operation_id="post_topology",
    summary="Take cables, names of devices, and what nodes share",
    responses=answer(BatchResultJson),
    openapi_extra=records_body(_EXAMPLE, "Records of docs/topology.md; with `format`, what that tool prints."),
)
def post_topology(
    caller: Ingester,
    server: Server,
    body: Body,
    form: Annotated[TopologyForm, Query(alias="format", description="What printed the body.")] = "json",
    node: Annotated[str | None, Query(max_length=253, description="Whose LLDP neighbours these are.")] = None,
) -> Response:
    """Store what is known of the topology: what is so already changes nothing, what is another way closes what was."""
    sent = _read_records(caller, body) if form == "json" else _read_text(caller, body, form, node)
    return reply(_take(server, sent))


def _read_records(caller: Caller, body: bytes) -> _TopologyBody:
    sent = _TopologyBody()
    for entry in limited(records(body)):
        if entry.error is not None:
            sent.rejected.append(Rejected(entry.line, entry.error))
            continue
        try:
            sent.add(caller, _record(entry.value), entry.line)
        except RecordError as error:
            sent.rejected.append(rejection(entry.line, error))
    return sent


def _read_text(caller: Caller, body: bytes, form: str, node: str | None) -> _TopologyBody:
    """What a tool printed.

    Raises:
        Problem: 422, it is not of that form.
    """
    if node is not None and not is_node_name(node):
        raise Problem(422, f"node is {node[:60]!r}, which is no node's name")
    sent = _TopologyBody()
    try:
        told = read_topology(
            form,
            body.decode(errors="replace").replace("\x00", ""),
            caller.names.canonical(node) if node else caller.nodes.only,
            lambda line, error: sent.rejected.append(Rejected(line, str(error))),
        )
    except ParseError as error:
        raise Problem(422, f"the body is nothing of {form}: {error}") from error
    everything: list[FabricLink | DeviceName | NodeGroup] = [*told.links, *told.names, *told.groups]
    for number, record in enumerate(limited(everything), start=1):
        try:
            sent.add(caller, record, number)
        except RecordError as error:
            sent.rejected.append(rejection(number, error))
    return sent


def _owner(record: FabricLink | DeviceName | NodeGroup) -> str | None:
    """The node that a record is of; None of what is the fabric's."""
    if isinstance(record, FabricLink):
        return record.peer if record.peer_type == "hca" and record.hca is not None else None
    if isinstance(record, NodeGroup):
        return record.node
    node, slash, _ = record.device.partition("/")
    return node if slash and record.kind_of_device in ("nic", "gpu") and record.kind != "name" else None


def _record(value: Any) -> FabricLink | DeviceName | NodeGroup:
    """The record of a JSON object: a cable (`switch`), a name (`device`), or what a node shares (`node`).

    Raises:
        RecordError: a field is missing, of the wrong type or too long.
    """
    if not isinstance(value, dict):
        raise RecordError(f"a record is a JSON object, not {type(value).__name__}")
    if "switch" in value:
        return _link(value)
    kind, name = _text(value, "class"), _text(value, "name")
    if not kind or not name:
        raise RecordError("a record is a cable (with 'switch'), or has 'class' and 'name': see docs/topology.md")
    if device := _text(value, "device"):
        of = _text(value, "kind") or "name"
        if kind not in NAMED_CLASSES or of not in NAME_KINDS:
            raise RecordError(f"'class' is one of {', '.join(NAMED_CLASSES)}, 'kind' one of {', '.join(NAME_KINDS)}")
        return DeviceName(kind, device, of, name if of in ("netdev", "name") else name.lower())
    node = _text(value, "node")
    if not node or not is_node_name(node) or kind not in GROUP_CLASSES:
        raise RecordError(f"a group has the 'node' that is in it, and a 'class' of {', '.join(GROUP_CLASSES)}")
    return NodeGroup(node, kind, name)


def _link(value: dict[str, Any]) -> FabricLink:
    texts = {name: found for name in LINK_TEXTS if (found := _text(value, name))}
    numbers: dict[str, int] = {}
    for name in LINK_NUMBERS:
        number = value.get(name)
        if number is None:
            continue
        if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number <= _MOST_PORT:
            raise RecordError(f"{name!r} must be a whole number from 0 to {_MOST_PORT}, or null")
        numbers[name] = number
    if "switch" not in texts or "port" not in numbers or "peer" not in texts:
        raise RecordError("a cable needs 'switch', 'port' (a number) and 'peer'")
    if texts.get("peer_type", "hca") not in ("hca", "switch"):
        raise RecordError("'peer_type' is 'hca' or 'switch'")
    return FabricLink(**texts, **numbers)  # type: ignore[arg-type]


def _text(value: dict[str, Any], name: str) -> str | None:
    text = value.get(name)
    if text is not None and not isinstance(text, str):
        raise RecordError(f"{name!r} must be a string or null")
    check_name(name, text or None)
    return text.strip() if text else None


def _take(server: State, sent: _TopologyBody) -> IntakeResult:
    """Store it in one transaction."""
    now = server.clock()
    told = TopologyReport(
        tuple(one for one in sent.told if isinstance(one, FabricLink)),
        tuple(one for one in sent.told if isinstance(one, DeviceName)),
        tuple(one for one in sent.told if isinstance(one, NodeGroup)),
    )

    def work(connection: Any) -> tuple[int, int, list[FabricLink]]:
        changes = [append_topology(connection, told, now)] if len(told) else []
        for node in sorted(sent.own):
            links = [one for one in sent.own[node] if isinstance(one, FabricLink)]
            names = [one for one in sent.own[node] if isinstance(one, DeviceName)]
            if links:
                changes.append(append_own_links(connection, node, links, now))
            if names:
                changes.append(replace_own_names(connection, node, names, now))
        refused = [link for change in changes for link in change.refused]
        return sum(change.changed for change in changes), sum(change.known for change in changes), refused

    changed, known, refused = transact(server.engine, work)
    for link in refused:
        text = f"{link.switch} port {link.port} is cabled to another device by the fabric's or another node's word"
        sent.rejected.append(Rejected(sent.lines.get((link.switch, link.port), 0), text))
    count_rejected(server.metrics, "topology", sent.rejected)
    return IntakeResult(changed, known, sent.rejected[:MAX_REJECTED_SHOWN])

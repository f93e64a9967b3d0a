"""The topology: cables with both their ends, what devices are called, what nodes share; as it is, and as it was.

    append_links(connection, cables, at=moment)            # who re-discovers a cable elsewhere closes the row before
    append_names(connection, names, at=moment)             # a LID or an address has one bearer: the newest
    append_groups(connection, groups, at=moment)
    read_cables(connection, at=moment)                     # what was cabled then
    topology_version(connection)                           # another one means: read it again

What is first told of a port, a device or a node holds since ever: nobody knows of another.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from store.database.coordination import TOPOLOGY as MARK
from store.database.coordination import move_mark
from store.database.known_nodes import TOPOLOGY, add_known
from store.records.event import Event
from store.records.hostlist import is_node_name
from store.records.node import GROUP_CLASSES, MOVING_KINDS, DeviceName, FabricLink, NodeGroup, TopologyReport
from store.tables import schema, topology_tables
from store.tables.bulk_rows import insert_into, is_one_of, upsert

EVER = datetime(1970, 1, 1, tzinfo=UTC)
_LINKS, _FORMER = schema.links, topology_tables.former_links
_NAMES, _GROUPS = topology_tables.device_names, topology_tables.node_groups
_FIELDS = FabricLink._fields
# A cable whose rate alone changed is the same.
_SAME = tuple(name for name in _FIELDS if name not in ("rate", "known_by"))
# Columns of `nodes` that are groups, and the class of each.
COLUMNS: Mapping[str, str] = {"rack": "rack", "leaf": "switch", "driver": "driver", "nvlink_domain": "nvswitch"}
# Names, cables and groups that one node may tell of itself.
MOST_OF_A_NODE = 512

_Key = tuple[str, int]
_Row = dict[str, Any]


@dataclass(slots=True)
class TopologyChange:
    """What was told: rows that are new or other than before, and those refused because a port is another's."""

    changed: int = 0
    known: int = 0
    refused: list[FabricLink] = field(default_factory=list)


def append_links(
    connection: sa.Connection, links: Iterable[Mapping[str, Any]], at: datetime | None = None
) -> TopologyChange:
    """Append cables (`FabricLink` as mappings), which names the hosts at their ends.

    The newest cabling of a port holds; what was, stays as of its time. A device that is found at another port has left
    the one before. A node's own word (`known_by`) takes no port that another has.
    """
    moment = at or datetime.now(UTC)
    new: dict[_Key, _Row] = {}
    for link in links:
        row = FabricLink(**link)._asdict()
        new[row["switch"], row["port"]] = row
    change = TopologyChange()
    if not new:
        return change
    now = _current(connection, new)
    closed: dict[_Key, _Row] = {}
    opened: list[_Row] = []
    told_before = _once_cabled(connection, new)
    for key, row in new.items():
        old = now.get(key)
        if old is None:
            opened.append({**row, "since": moment if key in told_before else None})
        elif row["known_by"] is not None and old["known_by"] != row["known_by"]:
            _weigh_own_word(change, row, old)
        else:
            _compare(change, row, old, (opened, closed, moment))
    closed |= {key: now[key] for key in _left(now, new, opened)}
    moved = {_end_of(row) for row in closed.values()} - {None}
    opened = [{**row, "since": moment} if _end_of(row) in moved else row for row in opened]
    _close(connection, closed, {(row["switch"], row["port"]) for row in opened}, moment)
    upsert(connection, _LINKS, opened)
    change.changed = len(opened) + len(closed)
    hosts = {row["peer"] for row in opened if row["peer_type"] == "hca" and row["known_by"] is None}
    add_known(connection, TOPOLOGY, filter(is_node_name, hosts))
    if change.changed:
        move_mark(connection, MARK)
    return change


def append_topology(connection: sa.Connection, told: TopologyReport, at: datetime | None = None) -> TopologyChange:
    """Append all that a source tells."""
    whole = TopologyChange()
    for change in (
        append_links(connection, (link._asdict() for link in told.links), at),
        append_names(connection, told.names, at),
        append_groups(connection, told.groups, at),
    ):
        whole.changed += change.changed
        whole.known += change.known
        whole.refused += change.refused
    return whole


def _compare(change: TopologyChange, row: _Row, old: _Row, into: tuple[list[_Row], dict[_Key, _Row], datetime]) -> None:
    """What a port's new row is beside the one before: the same, more of the same, or another cable."""
    opened, closed, moment = into
    is_same = _is_same_end(old, row)
    if is_same:
        merged = {name: old[name] if row[name] is None else row[name] for name in _FIELDS}
        row = {**merged, "known_by": row["known_by"]}
    if all(old[name] == row[name] for name in _FIELDS):
        change.known += 1
    elif is_same and all(old[name] in (None, row[name]) for name in _SAME):
        opened.append({**row, "since": old["since"]})
    else:
        closed[row["switch"], row["port"]] = old
        opened.append({**row, "since": moment})


def _weigh_own_word(change: TopologyChange, row: _Row, old: _Row) -> None:
    """What a node tells of a port that somebody else told of: the same is known, another is refused."""
    if row["peer"] == old["peer"] and row["peer_type"] == old["peer_type"]:
        change.known += 1
    else:
        change.refused.append(FabricLink(**row))


def _is_same_end(old: _Row, new: _Row) -> bool:
    """Whether two rows of a port mean the same device at its far end."""
    if old["peer_type"] != new["peer_type"]:
        return False
    for name in ("peer_port_guid", "peer_guid"):
        if old[name] is not None and new[name] is not None:
            return bool(old[name] == new[name])
    unlike = (name for name in ("peer", "hca", "peer_port") if None not in (old[name], new[name]))
    return all(old[name] == new[name] for name in unlike)


def _left(now: Mapping[_Key, _Row], new: Mapping[_Key, _Row], opened: Sequence[_Row]) -> list[_Key]:
    """Ports whose device was found at another one: a port of an adapter, or of a switch, has one cable."""
    ends: dict[tuple[Any, ...], _Key] = {}
    far: dict[_Key, _Key] = {}
    for row in opened:
        key = row["switch"], row["port"]
        if (end := _end_of(row)) is not None:
            ends[end] = key
        if row["peer_type"] == "switch" and row["peer_port"] is not None and row["known_by"] is None:
            far[key] = row["peer"], row["peer_port"]
    found = []
    for key, row in now.items():
        if key in new:
            continue
        end = _end_of(row)
        moved = end is not None and ends.get(end, key) != key
        back = (row["peer"], row["peer_port"]) if row["peer_type"] == "switch" else None
        if moved or (back in far and far[back] != key):
            found.append(key)
    return found


def _end_of(row: _Row) -> tuple[Any, ...] | None:
    """What tells the far end of a cable from every other one; None where two may share it."""
    if row["peer_type"] != "hca":
        return None
    if row["peer_port_guid"] is not None:
        return (row["peer_port_guid"],)
    if row["peer_guid"] is not None and row["peer_port"] is not None:
        return row["peer_guid"], row["peer_port"]
    if row["hca"] is not None and row["peer_guid"] is None:
        return row["peer"], row["hca"], row["peer_port"]
    return None


def _current(connection: sa.Connection, new: Mapping[_Key, _Row]) -> dict[_Key, _Row]:
    """The rows that new ones may change: of the same switches, and of the same far ends."""
    ends = {switch for switch, _ in new} | {row["peer"] for row in new.values()}
    touched = sa.or_(is_one_of(connection, _LINKS.c.switch, ends), is_one_of(connection, _LINKS.c.peer, ends))
    query = sa.select(*(_LINKS.c[name] for name in _FIELDS), _LINKS.c.since).where(touched)
    return {(row["switch"], row["port"]): dict(row) for row in connection.execute(query).mappings()}


def _once_cabled(connection: sa.Connection, new: Mapping[_Key, _Row]) -> set[_Key]:
    """Ports that had another cable before."""
    switches = {switch for switch, _ in new}
    query = sa.select(_FORMER.c.switch, _FORMER.c.port).where(is_one_of(connection, _FORMER.c.switch, switches))
    return {(switch, port) for switch, port in connection.execute(query)}


def _close(connection: sa.Connection, closed: Mapping[_Key, _Row], opened: set[_Key], moment: datetime) -> None:
    """Move rows to what was; a port without a new cable has none now."""
    if not closed:
        return
    # What began at the same moment never was.
    was = [{**row, "until": moment} for row in closed.values() if row["since"] is None or row["since"] < moment]
    if was:
        connection.execute(insert_into(connection, _FORMER).on_conflict_do_nothing(), was)
    gone = [{"s": switch, "p": port} for switch, port in closed if (switch, port) not in opened]
    if gone:
        own = sa.and_(_LINKS.c.switch == sa.bindparam("s"), _LINKS.c.port == sa.bindparam("p"))
        connection.execute(sa.delete(_LINKS).where(own), gone)


def append_own_links(
    connection: sa.Connection, node: str, links: Sequence[FabricLink], at: datetime | None = None
) -> TopologyChange:
    """Append the cables that a node tells of itself: few, and none of another node's ports."""
    change = TopologyChange(refused=list(links[MOST_OF_A_NODE:]))
    of_node = _LINKS.c.known_by == node
    held = int(connection.scalar(sa.select(sa.func.count()).select_from(_LINKS).where(of_node)) or 0)
    if held + len(links) > MOST_OF_A_NODE:
        # Those that it told before are gone: it has no more ports than a node has.
        connection.execute(sa.delete(_LINKS).where(of_node))
    connection.execute(
        sa.delete(_FORMER).where(
            _FORMER.c.known_by == node,
            sa.select(sa.func.count()).where(_FORMER.c.known_by == node).scalar_subquery() > MOST_OF_A_NODE,
        )
    )
    rows = [link._replace(known_by=node)._asdict() for link in links[:MOST_OF_A_NODE] if link.peer == node]
    told = append_links(connection, rows, at)
    told.refused += change.refused
    return told


def append_names(connection: sa.Connection, names: Iterable[DeviceName], at: datetime | None = None) -> TopologyChange:
    """Append names of devices. A name of a kind that moves (LID, address, rank) leaves the device that had it.

    A node's own word (`known_by`) takes no name from another's device.
    """
    moment = at or datetime.now(UTC)
    told = {(name.kind_of_device, name.device, name.kind, name.name): name for name in names}
    change = TopologyChange()
    if not told:
        return change
    now = _open_names(connection, told.values())
    once = {(row["class"], row["device"], row["kind"]) for row in now.values()}
    opened, closed = [], []
    for key, name in told.items():
        if key in now:
            change.known += 1
            continue
        taken = False
        if name.kind in MOVING_KINDS:
            holders = [one for one, row in now.items() if one[2:] == key[2:] and one not in told]
            if name.known_by is not None:
                # What two nodes say of themselves holds of both, and so means neither.
                holders = [one for one in holders if now[one]["known_by"] == name.known_by]
            closed += holders
            taken = bool(holders)
        since = moment if key[:3] in once or taken else EVER
        row: _Row = dict(zip(("class", "device", "kind", "name"), key, strict=True))
        opened.append({**row, "since": since, "until": None, "known_by": name.known_by})
    _close_names(connection, closed, moment)
    upsert(connection, _NAMES, opened)
    change.changed = len(opened) + len(closed)
    if change.changed:
        move_mark(connection, MARK)
    return change


def replace_own_names(
    connection: sa.Connection, node: str, names: Sequence[DeviceName], at: datetime | None = None
) -> TopologyChange:
    """Note what a node says its own devices are called; of those that it names, what it no longer says is over."""
    moment = at or datetime.now(UTC)
    wanted = {(name.kind_of_device, name.device, name.kind, name.name) for name in names}
    devices = {name.device for name in names}
    own = _NAMES.c.known_by == node, _NAMES.c.until.is_(None), is_one_of(connection, _NAMES.c.device, devices)
    query = sa.select(_NAMES.c["class"], _NAMES.c.device, _NAMES.c.kind, _NAMES.c.name).where(*own)
    over = [key for row in connection.execute(query) if (key := tuple(row)) not in wanted]
    _close_names(connection, over, moment)
    rows = int(connection.scalar(sa.select(sa.func.count()).where(_NAMES.c.known_by == node)) or 0)
    if rows + len(wanted) > 2 * MOST_OF_A_NODE:
        # Whoever changes its names without end has no past, and then no more names.
        connection.execute(sa.delete(_NAMES).where(_NAMES.c.known_by == node, _NAMES.c.until.is_not(None)))
        held = int(connection.scalar(sa.select(sa.func.count()).where(_NAMES.c.known_by == node)) or 0)
        names = names[: max(0, MOST_OF_A_NODE - held)]
    change = append_names(connection, names, moment)
    if over and not change.changed:
        move_mark(connection, MARK)
    change.changed += len(over)
    return change


# What a sidecar tells of its node's adapters: events of this kind, one a port.
OWN_PORT = "adapter_port"
_OWN_KINDS = {"guid": "guid", "port_guid": "port_guid", "netdev": "netdev", "pci": "pci", "firmware": "firmware"}


def note_own_ports(connection: sa.Connection, events: Iterable[Event], received: datetime) -> None:
    """Note what nodes say that their own adapters are called; each speaks of its own alone."""
    told: dict[str, list[DeviceName]] = {}
    for event in events:
        if event.kind == OWN_PORT and event.node is not None:
            told.setdefault(event.node, []).extend(own_port_names(event.node, event))
    for node in sorted(told):
        if told[node]:
            replace_own_names(connection, node, told[node][:MOST_OF_A_NODE], received)


def own_port_names(node: str, event: Event) -> list[DeviceName]:
    """The names of an adapter's port that an event of it tells."""
    adapter = event.name()
    if not adapter or not _ADAPTER.fullmatch(adapter):
        return []
    said = {**event.attributes, "guid": event.device.uuid, "pci": event.device.pci}
    found = [
        DeviceName("nic", f"{node}/{adapter}", kind, value.lower() if kind != "netdev" else value, node)
        for key, kind in _OWN_KINDS.items()
        if isinstance(value := said.get(key), str) and 0 < len(value) <= _MOST_OWN
    ]
    lid = said.get("lid")
    if isinstance(lid, int) and not isinstance(lid, bool) and 0 < lid < 1 << 16:
        found.append(DeviceName("nic", f"{node}/{adapter}", "lid", str(lid), node))
    return found


_ADAPTER = re.compile(r"[\w.-]{1,64}", re.ASCII)
_MOST_OWN = 64


def _open_names(connection: sa.Connection, names: Iterable[DeviceName]) -> dict[tuple[Any, ...], _Row]:
    texts, devices = {name.name for name in names}, {name.device for name in names}
    touched = sa.or_(is_one_of(connection, _NAMES.c.name, texts), is_one_of(connection, _NAMES.c.device, devices))
    query = sa.select(_NAMES).where(touched, _NAMES.c.until.is_(None))
    rows = (dict(row) for row in connection.execute(query).mappings())
    return {(row["class"], row["device"], row["kind"], row["name"]): row for row in rows}


def _close_names(connection: sa.Connection, keys: Sequence[Sequence[Any]], moment: datetime) -> None:
    if not keys:
        return
    columns = ("class", "device", "kind", "name")
    own = [_NAMES.c[column] == sa.bindparam(f"of_{column}") for column in columns]
    change = sa.update(_NAMES).where(*own, _NAMES.c.until.is_(None)).values(until=moment)
    connection.execute(change, [dict(zip((f"of_{one}" for one in columns), key, strict=True)) for key in keys])


def append_groups(connection: sa.Connection, groups: Iterable[NodeGroup], at: datetime | None = None) -> TopologyChange:
    """Append what nodes share. What is told of a node and class takes the place of what was told of both before."""
    moment = at or datetime.now(UTC)
    told: dict[tuple[str, str], set[str]] = {}
    for group in groups:
        if group.kind in GROUP_CLASSES:
            told.setdefault((group.node, group.kind), set()).add(group.name)
    change = TopologyChange()
    if not told:
        return change
    columns = {kind: column for column, kind in COLUMNS.items()}
    _set_columns(connection, {key: names for key, names in told.items() if key[1] in columns}, columns, change, moment)
    open_ones = _open_groups(connection, {node for node, _ in told})
    opened, closed = [], []
    for (node, kind), names in told.items():
        if kind in columns:
            continue
        had = open_ones.get((node, kind), set())
        change.known += len(names & had)
        closed += [(node, kind, name) for name in had - names]
        since = moment if had else EVER
        opened += [{"node": node, "class": kind, "name": name, "since": since, "until": None} for name in names - had]
    _close_groups(connection, closed, moment)
    upsert(connection, _GROUPS, opened)
    change.changed += len(opened) + len(closed)
    if change.changed:
        move_mark(connection, MARK)
    return change


def note_former(connection: sa.Connection, before: Iterable[NodeGroup], moment: datetime) -> None:
    """Keep what columns of `nodes` said until a moment."""
    rows = [{"node": one.node, "class": one.kind, "name": one.name, "since": EVER, "until": moment} for one in before]
    if rows:
        connection.execute(insert_into(connection, _GROUPS).on_conflict_do_nothing(), rows)


def note_columns(connection: sa.Connection, rows: Sequence[Mapping[str, Any]], at: datetime | None = None) -> None:
    """Keep what `nodes` says of groups that rows to be written say otherwise; the graph is another one then."""
    if not rows:
        return
    nodes, moment = schema.nodes, at or datetime.now(UTC)
    query = sa.select(nodes.c.node, *(nodes.c[column] for column in COLUMNS))
    query = query.where(is_one_of(connection, nodes.c.node, {row["node"] for row in rows}))
    now = {row.node: row._mapping for row in connection.execute(query)}
    before, is_news = [], False
    for row in rows:
        was = now.get(row["node"])
        for column, kind in COLUMNS.items():
            old = None if was is None else was[column]
            is_news = is_news or old != row[column]
            if old is not None and old != row[column]:
                before.append(NodeGroup(row["node"], kind, old))
    note_former(connection, before, moment)
    if is_news:
        move_mark(connection, MARK)


def _set_columns(
    connection: sa.Connection,
    told: Mapping[tuple[str, str], set[str]],
    columns: Mapping[str, str],
    change: TopologyChange,
    moment: datetime,
) -> None:
    """Groups that `nodes` has columns for: the first of several names, by their order."""
    nodes = schema.nodes
    wanted = {node for node, _ in told}
    query = sa.select(nodes.c.node, *(nodes.c[column] for column in COLUMNS))
    now = {
        row.node: row._mapping for row in connection.execute(query.where(is_one_of(connection, nodes.c.node, wanted)))
    }
    before: list[NodeGroup] = []
    for (node, kind), names in sorted(told.items()):
        column, name = columns[kind], min(names)
        if node in now and now[node][column] == name:
            change.known += 1
            continue
        if node in now and now[node][column] is not None:
            before.append(NodeGroup(node, kind, now[node][column]))
        statement = insert_into(connection, nodes).values({"node": node, column: name})
        connection.execute(statement.on_conflict_do_update(index_elements=["node"], set_={column: name}))
        change.changed += 1
    note_former(connection, before, moment)


def _open_groups(connection: sa.Connection, nodes: Iterable[str]) -> dict[tuple[str, str], set[str]]:
    query = sa.select(_GROUPS.c.node, _GROUPS.c["class"], _GROUPS.c.name)
    query = query.where(_GROUPS.c.until.is_(None), is_one_of(connection, _GROUPS.c.node, nodes))
    found: dict[tuple[str, str], set[str]] = {}
    for node, kind, name in connection.execute(query):
        found.setdefault((node, kind), set()).add(name)
    return found


def _close_groups(connection: sa.Connection, keys: Sequence[tuple[str, str, str]], moment: datetime) -> None:
    if keys:
        columns = ("node", "class", "name")
        own = [_GROUPS.c[column] == sa.bindparam(f"of_{column}") for column in columns]
        change = sa.update(_GROUPS).where(*own, _GROUPS.c.until.is_(None)).values(until=moment)
        connection.execute(change, [dict(zip((f"of_{one}" for one in columns), key, strict=True)) for key in keys])


def read_cables(connection: sa.Connection, at: datetime | None = None) -> list[FabricLink]:
    """Every cable as it is, or as it was at a moment; by switch and port."""
    query = sa.select(*(_LINKS.c[name] for name in _FIELDS))
    if at is None:
        return list(map(FabricLink._make, connection.execute(query.order_by(_LINKS.c.switch, _LINKS.c.port))))
    began = sa.or_(_LINKS.c.since.is_(None), _LINKS.c.since <= at)
    was = sa.select(*(_FORMER.c[name] for name in _FIELDS)).where(
        sa.or_(_FORMER.c.since.is_(None), _FORMER.c.since <= at), _FORMER.c.until > at
    )
    found = [*connection.execute(query.where(began)), *connection.execute(was)]
    return sorted(map(FabricLink._make, found), key=lambda link: link[:2])


def read_names(connection: sa.Connection, at: datetime | None = None) -> list[DeviceName]:
    """Every further name of a device, as of now or of a moment."""
    columns = (_NAMES.c[name] for name in ("class", "device", "kind", "name", "known_by"))
    query = sa.select(*columns).where(_valid(_NAMES, at)).order_by(_NAMES.c.device, _NAMES.c.kind, _NAMES.c.name)
    return list(map(DeviceName._make, connection.execute(query)))


def read_groups(connection: sa.Connection, at: datetime | None = None) -> list[NodeGroup]:
    """What nodes share, as of now or of a moment."""
    nodes = schema.nodes
    found: dict[tuple[str, str], list[str]] = {}
    names = (nodes.c[column] for column in COLUMNS)
    for node, *shared in connection.execute(sa.select(nodes.c.node, *names)):
        for kind, name in zip(COLUMNS.values(), shared, strict=True):
            if name:
                found[node, kind] = [name]
    query = sa.select(_GROUPS.c.node, _GROUPS.c["class"], _GROUPS.c.name).where(_valid(_GROUPS, at))
    for node, kind, name in connection.execute(query.order_by(_GROUPS.c.until.desc())):
        if kind in COLUMNS.values():
            found[node, kind] = [name]  # of several that were, the one that ended first after the moment
        else:
            found.setdefault((node, kind), []).append(name)
    return [NodeGroup(node, kind, name) for (node, kind), names in found.items() for name in names]


def _valid(table: sa.Table, at: datetime | None) -> sa.ColumnElement[bool]:
    """Whether a row holds now, or at a moment."""
    if at is None:
        return table.c.until.is_(None)
    return sa.and_(table.c.since <= at, sa.or_(table.c.until.is_(None), table.c.until > at))


def topology_version(connection: sa.Connection) -> tuple[int, int]:
    """What changes whenever the topology does: the mark, and how many nodes were heard of."""
    mark = connection.scalar(sa.select(schema.marks.c.number).where(schema.marks.c.name == MARK)) or 0
    return int(mark), int(connection.scalar(sa.select(sa.func.count()).select_from(schema.nodes)) or 0)

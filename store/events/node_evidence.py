"""All that is known of one node in a time: what a vendor is shown of it, and nothing of who worked on it.

    evidence = node_evidence(connection, "gpu-017", since, until, "gpu:3")
    evidence.rows["events"]        # the oldest first

Left out on purpose: runs and users of jobs, names of processes, what people wrote (reasons of outages, why a verdict
ended), what programs say of themselves, schedulers, and sources that speak of many nodes.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.hints.check_log import MODEL, check_name
from store.records.event import format_time
from store.records.event_sources import FLEET_SOURCES, MACHINES
from store.tables import hint_tables, schema, topology_tables, verdict_tables
from store.tables.pages import whole_device

# Of each kind; the newest stay.
MOST_ROWS = 100_000

# Who observes this node's hardware; a site's own programs may write anything.
_SOURCES = sorted(MACHINES - FLEET_SOURCES)
_CAUSES = ("hardware", "driver", "fabric", "unknown")
# Whatever their cause: a vendor's own codes, and faults of disks whose messages bear no path.
_VENDORS = ("xid", "sxid", "buffer_io_error", "disk_error", "nvme_path")
# What a person or a job's library wrote into a log of machines; of outages and jobs the words of their users stay here.
_WRITTEN = ("quoted_xid", "hccl_cqe_error", "hccl_heartbeat_lost", "hccl_link_timeout", "outage", "job")
_PARTS = ("gpu", "nvlink", "nvswitch", "nic", "cable", "optic", "port")
_CLASSES = (*_PARTS, "switch", "node", "rack", "power", "cooling", "driver", "firmware")
_NAMED = ("guid", "port_guid", "lid", "pci", "netdev", "serial", "uuid", "firmware")  # not its rank in a run
_STATE = re.compile(r"[A-Z][A-Z_]*[*~#!%$@^-]?(?:\+[A-Z_]+[*~#!%$@^-]?)*", re.ASCII)
# Attributes that name a process or job, and where messages do.
_PRIVATE = ("process", "pid", "thread", "task", "cgroup", "oom_memcg", "cpuset", "user", "run", "job")
_PROCESS = re.compile(
    r"(\bname=|\bcomm: ?|\bKilling |\bSIGBUS to |\b(?:for process|thread) )[^,()]*?(?=[,()]|:\d| pid\b| due\b|$)"
)
_EVENT = ("id", "time", "received", "source", "kind", "code", "severity", "cause", "device", "message", "attributes")
_INCIDENT = ("id", "start", "end", "kind", "code", "severity", "cause", "device", "message", "count", "kinds")
_VERDICT = ("id", "class", "name", "state", "probability", "since", "opened", "changed", "ended")
_NODE = ("node", "rack", "gpu_model", "gpus", "driver", "in_service_since", "in_service_until", "last_seen")
_NAMES = ("device", "kind", "name", "since", "until")


@dataclass(frozen=True, slots=True)
class NodeEvidence:
    """One node's.

    Attributes:
        node: its row. devices: what its parts are called, serial numbers among it, and since when.
        rows: of events, incidents, verdicts, outages, checks and tests, in order of time.
        cut: the kinds of which older rows are left out.
    """

    node: Mapping[str, Any]
    devices: list[dict[str, Any]]
    rows: dict[str, list[dict[str, Any]]]
    cut: list[str] = field(default_factory=list)


def node_evidence(
    connection: sa.Connection,
    node: str,
    since: datetime,
    until: datetime,
    device: str | None = None,
    most: int = MOST_ROWS,
) -> NodeEvidence | None:
    """What is known of a node in since <= time < until; None of a node that nobody heard of.

    Args:
        device: of its parts this one alone, as `gpu:3`, a PCI address or a UUID; what is of the whole node stays.
        most: rows of each kind; the newest stay.
    """
    nodes = schema.nodes.c
    row = connection.execute(sa.select(*(nodes[name] for name in _NODE)).where(nodes.node == node)).mappings().first()
    if row is None:
        return None
    names = topology_tables.device_names.c
    of_node = sa.or_(names.device == node, names.device.startswith(f"{node}/", autoescape=True))
    told = connection.execute(
        sa.select(*(names[name] for name in _NAMES))
        .where(of_node, names.kind.in_(_NAMED))
        .order_by(*(names[n] for n in _NAMES[:4]))
    )
    rows: dict[str, list[dict[str, Any]]] = {}
    cut = []
    for kind, (query, moment) in _queries(node, since, until).items():
        found = list(connection.execute(query.order_by(sa.desc(moment)).limit(most + 1)).mappings())
        if len(found) > most:
            cut.append(kind)
        rows[kind] = [_plain(one) for one in reversed(found[:most]) if _is_of(one.get("device"), device)]
    devices = [_plain(one) for one in told.mappings()]
    if device is not None:
        devices = _of_device(node, devices, rows, device)
    return NodeEvidence(_plain(row), devices, rows, cut)


def _queries(node: str, since: datetime, until: datetime) -> dict[str, tuple[sa.Select[Any], sa.ColumnElement[Any]]]:
    events, incidents, verdicts = schema.events.c, schema.incidents.c, verdict_tables.verdicts.c
    outages, cases, tests = schema.outages.c, hint_tables.check_cases.c, hint_tables.validations.c

    def within(start: Any, end: Any) -> sa.ColumnElement[bool]:
        return sa.and_(start < until, sa.or_(end.is_(None), end >= since))

    def of_hardware(table: Any) -> sa.ColumnElement[bool]:
        known = sa.or_(table.cause.in_(_CAUSES), table.kind.in_(_VENDORS))
        return sa.and_(table.node == node, table.source.in_(_SOURCES), table.kind.not_in(_WRITTEN), known)

    chosen = {
        "events": (sa.select(*(events[name] for name in _EVENT)), events.time),
        "incidents": (sa.select(*(incidents[n] for n in _INCIDENT)), incidents.start),
        "verdicts": (sa.select(*(verdicts[n] for n in _VERDICT)), verdicts.since),
        "outages": (sa.select(*(outages[n] for n in ("start", "end", "state", "planned", "cause"))), outages.start),
        "checks": (sa.select(*(cases[n] for n in ("source", "name", "said", "last", "outcome"))), cases.said),
        "tests": (sa.select(*(tests[n] for n in ("started", "ended", "passed", "exit_code", "output"))), tests.started),
    }
    where = {
        # What bears a run is a training program's.
        "events": (of_hardware(events), events.run.is_(None), events.time >= since, events.time < until),
        "incidents": (of_hardware(incidents), within(incidents.start, incidents.end)),
        "verdicts": (verdicts.node == node, verdicts["class"].in_(_CLASSES), within(verdicts.since, verdicts.ended)),
        "outages": (outages.node == node, within(outages.start, outages.end)),
        "checks": (cases.node == node, cases.source.in_((*_SOURCES, MODEL)), within(cases.said, cases.last)),
        "tests": (tests.node == node, within(tests.started, tests.ended)),
    }
    return {kind: (query.where(*where[kind]), moment) for kind, (query, moment) in chosen.items()}


def _is_of(told: Any, device: str | None) -> bool:
    """Whether a row is of a device, or of the whole node."""
    if device is None or not isinstance(told, dict) or told.get("type") in (None, "node"):
        return True
    named: Iterable[Any] = (f"{told.get('type')}:{told.get('index')}", told.get("pci"), told.get("uuid"))
    return device.lower() in [str(name).lower() for name in named]


def _of_device(
    node: str, devices: list[dict[str, Any]], rows: dict[str, list[dict[str, Any]]], device: str
) -> list[dict[str, Any]]:
    """What the part and the whole node are called; of the rows only the verdicts and checks of either stay."""
    names = {device.lower()}
    for row in (*rows["events"], *rows["incidents"]):
        told = row["device"]
        if isinstance(told, dict) and told.get("type") not in (None, "node"):
            names |= {
                f"{told['type']}:{told.get('index')}".lower(),
                *(str(told.get(n)).lower() for n in ("pci", "uuid")),
            }
    names -= {"none"}

    def is_named(place: str) -> bool:
        part = place.removeprefix(f"{node}/").lower()
        return part in names or re.sub(r"^(\D+)(\d+)$", r"\1:\2", part) in names

    places = {row["device"] for row in devices if is_named(row["device"]) or row["name"].lower() in names}

    def is_of(place: str) -> bool:
        return place in places or is_named(place)

    said = {check_name(row["kind"], row["code"]) for row in rows["events"]}
    rows["verdicts"] = [
        v for v in rows["verdicts"] if v["class"] not in _PARTS or any(map(is_of, v["name"].split("--")))
    ]
    rows["checks"] = [one for one in rows["checks"] if one["source"] == MODEL or one["name"] in said]
    return [row for row in devices if row["device"] in (node, *places)]


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    """A row as JSON has it, without the names of processes and what is no state of a scheduler."""
    found: dict[str, Any] = {
        str(key): format_time(value) if isinstance(value, datetime) else value for key, value in row.items()
    }
    if "device" in found:
        found["device"] = whole_device(found["device"])
    told = found.get("attributes") or {}
    if "message" in found:
        process = str(told.get("process") or "")
        message = _PROCESS.sub(r"\1-", found["message"])
        found["message"] = re.sub(rf"(?<!\w){re.escape(process)}(?!\w)", "-", message) if len(process) > 1 else message
    if told:
        found["attributes"] = {name: value for name, value in told.items() if name not in _PRIVATE}
    if "planned" in found and not _STATE.fullmatch(found["state"]):
        found["state"] = ""
    return found

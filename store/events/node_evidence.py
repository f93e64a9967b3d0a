"""All that is known of one node in a time: what a vendor is shown of it, and nothing of who worked on it.

    evidence = node_evidence(connection, "gpu-017", since, until, "gpu:3")
    evidence.rows["events"]        # the oldest first

Left out on purpose: runs and users of jobs, what people wrote, other nodes that a verdict names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from store.records.event import format_time
from store.tables import hint_tables, schema, topology_tables, verdict_tables

# Of each kind; the newest stay.
MOST_ROWS = 100_000

# Events that name users: of the outages their own table has the rest.
_OF_USERS = ("outage", "job")
_EVENT = ("id", "time", "received", "source", "kind", "code", "severity", "cause", "device", "message", "attributes")
_INCIDENT = ("id", "start", "end", "kind", "code", "severity", "cause", "device", "message", "count", "kinds")
_VERDICT = ("id", "class", "name", "state", "probability", "since", "opened", "changed", "ended", "why")
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
    connection: sa.Connection, node: str, since: datetime, until: datetime, device: str | None = None
) -> NodeEvidence | None:
    """What is known of a node in since <= time < until; None of a node that nobody heard of.

    Args:
        device: of its parts this one alone, as `gpu:3`, a PCI address or a UUID; what is of the whole node stays.
    """
    nodes = schema.nodes.c
    row = connection.execute(sa.select(*(nodes[name] for name in _NODE)).where(nodes.node == node)).mappings().first()
    if row is None:
        return None
    names = topology_tables.device_names.c
    of_node = sa.or_(names.device == node, names.device.startswith(f"{node}/", autoescape=True))
    told = connection.execute(
        sa.select(*(names[name] for name in _NAMES)).where(of_node).order_by(*(names[n] for n in _NAMES[:4]))
    )
    rows: dict[str, list[dict[str, Any]]] = {}
    cut = []
    for kind, (query, moment) in _queries(node, since, until).items():
        found = list(connection.execute(query.order_by(sa.desc(moment)).limit(MOST_ROWS + 1)).mappings())
        if len(found) > MOST_ROWS:
            cut.append(kind)
        rows[kind] = [_plain(one) for one in reversed(found[:MOST_ROWS]) if _is_of(one.get("device"), device)]
    return NodeEvidence(_plain(row), [_plain(one) for one in told.mappings()], rows, cut)


def _queries(node: str, since: datetime, until: datetime) -> dict[str, tuple[sa.Select[Any], sa.ColumnElement[Any]]]:
    events, incidents, verdicts = schema.events.c, schema.incidents.c, verdict_tables.verdicts.c
    outages, cases, tests = schema.outages.c, hint_tables.check_cases.c, hint_tables.validations.c

    def within(start: Any, end: Any) -> sa.ColumnElement[bool]:
        return sa.and_(start < until, sa.or_(end.is_(None), end >= since))

    # What bears a run is a training program's; of jobs and outages the words of their users stay here.
    own = (
        events.node == node,
        events.time >= since,
        events.time < until,
        events.run.is_(None),
        events.kind.not_in(_OF_USERS),
    )
    chosen = {
        "events": (sa.select(*(events[name] for name in _EVENT)).where(*own), events.time),
        "incidents": (sa.select(*(incidents[n] for n in _INCIDENT)), incidents.start),
        "verdicts": (sa.select(*(verdicts[n] for n in _VERDICT)), verdicts.since),
        "outages": (
            sa.select(*(outages[n] for n in ("start", "end", "state", "reason", "planned", "cause"))),
            outages.start,
        ),
        "checks": (sa.select(*(cases[n] for n in ("source", "name", "said", "last", "outcome"))), cases.said),
        "tests": (sa.select(*(tests[n] for n in ("started", "ended", "passed", "exit_code", "output"))), tests.started),
    }
    where = {
        "incidents": (incidents.node == node, within(incidents.start, incidents.end)),
        "verdicts": (verdicts.node == node, within(verdicts.since, verdicts.ended)),
        "outages": (outages.node == node, within(outages.start, outages.end)),
        "checks": (cases.node == node, within(cases.said, cases.last)),
        "tests": (tests.node == node, within(tests.started, tests.ended)),
    }
    return {kind: (query.where(*where.get(kind, ())), moment) for kind, (query, moment) in chosen.items()}


def _is_of(told: Any, device: str | None) -> bool:
    """Whether a row is of a device, or of the whole node."""
    if device is None or not isinstance(told, dict) or told.get("type") in (None, "node"):
        return True
    named: Iterable[Any] = (f"{told.get('type')}:{told.get('index')}", told.get("pci"), told.get("uuid"))
    return device.lower() in [str(name).lower() for name in named]


def _plain(row: Mapping[Any, Any]) -> dict[str, Any]:
    return {str(key): format_time(value) if isinstance(value, datetime) else value for key, value in row.items()}

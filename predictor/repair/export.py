"""A ticket for each node that wants repair: the nodes of the repair list, and held ones that fail their test; and for
each link that is likely to be lost (`predictor/repair/link_tickets.py`).

    tickets(connection, report)      # one record a node: the part and its numbers, faults, hints, tests, next step

`--rma` is what a vendor gets about a part; a ticket is what a technician gets about a node, with what was tried on it.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from predictor.repair.lemons import FALSE_SHARE, Lemon, RepairList
from predictor.repair.link_tickets import link_tickets
from predictor.repair.records import MEMORY_D, TIMES, WINDOW_D
from predictor.repair.signals import JUDGED, FaultyPart
from store.hints.hint_log import read_hints
from store.hints.validations import Validation, validations_of_nodes
from store.nodes.inventory import read_nodes
from store.plural import many
from store.records.event import format_time
from store.records.fault_catalog import named_kind
from store.records.hint import OPEN_STATES, Hint
from store.records.incident import Incident, incident_of
from store.tables import schema
from store.tables.bulk_rows import is_one_of
from store.visible_text import csv_text

# The repair list for programs, and the table that a vendor gets with the parts that are sent back.

RMA_COLUMNS = (
    *("node", "rack", "part", "pci", "index", "port", "uuid", "serial", "name", "gpu_model", "driver"),
    *("first_seen", "last_seen", "codes", "outages_28d", "recurrences", "repairs_90d", "next_step", "evidence"),
)


def report_json(report: RepairList) -> dict[str, Any]:
    """The whole report; `unknown` names signals that no source of ours tells."""
    return {
        "at": format_time(report.at),
        "window_days": WINDOW_D,
        "memory_days": MEMORY_D,
        "nodes": report.nodes,
        "times_fleet": TIMES,
        "false_share": FALSE_SHARE,
        "found": report.found,
        "fleet": {
            signal.name: {"noun": signal.noun, "per": signal.per, **report.fleet[signal.name]} for signal in JUDGED
        },
        "unknown": ["excluded_jobs"],
        "items": [lemon_json(lemon) for lemon in report.items],
    }


def lemon_json(lemon: Lemon) -> dict[str, Any]:
    """One node of the list."""
    place = lemon.place
    return {
        "node": lemon.node,
        "rack": place.rack,
        "leaf": place.leaf,
        "gpu_model": place.gpu_model,
        "driver": place.driver,
        "probability": lemon.probability,
        "times_fleet": lemon.times_fleet,
        "signals": dict(lemon.signals),
        "part": None if lemon.part is None else _part(lemon.part),
        "codes": dict(lemon.codes),
        "first_seen": format_time(lemon.first_seen),
        "last_seen": format_time(lemon.last_seen),
        "evidence": [
            {
                "signal": line.signal,
                "text": line.text,
                "events": list(line.events),
                "incidents": list(line.incidents),
                "jobs": list(line.jobs),
            }
            for line in lemon.lines
        ],
        "repairs": [
            {
                "start": format_time(repair.start),
                "end": None if repair.end is None else format_time(repair.end),
                "reason": repair.reason,
                "planned": repair.planned,
                "came_back": repair.came_back,
            }
            for repair in lemon.repairs
        ],
        "next_step": lemon.next_step,
    }


def _part(part: FaultyPart) -> dict[str, Any]:
    device = part.device
    return {
        "words": part.words,
        "type": device.type,
        "pci": device.pci,
        "index": device.index,
        "port": device.port,
        "uuid": part.uuid,
        "serial": part.serial,
        "name": part.name,
        "far_end": part.far_end,
        "days": part.days,
        "of_days": part.of,
    }


def rma_rows(report: RepairList) -> list[dict[str, Any]]:
    """One row a node, in the order of the list; what is not known is None."""
    return [_rma(lemon) for lemon in report.items]


def _rma(lemon: Lemon) -> dict[str, Any]:
    part = lemon.part
    # Of the part alone, where there is one: a vendor asks what this one did.
    codes = Counter(lemon.codes) if part is None else Counter(fault.what for fault in part.faults)
    seen = [lemon.first_seen, lemon.last_seen] if part is None else [part.faults[0].start, part.faults[-1].start]
    return {
        "node": lemon.node,
        "rack": lemon.place.rack,
        "part": None if part is None else part.device.type,
        "pci": None if part is None else part.device.pci,
        "index": None if part is None else part.device.index,
        "port": None if part is None else part.device.port,
        "uuid": None if part is None else part.uuid,
        "serial": None if part is None else part.serial,
        "name": None if part is None else part.name,
        "gpu_model": lemon.place.gpu_model,
        "driver": lemon.place.driver,
        "first_seen": format_time(seen[0]),
        "last_seen": format_time(seen[1]),
        "codes": "; ".join(f"{what} x{times}" for what, times in codes.most_common()),
        "outages_28d": lemon.signals["outages"],
        "recurrences": lemon.signals["recurrences"],
        "repairs_90d": len([repair for repair in lemon.repairs if not repair.planned]),
        "next_step": lemon.next_step,
        "evidence": "; ".join(line.text for line in lemon.lines),
    }


def rma_csv(report: RepairList) -> str:
    """The rows as RFC 4180 text with a header."""
    return csv_text([RMA_COLUMNS, *([row[name] for name in RMA_COLUMNS] for row in rma_rows(report))])


TICKET_COLUMNS = (
    *("node", "rack", "leaf", "gpu_model", "driver", "why", "part", "pci", "index", "uuid", "serial"),
    *("first_seen", "last_seen", "faults", "hints", "tests", "next_step", "link", "ends", "evidence"),
)
_GRAVE = ("error", "fatal")
_NEXT = "run the vendor's diagnostics; it failed the site's own test"
_MOST = 20  # hints, tests and incidents told, the newest


def tickets(connection: sa.Connection, report: RepairList) -> list[dict[str, Any]]:
    """Held nodes that fail their test first, then the repair list's, each node once; then links. Unknown is None."""
    links = [
        {**one, "hints": [_hint(hint) for hint in one["hints"][-_MOST:]]} for one in link_tickets(connection, report.at)
    ]
    return [*_node_tickets(connection, report), *links]


def _node_tickets(connection: sa.Connection, report: RepairList) -> list[dict[str, Any]]:
    since = report.at - timedelta(days=MEMORY_D)
    lemons = {lemon.node: lemon for lemon in report.items}
    cases = {hint.node: hint for hint in read_hints(connection, states=OPEN_STATES) if hint.evidence.repair is not None}
    names = [*sorted(cases), *(node for node in lemons if node not in cases)]
    if not names:
        return []
    places = {node.node: node for node in read_nodes(connection)}
    faults = _faults(connection, names, since, report.at)
    tests = validations_of_nodes(connection, names, since)
    found = []
    for name in names:
        place, mine = places.get(name), faults.get(name, [])
        ticket: dict[str, Any] = {"node": name}
        ticket |= {key: getattr(place, key, None) for key in ("rack", "leaf", "gpu_model", "driver")}
        ticket["why"] = _why(cases.get(name), lemons.get(name))
        ticket |= _ticket_part(connection, lemons.get(name), mine)
        ticket |= _codes_summary(mine)
        hints = [hint for hint in read_hints(connection, node=name) if hint.created >= since]
        ticket["hints"] = [_hint(hint) for hint in hints[-_MOST:]]
        ticket["tests"] = [_test(test) for test in tests.get(name, [])[-_MOST:]]
        ticket["next_step"] = lemons[name].next_step if name in lemons else _NEXT
        ticket |= {"link": None, "ends": None, "evidence": [fault.id for fault in mine[-_MOST:]]}
        found.append(ticket)
    return found


def _why(case: Hint | None, lemon: Lemon | None) -> str:
    reported = []
    repair = None if case is None else case.evidence.repair
    if repair is not None:
        reported.append(f"failed its test {many(repair.tries, 'time')}: {repair.detail or 'no word why'}")
    if lemon is not None:
        reported.append(f"fails at {lemon.times_fleet:.0f} times the fleet's rate")
    return "; ".join(reported)


def _faults(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, at: datetime
) -> Mapping[str, list[Incident]]:
    table = schema.incidents
    query = sa.select(table).where(is_one_of(connection, table.c.node, nodes), table.c.end >= since, table.c.start < at)
    query = query.where(table.c.severity.in_(_GRAVE), table.c.cause != "application")
    found: dict[str, list[Incident]] = {}
    for row in connection.execute(query.order_by(table.c.start, table.c.id)).mappings():
        found.setdefault(row["node"], []).append(incident_of(row))
    return found


def _ticket_part(connection: sa.Connection, lemon: Lemon | None, faults: Sequence[Incident]) -> dict[str, Any]:
    """The part that the repair list blames; else that of the newest fault that names one."""
    if lemon is not None and lemon.part is not None:
        device, uuid, serial = lemon.part.device, lemon.part.uuid, lemon.part.serial
    else:
        newest = next((one for one in reversed(faults) if one.device.type != "node"), None)
        if newest is None:
            return dict.fromkeys(("part", "pci", "index", "uuid", "serial"))
        device, (uuid, serial) = newest.device, _numbers(connection, newest)
    return {"part": device.type, "pci": device.pci, "index": device.index, "uuid": uuid, "serial": serial}


def _numbers(connection: sa.Connection, fault: Incident) -> tuple[str | None, str | None]:
    """The uuid and serial number that the event told which began an incident: it bears the same id."""
    table = schema.events
    reported = connection.scalar(sa.select(table.c.attributes).where(table.c.id == fault.id)) or {}
    uuid, serial = fault.device.uuid or reported.get("uuid"), reported.get("serial")
    return (None if uuid is None else str(uuid)), (None if serial is None else str(serial))


def _codes_summary(faults: Sequence[Incident]) -> dict[str, Any]:
    """What was seen how often, and when first and last."""
    kinds: dict[str, list[Incident]] = {}
    for one in faults:
        kinds.setdefault(named_kind(one.kind, one.code), []).append(one)
    reported = [
        {"what": what, "count": len(ones), "first": format_time(ones[0].start), "last": format_time(ones[-1].start)}
        for what, ones in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    ends = (faults[0].start, faults[-1].start) if faults else ()
    times = dict(zip(("first_seen", "last_seen"), map(format_time, ends), strict=False))
    return {"first_seen": None, "last_seen": None, **times, "faults": reported}


def _hint(hint: Hint) -> dict[str, Any]:
    closed = hint.evidence.closed
    ended = (None, None) if closed is None else (format_time(closed.time), closed.by)
    reported = {"id": hint.id, "action": hint.action, "state": hint.state, "made": format_time(hint.created)}
    return {**reported, "ended": ended[0], "by": ended[1], "reason": hint.reason}


def _test(test: Validation) -> dict[str, Any]:
    return {
        "time": format_time(test.started),
        "command": test.command,
        "passed": test.passed,
        "exit_code": test.exit_code,
        "output": test.output,
    }


def tickets_csv(found: Sequence[Mapping[str, Any]]) -> str:
    """The tickets as RFC 4180 text with a header; lists become sentences."""
    rows: list[Sequence[Any]] = [TICKET_COLUMNS]
    for ticket in found:
        words = {
            "faults": "; ".join(
                f"{one['what']} x{one['count']} ({one['first']} to {one['last']})" for one in ticket["faults"]
            ),
            "hints": "; ".join(
                f"{one['made']} {one['action']} {one['state']}: {one['reason']}" for one in ticket["hints"]
            ),
            "tests": "; ".join(map(_words, ticket["tests"])),
            "ends": " and ".join(ticket["ends"] or ()),
            "evidence": " ".join(ticket["evidence"]),
        }
        rows.append([{**ticket, **words}[name] for name in TICKET_COLUMNS])
    return csv_text(rows)


def _words(test: Mapping[str, Any]) -> str:
    result = {True: "passed", False: "failed", None: "said nothing"}[test["passed"]]
    last = "".join(test["output"].strip().splitlines()[-1:])[:200]
    return f"{test['time']} {test['command']}: {result}" + (f": {last}" if last else "")

"""A ticket for each node that wants repair: the nodes of the repair list, and held ones that fail their test.

    tickets(connection, report)      # one record a node: the part and its numbers, faults, hints, tests, next step

`--rma` is what a vendor gets about a part; a ticket is what a technician gets about a node, with what was tried on it.
"""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from predictor.lemon_export import cell
from predictor.lemon_records import MEMORY_D
from predictor.lemons import Lemon, RepairList
from store import schema
from store.bulk_rows import among
from store.event import format_time
from store.hint import OPEN_STATES, Hint
from store.hint_log import read_hints
from store.incident import Incident
from store.read import incident_of, read_nodes
from store.validations import Validation, validations_of_nodes

TICKET_COLUMNS = (
    *("node", "rack", "leaf", "gpu_model", "driver", "why", "part", "pci", "index", "uuid", "serial"),
    *("first_seen", "last_seen", "faults", "hints", "tests", "next_step"),
)
_GRAVE = ("error", "fatal")
_NEXT = "run the vendor's diagnostics; it failed the site's own test"
_MOST = 20  # hints and tests told, the newest


def tickets(connection: sa.Connection, report: RepairList) -> list[dict[str, Any]]:
    """Held nodes that fail their test first, then the repair list's; each node once. Unknown is None."""
    since = report.at - timedelta(days=MEMORY_D)
    lemons = {lemon.node: lemon for lemon in report.items}
    cases = {hint.node: hint for hint in read_hints(connection, states=OPEN_STATES) if "repair" in hint.evidence}
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
        ticket |= _part(connection, lemons.get(name), mine)
        ticket |= _seen(mine)
        hints = [hint for hint in read_hints(connection, node=name) if hint.created >= since]
        ticket["hints"] = [_hint(hint) for hint in hints[-_MOST:]]
        ticket["tests"] = [_test(test) for test in tests.get(name, [])[-_MOST:]]
        ticket["next_step"] = lemons[name].next_step if name in lemons else _NEXT
        found.append(ticket)
    return found


def _why(case: Hint | None, lemon: Lemon | None) -> str:
    told = []
    if case is not None:
        repair = case.evidence["repair"]
        told.append(f"failed its test {repair.get('tries')} times: {repair.get('detail') or 'no word why'}")
    if lemon is not None:
        told.append(f"fails at {lemon.times_fleet:.0f} times the fleet's rate")
    return "; ".join(told)


def _faults(
    connection: sa.Connection, nodes: Sequence[str], since: datetime, at: datetime
) -> Mapping[str, list[Incident]]:
    table = schema.incidents
    query = sa.select(table).where(among(connection, table.c.node, nodes), table.c.end >= since, table.c.start < at)
    query = query.where(table.c.severity.in_(_GRAVE), table.c.cause != "application")
    found: dict[str, list[Incident]] = {}
    for row in connection.execute(query.order_by(table.c.start, table.c.id)).mappings():
        found.setdefault(row["node"], []).append(incident_of(row))
    return found


def _part(connection: sa.Connection, lemon: Lemon | None, faults: Sequence[Incident]) -> dict[str, Any]:
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
    told = connection.scalar(sa.select(table.c.attributes).where(table.c.id == fault.id)) or {}
    uuid, serial = fault.device.uuid or told.get("uuid"), told.get("serial")
    return (None if uuid is None else str(uuid)), (None if serial is None else str(serial))


def _seen(faults: Sequence[Incident]) -> dict[str, Any]:
    """What was seen how often, and when first and last."""
    kinds: dict[str, list[Incident]] = {}
    for one in faults:
        kinds.setdefault(one.kind if one.code is None else f"{one.kind} {one.code}", []).append(one)
    told = [
        {"what": what, "count": len(ones), "first": format_time(ones[0].start), "last": format_time(ones[-1].start)}
        for what, ones in sorted(kinds.items(), key=lambda item: (-len(item[1]), item[0]))
    ]
    ends = (faults[0].start, faults[-1].start) if faults else ()
    times = dict(zip(("first_seen", "last_seen"), map(format_time, ends), strict=False))
    return {"first_seen": None, "last_seen": None, **times, "faults": told}


def _hint(hint: Hint) -> dict[str, Any]:
    closed = hint.evidence.get("closed")
    ended = closed if isinstance(closed, dict) else {}
    told = {"id": hint.id, "action": hint.action, "state": hint.state, "made": format_time(hint.created)}
    return {**told, "ended": ended.get("time"), "by": ended.get("by"), "reason": hint.reason}


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
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(TICKET_COLUMNS)
    for ticket in found:
        words = {
            "faults": "; ".join(
                f"{one['what']} x{one['count']} ({one['first']} to {one['last']})" for one in ticket["faults"]
            ),
            "hints": "; ".join(
                f"{one['made']} {one['action']} {one['state']}: {one['reason']}" for one in ticket["hints"]
            ),
            "tests": "; ".join(map(_words, ticket["tests"])),
        }
        table.writerow([cell({**ticket, **words}[name]) for name in TICKET_COLUMNS])
    return out.getvalue()


def _words(test: Mapping[str, Any]) -> str:
    result = {True: "passed", False: "failed", None: "said nothing"}[test["passed"]]
    last = "".join(test["output"].strip().splitlines()[-1:])[:200]
    return f"{test['time']} {test['command']}: {result}" + (f": {last}" if last else "")

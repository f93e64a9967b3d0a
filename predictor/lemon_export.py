"""The repair list for programs, and the table that a vendor gets with the parts that are sent back."""

import csv
import io
from collections import Counter
from typing import Any

from predictor.lemon_parts import Part
from predictor.lemon_records import MEMORY_D, WINDOW_D
from predictor.lemon_signals import JUDGED
from predictor.lemons import FALSE_SHARE, TIMES, Lemon, RepairList
from store.event import format_time

RMA_COLUMNS = (
    *("node", "rack", "part", "pci", "index", "port", "uuid", "serial", "name", "gpu_model", "driver"),
    *("first_seen", "last_seen", "codes", "outages_28d", "recurrences", "repairs_90d", "next_step", "evidence"),
)
# A spreadsheet takes a cell that begins so for a formula; log lines may begin with anything.
_FORMULA = ("=", "+", "-", "@", "\t", "\r")


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


def _part(part: Part) -> dict[str, Any]:
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
    out = io.StringIO()
    table = csv.writer(out)
    table.writerow(RMA_COLUMNS)
    for row in rma_rows(report):
        table.writerow([cell(row[name]) for name in RMA_COLUMNS])
    return out.getvalue()


def cell(value: object) -> str:
    """A value as a cell that no spreadsheet takes for a formula."""
    text = "" if value is None else str(value)
    return f"'{text}" if text.startswith(_FORMULA) else text

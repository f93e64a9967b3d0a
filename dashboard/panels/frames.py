"""The rows of the tables, in words; log lines go into plain text cells, where no markup comes to life."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pyarrow
import streamlit as st

from dashboard.charts import ledger_charts
from dashboard.panels import links
from dashboard.text import words
from dashboard.text import words as vocabulary
from store.visible_text import csv_value
from wire.events import AuditJson, EventJson, IncidentJson
from wire.goodput import InterruptionJson
from wire.hints import HintJson
from wire.money.price import GpuHourPrice, shown
from wire.nodes import OutageJson

ROW_PX = 35
WIDE = {"what", "why", "meaning", "detail"}
# What a healthy cluster says all the time: it would push everything else out of the feed.
ROUTINE = frozenset({"iteration", "telemetry", "evaluation", "checkpoint_save_start", "checkpoint_save", "job"})

MARK = "foreshock:"
RECENT_INCIDENTS = 300  # incidents that are read for what a table says of them

Row = dict[str, Any]


def incident_rows(
    incidents: Sequence[IncidentJson], now: datetime, brief: bool = False, causes: Mapping[str, str] | None = None
) -> list[Row]:
    """The newest incidents: when, where, what, how bad, what to do. `brief`: no addresses, counts and log text.

    In a narrow table the end is out of sight: a brief one has what to do before the long text.

    Args:
        causes: what the verdicts put incidents down to, by id; a column where there is any.
    """
    rows = [
        {
            "open": links.address("incidents", incident=i.id),
            "when": words.when(i.start, now),
            "severity": [i.severity],
            "node": words.place(i) or words.DASH,
            "device": _of_incident(i),
            "what": _felt(i, words.event_text(i)),
            "events": i.count,
            "do": words.to_do(i),
        }
        for i in incidents
    ]
    if brief:
        for row, incident in zip(rows, incidents, strict=True):
            row["device"] = _of_incident(incident, brief=True)
            del row["what"], row["events"]
            row["what"] = _felt(incident, words.what(incident))
    if causes:
        for row, incident in zip(rows, incidents, strict=True):
            row["verdict"] = words.shown(causes.get(incident.id, words.DASH))
    return rows


def _of_incident(incident: IncidentJson, brief: bool = False) -> str:
    """The device, and its link where one is known; with the others that are as bad."""
    device = words.device(incident.device, brief=brief, name=incident.name)
    others = [words.device(one, brief=brief) for one in incident.devices[1:]]
    if others:
        return ", ".join([device, *others])
    return device if incident.link is None else f"{device} link {incident.link}"


def _felt(incident: IncidentJson, text: str) -> str:
    """The text, with the NVLink domain that the fault took along."""
    if incident.domain is None or len(incident.nodes) < 2:
        return text
    return f"{text} ({words.many(len(incident.nodes), 'node')} of NVLink domain {words.plain(incident.domain)} felt it)"


def _device(event: EventJson) -> str:
    if event.node is None and event.device.type == "node":
        return words.DASH
    return words.device(event.device, name=words.name_of(event))


def event_rows(events: Sequence[EventJson], now: datetime) -> list[Row]:
    """The feed: when, where and what was said."""
    return [
        {
            "when": words.when(e.time, now),
            "severity": [e.severity],
            "node": e.node or words.DASH,
            "device": _device(e),
            "what": words.event_text(e),
            "from": e.source,
        }
        for e in events
    ]


def outage_rows(outages: Sequence[OutageJson], now: datetime) -> list[Row]:
    """A node's times out of service, the newest first."""
    return [
        {
            "began": words.when(o.start, now),
            "lasted": "still out" if o.end is None else words.duration((o.end - o.start).total_seconds()),
            "why": o.reason or o.state or words.DASH,
            "planned": {True: "planned", False: "unplanned", None: words.DASH}[o.planned],
            "cause": o.cause or words.DASH,
        }
        for o in sorted(outages, key=lambda outage: outage.start, reverse=True)
    ]


def _priced(gpu_hours: float | None, price: GpuHourPrice | None) -> Row:
    shown_hours = None if gpu_hours is None else round(gpu_hours, 1)
    return {"gpu_hours": shown_hours} | ({} if price is None else {"money": shown(price.of(gpu_hours))})


def interruption_rows(
    stops: Sequence[InterruptionJson], now: datetime, gpus: int | None, price: GpuHourPrice | None = None
) -> list[Row]:
    """What stopped a run, the newest first."""
    return [
        {
            "when": words.when(stop.time, now),
            "cause": ledger_charts.CAUSES.get(stop.cause, stop.cause),
            "culprit": _culprit(stop),
            "lost": words.duration(stop.lost_s),
            **_priced(None if gpus is None else stop.lost_s / 3600 * gpus, price),
        }
        for stop in sorted(stops, key=lambda stop: stop.time.timestamp() if stop.time else 0.0, reverse=True)
    ]


def _culprit(stop: InterruptionJson) -> str:
    if stop.culprit is None:
        return "not found"
    return " · ".join(part for part in (stop.culprit.node, words.device(stop.culprit)) if part)


def bucket_rows(
    buckets: Mapping[str, float], wall_s: float, gpus: int | None, price: GpuHourPrice | None = None
) -> list[Row]:
    """The ledger, a line for each bucket that holds time."""
    return [
        {
            "bucket": ledger_charts.bucket(name).name,
            "time": words.duration(seconds),
            "share": words.share(seconds / wall_s, 2),
            **_priced(None if gpus is None else seconds / 3600 * gpus, price),
            "meaning": ledger_charts.bucket(name).meaning,
        }
        for name, seconds in ledger_charts.in_order(buckets)
    ]


def hint_rows(hints: Sequence[HintJson], now: datetime) -> list[Row]:
    """Hints that are over, or a node's."""
    return [
        {
            "when": words.when(h.created, now),
            "node": h.node,
            "asked": h.action,
            "state": h.state,
            "why": unmarked(h.reason),
            "by": h.owner or words.DASH,
        }
        for h in hints
    ]


def audit_rows(entries: Sequence[AuditJson], hints: Sequence[HintJson], now: datetime) -> list[Row]:
    """Who made which hint what; a hint is named by what it asks, not by its id."""
    named = {hint.id: f"{hint.action} {hint.node}" for hint in hints}
    return [
        {
            "when": words.when(e.time, now),
            "who": e.actor,
            "hint": named.get(e.subject) or _subject(e),
            "became": e.action.replace("_", " "),
            "why": _detail(e.detail),
        }
        for e in entries
    ]


def _subject(entry: AuditJson) -> str:
    detail = entry.detail if isinstance(entry.detail, Mapping) else {}
    return " ".join(str(detail[name]) for name in ("hint", "node") if detail.get(name)) or entry.subject


def _detail(detail: Any) -> str:
    if not isinstance(detail, Mapping):
        return "" if detail is None else str(detail)
    # The evidence of a hint is a structure: its card says it in words.
    left_out = ("node", "hint", "evidence")
    said = {name: value for name, value in detail.items() if name not in left_out and value is not None}
    parts = [unmarked(str(said.pop("reason")))] if "reason" in said else []
    return "; ".join(parts + [f"{name.replace('_', ' ')}: {_listed(value)}" for name, value in said.items()])


def _listed(value: Any) -> str:
    """A value of an audit row without the signs of a program."""
    if isinstance(value, Mapping):
        return ", ".join(f"{name.replace('_', ' ')} {_listed(one)}" for name, one in value.items() if one is not None)
    return ", ".join(map(_listed, value)) if isinstance(value, list | tuple) else str(value)


def unmarked(reason: str) -> str:
    """A reason without the mark of Foreshock's reasons in the scheduler."""
    return reason.removeprefix(MARK).lstrip()


def cell(value: Any) -> Any:
    """A value as a cell: a person may save the table as CSV and open it in a spreadsheet, which runs formulas."""
    if isinstance(value, list):
        return [cell(item) for item in value]
    return csv_value(value)


def columns(first: Row, labels: Mapping[str, str] | None = None, wide_px: int = 420) -> dict[str, Any]:
    """How the columns of a table look, by the keys of its first row; the column of free text is `wide_px` wide."""
    configured: dict[str, Any] = {
        name: st.column_config.TextColumn((labels or {}).get(name, name.replace("_", " ").capitalize()))
        for name in first
    }
    for name in configured.keys() & {"when", "began"}:
        configured[name]["label"] += f" ({words.zone_name()})"
    for name in configured.keys() & WIDE:
        configured[name]["width"] = wide_px
    for name in configured.keys() & {"events", "gpu_hours"}:
        configured[name] = st.column_config.NumberColumn(configured[name]["label"], format="localized")
    if "open" in configured:
        configured["open"] = st.column_config.LinkColumn("", display_text="open")
    if "severity" in configured:
        configured["severity"] = st.column_config.MultiselectColumn(
            "Severity", options=list(vocabulary.SEVERITY_COLOURS), color=list(vocabulary.SEVERITY_COLOURS.values())
        )
    return configured


def draw(rows: Sequence[Row], key: str, configured: Mapping[str, Any], most: int, **options: Any) -> None:
    """A table of the rows, at most `most` high before it scrolls; `options` of Streamlit, as those of a selection.

    Whoever saves it as CSV gets the heads that are seen: the columns bear their labels as names.
    """
    heads = {name: (configured.get(name) or {}).get("label") or name.capitalize() for name in rows[0]}
    st.dataframe(
        table([{heads[name]: cell(value) for name, value in row.items()} for row in rows]),
        hide_index=True,
        column_config={heads[name]: column for name, column in configured.items()},
        key=key,
        height=ROW_PX * (min(len(rows), most) + 1) + 3,
        placeholder=words.DASH,
        **options,
    )


def table(rows: list[Row]) -> Any:
    """The rows as Arrow, which is what a browser is sent: Streamlit would make a DataFrame of them first.

    What Arrow does not take, values of several kinds in one column say, Streamlit makes texts of.
    """
    try:
        return pyarrow.Table.from_pylist(rows)
    except (pyarrow.ArrowException, OverflowError, UnicodeError):
        return rows


def show(
    rows: Sequence[Row],
    key: str,
    labels: Mapping[str, str] | None = None,
    most: int = 10,
    wide_px: int = 420,
    device_px: int | None = None,
) -> None:
    """A table of the rows, at most `most` high before it scrolls; the column of free text is `wide_px` wide."""
    configured = columns(rows[0], labels, wide_px)
    if device_px is not None and "device" in configured:
        configured["device"]["width"] = device_px
    draw(rows, key, configured, most)

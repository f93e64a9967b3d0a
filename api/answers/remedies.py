"""What to do about each fault of an answer: one fault has one remedy, whether its incident tells it or a hint."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from msgspec.structs import asdict

from diagnosis.verdicts.stake import with_stakes_now
from store.events.incident_thread import incidents_known_by
from store.records.event import Device
from store.records.verdict import Verdict
from store.tables.pages import document_of, moment_of
from store.verdicts.remedy import FaultPlace, decided, is_broken, naming
from store.verdicts.verdict_log import verdicts_of
from wire.hints import RemedyJson
from wire.verdicts import verdict_json
from wire.words.verdicts import title


def with_remedies(connection: sa.Connection, rows: Sequence[dict[str, Any]], now: datetime) -> list[dict[str, Any]]:
    """The same rows of incidents: `action` is what to do about each, `remedy` the verdict that says so."""
    faults = [_fault_place(row) for row in rows]
    return _with(connection, rows, decided(faults, naming(connection, faults)), now)


def with_verdicts(connection: sa.Connection, row: dict[str, Any], now: datetime) -> tuple[dict[str, Any], list[str]]:
    """One incident likewise, and the ids of all verdicts that put it down to a cause."""
    fault = _fault_place(row)
    named = naming(connection, [fault])
    (told,) = _with(connection, [row], decided([fault], named), now)
    return told, [one.id for one in named.get(fault.id, ())]


def _with(
    connection: sa.Connection, rows: Sequence[dict[str, Any]], by: Mapping[str, Verdict], now: datetime
) -> list[dict[str, Any]]:
    found = _held(connection, by, now)
    told = ((row, found.get(row["id"])) for row in rows)
    return [
        row | {"remedy": None} if one is None else row | {"action": one.action, "remedy": _remedy(one, row)}
        for row, one in told
    ]


def hint_remedies(
    connection: sa.Connection, hints: Sequence[Mapping[str, Any]], now: datetime
) -> dict[str, dict[str, Any]]:
    """What to do about the faults that hints were made for, by the ids of the hints; nothing for a risk alone."""
    grounds = {row["id"]: document_of(row, "evidence") for row in hints}
    incidents = incidents_known_by(connection, _ids(grounds.values(), "incident"))
    faults = {row["id"]: row for row in with_remedies(connection, incidents, now)}
    named = {one.id: one for one in verdicts_of(connection, _ids(grounds.values(), "verdict"))}
    named = _held(connection, named, now)
    found = {}
    for row in hints:
        ground = grounds[row["id"]]
        fault, verdict = faults.get(ground.get("incident")), named.get(ground.get("verdict"))
        if fault is not None:
            own = RemedyJson(action=fault["action"], line_action=fault["action"])
            found[row["id"]] = fault["remedy"] or asdict(own)
        elif verdict is not None:
            found[row["id"]] = _remedy(verdict, {"node": row["node"], "action": None})
    return found


def _ids(grounds: Iterable[Mapping[str, Any]], name: str) -> set[str]:
    return {one[name] for one in grounds if isinstance(one.get(name), str)}


def _fault_place(row: dict[str, Any]) -> FaultPlace:
    """The place of an incident of an answer."""
    devices = [document_of({"device": one}, "device") for one in row.get("devices") or [row["device"]]]
    times = (moment_of(row, "start"), moment_of(row, "end"))
    is_hard = is_broken(row["severity"], row["cause"])
    return FaultPlace(row["id"], row["node"], *times, tuple(Device(**one) for one in devices), is_hard)


def _held(connection: sa.Connection, found: Mapping[str, Verdict], now: datetime) -> dict[str, Verdict]:
    """Verdicts as they are held now, as their own route tells them: who has restarted the job has nothing to do."""
    by_id = {one.id: one for one in found.values()}
    now_held = {one.id: one for one in with_stakes_now(connection, list(by_id.values()), now)}
    return {ident: now_held[one.id] for ident, one in found.items()}


def _remedy(verdict: Verdict, row: Mapping[str, Any]) -> dict[str, Any]:
    remedy = RemedyJson(
        action=verdict.action,
        verdict=verdict.id,
        title=title(verdict_json(verdict, 0)),
        elsewhere=verdict.node is None or verdict.node != row["node"],
        line_action=row["action"],
    )
    return asdict(remedy)

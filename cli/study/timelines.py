"""What a site would have been told of each real tape, and when: signs, incident, hint, loss, reboot, ticket.

    found = read_timelines(Path("fixtures/real/gwdg"))     # Timelines(lines, together, quiet, skipped)

The tapes are ingested as any archive is, together; the policy's defaults are asked each hour and at each fatal
fault, with what was known by then. Of a ticket counts what came after the day of the ticket before it of the same node.
"""

import json
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import sqlalchemy as sa

from cli.study.detector_rules import DetectorHold
from cli.study.our_holds import replay_holds, write_archive
from cli.study.tapes import NodeTape, read_tapes
from store.plural import many

DAY, HOUR = timedelta(days=1), timedelta(hours=1)
QUIET_DAYS = (1, 3)
# Telemetry that is lost is a sign, however mild its event.
_LOST = ("gpu_missing", "gpu_lost", "metric_missing", "exporter_down", "node_silent")


@dataclass(frozen=True, slots=True)
class TapeMessage:
    """What a site is told of a node, word for word."""

    time: datetime
    severity: str
    words: str


@dataclass(frozen=True, slots=True)
class TicketTimeline:
    """One tape around one ticket; None where a thing did not come, or not in the tape."""

    tape: str
    node: str
    ticket: datetime
    first_sign: datetime | None
    first_event: datetime | None
    incident: datetime | None
    hint: datetime | None
    gpu_gone: datetime | None
    reboot: datetime | None
    first_xid_79: datetime | None
    told: tuple[TapeMessage, ...]

    def hours(self, start: datetime | None, end: datetime | None) -> float | None:
        """Hours between two moments; None where one of them is not."""
        return None if start is None or end is None else (end - start) / HOUR


@dataclass(frozen=True, slots=True)
class QuietCount:
    """False alarms on days without a ticket within so many days."""

    days_from_ticket: int
    node_days: float
    holds: int
    errors: int


@dataclass(frozen=True, slots=True)
class Timelines:
    """All tapes of a folder; `together`: what was told of several nodes at once; `skipped`: tapes not read, and why."""

    lines: tuple[TicketTimeline, ...]
    together: tuple[TapeMessage, ...]
    quiet: tuple[QuietCount, ...]
    skipped: tuple[str, ...]
    nodes: int
    node_days: float


def read_timelines(folder: Path) -> Timelines:
    """Ingest the tapes of a folder and look back on them; a tape that cannot be used is left out and named."""
    from cli.commands.ingest import ingest_archive
    from store.database.connections import migrate, open_database

    with tempfile.TemporaryDirectory(prefix="foreshock-study-") as place:
        sound, skipped = sound_tapes(folder, Path(place) / "sound")
        tapes = read_tapes(sound) if any((sound / "tapes").iterdir()) else []
        if not tapes:
            return Timelines((), (), (), tuple(skipped), 0, 0.0)
        write_archive(sound, Path(place) / "archive")
        engine = open_database(f"sqlite:///{place}/study.db")
        try:
            migrate(engine)
            ingest_archive(engine, Path(place) / "archive")
            with engine.connect() as connection:
                return _look_back(connection, sound, tapes, skipped)
        finally:
            engine.dispose()


def sound_tapes(folder: Path, place: Path) -> tuple[Path, list[str]]:
    """A folder that holds the tapes that can be read, of one node each; and why each other one is left out."""
    import pandas as pd

    skipped = []
    facts = {one["tape"]: one for one in json.loads((folder / "facts.json").read_text(encoding="utf-8"))}
    (place / "tapes").mkdir(parents=True)
    for path in sorted((folder / "tapes").iterdir()):
        try:
            files = [path / "telemetry" / name for name in ("gpu.parquet", "host.parquet")]
            nodes = {node for file in files for node in pd.read_parquet(file, columns=["node"])["node"].unique()}
            nodes |= set(pd.read_csv(path / "nodes.csv")["node"])
        except (OSError, ValueError, KeyError) as error:
            skipped.append(f"{path.name}: {str(error).splitlines()[0]}")
            continue
        if len(nodes) != 1:
            skipped.append(f"{path.name}: {many(len(nodes), 'node')} in one tape: give each a tape of its own")
        elif path.name not in facts:
            skipped.append(f"{path.name}: facts.json does not name it: add its ticket there")
        else:
            (place / "tapes" / path.name).symlink_to(path.resolve())
    kept = [facts[path.name] for path in sorted((place / "tapes").iterdir())]
    (place / "facts.json").write_text(json.dumps(kept), encoding="utf-8")
    (place / "incidents.csv").write_bytes((folder / "incidents.csv").read_bytes())
    return place, skipped


def _look_back(connection: sa.Connection, folder: Path, tapes: Sequence[NodeTape], skipped: Sequence[str]) -> Timelines:
    holds = replay_holds(connection, tapes)
    facts = json.loads((folder / "facts.json").read_text(encoding="utf-8"))
    days = _ticket_days(folder)
    lines = [_timeline(connection, one, tapes, holds, days) for one in facts]
    quiet = [_quiet(connection, tapes, holds, days, margin) for margin in QUIET_DAYS]
    nodes = len({tape.node for tape in tapes})
    together = _incidents(connection, None, datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
    return Timelines(
        tuple(lines), tuple(together), tuple(quiet), tuple(skipped), nodes, sum(tape.days for tape in tapes)
    )


def _ticket_days(folder: Path) -> dict[str, list[datetime]]:
    """The days of all tickets, of the tapes and beyond, by node."""
    import pandas as pd

    found: dict[str, list[datetime]] = {}
    for row in pd.read_csv(folder / "incidents.csv", dtype=str).itertuples():
        found.setdefault(str(row.node), []).append(datetime.fromisoformat(str(row.date)).replace(tzinfo=UTC))
    for one in json.loads((folder / "facts.json").read_text(encoding="utf-8")):
        day = datetime.fromisoformat(one["operator_incident"]).replace(tzinfo=UTC)
        found.setdefault(one["node"], []).append(day)
    return {node: sorted(set(days)) for node, days in found.items()}


def _timeline(
    connection: sa.Connection,
    fact: dict[str, Any],
    tapes: Sequence[NodeTape],
    holds: Sequence[DetectorHold],
    days: dict[str, list[datetime]],
) -> TicketTimeline:
    node, ticket = fact["node"], datetime.fromisoformat(fact["operator_incident"]).replace(tzinfo=UTC)
    begin, end = datetime.fromisoformat(fact["start"]), datetime.fromisoformat(fact["end"])
    mine = days.get(node, [])
    since = max([begin, *(day + DAY for day in mine if day < ticket)])
    until = min([end + timedelta(minutes=1), *(day for day in mine if day > ticket)])
    tape = next(one for one in tapes if one.node == node and one.moment(0) <= begin <= one.moment(len(one.times) - 1))
    events = [row for row in _events(connection, node, since, until) if row.time > tape.moment(0)]
    told = _incidents(connection, node, since, until)
    signs = [row for row in events if row.severity != "info" or row.kind in _LOST]
    sign = min((row.time for row in signs if row.kind != "node_reboot"), default=None)
    fatal = min((row.time for row in events if row.severity in ("error", "fatal")), default=None)
    fault = fatal or sign
    held = [hold for hold in holds if hold.node == node and since <= hold.start < until]
    told += [TapeMessage(hold.start, "hint", f"cordon: {hold.rules[0]}") for hold in held]
    return TicketTimeline(
        tape=fact["tape"],
        node=node,
        ticket=ticket,
        first_sign=sign,
        first_event=fatal,
        incident=min((one.time for one in told if one.severity in ("error", "fatal")), default=None),
        hint=min((hold.start for hold in held), default=None),
        gpu_gone=_first_loss(tape, fault, until),
        reboot=min(
            (row.time for row in events if row.kind == "node_reboot" and fault and row.time >= fault), default=None
        ),
        first_xid_79=min((row.time for row in events if row.kind == "xid" and row.code == 79), default=None),
        told=tuple(sorted(told, key=lambda one: (one.time, one.severity == "hint", one.words))),
    )


def _events(connection: sa.Connection, node: str, since: datetime, until: datetime) -> list[Any]:
    from store.tables import schema

    table = schema.events.c
    query = sa.select(table.time, table.kind, table.code, table.severity).where(
        table.node == node, table.time >= since, table.time < until
    )
    return list(connection.execute(query.order_by(table.time)))


def _incidents(connection: sa.Connection, node: str | None, since: datetime, until: datetime) -> list[TapeMessage]:
    """The incidents of a node, those of several nodes that it is one of among them; None: those of several alone."""
    from store.tables import schema

    table = schema.incidents.c
    query = sa.select(table.start, table.node, table.severity, table.message).order_by(table.start)
    return [
        TapeMessage(row.start, row.severity, row.message)
        for row in connection.execute(query)
        if since <= row.start < until and (row.node == node or (row.node is None and str(node) in row.message))
    ]


def _first_loss(tape: NodeTape, sign: datetime | None, until: datetime) -> datetime | None:
    """The first sample from a sign on that has fewer GPUs than the node has."""
    present = tape.gpus_present()
    for place in np.flatnonzero(present < present.max()):
        if sign is not None and sign <= tape.moment(int(place)) < until:
            return tape.moment(int(place))
    return None


def _quiet(
    connection: sa.Connection,
    tapes: Sequence[NodeTape],
    holds: Sequence[DetectorHold],
    days: dict[str, list[datetime]],
    margin: int,
) -> QuietCount:
    """Whole days of tapes with no ticket of their node within so many days, and what was said on them."""
    quiet: set[tuple[str, datetime]] = set()
    for tape in tapes:
        for stamp in np.unique(tape.times.astype("datetime64[D]")):
            day = datetime.fromisoformat(str(stamp)).replace(tzinfo=UTC)
            if all(abs(day - other) > margin * DAY for other in days.get(tape.node, [])):
                quiet.add((tape.node, day))
    spoken = [
        (tape.node, one.time)
        for tape in {tape.node: tape for tape in tapes}.values()
        for one in _incidents(connection, tape.node, tape.moment(0) - 3650 * DAY, tape.moment(0) + 3650 * DAY)
        if one.severity in ("error", "fatal")
    ]
    return QuietCount(
        margin,
        float(len(quiet)),
        sum((hold.node, _day(hold.start)) in quiet for hold in holds),
        sum((node, _day(time)) in quiet for node, time in spoken),
    )


def _day(moment: datetime) -> datetime:
    return moment.replace(hour=0, minute=0, second=0, microsecond=0)

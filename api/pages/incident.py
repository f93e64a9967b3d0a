"""An incident on paper: its causes with what speaks for and against, its lines, the jobs hit, hints and the thread.

incident_sections(IncidentFile(incident, now, verdicts, events, jobs, hints))
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from api.answers.jobs_hit import JobHit
from api.pages import document
from store.html_page import section
from store.visible_text import html_text
from wire.events import EventJson, IncidentJson, ThreadEntryJson
from wire.hints import HintJson
from wire.verdicts import VerdictEvidenceJson, VerdictJson
from wire.words import values
from wire.words import verdicts as sayings

MOST_LINES = 200
MOST_EVIDENCE = 40
_MARK = "foreshock:"  # of Foreshock's reasons in the scheduler


@dataclass(frozen=True, slots=True)
class IncidentFile:
    """All that is known of one incident, as the API answers it.

    `verdicts`: those that put it down to a cause, the likeliest first; `hints`: of its node since it began.
    """

    incident: IncidentJson
    now: datetime
    verdicts: Sequence[VerdictJson] = ()
    events: Sequence[EventJson] = ()
    jobs: Sequence[JobHit] = ()
    hints: Sequence[HintJson] = ()


def incident_title(incident: IncidentJson) -> str:
    """What happened where: the name of the page."""
    device = "" if incident.device.type == "node" else values.device(incident.device, name=incident.name)
    where = ", ".join(part for part in (values.place(incident), device) if part) or "no node"
    return values.shown(f"{values.what(incident)} on {where}")


def incident_sections(file: IncidentFile) -> list[str]:
    """The page from top to bottom."""
    title = incident_title(file.incident)
    return [
        document.heading(f"Incident: {title[:1].upper()}{title[1:]}"),
        _answer(file.incident),
        _facts(file.incident, file.now),
        *_causes(file.verdicts),
        _lines(file),
        _jobs(file.jobs),
        _hints(file.hints, file.incident),
        _thread(file.incident.thread),
        document.line("Times are UTC. A dash means that nobody knows."),
    ]


def _answer(incident: IncidentJson) -> str:
    life = incident.life
    state = "open" if life is None else values.LIVES.get(life.state, life.state)
    whom = f", with {life.owner.removeprefix('person:')}" if life and life.owner else ""
    level = {"fatal": "error", "error": "error", "warning": "warning"}.get(incident.severity, "info")
    said = f"{incident.severity.capitalize()}. State: {state}{whom}. Do: {values.to_do(incident)}."
    return document.answer(level, values.shown(said))


def _facts(incident: IncidentJson, now: datetime) -> str:
    devices = "; ".join(values.device(one) for one in incident.devices) or values.device(incident.device)
    silent = incident.life.silenced_until if incident.life else None
    lasted = (incident.end - incident.start).total_seconds()
    felt = f"{values.many(len(incident.nodes), 'node')}: {', '.join(incident.nodes)}" if incident.nodes else ""
    found = (
        ("Node", incident.node or values.DASH),
        ("Devices", devices),
        ("Began", f"{values.utc(incident.start)} ({values.ago(incident.start, now)})"),
        ("Lasted", values.duration(lasted)),
        ("Last shown", values.utc(incident.shown or incident.end)),
        ("Events", values.count(incident.count)),
        ("What it is", incident.meaning or ""),
        ("Nodes of its job", values.count(incident.blast_radius)),
        ("Felt by", felt),
        ("Silent until", values.utc(silent) if silent else ""),
        ("Id", incident.id),
        ("Printed", values.utc(now)),
    )
    return document.facts((name, values.shown(value)) for name, value in found)


def _causes(verdicts: Sequence[VerdictJson]) -> list[str]:
    if not verdicts:
        return [section("What is behind it", "No verdict holds it to be the sign of a cause.")]
    said = [section("What is behind it", "The likeliest cause first, with what speaks for and against it.")]
    for one in verdicts:
        name = f"{values.shown(sayings.title(one))}: {values.risk(one.probability)}"
        said.append(f"<h3>{html_text(name)}</h3>")
        felt = sayings.suffering(one)
        told = (
            ("Reason", one.reason),
            ("Suffer", f"{felt}: {', '.join([*one.jobs, *one.nodes])}" if felt else ""),
            ("Since", values.utc(one.since)),
            ("GPU-hours at stake", sayings.stake(one) if one.jobs else ""),
            ("Do", sayings.to_do(one)),
        )
        said.append(document.facts((title, values.shown(value)) for title, value in told))
        said += [_evidence("Speaks for it", one.evidence_for), _evidence("Speaks against it", one.evidence_against)]
    return said


def _evidence(title: str, found: Sequence[VerdictEvidenceJson]) -> str:
    if not found:
        return document.line(f"{title}: nothing.")
    ordered = sorted(found, key=lambda one: -abs(one.weight))[:MOST_EVIDENCE]
    rows = [(values.shown(one.text), f"{abs(one.weight):.1f}", f"{len(one.events):,}") for one in ordered]
    return document.text_table((title, "Weight", "Events"), rows)


def _lines(file: IncidentFile) -> str:
    title, incident = "What was said", file.incident
    if not file.events:
        message = values.shown(incident.message)
        return section(title, message or "Its events are older than the store keeps them, or of no node.")
    rows = [
        (values.utc(one.time), one.severity, one.source, values.shown(values.event_text(one))) for one in file.events
    ]
    said = "Its events and those of its node within its time, the first ones first."
    return section(title, said, document.text_table(("Time", "Severity", "From", "What"), rows))


def _jobs(jobs: Sequence[JobHit]) -> str:
    if not jobs:
        return section("Jobs hit", "No job is known to have run there when it began.")
    rows = [
        (values.shown(one.run or values.DASH), values.utc(one.start), _end(one.end), f"{one.nodes:,}") for one in jobs
    ]
    table = document.text_table(("Run", "Began", "Ended", "Nodes"), rows)
    return section("Jobs hit", "What ran there when it began.", table)


def _end(moment: datetime | None) -> str:
    return "runs still" if moment is None else values.utc(moment)


def _hints(hints: Sequence[HintJson], incident: IncidentJson) -> str:
    if not hints:
        return section("What was asked of the scheduler", "Nothing for this node since then.")
    rows = [
        (
            values.utc(one.created),
            values.shown(one.action),
            values.shown(f"{one.state}: {values.HINT_STATES.get(one.state, '')}"),
            values.shown(one.reason.removeprefix(_MARK)),
            values.hint_ground(one, incident),
            values.shown(_closed_by(one) or one.owner or values.DASH),
        )
        for one in hints
    ]
    table = document.text_table(("Time", "Action", "State", "Reason", "Asked for", "By"), rows)
    return section(
        "What was asked of the scheduler", "Each hint on its node since it began, or that stood then.", table
    )


def _closed_by(hint: HintJson) -> str:
    closed = hint.evidence.get("closed")
    by = closed.get("by") if isinstance(closed, Mapping) else None
    return str(by or "").removeprefix("person:")


def _thread(thread: Sequence[ThreadEntryJson]) -> str:
    if not thread:
        return section("What people did", "Nobody has said anything about it yet.")
    rows = [
        (
            values.utc(one.time),
            values.shown(one.actor.removeprefix("person:")),
            values.shown(
                values.STEPS.get(one.step, one.step) + (f" until {values.utc(one.until)}" if one.until else "")
            ),
            values.shown(one.text),
        )
        for one in thread
    ]
    return section("What people did", "The oldest first.", document.text_table(("Time", "Who", "Did", "Note"), rows))

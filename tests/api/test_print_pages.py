"""GET /print/incidents/{id} and /print/week: pages for paper; whatever others wrote is text there."""

from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all

from api.answers.jobs_hit import JobHit
from api.pages.incident import IncidentFile, incident_sections
from api.pages.week import WeekFile, mtbf, week_sections
from store.database.connections import writing
from store.events.append import append_jobs
from store.hints.hint_log import save_hint
from store.records.event import format_time
from store.records.hint import Hint
from store.records.job import Job
from wire.events import DeviceJson, EventJson, IncidentJson, LifeJson, ThreadEntryJson
from wire.goodput import CausesJson, ClusterGoodputJson, GoodputLevelJson, LossGroupJson, LossTotalJson, RangeJson
from wire.hints import HintJson
from wire.verdicts import VerdictEvidenceJson, VerdictJson

from .conftest import NOW
from .test_events_route import record

EVIL = "<img src=x onerror=alert(1)>\u202ex\"'"
DAY = timedelta(days=1)


def evil_incident() -> IncidentFile:
    """An incident of which others wrote every word."""
    entry = ThreadEntryJson(time=NOW, actor=EVIL, step=EVIL, text=EVIL, until=NOW)
    texts: dict[str, Any] = dict.fromkeys(("severity", "action", "message", "name", "meaning", "domain"), EVIL)
    texts |= {"device": DeviceJson(type=EVIL, pci=EVIL), "nodes": [EVIL], "thread": [entry]}
    life = LifeJson(state=EVIL, owner=EVIL, silenced_until=NOW)
    incident = IncidentJson(id=EVIL, node=EVIL, start=NOW, end=NOW, kind=EVIL, life=life, **texts)
    reason = VerdictEvidenceJson(text=EVIL, weight=1.0)
    felt: dict[str, Any] = {"jobs": [EVIL], "nodes": [EVIL], "evidence_for": [reason], "evidence_against": [reason]}
    felt |= dict.fromkeys(("cause_class", "name", "reason", "action"), EVIL)
    verdict = VerdictJson(id="v", rank=1, probability=0.5, since=NOW, **felt)
    event = EventJson(kind=EVIL, time=NOW, severity=EVIL, source=EVIL, message=EVIL)
    hint = HintJson(id="h", node=EVIL, action=EVIL, state=EVIL, reason=EVIL, evidence={"closed": {"by": EVIL}})
    return IncidentFile(incident, NOW, [verdict], [event], [JobHit(EVIL, NOW, None, 2)], [hint])


def test_text_of_others_is_text_on_paper() -> None:
    """In every field of an incident, and of the week."""
    loss = LossGroupJson(name=EVIL, lost_s=1.0)
    goodput = ClusterGoodputJson(since=NOW - DAY, until=NOW, doubts=(EVIL,))
    week = WeekFile(goodput, CausesJson(items=(loss,)), 1.0, [evil_incident().incident])
    for sections in (incident_sections(evil_incident()), week_sections(week)):
        page = "".join(sections)
        assert "<img" not in page
        assert "\u202e" not in page
        assert "&lt;img" in page


def test_an_incident_on_paper_has_all_that_is_known_of_it(client: TestClient, engine: sa.Engine) -> None:
    """What happened, its lines, the job that it hit, what was asked, and what people did."""
    began = NOW - timedelta(hours=1)
    event = record(1, time=format_time(NOW - timedelta(minutes=1)), node="gpu-001")
    assert client.post("/api/v1/events", json=[event]).json()["accepted"] == 1
    fold_all(engine)
    hint = Hint("h", "gpu-001", "cordon", "proposed", "foreshock: Xid 79", "foreshock", NOW, NOW + DAY)
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job("7", "llm-70b", "RUNNING", began, began, None, 2, "gpu-00[1-2]")])
        save_hint(connection, hint, NOW, {})
    ident = client.get("/api/v1/incidents").json()["items"][0]["id"]
    client.post(f"/api/v1/incidents/{ident}/note", json={"text": "riser <ordered>"})
    answer = client.get(f"/api/v1/print/incidents/{ident}")
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    for part in (
        "Incident: Xid 79",
        "Fatal. State: open.",
        "What is behind it",
        "line 1",
        "<td>llm-70b</td>",
        "runs still",
        "<td>Xid 79</td>",
        "proposed: waits for approval",
        "riser &lt;ordered&gt;",
        "@media print",
    ):
        assert part in answer.text
    assert client.get("/api/v1/print/incidents/none").status_code == 404


def test_the_week_of_an_empty_store_is_a_page(client: TestClient) -> None:
    """It says that there is nothing, and no figure that nobody measured."""
    answer = client.get("/api/v1/print/week")
    assert answer.status_code == 200
    for part in ("No run held a GPU in this time.", "No run was measured", "No fatal or serious incident"):
        assert part in answer.text
    odd = client.get("/api/v1/print/week", params={"until": "yesterday"})
    assert odd.status_code == 422


def test_a_run_that_waits_to_start_is_not_running(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty hours in the queue and four of work: four hours without a stop."""
    walls = [(NOW.date(), "waiting", 20 * 3_600_000, 0), (NOW.date(), "productive", 4 * 3_600_000, 0)]
    monkeypatch.setattr("api.routes.print_pages.day_sums", lambda *_given: walls)
    assert "No stop in 4.0 h of running" in client.get("/api/v1/print/week").text


def test_the_week_tells_goodput_losses_and_incidents() -> None:
    """Each day and each cause in a row; how many incidents are left out is said."""
    level = {"gpu_hours": {"existing": 1000.0, "productive": 840.0}, "buckets": {"lost_work": 12.0}}
    day = GoodputLevelJson(since=NOW - DAY, until=NOW, productive_of_existing=0.84, **level)
    goodput = ClusterGoodputJson(
        since=NOW - 7 * DAY,
        until=NOW,
        days=(day,),
        productive_of_existing=0.84,
        ettr=RangeJson(least=0.9, most=0.95),
        **level,
    )
    total = LossTotalJson(interruptions=2, lost_s=7200.0, lost_gpu_hours=32.0)
    losses = (
        LossGroupJson(name="fabric", interruptions=1, runs=1, lost_s=3600.0, lost_gpu_hours=20.0),
        LossGroupJson(name="unknown", unexplained=True, interruptions=1, runs=1, lost_s=3600.0),
    )
    fault = IncidentJson(id="i", node="gpu-001", start=NOW, end=NOW, kind="xid", code=79, severity="fatal")
    page = "".join(week_sections(WeekFile(goodput, CausesJson(items=losses, total=total), 100.0, [fault], more=True)))
    for part in (
        "84.0 % of the GPU-hours that existed became training that counts. 2 interruptions of runs, 32 GPU-hours lost",
        "<td>2025-02-28</td><td>1,000</td>",
        "<td>network links and switches</td><td>1</td>",
        "<td>not explained</td>",
        "at least 90.0 %",
        "The newest 1 fatal or serious one",
        "Xid 79 on gpu-001",
    ):
        assert part in page


@pytest.mark.parametrize(
    ("count", "running_h", "says"),
    [
        (0, 0.0, "No run was measured in this time."),
        (0, 168.0, "No stop in 7.0 d of running: the MTBF is above 46 h (97.5 % sure)."),
        (8, 168.0, "MTBF of a run: 21 h, with 95 % between 11 h and 2.0 d (8 stops in 7.0 d)."),
    ],
)
def test_the_mtbf_has_its_interval(count: int, running_h: float, says: str) -> None:
    """That of a Poisson count; without a stop there is a least value alone."""
    assert mtbf(count, running_h) == says

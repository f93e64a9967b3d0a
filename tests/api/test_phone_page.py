"""GET /m: the verdict, the queue and the age of the data on a phone; whatever others wrote is text there."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from folding import fold_all

from api.app import create_app
from api.pages.incident import IncidentFile, incident_sections
from api.pages.phone import PhoneFacts, phone_sections, to_do
from api.server.settings import Token
from store.database.connections import writing
from store.events.append import append_jobs
from store.nodes.tokens import digest_of
from store.records.event import format_time
from store.records.job import Job
from wire.cluster import ClusterJson
from wire.events import DeviceJson, IncidentJson, LifeJson
from wire.hints import HintJson
from wire.verdicts import VerdictJson
from wire.words import values

from .conftest import NOW, QUIET, Clock
from .test_events_route import record

EVIL = "<script>alert(1)</script>\u202ex\"'"
GONE = "Xid 79, driver can no longer reach the GPU over PCIe"
CLUSTER = ClusterJson(now=NOW, heard_until=NOW - timedelta(seconds=20), nodes=3, states={"ok": 2, "faulty": 1})


def incident(ident: str, node: str | None = "gpu-001", life: LifeJson | None = None, **fields: Any) -> IncidentJson:
    """An Xid 79, a minute ago."""
    began = NOW - timedelta(minutes=1)
    given = {
        "severity": "fatal",
        "cause": "hardware",
        "action": "reboot_node",
        "meaning": GONE.partition(", ")[2],
    } | fields
    device = fields.get("device", DeviceJson(type="gpu", index=5))
    given |= {"start": began, "end": began, "kind": "xid", "code": 79, "device": device}
    return IncidentJson(id=ident, node=node, life=life, **given)


def text_of(facts: PhoneFacts) -> str:
    """The page."""
    return "".join(phone_sections(facts))


def test_the_most_urgent_cause_comes_first_with_what_to_do() -> None:
    """In one sentence; the other causes follow in a line each."""
    felt: dict[str, Any] = {"nodes": ["a", "b"], "jobs": ["j"], "action": "run_diagnostics"}
    verdict = VerdictJson(id="v", rank=1, probability=0.93, cause_class="switch", name="leaf004", since=NOW, **felt)
    other = VerdictJson(id="w", rank=2, probability=0.4, cause_class="node", name="gpu-9", since=NOW, action="watch")
    page = text_of(PhoneFacts(CLUSTER, [other, verdict]))
    first = (
        "Switch leaf004 is the cause. It began just now. 2 nodes of 1 job suffer (j). Do: run diagnostics. "
        "Probability: 93 %."
    )
    assert f'<p class="answer error">{first}</p>' in page
    assert "Also: node gpu-9 (40 %). Do: watch it, if it is the cause." in page
    assert "Fresh data. The nodes were heard 20 s ago. As of 2025-03-01 12:00:00 UTC." in page


def test_without_a_verdict_the_page_says_how_the_nodes_are() -> None:
    """And that nothing waits."""
    page = text_of(PhoneFacts(CLUSTER))
    assert "1 node faulty." in page
    assert "Act now (0)" in page
    assert "No grave fault of the last 24 hours waits for anybody." in page


def test_old_data_is_said_before_all_else() -> None:
    """Nothing is told as well then."""
    old = ClusterJson(now=NOW, heard_until=NOW - timedelta(hours=6), stale=True, nodes=3, states={"ok": 3})
    page = text_of(PhoneFacts(old))
    said = "Nothing was heard of the nodes since 2025-03-01 06:00:00 UTC (6.0 h ago)"
    assert page.index(said) < page.index("Act now")
    assert "Old data." in page
    assert "well" not in page


def test_the_queue_tells_node_device_age_run_and_action() -> None:
    """One place is one entry; what nobody has taken comes first."""
    taken = LifeJson(state="acknowledged", owner="person:ann")
    former = HintJson(id="f", node="gpu-001", action="watch", state="sent")
    hint = HintJson(id="h", node="gpu-001", action="drain", state="proposed")
    facts = PhoneFacts(
        CLUSTER,
        (),
        [incident("b", "gpu-002", taken), incident("a"), incident("a2", severity="error")],
        [former, hint],
        {"a": "llm-70b"},
    )
    page = text_of(facts)
    assert "Act now (2)" in page
    assert "Act now (at least 2)" in text_of(replace(facts, is_cut=True))
    assert page.index("gpu-001, GPU 5") < page.index("gpu-002, GPU 5")
    for part in (f"{GONE}, 1 min ago", "Run hit: llm-70b", "1 more fault on this node", "Do: reboot the node"):
        assert f">{part}<" in page
    assert "Hint: drain, waits for approval" in page
    assert ">Do: look at it<" in text_of(replace(facts, incidents=[incident("n", action="none")]))
    assert "Acknowledged, with ann" in page
    assert "Wait for approval (1)" in page
    assert 'href="api/v1/print/incidents/a"' in page


def test_a_fault_of_a_node_that_nobody_named_says_so() -> None:
    """On the phone, on paper and in words: "reboot the node" alone names no node. A switch's port is of none."""
    unnamed = "Which node is not known: the sender named none, send it with node=NAME."
    page = text_of(PhoneFacts(CLUSTER, (), [incident("a", None)]))
    assert "<b>node not named, GPU 5</b>" in page
    assert f"Do: reboot the node (w{unnamed[1:-1]})<" in page
    paper = "".join(incident_sections(IncidentFile(incident("a", None), NOW)))
    assert f"Do: reboot the node (w{unnamed[1:-1]})." in paper
    port = incident("p", None, device=DeviceJson(type="port", port=12))
    for known in (incident("a"), port):
        assert unnamed not in text_of(PhoneFacts(CLUSTER, (), [known]))
        assert values.to_do(known) == "reboot the node"


@pytest.mark.parametrize(
    "one",
    [
        incident("closed", life=LifeJson(state="closed")),
        incident("mild", severity="warning"),
        incident("victim", action="none", severity="error"),
        incident("old", shown=NOW - timedelta(days=2)),
    ],
    ids=lambda one: one.id,
)
def test_what_needs_nobody_is_not_in_the_queue(one: IncidentJson) -> None:
    """It is over, mild, old, or nothing is to be done about it."""
    assert to_do([one], NOW) == []


def test_text_of_others_is_text() -> None:
    """In names, causes, owners, runs and hints."""
    life = LifeJson(state=EVIL, owner=EVIL)
    verdict = VerdictJson(id=EVIL, rank=1, probability=0.9, cause_class=EVIL, name=EVIL, since=NOW, action=EVIL)
    facts = PhoneFacts(
        CLUSTER,
        [verdict],
        [incident(EVIL, EVIL, life, action=EVIL, meaning=EVIL), incident("x", None, name=EVIL)],
        [HintJson(id="h", node=EVIL, action=EVIL, state="proposed")],
        {EVIL: EVIL},
    )
    page = text_of(facts)
    assert "<script" not in page
    assert "\u202e" not in page
    assert "&lt;script&gt;" in page


@pytest.fixture
def guarded(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A server that wants a token."""
    token = Token("ops", digest_of("secret"), frozenset(("read", "ingest:fleet")))
    settings = replace(QUIET, tokens=(token,))
    with TestClient(create_app(settings, engine, clock)) as client:
        yield client


def test_a_phone_gets_one_page_that_runs_nothing(guarded: TestClient, engine: sa.Engine) -> None:
    """With a token; the run that the fault hit is told; the browser may load this style sheet alone."""
    guarded.headers["authorization"] = "Bearer secret"
    began = NOW - timedelta(minutes=2)
    with writing(engine).begin() as connection:
        append_jobs(connection, [Job("7", "llm-70b", "RUNNING", began, began, None, 2, "gpu-00[1-2]")])
    event = record(1, time=format_time(NOW - timedelta(minutes=1)), node="gpu-001")
    ahead = record(2, time=format_time(NOW + timedelta(minutes=30)), node="gpu-009")  # its clock is
    assert guarded.post("/api/v1/events", json=[event, ahead]).json()["accepted"] == 2
    fold_all(engine)
    answer = guarded.get("/m")
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "script" not in policy
    for part in (
        "<title>Foreshock: 2 to do</title>",
        "<b>gpu-009",
        'http-equiv="refresh" content="15"',
        "Run hit: llm-70b",
    ):
        assert part in answer.text
    link = answer.text.partition('href="')[2].partition('"')[0]
    assert guarded.get(f"/{link}").status_code == 200
    assert 'href="?reload=no"' in answer.text
    quiet = guarded.get("/m?reload=no").text
    assert 'http-equiv="refresh"' not in quiet and 'href="?reload=yes"' in quiet
    assert guarded.get("/m?reload=often").status_code == 422


def test_who_has_no_token_reads_a_sentence(guarded: TestClient) -> None:
    """In a browser; a program gets the problem as JSON, as everywhere."""
    answer = guarded.get("/m", headers={"accept": "text/html,*/*;q=0.8"})
    assert (answer.status_code, answer.headers["content-type"]) == (401, "text/html; charset=utf-8")
    assert "A browser sends no token by itself" in answer.text
    assert guarded.get("/m").json()["status"] == 401
    guarded.headers["authorization"] = "Bearer secret"
    odd = guarded.get("/api/v1/print/incidents/%3Cscript%3E", headers={"accept": "text/html"})
    assert odd.status_code == 404
    assert "<script" not in odd.text

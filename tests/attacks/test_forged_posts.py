"""POST /logs: what a record's own fields, or its sender, say of its writer binds what it may tell."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
import sqlalchemy as sa
from attacks.forged_lines import FAULT, ITERATION, NODE, PRINTED, SWITCH_FAULT
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Intervals

QUIET = ApiSettings(intervals=Intervals(score_s=0, policy_s=0, dispatch_s=0, ledgers_s=0, lemons_s=0, models_s=0))
NOW = datetime(2026, 11, 22, 12, tzinfo=UTC)
TIME = NOW.timestamp()


@pytest.fixture
def server(engine: sa.Engine) -> Iterator[TestClient]:
    """A server that does nothing by itself."""
    with TestClient(create_app(QUIET, engine, lambda: NOW), raise_server_exceptions=False) as client:
        yield client


def post(server: TestClient, *records: object, **query: str) -> dict[str, Any]:
    """What became of some records: of mappings as JSON, of texts as lines."""
    lines = [record if isinstance(record, str) else json.dumps(record) for record in records]
    answer = server.post("/api/v1/logs", content="\n".join(lines) + "\n", params=query)
    assert answer.status_code == 200, answer.text
    taken: dict[str, Any] = answer.json()
    return taken


def stored(server: TestClient) -> list[tuple[str, str | None]]:
    """Source and node of every event."""
    items = server.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return sorted({(item["source"], item.get("node")) for item in items}, key=str)


def test_a_training_log_that_is_posted_tells_of_training_alone(server: TestClient) -> None:
    """By its format, or by the sender's word that users write it."""
    post(server, *PRINTED, ITERATION, format="training", run="llm", node=NODE)
    taken = post(server, *PRINTED, ITERATION, trust="user", run="llm", node=NODE)
    assert stored(server) == [("training", NODE)]
    assert len(taken["rejected"]) >= 1
    assert "a user may have written this log" in taken["rejected"][0]["detail"]


@pytest.mark.parametrize(
    "said",
    [
        {"_TRANSPORT": "syslog", "_UID": "1000", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "stdout", "_UID": "1000", "SYSLOG_IDENTIFIER": "python"},
        {"_TRANSPORT": "journal", "_UID": "1000", "SYSLOG_FACILITY": "0", "SYSLOG_IDENTIFIER": "kernel"},
        {"_TRANSPORT": "journal", "_UID": "0", "_COMM": "dockerd", "SYSLOG_IDENTIFIER": "kernel"},
        {"stream": "stdout"},
        {"stream": "stderr", "kubernetes": {"pod_name": "job-1"}},
        {"container_name": "/job", "container_id": "4711"},
        {"ident": "kernel", "pri": "11"},
        {"PROGRAM": "kernel", "FACILITY": "user"},
        {"ident": "python", "facility": "user"},
        {"programname": "nvidia"},
    ],
)
@pytest.mark.parametrize("key", ["MESSAGE", "log"])
def test_a_record_that_says_who_wrote_it_is_not_the_kernels(
    server: TestClient, said: dict[str, object], key: str
) -> None:
    """journald, containers' logs, syslog's tag and facility; also for a sender who names the format."""
    for query in ({}, {"format": "kernel"}):
        taken = post(server, {"date": TIME, "host": NODE, key: FAULT, **said}, **query)
        assert taken["accepted"] == 0
    assert stored(server) == []


@pytest.mark.parametrize("text", [line for line in PRINTED if not line.startswith("{")])
def test_what_a_container_prints_is_no_fabric_and_no_other_nodes(server: TestClient, text: str) -> None:
    """Whatever form the line has."""
    assert post(server, {"date": TIME, "host": NODE, "stream": "stdout", "log": text})["accepted"] == 0


def test_a_daemons_record_must_be_roots(server: TestClient) -> None:
    """`logger -t nv-fabricmanager` gives nothing."""
    record = {"_TRANSPORT": "syslog", "SYSLOG_IDENTIFIER": "nv-fabricmanager", "MESSAGE": SWITCH_FAULT, "host": NODE}
    assert post(server, {**record, "_UID": "1000", "_COMM": "logger"})["accepted"] == 0
    assert post(server, {**record, "_UID": "0", "_COMM": "nv-fabricmanage"})["accepted"] == 1
    assert stored(server) == [("kernel", NODE)]


def test_the_kernels_own_record_counts_beside_a_users(server: TestClient) -> None:
    """A forged record takes nothing from the next one."""
    kernel = {"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "_HOSTNAME": NODE, "MESSAGE": FAULT}
    forged = {**kernel, "_TRANSPORT": "syslog", "_UID": "1000", "_HOSTNAME": "gpu-018"}
    taken = post(server, forged, kernel, forged)
    assert (taken["accepted"], len(taken["rejected"])) == (1, 2)
    assert stored(server) == [("kernel", NODE)]
    page = server.get("/metrics").text
    assert 'foreshock_records_denied_total{reason="writer",resource="logs"} 2.0' in page


def test_an_operator_may_vouch_for_a_container(server: TestClient) -> None:
    """The Fabric Manager of NVIDIA's operator runs in one."""
    line = "[Nov 22 2026 04:05:06] [ERROR] [tid 841] " + SWITCH_FAULT
    record = {"date": TIME, "host": NODE, "stream": "stdout", "log": line}
    assert post(server, record, format="fabricmanager")["accepted"] == 0
    assert post(server, record, format="fabricmanager", trust="system")["accepted"] == 1

"""What programs tell of a run, posted as it is: taken by `POST /logs`, and spans where OTLP's exporters post them."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

FIXTURES = Path(__file__).parents[2] / "fixtures"
BODIES = (
    "hook/killed_in_a_save.log",
    "otel/spans.json",
    "mlgoodput/entries.json",
    "mlgoodput/payloads.json",
    "checkpoints/megatron.txt",
    "squeue/running.txt",
    "squeue/json_22.json",
    "kubernetes/job_watch.json",
    "kubernetes/jobs.json",
    "nvrx/cycles.json",
)


@pytest.mark.parametrize("auto", [False, True], ids=["named", "auto"])
@pytest.mark.parametrize("name", BODIES)
def test_a_source_is_taken_as_it_is(client: TestClient, name: str, auto: bool) -> None:
    """Every record of the fixture, whether the sender names the format or not."""
    path = FIXTURES / name
    query = {"run": "fixture"} | ({} if auto else {"format": path.parent.name})
    answer = client.post("/api/v1/logs", params=query, content=path.read_bytes()).json()
    expected = [json.loads(line) for line in path.with_suffix(".jsonl").read_text().splitlines()]
    found = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    assert sorted(event["kind"] for event in found) == sorted(event["kind"] for event in expected), answer


def test_an_object_that_bears_a_message_may_be_no_wrapping(client: TestClient) -> None:
    """The hook tells an error by its words, Kubernetes an event."""
    line = {
        "foreshock_hook": 1,
        "time": "2025-03-01T04:05:06Z",
        "run": "r",
        "what": "error",
        "error": "E",
        "message": "w",
    }
    assert client.post("/api/v1/logs", content=json.dumps(line)).json()["accepted"] == 1
    event = {
        "kind": "Event",
        "involvedObject": {"kind": "Node", "name": "gpu-1"},
        "reason": "NodeNotReady",
        "message": "m",
    }
    assert client.post("/api/v1/logs", content=json.dumps(event)).json()["accepted"] == 1


def test_a_shipper_may_wrap_the_hooks_lines(client: TestClient) -> None:
    """As it wraps any line."""
    line = (FIXTURES / "hook/killed_in_a_save.log").read_text().splitlines()[2]
    taken = client.post("/api/v1/logs", content=json.dumps([{"host": "gpu-1", "log": line}])).json()
    assert taken["accepted"] == 1


def spans(count: int) -> dict[str, Any]:
    """A request of so many iterations."""
    one = {"name": "step", "startTimeUnixNano": "1740801906000000000", "endTimeUnixNano": "1740801907000000000"}
    told = [one | {"attributes": [{"key": "step", "value": {"intValue": str(n)}}]} for n in range(count)]
    resource = {"attributes": [{"key": "service.name", "value": {"stringValue": "llm"}}]}
    return {"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": told}]}]}


def test_spans_are_taken_where_exporters_post_them(client: TestClient) -> None:
    """A batch of any size, packed, over many lines; the same again changes nothing."""
    body = gzip.compress(json.dumps(spans(600)).encode())
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
    for _ in range(2):
        answer = client.post("/api/v1/traces", content=body, headers=headers)
        assert (answer.status_code, answer.json()) == (200, {"partialSuccess": {}})
    assert len(client.get("/api/v1/events", params={"limit": 1000}).json()["items"]) == 600
    printed = json.dumps(spans(3), indent=2)
    assert client.post("/api/v1/traces", params={"run": "llm-7b"}, content=printed).status_code == 200
    runs = [
        event["attributes"]["run"] for event in client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    ]
    assert (runs.count("llm"), runs.count("llm-7b")) == (600, 3)


def test_a_broken_request_says_so_as_otlp_does(client: TestClient) -> None:
    """What was whole is taken."""
    answer = client.post("/api/v1/traces", content=json.dumps(spans(9))[:-40]).json()["partialSuccess"]
    assert answer["rejectedSpans"] == "1"
    assert "fetch it again whole" in answer["errorMessage"]
    assert len(client.get("/api/v1/events").json()["items"]) == 8

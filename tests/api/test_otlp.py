"""OTLP/HTTP by the SDK's own exporters, in protobuf; the same in JSON; and bodies that are broken or made to hurt."""

import gzip
from pathlib import Path
from typing import Any

import orjson
import pytest
from fastapi.testclient import TestClient
from google.protobuf.json_format import MessageToDict
from opentelemetry import _logs
from opentelemetry.exporter.otlp.proto.http import Compression
from opentelemetry.exporter.otlp.proto.http._log_exporter import OTLPLogExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk._logs.export import SimpleLogRecordProcessor
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from real.foreshock import serve

from schedulers.reconcile.delivery import delivery_of
from schedulers.webhooks.formats.otlp import OTLP
from store.records.event import parse_time
from store.records.hint import Evidence, Hint

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=python, GPU has fallen off the bus."
NANOS = 1_740_801_906_789_000_000
TIME = "2025-03-01T04:05:06.789000Z"
MOMENT = parse_time(TIME)
PROTOBUF = {"content-type": "application/x-protobuf"}
JOURNAL = {
    "MESSAGE": XID,
    "_TRANSPORT": "kernel",
    "_HOSTNAME": "gpu-018",
    "SYSLOG_IDENTIFIER": "kernel",
    "PRIORITY": "2",
}
FORGED = {**JOURNAL, "_TRANSPORT": "stdout", "_UID": "1000", "_COMM": "python"}


def text(value: str) -> AnyValue:
    """A line."""
    return AnyValue(string_value=value)


def pairs(**values: str) -> list[KeyValue]:
    """Attributes; `__` stands for a dot."""
    return [KeyValue(key=key.replace("__", "."), value=text(value)) for key, value in values.items()]


def request(*records: LogRecord, **resource: str) -> ExportLogsServiceRequest:
    """A request of one resource."""
    made = ExportLogsServiceRequest()
    of = made.resource_logs.add()
    of.resource.attributes.extend(pairs(**resource))
    of.scope_logs.add().log_records.extend(records)
    return made


def mapped(fields: dict[str, str]) -> AnyValue:
    """A body as the journald receiver makes it."""
    value = AnyValue()
    value.kvlist_value.values.extend(pairs(**fields))
    return value


def stored(client: TestClient) -> list[tuple[Any, ...]]:
    """Node, code and time of every event."""
    items = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return sorted((item["node"], item["code"], item["time"]) for item in items)


def posted(client: TestClient, made: ExportLogsServiceRequest, encoding: str, **query: str) -> dict[str, Any]:
    """OTLP's answer."""
    if encoding == "json":
        body, headers = orjson.dumps(MessageToDict(made)), {"content-type": "application/json"}
    else:
        body, headers = gzip.compress(made.SerializeToString()), {**PROTOBUF, "content-encoding": "gzip"}
    answer = client.post("/api/v1/logs", content=body, headers=headers, params=query)
    assert answer.status_code == 200, answer.text
    if encoding == "json":
        said: dict[str, Any] = answer.json()
        return said
    assert answer.headers["content-type"] == PROTOBUF["content-type"]
    return MessageToDict(ExportLogsServiceResponse.FromString(answer.content))


@pytest.fixture(params=["protobuf", "json"])
def encoding(request: pytest.FixtureRequest) -> str:
    """How a request is written."""
    kind: str = request.param
    return kind


@pytest.mark.parametrize(
    ("record", "resource", "expected"),
    [
        (LogRecord(body=text(XID), time_unix_nano=NANOS), {"host__name": "gpu-017"}, ("gpu-017", 79, TIME)),
        (LogRecord(body=text(XID), observed_time_unix_nano=NANOS), {"k8s__node__name": "n1"}, ("n1", 79, TIME)),
        (
            LogRecord(body=text(XID), time_unix_nano=NANOS, attributes=pairs(hostname="gpu-3", appname="kernel")),
            {"host__name": "collector"},
            ("gpu-3", 79, TIME),
        ),
        (LogRecord(body=mapped(JOURNAL), time_unix_nano=NANOS), {}, ("gpu-018", 79, TIME)),
    ],
    ids=["filelog", "observed", "syslog", "journald"],
)
def test_a_collector_s_record_is_an_event(
    client: TestClient, encoding: str, record: LogRecord, resource: dict[str, str], expected: tuple[Any, ...]
) -> None:
    """As its receivers write it; the same request again, after an answer that was lost, changes nothing."""
    made = request(record, **resource)
    assert posted(client, made, encoding)["partialSuccess"] == {}
    assert stored(client) == [expected]
    posted(client, made, encoding)
    assert stored(client) == [expected]


@pytest.mark.parametrize(
    ("record", "resource"),
    [
        (LogRecord(body=text(XID)), {"host__name": "n1", "k8s__pod__name": "job-0"}),
        (LogRecord(body=text(XID), attributes=pairs(log__iostream="stdout")), {"host__name": "n1"}),
        (LogRecord(body=mapped(FORGED)), {}),
        (LogRecord(body=text(XID), attributes=pairs(facility="1")), {"host__name": "n1"}),
    ],
    ids=["pod", "output", "journald", "facility"],
)
def test_a_container_s_output_tells_nothing_of_the_machine(
    client: TestClient, encoding: str, record: LogRecord, resource: dict[str, str]
) -> None:
    """A job that prints a kernel's line accuses no GPU; the answer says that the record was left out."""
    said = posted(client, request(record, **resource), encoding)["partialSuccess"]
    assert said["rejectedLogRecords"] == "1"
    assert "refused" in said["errorMessage"]
    assert stored(client) == []


@pytest.mark.parametrize("where", ["body", "attributes"])
def test_a_program_does_not_choose_the_host_that_it_is_of(client: TestClient, encoding: str, where: str) -> None:
    """A collector takes a container's JSON apart: what it holds is the program's word, the node is the collector's."""
    said = "[rank3]: torch.OutOfMemoryError: CUDA out of memory."
    claimed = {"message": said, "hostname": "gpu-victim", "host": "gpu-victim", "_HOSTNAME": "gpu-victim"}
    record = (
        LogRecord(body=mapped(claimed), time_unix_nano=NANOS)
        if where == "body"
        else LogRecord(body=text(said), time_unix_nano=NANOS, attributes=pairs(**claimed))
    )
    made = request(record, k8s__node__name="gpu-own", k8s__pod__name="job-0")
    posted(client, made, encoding, run="llm", format="training")
    (event,) = client.get("/api/v1/events").json()["items"]
    assert (event["kind"], event["node"]) == ("training_error", "gpu-own")


def test_a_broken_span_leaves_the_others_alone(client: TestClient) -> None:
    """As a broken log record does."""
    good, long = ExportTraceServiceRequest(), ExportTraceServiceRequest()
    for made, name in ((good, "train_step"), (long, "x" * 300_000)):
        of = made.resource_spans.add()
        of.resource.attributes.extend(pairs(foreshock__run="llm"))
        of.scope_spans.add().spans.add(name=name, start_time_unix_nano=NANOS, end_time_unix_nano=NANOS + 10**8)
    body = long.SerializeToString() + good.SerializeToString()
    answer = client.post("/api/v1/traces", content=body, headers=PROTOBUF)
    said = MessageToDict(ExportTraceServiceResponse.FromString(answer.content))["partialSuccess"]
    assert (said["rejectedSpans"], "300" in said["errorMessage"]) == ("1", True)
    assert [event["kind"] for event in client.get("/api/v1/events").json()["items"]] == ["iteration"]


@pytest.mark.parametrize("reason", [XID, f"\n{XID}", f"kernel: {XID}", f"Mar  1 04:05:06 gpu-017 kernel: {XID}"])
def test_what_we_send_to_a_collector_is_no_event_when_it_comes_back(client: TestClient, reason: str) -> None:
    """A collector that sends every log to us would otherwise make a fault of each word about a fault, for ever."""
    hint = Hint("h1", "gpu-017", "cordon", "approved", reason, "foreshock", MOMENT, MOMENT, Evidence())
    message = OTLP.write(delivery_of(hint, "cordon", "collector", "act", MOMENT), (), MOMENT)
    answer = client.post("/api/v1/logs", content=message.body, headers={"content-type": message.content_type})
    assert answer.status_code == 200, answer.text
    assert "rejectedLogRecords" not in answer.json().get("partialSuccess", {})
    assert stored(client) == []


def test_the_sdk_s_exporters_are_understood(tmp_path: Path) -> None:
    """Logs and spans in protobuf, packed, by the exporters that programs and collectors have."""
    resource = Resource({"host.name": "gpu-017", "foreshock.run": "llm"})
    with serve(f"sqlite:///{tmp_path}/f.db", tmp_path) as server:
        endpoint = f"{server.url}/api/v1"
        logs = LoggerProvider(resource)
        exporter = OTLPLogExporter(f"{endpoint}/logs", compression=Compression.Gzip)
        logs.add_log_record_processor(SimpleLogRecordProcessor(exporter))
        logs.get_logger("kernel").emit(_logs.LogRecord(timestamp=NANOS, body=XID))
        spans = TracerProvider(resource=resource)
        spans.add_span_processor(SimpleSpanProcessor(OTLPSpanExporter(f"{endpoint}/traces")))
        span = spans.get_tracer("train").start_span("train_step", attributes={"iteration": 7}, start_time=NANOS)
        span.end(NANOS + 318_000_000)
        items = server.get("/api/v1/events?limit=10")["items"]
        logs.shutdown()
        spans.shutdown()
    found = {item["kind"]: item for item in items}
    assert found.keys() == {"xid", "iteration"}
    assert (found["xid"]["node"], found["xid"]["code"], found["xid"]["time"]) == ("gpu-017", 79, TIME)
    assert found["iteration"]["attributes"]["iteration"] == 7


def test_what_is_broken_beside_what_is_good_is_left_out(client: TestClient) -> None:
    """A record alone; a body only where nothing can be parted."""
    good = LogRecord(body=text(XID), time_unix_nano=NANOS)
    body = request(good, host__name="n1").SerializeToString()
    broken = request(LogRecord(body=text("x" * 300_000))).SerializeToString()
    answer = client.post("/api/v1/logs", content=broken + body, headers=PROTOBUF)
    said = MessageToDict(ExportLogsServiceResponse.FromString(answer.content))["partialSuccess"]
    assert said["rejectedLogRecords"] == "1"
    assert "bytes" in said["errorMessage"]
    assert stored(client) == [("n1", 79, TIME)]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"\x0a\x05abc", 400),
        (b"NVRM: Xid", 400),
        (b"\xff" * 30, 400),
        (b"\x0b", 400),
        (b"", 200),
        (b"\x0a\x00" * 4_000, 413),
        (b"\x08\x00" * 4_000, 413),
        (request(*[LogRecord()] * 101).SerializeToString(), 413),
        (b"\x0d\x00", 400),
    ],
    ids=["short", "text", "number", "group", "empty", "resources", "unknown", "records", "cut"],
)
@pytest.mark.parametrize("path", ["logs", "traces"])
def test_a_body_that_is_no_request_or_made_to_hurt_has_its_answer(
    client: TestClient, path: str, body: bytes, status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cheap for us, and plain for who sent it; here with smaller limits."""
    for module in ("api.edge.work_budget", "api.intake.logs"):
        monkeypatch.setattr(f"{module}.MOST_RECORDS", 100)
    monkeypatch.setattr("api.intake.otlp.MOST_CONTAINERS", 3_000)
    answer = client.post(f"/api/v1/{path}", content=body, headers=PROTOBUF)
    assert answer.status_code == status, answer.text
    if status != 200:
        assert answer.json()["detail"]


@pytest.mark.parametrize(
    "value",
    [
        {"resourceLogs": [5, {"scopeLogs": [7, {"logRecords": [8, {"body": 9}, {"body": {"arrayValue": 1}}]}]}]},
        {"resourceLogs": [{"resource": [], "scopeLogs": [{"logRecords": [{"timeUnixNano": "x", "attributes": 4}]}]}]},
        {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"bytesValue": "%"}, "attributes": [{}]}]}]}]},
        {"resourceLogs": [{"scopeLogs": {"logRecords": []}}]},
    ],
)
def test_json_of_another_shape_is_answered(client: TestClient, value: Any) -> None:
    """And stores nothing."""
    answer = client.post("/api/v1/logs", content=orjson.dumps(value))
    assert answer.status_code == 200, answer.text
    assert stored(client) == []

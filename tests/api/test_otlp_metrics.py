"""OTLP metrics: the same events and roll-ups as of a page that a sidecar scrapes; broken, foreign, hostile points."""

import gzip
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, TypeAlias

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from google.protobuf.json_format import MessageToDict
from opentelemetry.exporter.otlp.proto.common.metrics_encoder import encode_metrics
from opentelemetry.metrics import Observation
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.resources import Resource

from api.app import create_app
from api.intake.samples import MOST_DEVICES, MOST_MOMENTS
from api.server.settings import Token
from collectors.telemetry.samples import Sampled
from parsers.pages import devices_of
from parsers.text.parser import Context
from store.nodes.tokens import digest_of
from store.records.hostlist import NodePattern
from store.telemetry import device_watches

from .conftest import NOW, QUIET, Clock

PATH = "/api/v1/metrics"
PROTOBUF = {"content-type": "application/x-protobuf"}
CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
DELTA = AggregationTemporality.AGGREGATION_TEMPORALITY_DELTA
SBE = "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"
TEMP = "DCGM_FI_DEV_GPU_TEMP"
GPU = {"gpu": "3", "UUID": "GPU-a", "pci_bus_id": "00000000:0F:00.0"}
HOST = {"host.name": "gpu-017"}
Value: TypeAlias = float | None


def nanos(back_s: float = 0.0) -> int:
    """A moment before noon."""
    return int((NOW.timestamp() - back_s) * 1e9)


def pairs(labels: dict[str, str]) -> list[KeyValue]:
    """Attributes."""
    return [KeyValue(key=key, value=AnyValue(string_value=value)) for key, value in labels.items()]


def request(
    *points: tuple[str, dict[str, str], Value, int], host: dict[str, str] | None = None, temporality: int = CUMULATIVE
) -> ExportMetricsServiceRequest:
    """A request as a collector's Prometheus receiver makes it: what ends in a total is a sum, the rest gauges."""
    made = ExportMetricsServiceRequest()
    of = made.resource_metrics.add()
    of.resource.attributes.extend(pairs(HOST if host is None else host))
    scope = of.scope_metrics.add()
    for name, labels, value, time in points:
        metric = scope.metrics.add(name=name)
        if name.lower().endswith(("total", "errors")):
            metric.sum.aggregation_temporality = temporality  # type: ignore[assignment]  # a number of the enum
            metric.sum.is_monotonic = True
            point = metric.sum.data_points.add(time_unix_nano=time, attributes=pairs(labels))
        else:
            point = metric.gauge.data_points.add(time_unix_nano=time, attributes=pairs(labels))
        if value is not None:
            point.as_double = value
    return made


def post(client: TestClient, made: ExportMetricsServiceRequest, encoding: str = "protobuf") -> dict[str, Any]:
    """How many points were refused and why, in OTLP's answer."""
    if encoding == "json":
        answer = client.post(
            PATH, content=orjson.dumps(MessageToDict(made)), headers={"content-type": "application/json"}
        )
        assert answer.status_code == 200, answer.text
        return dict(answer.json().get("partialSuccess", {}))
    packed = gzip.compress(made.SerializeToString())
    answer = client.post(PATH, content=packed, headers={**PROTOBUF, "content-encoding": "gzip"})
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == PROTOBUF["content-type"]
    return dict(MessageToDict(ExportMetricsServiceResponse.FromString(answer.content)).get("partialSuccess", {}))


def events(client: TestClient) -> list[dict[str, Any]]:
    """Every event, the oldest first."""
    items: list[dict[str, Any]] = client.get("/api/v1/events", params={"limit": 1000}).json()["items"]
    return sorted(items, key=lambda item: (item["time"], item["kind"]))


def hours(client: TestClient, node: str = "gpu-017") -> list[dict[str, Any]]:
    """A node's roll-ups."""
    answer = client.get(f"/api/v1/nodes/{node}/telemetry", params={"hours": 24})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["items"]
    return found


@pytest.fixture(params=["protobuf", "json"])
def encoding(request: pytest.FixtureRequest) -> str:
    """How a request is written."""
    kind: str = request.param
    return kind


def scraped(pages: list[tuple[str, datetime]]) -> list[Any]:
    """The events that a sidecar makes of the pages of an exporter."""
    sampled, found = Sampled("http://127.0.0.1:9400/metrics", 300.0), []
    for page, time in pages:
        found += sampled.take(devices_of(page, Context(node="gpu-017", until=time)), time)[0]
    return found


def test_a_counter_s_rise_is_the_event_that_a_scrape_gives(client: TestClient, clock: Clock, encoding: str) -> None:
    """The same kind, severity, device, words and count; once, though the second request comes twice."""
    label = ",".join(f'{key}="{value}"' for key, value in GPU.items())
    pages = []
    for value in (2, 7):
        clock.forward(seconds=15)
        made = request((SBE, GPU, value, int(clock.now.timestamp() * 1e9)))
        assert post(client, made, encoding) == {}
        pages.append((f"{SBE}{{{label}}} {value}\n", clock.now))
    assert post(client, made, encoding) == {}
    (event,) = events(client)
    (expected,) = scraped(pages)
    for name in ("node", "source", "kind", "severity", "cause", "action", "message", "code"):
        assert event.get(name) == getattr(expected, name), name
    assert (event["device"]["index"], event["device"]["uuid"], event["device"]["pci"]) == (3, "GPU-a", "0000:0f:00.0")
    assert event["attributes"] == dict(expected.attributes)


HW = {"hw.id": "gpu3", "hw.type": "gpu"}


@pytest.mark.parametrize(
    ("point", "device", "measure", "kind"),
    [
        (("hw.errors", {**HW, "error.type": "corrected"}), "gpu:3", "ecc_sbe", "ecc_sbe"),
        (("hw.errors", {**HW, "error.type": "uncorrected"}), "gpu:3", "ecc_dbe", "ecc_dbe"),
        (("hw.gpu.utilization", {"hw.id": "GPU-1a2b3c4d5e", "hw.name": "nvidia3"}), "gpu:3", "gpu_util_ratio", None),
        (("hw.power", HW), "gpu:3", "power_w", None),
        (("hw.temperature", HW), "gpu:3", "gpu_temp_c", None),
        (("hw.temperature", {**HW, "hw.sensor_location": "memory"}), "gpu:3", "memory_temp_c", None),
        (("hw.temperature", {"hw.id": "inlet", "hw.type": "temperature"}), "sensor:inlet", "temp_c", None),
        (("hw.errors", {"hw.id": "A1", "hw.type": "memory", "error.type": "corrected"}), "dimm:A1", "ecc_sbe", "edac"),
        (("hw.power", {"hw.id": "chassis", "hw.type": "enclosure"}), "bmc", "node_power_w", None),
        (
            ("node_infiniband_link_downed_total", {"device": "mlx5_0", "port": "1"}),
            "nic:mlx5_0/1",
            "link_downed",
            "counter",
        ),
        (("DCGM_FI_DEV_GPU_UTIL", GPU), "gpu:3", "gpu_util_ratio", None),
    ],
)
def test_conventions_and_exporters_have_our_words(
    client: TestClient, point: tuple[str, dict[str, str]], device: str, measure: str, kind: str | None
) -> None:
    """One table: what OpenTelemetry, DCGM and node_exporter call it is one measure of one device."""
    assert post(client, request((*point, 20, nanos(60)), (*point, 21, nanos(30)))) == {}
    (hour,) = hours(client)
    assert set(hour["devices"]) == {device}
    assert set(hour["devices"][device]) == {measure}
    assert all(str(kind) in event["kind"] for event in events(client))
    assert len(events(client)) == (kind is not None)


def test_the_sdk_s_own_messages_are_read(client: TestClient) -> None:
    """As its OTLP exporter makes them; of a counter the increase from the first look on."""
    reader = InMemoryMetricReader()
    provider = MeterProvider([reader], Resource({"host.name": "gpu-017"}))
    meter = provider.get_meter("site")
    errors = meter.create_counter("hw.errors", "{error}")
    meter.create_observable_gauge("hw.temperature", [lambda _options: [Observation(61.0, HW)]], "Cel")
    for count in (2, 5):
        errors.add(count, {**HW, "error.type": "uncorrected"})
        assert post(client, encode_metrics(reader.get_metrics_data())) == {}  # type: ignore[arg-type]  # there is some
    provider.shutdown()
    (event,) = events(client)
    assert (event["kind"], event["node"], event["attributes"]["count"]) == ("ecc_dbe", "gpu-017", 5)


def test_a_scrape_that_a_collector_cuts_is_one_look(client: TestClient) -> None:
    """Requests with parts of one moment, and one that comes late: nothing is missing, nothing is counted twice."""
    gpus = [{"gpu": str(number)} for number in range(4)]
    for back in (60, 45, 30, 15):
        for half in (gpus[:2], gpus[2:]):
            post(client, request(*[(TEMP, gpu, 50.0, nanos(back)) for gpu in half]))
            post(client, request(*[(SBE, gpu, 1.0, nanos(back)) for gpu in half]))
    post(client, request((TEMP, gpus[0], 99.0, nanos(50))))
    assert events(client) == []


def test_a_gpu_that_vanishes_is_told(client: TestClient) -> None:
    """Two looks that lack it, as of a page."""
    for back in (75, 60, 45, 30, 15):
        gpus = range(8 if back > 50 else 7)
        post(client, request(*[(TEMP, {"gpu": str(number)}, 50.0, nanos(back)) for number in gpus]))
    assert [event["kind"] for event in events(client)] == ["gpu_missing"]


def test_what_is_known_of_a_node_outlives_a_server(any_engine: sa.Engine, clock: Clock) -> None:
    """On either database; the second server finds where the counter stood."""
    for value, back in ((2, 60), (9, 30)):
        with TestClient(create_app(QUIET, any_engine, clock)) as client:
            assert post(client, request((SBE, GPU, value, nanos(back)))) == {}
            told = events(client)
    assert [(event["kind"], event["attributes"]["count"]) for event in told] == [("ecc_sbe", 7)]


def test_roll_ups_are_those_of_the_hour(client: TestClient, clock: Clock) -> None:
    """The hour that ended whole, the open one as far as it is known; the same again changes nothing."""
    made = [request((TEMP, GPU, 40.0 + number, nanos(3660 - 20 * number))) for number in range(3)]
    for one in (*made, *made):
        post(client, one)
    clock.forward(minutes=2)
    post(client, request((TEMP, GPU, 70.0, nanos(0))))
    first, second = sorted(hours(client), key=lambda hour: str(hour["time"]))
    assert first["devices"]["gpu:3"]["gpu_temp_c"] == [40, 42, 41, 42, 2]
    assert (first["samples"], first["gpus_seen"]) == (3, 1)
    assert second["gpu_temp_max_c"] == 70


NODES: list[tuple[dict[str, str], dict[str, str], str | None]] = [
    ({"host.name": "a"}, {}, "a"),
    ({"host.name": "gateway", "k8s.node.name": "b"}, {"Hostname": "dcgm-exporter-x7k2p"}, "b"),
    ({"host.name": "gateway"}, {"Hostname": "c"}, "c"),
    ({"server.address": "d", "service.instance.id": "d:9400"}, {}, "d"),
    ({"service.instance.id": "e.example.org:9400"}, {}, "e.example.org"),
    ({"service.instance.id": "10.0.0.7:9400"}, {}, None),
    ({"server.address": "localhost"}, {}, None),
    ({}, {}, None),
]


@pytest.mark.parametrize(("resource", "labels", "node"), NODES)
def test_the_node_is_whom_the_attributes_name(
    client: TestClient, resource: dict[str, str], labels: dict[str, str], node: str | None
) -> None:
    """An address is no node's name: the answer says what to set."""
    said = post(client, request((TEMP, {**GPU, **labels}, 50.0, nanos(30)), host=resource))
    if node is None:
        assert said["rejectedDataPoints"] == "1"
        assert "k8s.node.name" in said["errorMessage"]
        return
    assert said == {}
    assert [hour["gpus_seen"] for hour in hours(client, node)] == [1]


@pytest.fixture
def of_one_node(engine: sa.Engine, clock: Clock) -> Iterator[TestClient]:
    """A client whose token speaks of one node."""
    token = Token("sidecar", digest_of("secret"), frozenset({"ingest", "read"}), NodePattern.of("gpu-017"))
    app = create_app(replace(QUIET, tokens=(token,)), engine, clock)
    with TestClient(app, headers={"authorization": "Bearer secret"}) as client:
        yield client


def test_a_token_of_one_node_tells_of_that_node_alone(of_one_node: TestClient, encoding: str) -> None:
    """Its own points beside are taken; the answer and the metrics count the others."""
    made = request((TEMP, GPU, 50.0, nanos(30)), (TEMP, {**GPU, "Hostname": "gpu-018"}, 99.0, nanos(30)))
    said = post(of_one_node, made, encoding)
    assert said["rejectedDataPoints"] == "1"
    assert "does not speak for node 'gpu-018'" in said["errorMessage"]
    assert [hour["gpu_temp_max_c"] for hour in hours(of_one_node)] == [50]
    page = of_one_node.get("/metrics").text
    assert 'foreshock_records_denied_total{reason="node",resource="metrics"} 1.0' in page


def test_a_delta_is_refused_with_what_to_set(client: TestClient, encoding: str) -> None:
    """A difference is no counter; a gauge beside it is taken."""
    said = post(client, request((SBE, GPU, 3, nanos(60)), (TEMP, GPU, 50, nanos(60)), temporality=DELTA), encoding)
    assert said["rejectedDataPoints"] == "1"
    assert "deltatocumulative" in said["errorMessage"]
    assert set(hours(client)[0]["devices"]["gpu:3"]) == {"gpu_temp_c"}


@pytest.mark.parametrize(
    ("name", "labels", "value", "time", "says"),
    [
        (TEMP, GPU, float("nan"), nanos(30), None),
        (SBE, GPU, float("inf"), nanos(30), None),
        (SBE, GPU, 1e300, nanos(30), None),
        (TEMP, GPU, None, nanos(30), None),
        (TEMP, GPU, 9000.0, nanos(30), "no sensor"),
        (TEMP, GPU, 50.0, int(datetime(2200, 1, 1, tzinfo=UTC).timestamp()) * 10**9, "future"),
        (TEMP, GPU, 50.0, 2**64 - 1, "future"),
        (TEMP, {"gpu": "\x00" * 300}, 50.0, nanos(30), None),
        (TEMP, {f"l{number}": "x" for number in range(70)}, 50.0, nanos(30), "attributes"),
        ("hw.power", {"hw.id": "GPU-455d8f70-2051-db6c-0430-ffc457bff834", "hw.type": "gpu"}, 5, nanos(30), "gpu3"),
        ("go_goroutines", {}, 12.0, nanos(30), None),
        ("hw.errors", {"hw.type": "\n", "error.type": "../"}, 1.0, nanos(30), None),
        ("", {}, 1.0, nanos(30), None),
    ],
)
def test_a_bad_point_leaves_the_good_one_alone(
    client: TestClient, encoding: str, name: str, labels: dict[str, str], value: Value, time: int, says: str | None
) -> None:
    """What nobody measured, or no table knows, is passed over; what is wrong is refused with its reason."""
    said = post(client, request((name, labels, value, time), (TEMP, {"gpu": "5"}, 44.0, nanos(30))), encoding)
    assert (says is None) == (said == {}), said
    assert says is None or says in said["errorMessage"]
    (hour,) = hours(client)
    assert hour["devices"] == {"gpu:5": {"gpu_temp_c": [44, 44, 44, 44, 0]}}


POINT = {
    "timeUnixNano": str(nanos(30)),
    "asDouble": 44.0,
    "attributes": [{"key": "gpu", "value": {"stringValue": "5"}}],
}


DEEP = "deep"
_LEVEL = '[{"key": "a", "value": {"arrayValue": {"values": '


@pytest.mark.parametrize(
    "bad",
    [
        5,
        {**POINT, "timeUnixNano": "-5"},
        {**POINT, "timeUnixNano": "soon"},
        {**POINT, "asDouble": [1]},
        {**POINT, "attributes": 7},
        {**POINT, "attributes": [{"key": 5}]},
        {"asInt": "9" * 400},
        DEEP,
    ],
    ids=["number", "negative", "word", "list", "attributes", "key", "digits", "deep"],
)
def test_json_of_another_shape_is_refused_alone(client: TestClient, bad: Any) -> None:
    """Its neighbour is taken."""
    metric = {"name": TEMP, "gauge": {"dataPoints": [bad, POINT]}}
    resource = {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu-017"}}]}
    body = {"resourceMetrics": [3, {"resource": resource, "scopeMetrics": [None, {"metrics": [8, metric]}]}]}
    deep = '{"attributes": ' + _LEVEL * 240 + "[]" + "}}}]" * 240 + "}"
    answer = client.post(PATH, content=orjson.dumps(body).replace(b'"deep"', deep.encode()))
    assert answer.status_code == 200, answer.text
    # Lists tell no device apart: a label of them is none, however deep.
    assert answer.json()["partialSuccess"].get("rejectedDataPoints") == (None if bad == DEEP else "1")
    assert set(hours(client)[0]["devices"]) == {"gpu:5"}


def nested(depth: int) -> bytes:
    """A point whose attribute holds lists of lists."""
    value = b""
    for _ in range(depth):
        value = _bytes_field(5, _bytes_field(1, value))
    point = _bytes_field(7, _bytes_field(1, b"k") + _bytes_field(2, value))
    return in_request(_bytes_field(1, point))


def in_request(points: bytes) -> bytes:
    """A request of a gauge of some points."""
    return _bytes_field(1, _bytes_field(2, _bytes_field(2, _bytes_field(1, TEMP.encode()) + _bytes_field(5, points))))


def many_attributes() -> bytes:
    """A million attributes, in a hundred points."""
    return in_request(_bytes_field(1, b"\x3a\x00" * 10_000) * 100)


def _bytes_field(number: int, value: bytes) -> bytes:
    size, text = len(value), b""
    while size > 127:
        text, size = text + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + text + bytes([size]) + value


HOSTILE: list[tuple[Callable[[], bytes], int]] = [
    (lambda: b"\x0a\x05abc", 400),
    (lambda: b"\xff" * 30, 400),
    (lambda: b"\x0b", 400),
    (lambda: b"", 200),
    (lambda: b"\x0a\x00" * 4_000, 413),
    (lambda: request(*[(TEMP, {}, None, 0)] * 101).SerializeToString(), 413),
    (lambda: nested(150), 200),
    (many_attributes, 200),
]


@pytest.mark.parametrize(
    ("body", "status"), HOSTILE, ids=["short", "number", "group", "empty", "resources", "points", "deep", "attributes"]
)
def test_a_body_that_is_no_request_or_made_to_hurt_has_its_answer(
    client: TestClient, body: Callable[[], bytes], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cheap for us, and plain for who sent it; here with smaller limits."""
    monkeypatch.setattr("api.edge.work_budget.MOST_RECORDS", 100)
    monkeypatch.setattr("api.intake.otlp.MOST_CONTAINERS", 3_000)
    answer = client.post(PATH, content=body(), headers=PROTOBUF)
    assert answer.status_code == status, answer.text
    assert status == 200 or answer.json()["detail"]


@pytest.mark.parametrize("body", [b"", b"[1]", b"{", b"x", b"[" * 5000, b'{"a":' * 5000])
def test_a_body_that_is_no_json_is_refused(client: TestClient, body: bytes) -> None:
    """With what to send."""
    answer = client.post(PATH, content=body)
    assert answer.status_code == 400
    assert "body" in answer.json()["detail"]


def test_a_node_that_invents_devices_and_moments_is_held_to_what_is_real(
    client: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is beyond is refused; a state that grew too large begins anew, and the request is taken."""
    invented = [(TEMP, {"gpu": str(number)}, 50.0, nanos(30)) for number in range(MOST_DEVICES + 5)]
    said = post(client, request(*invented))
    assert said["rejectedDataPoints"] == "5"
    moments = [(TEMP, GPU, 50.0, nanos(3000 - number)) for number in range(MOST_MOMENTS + 9)]
    said = post(client, request(*moments, host={"host.name": "gpu-018"}))
    assert said["rejectedDataPoints"] == "9"
    monkeypatch.setattr(device_watches, "MOST_BYTES", 10)
    assert post(client, request((TEMP, GPU, 50.0, nanos(20)))) == {}


def test_a_node_that_is_long_silent_is_forgotten(engine: sa.Engine, clock: Clock) -> None:
    """Its row goes with another one's write."""
    for node in ("old", "new"):
        with TestClient(create_app(QUIET, engine, clock)) as client:
            now = int(clock.now.timestamp() * 1e9)
            post(client, request((TEMP, GPU, 50.0, now), host={"host.name": node}))
        clock.forward(days=device_watches.KEEP / timedelta(days=1) + 1)
    with engine.connect() as connection:
        assert connection.scalars(sa.text("SELECT node FROM device_watches")).all() == ["new"]


def test_nothing_is_acknowledged_that_is_not_stored(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database fails at the very end: an error, and what is sent again tells all of it."""
    post(client, request((SBE, GPU, 2, nanos(60))))
    second = request((SBE, GPU, 9, nanos(30)))

    def broken(*_arguments: object) -> None:
        raise sa.exc.OperationalError("no", {}, Exception("the disk is full"))

    with monkeypatch.context() as patched:
        patched.setattr("api.intake.samples.note_seen", broken)
        answer = client.post(PATH, content=second.SerializeToString(), headers=PROTOBUF)
        assert answer.status_code >= 500
    assert events(client) == []
    post(client, second)
    assert [event["attributes"]["count"] for event in events(client)] == [7]
    assert datetime.fromisoformat(events(client)[0]["time"]).astimezone(UTC) == NOW - timedelta(seconds=30)

"""A real OpenTelemetry collector between: what it takes in comes here, and what is sent out goes through it."""

import gzip
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from real.foreshock import serve
from real.patience import patience
from real.programs import wait_for
from real.rotel import collector

from schedulers.reconcile.delivery import delivery_of
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook
from store.records.hint import Evidence, Hint

from ..schedulers.http_receiver import receiving
from . import test_otlp as logs
from . import test_otlp_metrics as metrics

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("collector")]


def test_what_a_collector_takes_in_comes_here_as_events(tmp_path: Path) -> None:
    """Logs, metrics and spans, each of what the machine and the program tell."""
    now = time.time_ns()
    spans = ExportTraceServiceRequest()
    of = spans.resource_spans.add()
    of.resource.attributes.extend(logs.pairs(foreshock__run="llm"))
    of.scope_spans.add().spans.add(name="train_step", start_time_unix_nano=now, end_time_unix_nano=now + 10**8)
    points = [(metrics.SBE, metrics.GPU, value, now - back * 10**9) for value, back in ((2, 45), (7, 30), (7, 15))]
    record = LogRecord(body=logs.text(logs.XID), time_unix_nano=now)
    bodies = {
        "logs": logs.request(record, host__name="gpu-017"),
        "metrics": metrics.request(*points),
        "traces": spans,
    }
    with serve(f"sqlite:///{tmp_path}/f.db", tmp_path) as server, collector(tmp_path, f"{server.url}/api") as url:
        for signal, made in bodies.items():
            answer = httpx2.post(
                f"{url}/v1/{signal}", content=made.SerializeToString(), headers=logs.PROTOBUF, timeout=patience(20)
            )
            assert answer.status_code == 200, answer.text

        def found() -> dict[str, Any]:
            return {item["kind"]: item for item in server.get("/api/v1/events?limit=10")["items"]}

        wait_for("all three have come", lambda: {"xid", "ecc_sbe", "iteration"} <= found().keys())
        events = found()
    assert (events["xid"]["node"], events["xid"]["code"]) == ("gpu-017", 79)
    assert (events["ecc_sbe"]["node"], events["ecc_sbe"]["device"]["index"]) == ("gpu-017", 3)
    assert events["iteration"]["attributes"]["run"] == "llm"


def test_a_hint_goes_out_through_a_collector(tmp_path: Path) -> None:
    """It takes our JSON, and what it passes on is the same record in protobuf."""
    now = datetime.now(UTC)
    hint = Hint("h1", "gpu-017", "cordon", "approved", "fell off the bus", "foreshock", now, now, Evidence(score=0.31))
    with receiving() as behind, collector(tmp_path, behind.url.removesuffix("/hook")) as url:
        settings = WebhookSettings("otel", f"{url}/v1/logs", "", timeout_s=patience(5.0), format="otlp")
        outcome = Webhook(settings).send(delivery_of(hint, "cordon", "otel", "act", now), now)
        assert outcome.result == "delivered", outcome.detail
        wait_for("the collector has passed it on", lambda: bool(behind.got))
    headers, body = behind.got[0]
    assert behind.paths[0] == "/v1/logs"
    sent = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
    (resource,) = ExportLogsServiceRequest.FromString(sent).resource_logs
    (record,) = resource.scope_logs[0].log_records
    found = {one.key: one.value for one in (*resource.resource.attributes, *record.attributes)}
    assert found["host.name"].string_value == "gpu-017"
    assert found["foreshock.hint.risk"].double_value == 0.31
    assert record.severity_text == "WARN"

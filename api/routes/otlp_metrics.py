"""`POST /metrics` below the prefix: OpenTelemetry's metrics as OTLP/HTTP exporters post them."""

from typing import Any

from fastapi import APIRouter, Request, Response

from api.edge.auth import Ingester
from api.edge.body import Body
from api.edge.openapi import PREFIX, answer
from api.intake.entries import Rejected
from api.intake.otlp import PROTOBUF, is_protobuf
from api.intake.otlp_metrics import metric_points, metrics_answer
from api.intake.samples import own_samples, take_samples
from api.server.state import Server
from wire.events import MetricsResultJson

router = APIRouter(prefix=PREFIX, tags=["telemetry"])

_POINT = {
    "timeUnixNano": "1740801906000000000",
    "asDouble": 61,
    "attributes": [{"key": "gpu", "value": {"stringValue": "3"}}],
}
_EXAMPLE = {
    "resourceMetrics": [
        {
            "resource": {"attributes": [{"key": "host.name", "value": {"stringValue": "gpu-017"}}]},
            "scopeMetrics": [{"metrics": [{"name": "DCGM_FI_DEV_GPU_TEMP", "gauge": {"dataPoints": [_POINT]}}]}],
        }
    ]
}
_BODY: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "description": "An ExportMetricsServiceRequest of OTLP, in protobuf or JSON.",
        "content": {
            "application/json": {"schema": {"type": "object"}, "example": _EXAMPLE},
            PROTOBUF: {"schema": {"type": "string", "format": "binary"}},
        },
    }
}


@router.post(
    "/metrics",
    operation_id="post_metrics",
    summary="Take metrics of nodes and their devices",
    responses=answer(MetricsResultJson),
    openapi_extra=_BODY,
)
def post_metrics(caller: Ingester, server: Server, request: Request, body: Body) -> Response:
    """Take samples as a sidecar takes those of a page that it scrapes; the answer is OTLP's.

    Metrics that no table knows are passed over; counters are cumulative sums, or gauges.
    """
    in_protobuf, rejected = is_protobuf(request), list[Rejected]()
    samples = own_samples(caller, metric_points(body, in_protobuf), server.clock(), rejected)
    take_samples(server, samples, rejected)
    return metrics_answer(rejected, in_protobuf)

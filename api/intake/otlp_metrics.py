"""OTLP's metrics, protobuf or JSON, taken apart point by point: one that is broken leaves the others alone.

    ExportMetricsServiceRequest -> MetricPoint(number=17, metric="hw.errors", labels={...}, value=4.0, time=...)

Gauges and cumulative sums of metrics that our tables know; others, histograms among them, are passed over.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import count
from typing import Any

import orjson
from fastapi import Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsPartialSuccess,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import KeyValue
from opentelemetry.proto.metrics.v1.metrics_pb2 import AggregationTemporality, DataPointFlags, NumberDataPoint
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from api.answers.reply import reply
from api.edge.problem import Problem
from api.edge.work_budget import check_containers
from api.intake.entries import Rejected
from api.intake.otlp import VARINT, Fields, fields_of, first_detail, items_of, message_of, parts_of, protobuf_answer
from parsers.otlp_points import MAX_ATTRIBUTES, clean_labels, exporter_of
from store.records.event import RecordError, from_us

# Of a resource: an agent with every detector on sets some forty.
MOST_OF_RESOURCE = 256
# A metric's name, gauge and sum; the points of either; a sum's temporality.
_NAME, _GAUGE, _SUM, _POINTS, _TEMPORALITY = 1, 5, 7, 1, 2
_CUMULATIVE = AggregationTemporality.AGGREGATION_TEMPORALITY_CUMULATIVE
_CUMULATIVE_BYTE = bytes([_CUMULATIVE])
_CUMULATIVE_WORDS = ("AGGREGATION_TEMPORALITY_CUMULATIVE", _CUMULATIVE)
_DELTA = (
    "{} is no cumulative sum: set OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE=cumulative in what sends it, or "
    "put the processor deltatocumulative into the collector's pipeline"
)


@dataclass(frozen=True, slots=True)
class MetricPoint:
    """One data point, with its place in the request; `error` says why it is none.

    Attributes:
        above: the attributes of its resource. labels: its own.
        value: None where nobody measured one. time: None where it bears none.
    """

    number: int
    metric: str
    above: Mapping[str, str]
    labels: Mapping[str, str]
    value: float | None = None
    time: datetime | None = None
    error: str | None = None


def metric_points(body: bytes, in_protobuf: bool) -> Iterator[MetricPoint]:
    """The points of a request of metrics that our tables know.

    Raises:
        Problem: 400, it is broken; 413, it has too many parts.
    """
    numbers = count(1)
    found = _of_protobuf(body) if in_protobuf else _of_json(body)
    for metric, above, made in found:
        number = next(numbers)
        try:
            yield _point(number, metric, above, made)
        except (RecordError, DecodeError, ParseError, AttributeError, TypeError, ValueError, RecursionError) as error:
            yield MetricPoint(number, metric, {}, {}, error=f"{metric}: {error}")


def metrics_answer(rejected: list[Rejected], in_protobuf: bool) -> Response:
    """OTLP's answer: how many points were left out, and why the first was."""
    partial = ExportMetricsPartialSuccess(rejected_data_points=len(rejected), error_message=first_detail(rejected))
    message = ExportMetricsServiceResponse(partial_success=partial)
    return protobuf_answer(message) if in_protobuf else reply(MessageToDict(message))


# A metric's name, the attributes of its resource, and one point of it: as bytes, as JSON, or a sentence why not.
_Found = Iterator[tuple[str, Mapping[str, str], Any]]


def _of_protobuf(body: bytes) -> _Found:
    steps = count()
    last: bytes | None = None
    above: Mapping[str, str] = {}
    wrong: str | None = None
    for resource, metric in parts_of(body, steps):
        name = next(fields_of(metric, _NAME, steps), b"").decode("utf-8", errors="replace")
        if exporter_of(name) is None:
            continue
        if resource is not last:
            last, wrong = resource, None
            try:
                above = _labels(message_of(Resource, resource).attributes, MOST_OF_RESOURCE)
            except (DecodeError, RecordError) as error:
                above, wrong = {}, f"its resource: {error}"
        for kind in (_GAUGE, _SUM):
            for data in fields_of(metric, kind, steps):
                is_delta = kind == _SUM and next(fields_of(data, _TEMPORALITY, steps, VARINT), b"") != _CUMULATIVE_BYTE
                refused = wrong or (_DELTA.format(name) if is_delta else None)
                for point in fields_of(data, _POINTS, steps):
                    yield name, above, refused or point


def _of_json(body: bytes) -> _Found:
    check_containers(body)
    try:
        request = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise Problem(
            400, f"the body is no JSON: {error}; protobuf has Content-Type: application/x-protobuf"
        ) from error
    if not isinstance(request, dict):
        raise Problem(400, "the body is no ExportMetricsServiceRequest of OTLP: give an object with resourceMetrics")
    for resource in items_of(request, "resourceMetrics"):
        above, wrong = _json_resource(resource)
        for scope in items_of(resource, "scopeMetrics"):
            for metric in items_of(scope, "metrics"):
                yield from _of_json_metric(metric, above, wrong)


def _of_json_metric(metric: Any, above: Mapping[str, str], wrong: str | None) -> _Found:
    name = metric.get("name") if isinstance(metric, dict) else None
    if not isinstance(name, str) or exporter_of(name) is None:
        return
    for kind in ("gauge", "sum"):
        data = metric.get(kind)
        said = data.get("aggregationTemporality") if kind == "sum" and isinstance(data, dict) else _CUMULATIVE
        refused = wrong or (None if said in _CUMULATIVE_WORDS else _DELTA.format(name))
        for point in items_of(data, "dataPoints"):
            yield name, above, refused or (point if isinstance(point, dict) else "it is no object")


def _json_resource(resource: Any) -> tuple[Mapping[str, str], str | None]:
    described = resource.get("resource") if isinstance(resource, dict) else None
    try:
        made = ParseDict(described or {}, Resource(), ignore_unknown_fields=True)
        return _labels(made.attributes, MOST_OF_RESOURCE), None
    except (ParseError, RecordError, AttributeError, TypeError, ValueError, RecursionError) as error:
        return {}, f"its resource: {error}"


def _point(number: int, metric: str, above: Mapping[str, str], made: bytes | Fields | str) -> MetricPoint:
    """A point of its bytes or its JSON.

    Raises:
        RecordError: it was refused, or has too many attributes.
        DecodeError: its bytes are broken.
        ParseError, AttributeError, TypeError, ValueError, RecursionError: its JSON is.
    """
    if isinstance(made, str):
        raise RecordError(made)
    if isinstance(made, bytes):
        point = message_of(NumberDataPoint, made)
    else:
        own = {key: value for key, value in made.items() if key != "exemplars"}  # their ids are hexadecimal there
        point = ParseDict(own, NumberDataPoint(), ignore_unknown_fields=True)
    labels = _labels(point.attributes, MAX_ATTRIBUTES)
    kind = point.WhichOneof("value")
    blank = point.flags & DataPointFlags.DATA_POINT_FLAGS_NO_RECORDED_VALUE_MASK
    value = None if blank or kind is None else float(getattr(point, kind))
    nanos = point.time_unix_nano
    time = from_us(nanos // 1000) if nanos else None
    return MetricPoint(number, metric, above, labels, value, time)


def _labels(pairs: Any, most: int) -> dict[str, str]:
    """Attributes as labels: none of a list or a map, which tell no device apart.

    Raises:
        RecordError: there are too many.
    """
    if len(pairs) > most:
        raise RecordError(f"it has {len(pairs)} attributes, {most} are the most")
    return clean_labels([(pair.key, _scalar(pair)) for pair in pairs])


def _scalar(pair: KeyValue) -> object:
    kind = pair.value.WhichOneof("value")
    return getattr(pair.value, kind) if kind in ("string_value", "bool_value", "int_value", "double_value") else None

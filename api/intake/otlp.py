"""OTLP/HTTP requests, protobuf or JSON, taken apart record by record.

    ExportLogsServiceRequest -> records as log shippers wrap them: {"message": "NVRM: Xid ...", "host": "gpu-017", ...}
    ExportTraceServiceRequest -> the same in OTLP's JSON, which the `otel` format reads
    ExportMetricsServiceRequest -> points (`api/intake/otlp_metrics.py`)

Field numbers and JSON names are those of opentelemetry-proto 1.x. A request in protobuf is walked, not parsed at once:
two bytes may be an empty record, and 32 MB of them would fill gigabytes.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import count
from typing import Any, TypeAlias, TypeVar

import orjson
from fastapi import Request, Response
from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import DecodeError, Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsPartialSuccess, ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTracePartialSuccess,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from api.answers.reply import reply
from api.edge.problem import Problem
from api.edge.work_budget import MOST_CONTAINERS, limited, too_many_records
from api.intake.entries import OWN_LINES, TEXT_KEYS, BodyEntry, IntakeResult, Rejected, without_nul

PROTOBUF = "application/x-protobuf"
# Of one record or resource: a kernel line has 1 KB, journald's map of it 3 KB.
MOST_BYTES = 256 * 1024

Fields: TypeAlias = Mapping[str, Any]
M = TypeVar("M", bound=Message)

_BROKEN = "the body is no OTLP message in protobuf: {}; send Content-Type: application/json for JSON"
# A request's resources, a resource's scopes, a scope's records; a resource's description. Of all signals.
_REQUEST_RESOURCE, _RESOURCE, _SCOPES, _RECORDS = 1, 1, 2, 2
VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
# Semantic conventions, what the k8sattributes processor and the filelog receiver's container parser set.
_CONTAINER = ("k8s.pod.name", "k8s.pod.uid", "k8s.container.name", "container.id", "container.name", "log.iostream")
_HOSTS = ("hostname", "k8s.node.name", "host.name", "host")
# The syslog receiver's names of what other shippers call otherwise.
_SYSLOG = {"appname": "app-name", "facility": "facility", "priority": "pri"}
# Ids are hexadecimal in OTLP's JSON and base64 in protobuf's; nobody asks for them here.
_IDS = ("traceId", "spanId")


def is_protobuf(request: Request) -> bool:
    """Whether a request's body is in protobuf, as its Content-Type says."""
    return "protobuf" in request.headers.get("content-type", "")


def logs_answer(taken: IntakeResult, rejected: Sequence[Rejected], in_protobuf: bool) -> Response:
    """OTLP's answer to log records: how many were left out and why the first was; in JSON the batch's result, too."""
    partial = ExportLogsPartialSuccess(rejected_log_records=len(rejected), error_message=first_detail(rejected))
    message = ExportLogsServiceResponse(partial_success=partial)
    if in_protobuf:
        return protobuf_answer(message)
    return reply({**dataclasses.asdict(taken), **MessageToDict(message)})


def spans_answer(rejected: Sequence[Rejected], in_protobuf: bool) -> Response:
    """The same to spans."""
    partial = ExportTracePartialSuccess(rejected_spans=len(rejected), error_message=first_detail(rejected))
    message = ExportTraceServiceResponse(partial_success=partial)
    return protobuf_answer(message) if in_protobuf else reply(MessageToDict(message))


def first_detail(rejected: Sequence[Rejected]) -> str:
    return rejected[0].detail if rejected else ""


def protobuf_answer(message: Message) -> Response:
    return Response(message.SerializeToString(), media_type=PROTOBUF)


def log_entries(body: bytes) -> Iterator[BodyEntry]:
    """The records of an ExportLogsServiceRequest in protobuf, as log shippers wrap them.

    Raises:
        Problem: 400, it is broken; 413, it has too many records.
    """
    last: bytes | None = None
    above: Fields = {}
    for number, (resource, record) in enumerate(parts_of(body), start=1):
        try:
            if resource is not last:
                last, above = resource, attributes_of(message_of(Resource, resource).attributes)
            yield _entry(number, message_of(LogRecord, record), above)
        except DecodeError as error:
            yield BodyEntry(number, error=f"no log record of OTLP: {error}")


def json_log_entries(request: Fields) -> Iterator[BodyEntry]:
    """The same of a request in JSON."""
    numbers = count(1)
    for resource in items_of(request, "resourceLogs"):
        described = resource.get("resource") if isinstance(resource, dict) else None
        try:
            above = attributes_of(ParseDict(described or {}, Resource(), ignore_unknown_fields=True).attributes)
        except (ParseError, AttributeError, TypeError, RecursionError) as error:
            yield BodyEntry(next(numbers), error=f"no resource of OTLP: {error}")
            continue
        for log in (log for scope in items_of(resource, "scopeLogs") for log in items_of(scope, "logRecords")):
            number = next(numbers)
            try:
                own = {key: value for key, value in log.items() if key not in _IDS} if isinstance(log, dict) else log
                yield _entry(number, ParseDict(own, LogRecord(), ignore_unknown_fields=True), above)
            except (ParseError, AttributeError, TypeError, RecursionError) as error:
                yield BodyEntry(number, error=f"no log record of OTLP: {error}")


def spans_as_json(body: bytes, rejects: list[Rejected]) -> bytes:
    """An ExportTraceServiceRequest in OTLP's JSON, its ids in base64; spans that cannot be read are in `rejects`.

    Raises:
        Problem: 400, it is broken; 413, it has too many spans, or takes too much work; 503, nobody waits for it.
    """
    found: dict[bytes, list[dict[str, Any]]] = {}
    for number, (resource, record) in enumerate(limited(parts_of(body)), start=1):
        try:
            found.setdefault(resource, []).append(MessageToDict(message_of(Span, record)))
        except DecodeError as error:
            rejects.append(Rejected(number, f"no span of OTLP: {error}"))
    described = [(_described(resource, rejects), spans) for resource, spans in found.items()]
    return orjson.dumps(
        {"resourceSpans": [{"resource": of, "scopeSpans": [{"spans": spans}]} for of, spans in described]}
    )


def _described(resource: bytes, rejects: list[Rejected]) -> dict[str, Any]:
    try:
        return dict(MessageToDict(message_of(Resource, resource)))
    except DecodeError as error:
        rejects.append(Rejected(0, f"no resource of OTLP: {error}"))
        return {}


def message_of(kind: type[M], data: bytes) -> M:
    """A message of a bounded size.

    Raises:
        DecodeError: it is none, or too large.
    """
    if len(data) > MOST_BYTES:
        raise DecodeError(f"it has {len(data)} bytes, {MOST_BYTES} are the most")
    return kind.FromString(data)


def parts_of(body: bytes, steps: Iterator[int] | None = None) -> Iterator[tuple[bytes, bytes]]:
    """The resource and the bytes of each record of a request in protobuf. `steps` counts what was passed.

    Raises:
        Problem: 400, it is broken; 413, it has too many parts.
    """
    steps = count() if steps is None else steps
    for part in fields_of(body, _REQUEST_RESOURCE, steps):
        resource = next(fields_of(part, _RESOURCE, steps), b"")
        for scope in fields_of(part, _SCOPES, steps):
            for record in fields_of(scope, _RECORDS, steps):
                yield resource, record


def fields_of(data: bytes, wanted: int, steps: Iterator[int], kind: int = _LENGTH) -> Iterator[bytes]:
    """The fields of one number in a message that hold bytes, in their order; others are passed over.

    Args:
        kind: VARINT for those that hold a whole number, as its bytes.

    Raises:
        Problem: 400, the message is broken; 413, the request has taken too many steps.
    """
    place, sought = 0, wanted << 3 | kind
    while place < len(data):
        if next(steps) > MOST_CONTAINERS:
            raise too_many_records()
        key, place = _varint(data, place)
        if key & 7 == _LENGTH:
            length, place = _varint(data, place)
            if length > len(data) - place:
                raise Problem(400, _BROKEN.format("it is cut short"))
            if key == sought:
                yield data[place : place + length]
            place += length
        elif key & 7 == VARINT:
            begin, (_, place) = place, _varint(data, place)
            if key == sought:
                yield data[begin:place]
        elif key & 7 in (_FIXED64, _FIXED32):
            place += 8 if key & 7 == _FIXED64 else 4
        else:
            raise Problem(400, _BROKEN.format(f"wire type {key & 7}"))
    if place > len(data):
        raise Problem(400, _BROKEN.format("it is cut short"))


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = 0
    for step, byte in enumerate(data[place : place + 10]):
        value |= (byte & 127) << (7 * step)
        if byte < 128:
            return value, place + step + 1
    raise Problem(400, _BROKEN.format("a number is cut short"))


def _entry(number: int, log: LogRecord, above: Fields) -> BodyEntry:
    """A log record as other shippers wrap it: text, host, time, and what is told of its writer.

    Args:
        above: the attributes of its resource.
    """
    body, own = _value(log.body), attributes_of(log.attributes)
    value: dict[str, Any] = {}
    if isinstance(body, dict) and not body.keys() & OWN_LINES and any(key in body for key in TEXT_KEYS):
        value |= body  # a record of journald or of another shipper
    else:
        value["message"] = body if isinstance(body, str) else orjson.dumps(body).decode()
    if any(key in own or key in above for key in _CONTAINER):
        # What a program prints may be a map, and name any host: the collector alone says where it runs.
        text = next(value[key] for key in TEXT_KEYS if key in value)
        value, own = {"message": text, "kubernetes": True}, {}
    host = next((found for fields in (own, above) for key in _HOSTS if (found := fields.get(key))), None)
    if isinstance(host, str):
        value.setdefault("host", host)
    if nanos := log.time_unix_nano or log.observed_time_unix_nano:
        value.setdefault("__REALTIME_TIMESTAMP", str(nanos // 1000))
    for key, known in _SYSLOG.items():
        if key in own:
            value.setdefault(known, own[key])
    return BodyEntry(number, without_nul(value))


def attributes_of(pairs: Iterable[KeyValue]) -> dict[str, Any]:
    return {pair.key: _value(pair.value) for pair in pairs}


def _value(value: AnyValue) -> Any:
    kind = value.WhichOneof("value")
    if kind is None:
        return None
    if kind == "array_value":
        return [_value(item) for item in value.array_value.values]
    if kind == "kvlist_value":
        return attributes_of(value.kvlist_value.values)
    if kind == "bytes_value":
        return value.bytes_value.decode("utf-8", errors="replace")
    return getattr(value, kind)


def items_of(of: Any, key: str) -> list[Any]:
    value = of.get(key) if isinstance(of, dict) else None
    return value if isinstance(value, list) else []

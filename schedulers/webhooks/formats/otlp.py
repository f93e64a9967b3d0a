"""`format: otlp`: a hint or a verdict as a log record, for an OpenTelemetry collector and whatever it feeds.

    url: http://collector:4318/v1/logs

One ExportLogsServiceRequest in OTLP's JSON a message. The node is the resource's `host.name`; what else there is to
know are attributes of the record. A secret, where there is one, is the bearer token. Source: opentelemetry-proto 1.5,
the OTLP 1.5 specification (OTLP/HTTP, JSON encoding), semantic conventions of `host` and `service`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import orjson

from schedulers.webhooks.format import AnswerFailure, MessageFormat, any_secret, title
from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery
from store.records.event import format_time, parse_time, to_us
from store.records.hint import evidence_of
from store.visible_text import visible_json

# SeverityNumber of opentelemetry-proto, and its usual name.
_INFO, _WARN, _ERROR = (9, "INFO"), (13, "WARN"), (17, "ERROR")
_LOUD = ("cordon", "drain", "requeue", "swap")
_OF_VERDICT = ("class", "name", "cause", "action", "probability", "nodes_count", "gpu_hours_at_stake")
_SCOPE = {"name": "foreshock"}


def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """One record; the newest secret counts."""
    data = delivery.payload["data"]
    number, text = _severity(data)
    record = {
        "timeUnixNano": _nanos(parse_time(delivery.payload["timestamp"])),
        "observedTimeUnixNano": _nanos(now),
        "severityNumber": number,
        "severityText": text,
        "eventName": delivery.payload["type"],
        "body": {"stringValue": " ".join(f"{title(data)}: {data.get('reason', '')}".split())},  # no second log line
        "attributes": _attributes(_facts(delivery.id, data)),
    }
    host = data["verdict"]["node"] if "verdict" in data else data["node"]  # a switch is no host
    resource = {"service.name": "foreshock", "host.name": host}
    logs = {"scope": _SCOPE, "logRecords": [record]}
    request = {"resourceLogs": [{"resource": {"attributes": _attributes(resource)}, "scopeLogs": [logs]}]}
    headers = {"authorization": f"Bearer {secrets[-1]}"} if secrets else {}
    return WebhookMessage(visible_json(orjson.dumps(request)), headers=headers)


def _severity(data: Mapping[str, Any]) -> tuple[int, str]:
    if data["action"] == "verdict":
        return _ERROR if data["verdict"]["jobs"] else _WARN
    return _WARN if data["action"] in _LOUD else _INFO


def _facts(message: str, data: Mapping[str, Any]) -> dict[str, Any]:
    """What there is to know of it; what is not known is left out."""
    found: dict[str, Any] = {"foreshock.message.id": message, "foreshock.id": data["id"]}
    found |= {f"foreshock.{name}": data.get(name) for name in ("state", "mode", "job", "policy", "valid_until")}
    if "verdict" in data:
        verdict = data["verdict"]
        return found | {f"foreshock.verdict.{name}": verdict[name] for name in _OF_VERDICT}
    evidence = evidence_of(data.get("evidence") or {})
    scored = None if evidence.scored is None else format_time(evidence.scored)
    more = {"action": data["action"], "risk": evidence.score, "risk_time": scored, "incident": evidence.incident}
    return found | {f"foreshock.hint.{name}": value for name, value in more.items()}


def _attributes(values: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [{"key": name, "value": _value(value)} for name, value in values.items() if value is not None]


def _value(value: Any) -> dict[str, Any]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}
    return {"doubleValue": value} if isinstance(value, float) else {"stringValue": str(value)}


def _nanos(moment: datetime) -> str:
    """64 bits are text in OTLP's JSON."""
    return str(to_us(moment) * 1000)


def failure(body: bytes) -> AnswerFailure | None:
    """A collector that leaves the record out says so behind 200."""
    try:
        said = orjson.loads(body)
        partial = said["partialSuccess"]
        rejected = int(partial.get("rejectedLogRecords", 0))
        text = str(partial.get("errorMessage", ""))
    except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
        return None
    return AnswerFailure(f"OTLP: the record was rejected: {text}"[:300]) if rejected else None


OTLP = MessageFormat(write, failure, any_secret, needs_secret=False, is_notice=True)

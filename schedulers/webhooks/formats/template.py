"""`format: template`: the operator's own text out of `template_file`, with `$node`, `$action` and the like in it.

    {"target": "$node", "why": "$reason", "severity": "high", "whole": $document}

Values are escaped for the inside of a JSON string; `$document` alone is a whole JSON value: all of the standard format.
It can name the fields below and do nothing else. The message is signed as the standard format is.
"""

import string
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import orjson

from schedulers.webhooks.format import MessageFormat, no_failure
from schedulers.webhooks.post import WebhookMessage
from schedulers.webhooks.signature import key_of, signed_headers
from store.hints.outbox import Delivery
from store.records.event import format_time
from store.records.hint import evidence_of
from store.visible_text import visible_json

FIELDS = (
    *("type", "timestamp", "webhook_id", "id", "node", "action", "state", "mode", "reason"),
    *("owner", "created", "valid_until", "job", "score", "scored", "document", "asks", "ticket", "rma", "close"),
)


class TemplateError(ValueError):
    """A template that cannot be used; the message names file and remedy."""


def template_format(path: Path, content_type: str = "application/json") -> MessageFormat:
    """The format of a template; it is read once and tried out.

    Raises:
        TemplateError: it cannot be read, names an unknown field, or does not come to JSON where that is its type.
    """
    try:
        template = string.Template(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise TemplateError(f"template_file: cannot read {path}: {error}") from error
    unknown = sorted(set(template.get_identifiers()) - set(FIELDS))
    if unknown:
        raise TemplateError(f"{path}: unknown field ${unknown[0]}: use one of {', '.join(FIELDS)}")
    if not template.is_valid():
        raise TemplateError(f"{path}: a $ that begins no field: write $$ for the sign itself")
    if "json" in content_type:
        _try_out(template, path)

    def write(delivery: Delivery, secrets: Sequence[str], now: datetime) -> WebhookMessage:
        body = template.substitute(_values(delivery.id, delivery.payload)).encode()
        headers = signed_headers(secrets, delivery.id, int(now.timestamp()), body) if secrets else {}
        return WebhookMessage(body, content_type, headers)

    return MessageFormat(write, no_failure, key_of, needs_secret=False)


def _values(ident: str, document: Mapping[str, Any]) -> dict[str, str]:
    data = document["data"]
    found = {name: data.get(name) for name in FIELDS}
    found |= {"type": document["type"], "timestamp": document.get("timestamp"), "webhook_id": ident}
    evidence = evidence_of(data.get("evidence") or {})
    found["score"] = evidence.score
    found["scored"] = None if evidence.scored is None else format_time(evidence.scored)
    inside = {name: _inside(value) for name, value in found.items()}
    return inside | {"document": visible_json(orjson.dumps(document)).decode()}


def _inside(value: Any) -> str:
    """A value for the inside of a JSON string; what is not known is empty."""
    return "" if value is None else visible_json(orjson.dumps(str(value))).decode()[1:-1]


def _try_out(template: string.Template, path: Path) -> None:
    sample = {"type": "foreshock.hint.cordon", "timestamp": "now", "data": {"reason": 'a "quoted" \\ reason'}}
    try:
        orjson.loads(template.substitute(_values("id", sample)))
    except orjson.JSONDecodeError as error:
        raise TemplateError(f'{path} does not come to JSON ({error}): values go into quotes: "$node"') from error

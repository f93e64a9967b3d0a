"""`format: alertmanager`: a verdict as an alert of Alertmanager's API v2; it ends with the verdict.

    url: http://alertmanager:9093/api/v2/alerts

The labels are the same over all revisions of a verdict, so that it is one alert: what changes is in the annotations.
An alert that nobody renews ends after `FIRES_FOR`: the server sends each that stands again before that, for an
Alertmanager that was started anew knows of none. Source: Alertmanager's `api/v2/openapi.yaml`.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

import orjson

from schedulers.webhooks.format import MessageFormat, any_secret, no_failure
from schedulers.webhooks.post import WebhookMessage
from store.hints.outbox import Delivery
from store.records.event import format_time, parse_time
from store.visible_text import visible_json

FIRES_FOR = timedelta(hours=1)
_NAME = "ForeshockVerdict"
_MOST = 1024


def write(delivery: Delivery, _secrets: Sequence[str], now: datetime) -> WebhookMessage:
    """One alert, firing or resolved."""
    data = delivery.payload["data"]
    verdict = data["verdict"]
    ended = data["action"] == "release"
    labels = {
        "alertname": _NAME,
        "verdict": data["id"],
        "class": verdict["class"],
        "name": verdict["name"],
        "cause": verdict["cause"],
        "severity": "critical" if verdict["jobs"] else "warning",
    }
    if verdict["node"]:
        labels["node"] = verdict["node"]
    annotations = {
        "summary": _summary(verdict)[:_MOST],
        "probability": f"{verdict['probability']:.2f}",
        "action": verdict["action"],
        "nodes": str(verdict["nodes_count"]),
        "jobs": ", ".join(verdict["jobs"])[:_MOST],
        "gpu_hours_at_stake": f"{verdict['gpu_hours_at_stake']:.1f}",
        "what": str(verdict["what"])[:_MOST],
    }
    since = min(parse_time(verdict["since"]), now)
    alert = {
        "labels": {name: text[:_MOST] for name, text in labels.items()},
        "annotations": annotations,
        "startsAt": format_time(since),
        "endsAt": format_time(now if ended else now + FIRES_FOR),
    }
    return WebhookMessage(visible_json(orjson.dumps([alert])))


def _summary(verdict: Mapping[str, Any]) -> str:
    """The reason, with what is to blame before it where it does not name that itself."""
    blamed, reason = f"{verdict['class']} {verdict['name']}", str(verdict["reason"])
    return reason if blamed in reason else f"{blamed}: {reason}"


ALERTMANAGER = MessageFormat(write, no_failure, any_secret, needs_secret=False, is_notice=True, of_verdicts=True)

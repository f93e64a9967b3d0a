"""One receiver of hints over HTTP: what is written for it, where it goes, and what its answer means.

Addresses come from the operator's file alone, and still each is looked at before it is connected to
(`address_guard.py`); redirects are not followed.
"""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import quote, urlsplit

from schedulers.reconcile.delivery import TICKET, DeliveryOutcome, action_of
from schedulers.webhooks.format import AnswerFailure, MessageFormat
from schedulers.webhooks.formats.alertmanager import ALERTMANAGER
from schedulers.webhooks.formats.cloudevents import CLOUDEVENTS
from schedulers.webhooks.formats.dingtalk import DINGTALK
from schedulers.webhooks.formats.feishu import FEISHU
from schedulers.webhooks.formats.otlp import OTLP
from schedulers.webhooks.formats.pagerduty import PAGERDUTY
from schedulers.webhooks.formats.slack import SLACK
from schedulers.webhooks.formats.standard import STANDARD
from schedulers.webhooks.formats.template import template_format
from schedulers.webhooks.post import (
    AddressGuard,
    AddressRefusedError,
    NoAnswerError,
    ReceiverRoute,
    is_literal,
    networks,
    post,
)
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.signature import SecretError, SecretSource
from store.hints.outbox import Delivery

# The formats that a receiver's `format` may name: one file and one line each. `template` is made from its file.
FORMATS: Mapping[str, MessageFormat | Callable[[Path, str], MessageFormat]] = {
    "standard": STANDARD,
    "cloudevents": CLOUDEVENTS,
    "pagerduty": PAGERDUTY,
    "slack": SLACK,
    "feishu": FEISHU,
    "dingtalk": DINGTALK,
    "alertmanager": ALERTMANAGER,
    "otlp": OTLP,
    "template": template_format,
}


_MAX_RETRY_AFTER_S = 24 * 3600.0
# The receiver has too much to do; what else it is owed waits as well (Standard Webhooks 1.0.0: 429, 502, 504).
_SLOW_DOWN = (429, 502, 503, 504)


class Webhook:
    """One receiver.

    Raises:
        ValueError: settings that cannot work (a secret, a network, a template); the message says what to write.
    """

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings
        self._format = format_of(settings)
        files = tuple(Path(name) for name in settings.secret_files)
        given = (*((settings.secret,) if settings.secret else ()), *settings.secrets)
        for secret in given:
            self._format.check_secret(secret)
        self._secrets = SecretSource(given, files, self._format.check_secret)
        if not self._secrets.read() and self._format.needs_secret:
            self._format.check_secret("")
        self._way = _way_of(settings)

    @property
    def name(self) -> str:
        """As configured."""
        return self._settings.name

    @property
    def address(self) -> str:
        """The URL; of one that holds a token, so much as tells it from others."""
        parts = urlsplit(self._settings.url)
        if not self._format.is_notice and not parts.query and "@" not in parts.netloc:
            return self._settings.url
        digest = hashlib.sha256(self._settings.url.encode()).hexdigest()[:12]
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}/ ({digest})"

    @property
    def send_shadow(self) -> bool:
        """Whether shadow hints go to it, too."""
        return self._settings.send_shadow

    @property
    def is_notice(self) -> bool:
        """Whether people read it: that it was delivered does not make a hint `sent`."""
        return self._format.is_notice

    def wants(self, action: str, state: str) -> bool:
        """Whether it is to be told of hints of an action while they are in a state."""
        if self._format.of_verdicts:
            return False
        actions = self._settings.actions or self._format.actions
        if actions and action not in actions:
            return False
        return self.send_shadow if state == "shadow" else state in (self._settings.states or ("approved",))

    def _linked(self, delivery: Delivery) -> Delivery:
        """A ticket with its links: to the node's evidence, and to where its closing is told."""
        if not self._settings.server or action_of(delivery) != TICKET:
            return delivery
        data, base = delivery.payload["data"], f"{self._settings.server.rstrip('/')}/api/v1"
        links = {
            "rma": f"{base}/nodes/{quote(data['node'], safe='')}/rma",
            "close": f"{base}/tickets/{quote(data['ticket'], safe='')}/close",
        }
        return replace(delivery, payload={**delivery.payload, "data": {**data, **links}})

    def send(self, delivery: Delivery, now: datetime) -> DeliveryOutcome:
        """POST one delivery, signed as of now."""
        try:
            message = self._format.write(self._linked(delivery), self._secrets.read(), now)
            answer = post(self._way, message)
        except SecretError as error:
            return DeliveryOutcome("retry", str(error)[:300])
        except AddressRefusedError as error:
            return DeliveryOutcome("retry", str(error)[:300], slow=True)
        except NoAnswerError as error:
            return DeliveryOutcome("retry", str(error), slow=True)
        found = self._format.failure(answer.body) if 200 <= answer.status < 300 else None
        return judge(answer.status, answer.retry_after, now, found)


def judge(status: int, retry_after: str | None, now: datetime, failure: AnswerFailure | None = None) -> DeliveryOutcome:
    """What an answer means: 2xx is done, 410 is gone, the rest is tried again."""
    if 200 <= status < 300:
        if failure is not None:
            return DeliveryOutcome("retry", failure.detail, _seconds(retry_after, now), status, failure.slow)
        return DeliveryOutcome("delivered", f"HTTP {status}", status=status)
    if status == 410:
        return DeliveryOutcome("gone", "HTTP 410", status=status)
    return DeliveryOutcome("retry", f"HTTP {status}", _seconds(retry_after, now), status, status in _SLOW_DOWN)


def takes_verdicts(settings: WebhookSettings) -> bool:
    """Whether a receiver is told of verdicts."""
    return settings.verdicts or settings.format == "alertmanager"


def format_of(settings: WebhookSettings) -> MessageFormat:
    """The format that the settings name.

    Raises:
        TemplateError: the template cannot be used.
    """
    found = FORMATS[settings.format]
    return found if isinstance(found, MessageFormat) else found(Path(settings.template_file), settings.content_type)


def _way_of(settings: WebhookSettings) -> ReceiverRoute:
    parts = urlsplit(settings.url)
    guard = AddressGuard(networks(settings.allow), is_literal(parts.hostname or ""), parts.scheme == "https")
    return ReceiverRoute(settings.url, guard, settings.timeout_s, settings.proxy)


def _seconds(retry_after: str | None, now: datetime) -> float:
    """Retry-After, in seconds or as a date; 0 where there is none or it makes no sense."""
    if not retry_after:
        return 0.0
    if retry_after.isascii() and retry_after.isdigit():
        return min(float(retry_after[:9]), _MAX_RETRY_AFTER_S)
    try:
        moment = parsedate_to_datetime(retry_after)
    except ValueError:
        return 0.0
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return min(max((moment - now).total_seconds(), 0.0), _MAX_RETRY_AFTER_S)

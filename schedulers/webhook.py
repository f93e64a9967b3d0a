"""Hints by webhook, signed as Standard Webhooks 1.0.0 lays down.

    webhook-id: 3f2a0c5a9b8e4d1f.cordon.1740830400.ops
    webhook-timestamp: 1740830401
    webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=

    {"type": "foreshock.hint.cordon", "timestamp": "...", "data": {"id": "...", "node": "gpu-017", ...}}

The receiver drops repeats of a webhook-id. Addresses come from the operator's file alone; redirects are not followed.
"""

import base64
import hashlib
import hmac
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

import httpx2
import orjson

from schedulers.scheduler import Outcome
from schedulers.settings import WebhookSettings
from store.outbox import Delivery

_PREFIX = "whsec_"
_MAX_RETRY_AFTER_S = 24 * 3600.0


class SecretError(ValueError):
    """A webhook secret that cannot be used; the message says what one looks like."""


def sign(secret: str, ident: str, timestamp_s: int, body: bytes) -> str:
    """The signature header of a message: `v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`.

    Raises:
        SecretError: the secret is malformed.
    """
    signed = f"{ident}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def key_of(secret: str) -> bytes:
    """The key of a secret.

    Raises:
        SecretError: it is not `whsec_` and base64 of 24 to 64 bytes.
    """
    try:
        key = base64.b64decode(secret.removeprefix(_PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(_PREFIX) or not 24 <= len(key) <= 64:
        raise SecretError(f"a webhook secret is {_PREFIX} and base64 of 24 to 64 bytes: make one with openssl rand")
    return key


class Webhook:
    """One receiver."""

    def __init__(self, settings: WebhookSettings) -> None:
        key_of(settings.secret)
        self._settings = settings

    @property
    def name(self) -> str:
        """As configured."""
        return self._settings.name

    @property
    def address(self) -> str:
        """The URL."""
        return self._settings.url

    @property
    def send_shadow(self) -> bool:
        """Whether shadow hints go to it, too."""
        return self._settings.send_shadow

    def send(self, delivery: Delivery, now: datetime) -> Outcome:
        """POST one delivery, signed as of now."""
        body = orjson.dumps(delivery.payload)
        timestamp_s = int(now.timestamp())
        headers = {
            "content-type": "application/json",
            "user-agent": "foreshock",
            "webhook-id": delivery.id,
            "webhook-timestamp": str(timestamp_s),
            "webhook-signature": sign(self._settings.secret, delivery.id, timestamp_s, body),
        }
        try:
            with httpx2.Client(timeout=self._settings.timeout_s, follow_redirects=False) as client:
                answer = client.post(self._settings.url, content=body, headers=headers)
        except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError) as error:
            return Outcome("retry", f"{type(error).__name__}: {error}"[:300])
        return judge(answer.status_code, answer.headers.get("retry-after"), now)


def judge(status: int, retry_after: str | None, now: datetime) -> Outcome:
    """What an HTTP status means: 2xx is done, 410 is gone, the rest is tried again."""
    if 200 <= status < 300:
        return Outcome("delivered", f"HTTP {status}")
    if status == 410:
        return Outcome("gone", "HTTP 410")
    return Outcome("retry", f"HTTP {status}", _seconds(retry_after, now))


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

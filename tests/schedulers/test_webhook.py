"""The webhook: signed as Standard Webhooks 1.0.0 says, checked here by a receiver of its own."""

import base64
import hashlib
import hmac
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real.patience import patience

from schedulers.registry import SCHEDULERS
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.signature import SecretError, key_of, sign
from schedulers.webhooks.webhook import Webhook, judge
from store.hints.outbox import Delivery

from .cluster import NOW
from .http_receiver import Receiver, receiving

KEY = b"0123456789abcdef0123456789abcdef"
SECRET = "whsec_" + base64.b64encode(KEY).decode()


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    """Listens on a free port of loopback."""
    with receiving() as kept:
        yield kept


def delivery(**payload: object) -> Delivery:
    """One delivery."""
    return Delivery("h1.cordon.1.ops", "h1", "ops", {"type": "foreshock.hint.cordon", "data": payload}, 0, NOW)


def hook(url: str) -> Webhook:
    """The receiver's other end."""
    return Webhook(WebhookSettings("ops", url, SECRET, timeout_s=patience(5.0)))


def test_a_delivery_arrives_signed(receiver: Receiver) -> None:
    """The receiver computes the signature by itself, from the raw body."""
    outcome = hook(receiver.url).send(delivery(node="gpü-1"), NOW)
    assert outcome.result == "delivered"
    ((headers, body),) = receiver.got
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    expected = base64.b64encode(hmac.new(KEY, content, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-id"] == "h1.cordon.1.ops"
    assert headers["webhook-timestamp"] == str(int(NOW.timestamp()))
    assert headers["content-type"] == "application/json"


def test_the_signature_is_that_of_the_specification() -> None:
    """The example of the Standard Webhooks reference libraries' own test suite."""
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    signature = sign(secret, "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert signature == "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


@pytest.mark.parametrize(
    "secret", ["", "whsec_", "whsec_abc", "whsec_" + "A" * 200, SECRET.removeprefix("whsec_"), "ü"]
)
def test_a_secret_that_cannot_be_used_is_refused_at_the_start(secret: str) -> None:
    """Not at the first fault of a night."""
    with pytest.raises(SecretError, match="24 to 64 bytes"):
        Webhook(WebhookSettings("ops", "http://x", secret))
    assert key_of(SECRET) == KEY


@pytest.mark.parametrize(
    ("status", "result"),
    [
        (200, "delivered"),
        (204, "delivered"),
        (301, "retry"),
        (400, "retry"),
        (410, "gone"),
        (429, "retry"),
        (503, "retry"),
    ],
)
def test_the_status_decides(receiver: Receiver, status: int, result: str) -> None:
    """A redirect is not followed: the address is the operator's."""
    receiver.answers.append((status, {"location": receiver.url}, b""))
    assert hook(receiver.url).send(delivery(), NOW).result == result
    assert len(receiver.got) == 1


def test_nobody_there_is_tried_again(receiver: Receiver) -> None:
    """A refused connection, a name that does not resolve."""
    assert hook("http://127.0.0.1:1/").send(delivery(), NOW).result == "retry"
    assert hook("http://no-such-host.invalid/").send(delivery(), NOW).result == "retry"


@pytest.mark.parametrize(
    ("retry_after", "seconds"),
    [
        (None, 0.0),
        ("120", 120.0),
        ("99999999999", 86_400.0),
        ("soon", 0.0),
        ("-5", 0.0),
        (format_datetime(NOW + timedelta(minutes=3), usegmt=True), 180.0),
        (format_datetime(NOW - timedelta(minutes=3), usegmt=True), 0.0),
    ],
)
def test_retry_after_is_honoured(retry_after: str | None, seconds: float) -> None:
    """In seconds or as a date; a day at most."""
    assert judge(503, retry_after, NOW).retry_after_s == seconds


@given(st.text(max_size=60))
def test_no_retry_after_is_a_crash(text: str) -> None:
    """The receiver writes what it likes."""
    assert 0.0 <= judge(503, text, datetime(2025, 3, 1, tzinfo=UTC)).retry_after_s <= 86_400.0


def test_every_kind_has_its_file_and_its_line() -> None:
    """The registry names what the configuration may name."""
    assert set(SCHEDULERS) == {"webhook"}
    made = SCHEDULERS["webhook"](WebhookSettings("a", "http://x", SECRET, send_shadow=True))
    assert (made.name, made.address, made.send_shadow) == ("a", "http://x", True)

"""Secrets: several sign at once, those of files are read anew, a broken file changes nothing."""

import base64
import hashlib
import hmac
from pathlib import Path

import pytest

from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.signature import SecretError, SecretSource, key_of, signed_headers
from schedulers.webhooks.webhook import Webhook
from store.hints.outbox import Delivery

from .cluster import NOW
from .http_receiver import receiving

KEYS = [bytes([letter]) * 32 for letter in b"abc"]
SECRETS = ["whsec_" + base64.b64encode(key).decode() for key in KEYS]
DELIVERY = Delivery("h1.cordon.1.ops", "h1", "ops", {"type": "t", "data": {}}, 0, NOW)


def signature(key: bytes, headers: dict[str, str], body: bytes) -> str:
    """As a receiver computes it."""
    content = f"{headers['webhook-id']}.{headers['webhook-timestamp']}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()


def test_every_secret_signs() -> None:
    """Space-separated, each right for its own key."""
    headers = signed_headers(SECRETS, "id", 1, b"body")
    assert headers["webhook-signature"].split(" ") == [signature(key, headers, b"body") for key in KEYS]


def test_a_secret_is_changed_without_a_restart(tmp_path: Path) -> None:
    """Old alone, both, new alone: at each step a receiver that knows one of them can tell."""
    path = tmp_path / "secrets"
    path.write_text(f"# of the receiver ops\n{SECRETS[0]}\n\n")
    with receiving() as receiver:
        hook = Webhook(WebhookSettings("ops", receiver.url, secret_files=(str(path),)))
        for lines, keys in (([0], [0]), ([0, 1], [0, 1]), ([1], [1])):
            path.write_text("\n".join(SECRETS[i] for i in lines))
            assert hook.send(DELIVERY, NOW).result == "delivered"
            headers, body = receiver.got[-1]
            assert headers["webhook-signature"].split(" ") == [signature(KEYS[i], headers, body) for i in keys]


@pytest.mark.parametrize("broken", ["whsec_short", "half a secr", "\x00"])
def test_a_file_that_breaks_stands_as_it_was(tmp_path: Path, broken: str) -> None:
    """An editor that is half done must not stop the deliveries; nor a file that is gone."""
    path = tmp_path / "secrets"
    path.write_text(SECRETS[0])
    source = SecretSource((SECRETS[1],), (path,), key_of)
    assert source.read() == (SECRETS[1], SECRETS[0])
    path.write_text(broken)
    assert source.read() == (SECRETS[1], SECRETS[0])
    path.unlink()
    assert source.read() == (SECRETS[1], SECRETS[0])
    path.write_text(SECRETS[2])
    assert source.read() == (SECRETS[1], SECRETS[2])
    path.write_text(broken)
    assert source.read() == (SECRETS[1], SECRETS[2])


def test_a_secret_counts_once(tmp_path: Path) -> None:
    """However often it is named."""
    path = tmp_path / "secrets"
    path.write_text(f"{SECRETS[0]}\n{SECRETS[0]}\n")
    assert SecretSource((SECRETS[0],), (path, path), key_of).read() == (SECRETS[0],)


def test_a_file_that_never_was_is_refused_at_the_start(tmp_path: Path) -> None:
    """With its name."""
    with pytest.raises(SecretError, match="nowhere"):
        Webhook(WebhookSettings("ops", "http://x", secret_files=(str(tmp_path / "nowhere"),)))


def test_no_secret_at_all_is_refused_where_one_is_needed() -> None:
    """An unsigned order to a scheduler is none."""
    with pytest.raises(SecretError, match="24 to 64 bytes"):
        Webhook(WebhookSettings("ops", "http://x"))
    assert Webhook(WebhookSettings("chat", "http://x", format="slack")).is_notice

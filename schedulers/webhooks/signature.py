"""Signatures of Standard Webhooks 1.0.0: base64 of HMAC-SHA256 over `id.timestamp.body`, one for each secret.

    webhook-id: 3f2a0c5a9b8e4d1f.cordon.1740830400.ops
    webhook-timestamp: 1740830401
    webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=

While a secret is changed both sign: a receiver takes the message if any of the signatures is right.
"""

import base64
import hashlib
import hmac
from collections.abc import Sequence

PREFIX = "whsec_"


class SecretError(ValueError):
    """A secret that cannot be used; the message says what one looks like."""


def sign(secret: str, ident: str, timestamp_s: int, body: bytes) -> str:
    """One signature: `v1,` and base64 of HMAC-SHA256 over `id.timestamp.body`.

    Raises:
        SecretError: the secret is malformed.
    """
    signed = f"{ident}.{timestamp_s}.".encode() + body
    return "v1," + base64.b64encode(hmac.new(key_of(secret), signed, hashlib.sha256).digest()).decode()


def signed_headers(secrets: Sequence[str], ident: str, timestamp_s: int, body: bytes) -> dict[str, str]:
    """The three headers of a message that every secret signs.

    Raises:
        SecretError: a secret is malformed.
    """
    return {
        "webhook-id": ident,
        "webhook-timestamp": str(timestamp_s),
        "webhook-signature": " ".join(sign(secret, ident, timestamp_s, body) for secret in secrets),
    }


def key_of(secret: str) -> bytes:
    """The key of a secret.

    Raises:
        SecretError: it is not `whsec_` and base64 of 24 to 64 bytes.
    """
    try:
        key = base64.b64decode(secret.removeprefix(PREFIX), validate=True)
    except ValueError:
        key = b""
    if not secret.startswith(PREFIX) or not 24 <= len(key) <= 64:
        raise SecretError(f"a webhook secret is {PREFIX} and base64 of 24 to 64 bytes: make one with openssl rand")
    return key

"""Signatures of Standard Webhooks 1.0.0: base64 of HMAC-SHA256 over `id.timestamp.body`, one for each secret.

    webhook-id: 3f2a0c5a9b8e4d1f.cordon.1740830400.ops
    webhook-timestamp: 1740830401
    webhook-signature: v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4= v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=

Secret files are read again for every message, so a secret changes without a restart: add the new one as a second line,
give it to the receiver, then delete the old line. Meanwhile both sign, and the receiver accepts either.
"""

import base64
import hashlib
import hmac
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

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
        example = f'echo "{PREFIX}$(openssl rand -base64 32)"'
        raise SecretError(f"a webhook secret is {PREFIX} and base64 of 24 to 64 bytes: {example} makes one")
    return key


_log = logging.getLogger(__name__)


@dataclass(slots=True)
class SecretSource:
    """Where secrets come from. A file holds one a line; blank lines and lines that begin with `#` say nothing."""

    given: tuple[str, ...]
    files: tuple[Path, ...]
    check: Callable[[str], object]  # raises SecretError for one that cannot be used
    _last: dict[Path, tuple[str, ...]] = field(default_factory=dict)

    def read(self) -> tuple[str, ...]:
        """The secrets in force, each once. A file that cannot be read, or holds a bad one, stands as it last was.

        Raises:
            SecretError: a file that never could be read, or holds a secret that cannot be used.
        """
        found = list(self.given)
        for path in self.files:
            found += self._of(path)
        return tuple(dict.fromkeys(found))

    def _of(self, path: Path) -> tuple[str, ...]:
        try:
            lines = [line.strip() for line in path.read_text(encoding="utf-8").splitlines()]
            secrets = tuple(line for line in lines if line and not line.startswith("#"))
            for secret in secrets:
                self.check(secret)
        except (OSError, UnicodeDecodeError, SecretError) as error:
            if path not in self._last:
                raise SecretError(f"secret file {path}: {error}") from error
            _log.warning("secret file %s stands as it last was: %s", path, error)
            return self._last[path]
        self._last[path] = secrets
        return secrets

"""The public keys of the site's OpenID provider, found by its discovery document and kept for an hour.

    keys = ProviderKeys()
    keys.of("https://sso.example.com/realms/cluster", "a1")    # the key that its tokens name `a1`

A key that is not known is asked for anew, at most every half a minute: who sends tokens with invented key names makes
no flood of requests to the provider. While the provider is away, the keys that are known stay in use.
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2
import orjson
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from api.server.people_settings import is_safe_address

KEEP_S = 3600.0
_AGAIN_S = 30.0
_TIMEOUT_S = 5.0
_MOST_BYTES = 256 * 1024
_DISCOVERY = "/.well-known/openid-configuration"
_log = logging.getLogger(__name__)


class ProviderAwayError(Exception):
    """The provider's keys cannot be read, and none are known yet; the message says why."""


@dataclass(slots=True)
class ProviderKeys:
    """The keys of one issuer at a time. Safe for several threads; one of them asks, the others wait."""

    monotonic: Callable[[], float] = time.monotonic
    _issuer: str = ""
    _keys: Mapping[str | None, Any] = field(default_factory=dict)
    _read: float = float("-inf")
    _tried: float = float("-inf")
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def is_fresh(self, issuer: str, kid: str | None) -> bool:
        """Whether a key is at hand without asking the provider."""
        return issuer == self._issuer and kid in self._keys and self.monotonic() - self._read < KEEP_S

    def of(self, issuer: str, kid: str | None) -> Any | None:
        """The key of a name; None: the provider has none of that name.

        Raises:
            ProviderAwayError: no key is known, and none can be read.
        """
        if self.is_fresh(issuer, kid):
            return self._keys[kid]
        with self._lock:
            if issuer != self._issuer:
                self._issuer, self._keys, self._read, self._tried = issuer, {}, float("-inf"), float("-inf")
            if not self.is_fresh(issuer, kid) and self.monotonic() - self._tried >= _AGAIN_S:
                self._tried = self.monotonic()
                self._renew(issuer)
            if not self._keys:
                raise ProviderAwayError(f"the keys of {issuer} are not known yet: the server's log says why")
            return self._keys.get(kid)

    def _renew(self, issuer: str) -> None:
        try:
            self._keys, self._read = _fetch(issuer), self.monotonic()
        except (httpx2.HTTPError, httpx2.InvalidURL, JoseError, ValueError, TypeError, KeyError) as error:
            _log.error("the keys of %s cannot be read: %s", issuer, str(error)[:300] or type(error).__name__)


def _fetch(issuer: str) -> Mapping[str | None, Any]:
    """Every signing key that the provider publishes, by its name."""
    with httpx2.Client(timeout=_TIMEOUT_S, follow_redirects=False) as client:
        found = _document(client, issuer.rstrip("/") + _DISCOVERY)
        if found.get("issuer") != issuer:
            raise ValueError(f"the provider calls itself {str(found.get('issuer'))[:200]!r}: correct people, issuer")
        place = str(found.get("jwks_uri"))
        if not is_safe_address(place):
            raise ValueError(f"its keys are at {place[:200]!r}, which is not https://")
        keys = KeySet.import_key_set(_document(client, place)).keys  # type: ignore[arg-type]  # checked there
    usable = [key for key in keys if key.key_type in ("RSA", "EC", "OKP") and key.get("use", "sig") == "sig"]
    if not usable:
        raise ValueError("it publishes no key that signs")
    named: dict[str | None, Any] = {key.kid: key for key in usable}
    # A provider with a single key may leave its name out of its tokens.
    return {None: usable[0], **named} if len(usable) == 1 else named


def _document(client: httpx2.Client, url: str) -> dict[str, Any]:
    with client.stream("GET", url) as response:
        response.raise_for_status()
        body = b""
        for chunk in response.iter_bytes():
            body += chunk
            if len(body) > _MOST_BYTES:
                raise ValueError(f"{url} answers more than {_MOST_BYTES} bytes")
    found = orjson.loads(body)
    if not isinstance(found, dict):
        raise TypeError(f"{url} answers no JSON object")
    return found

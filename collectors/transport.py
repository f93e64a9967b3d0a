"""POST of one JSON document to the server: compressed, with the token, over a connection that is kept.

The standard library's client, for its size: the sidecar's memory is held to twice node_exporter's. TLS trusts what
the system trusts; proxies are not used.
"""

import gzip
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from types import TracebackType
from urllib.parse import urlsplit

import orjson

_COMPRESS_FROM = 1024  # smaller bodies gain nothing
_MOST_RETRY_AFTER_S = 3600.0
_MOST_ANSWER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Answer:
    """What the server said. `status` 0: it was not reached, `text` says why."""

    status: int
    text: str = ""
    body: bytes = b""
    retry_after_s: float | None = None


class Transport:
    """A client of one server. Not safe for several threads."""

    def __init__(self, server: str, token_file: Path | None, timeout_s: float) -> None:
        parts = urlsplit(server)
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or (443 if self._secure else 80))
        self._prefix = parts.path.rstrip("/")
        self._token_file = token_file
        self._timeout_s = timeout_s
        self._connection: HTTPConnection | None = None

    def __enter__(self) -> "Transport":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._drop()

    def post(self, path: str, items: object) -> Answer:
        """Send items as a JSON array. Never raises: a server that is away is an answer too."""
        body = orjson.dumps(items)
        headers = {"Content-Type": "application/json"}
        if len(body) >= _COMPRESS_FROM:
            body = gzip.compress(body, compresslevel=3)
            headers["Content-Encoding"] = "gzip"
        try:
            if self._token_file is not None:  # read each time: a token that is rotated holds at once
                headers["Authorization"] = f"Bearer {self._token_file.read_text(encoding='utf-8').strip()}"
            return self._exchange(self._prefix + path, body, headers)
        except (OSError, HTTPException, UnicodeDecodeError) as error:
            return Answer(0, f"{type(error).__name__}: {error}")

    def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        kept = self._connection
        try:
            return self._ask(kept or self._connect(), path, body, headers)
        except (OSError, HTTPException):
            self._drop()
            if kept is None:
                raise
            # The server had closed the kept connection: a fresh one decides. Sending twice changes nothing.
        try:
            return self._ask(self._connect(), path, body, headers)
        except (OSError, HTTPException):
            self._drop()
            raise

    @staticmethod
    def _ask(connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        connection.request("POST", path, body, headers)
        with connection.getresponse() as response:
            content = response.read(_MOST_ANSWER_BYTES)
            if response.read(1):
                raise HTTPException("the answer is far too long: is this the API's address?")
            if response.length:
                raise HTTPException("the answer broke off")
            return Answer(
                response.status,
                content[:300].decode("utf-8", errors="replace"),
                content,
                retry_after_s(response.getheader("Retry-After"), datetime.now(UTC)),
            )

    def _connect(self) -> HTTPConnection:
        host, port = self._address
        if self._secure:
            context = ssl.create_default_context()
            self._connection = HTTPSConnection(host, port, timeout=self._timeout_s, context=context)
        else:
            self._connection = HTTPConnection(host, port, timeout=self._timeout_s)
        return self._connection

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After asks for (a number or a date), at most an hour; None where it says nothing."""
    if header is None:
        return None
    try:
        wait_s = float(header)
    except ValueError:
        try:
            wait_s = (parsedate_to_datetime(header) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, wait_s), _MOST_RETRY_AFTER_S) if wait_s == wait_s else None

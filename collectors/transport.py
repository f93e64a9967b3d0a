"""POST of one JSON document to the server: compressed, with the token, over a connection that is kept."""

import gzip
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from types import TracebackType

import httpx2
import orjson

_COMPRESS_FROM = 1024  # smaller bodies gain nothing
_MOST_RETRY_AFTER_S = 3600.0


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
        self._server = server.rstrip("/")
        self._token_file = token_file
        self._client = httpx2.Client(timeout=timeout_s)

    def __enter__(self) -> "Transport":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

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
            response = self._client.post(self._server + path, content=body, headers=headers)
        except (httpx2.HTTPError, OSError) as error:
            return Answer(0, f"{type(error).__name__}: {error}")
        return Answer(
            response.status_code,
            response.text[:300],
            response.content,
            retry_after_s(response.headers.get("Retry-After"), datetime.now(UTC)),
        )


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

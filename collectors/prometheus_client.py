"""Questions to Prometheus' HTTP API, which Mimir and Thanos answer too: instant queries and ranges.

A server that is busy or away is asked again, a few times; then the source fails and is opened anew by the runner.
"""

import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import orjson

from collectors.collector import SourceError

_TRIES = 4
_MOST_BYTES = 256 * 1024 * 1024
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True)
class Access:
    """Where it is and what it wants to see. The token is read from its file at each question."""

    url: str
    tenant: str | None = None
    token_file: Path | None = None
    timeout_s: float = 60.0


class PrometheusClient:
    """Asks one server."""

    def __init__(self, access: Access, sleep: Callable[[float], None] = time.sleep) -> None:
        self._access = access
        self._sleep = sleep

    def query(self, expression: str, time_s: int) -> Iterator[tuple[dict[str, str], float]]:
        """Labels and value of every series of an instant query.

        Raises:
            SourceError: no answer after several tries, or a refusal.
        """
        for series in self._ask("query", {"query": expression, "time": str(time_s)}):
            yield series["metric"], float(series["value"][1])

    def query_range(
        self, expression: str, start_s: int, end_s: int, step_s: int
    ) -> Iterator[tuple[dict[str, str], list[tuple[int, float]]]]:
        """Labels and points of every series of a range.

        Raises:
            SourceError: as `query`.
        """
        asked = {"query": expression, "start": str(start_s), "end": str(end_s), "step": str(step_s)}
        for series in self._ask("query_range", asked):
            yield series["metric"], [(int(moment), float(value)) for moment, value in series["values"]]

    def _ask(self, path: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        reason = ""
        for attempt in range(_TRIES):
            if attempt:
                self._sleep(2.0 ** (attempt - 1))
            try:
                return self._once(path, asked)
            except urllib.error.HTTPError as error:
                said = error.read(500).decode(errors="replace").strip()
                reason = f"{error.code} {said}"
                if error.code not in _AGAIN:
                    break
            except (OSError, HTTPException, ValueError, KeyError, TypeError) as error:
                reason = str(error) or type(error).__name__
        raise SourceError(f"{self._access.url} gave no answer to {asked['query'][:80]!r}: {reason}")

    def _once(self, path: str, asked: dict[str, str]) -> list[dict[str, Any]]:
        request = urllib.request.Request(  # noqa: S310 - the collector allows http(s) alone
            f"{self._access.url.rstrip('/')}/api/v1/{path}",
            urlencode(asked).encode(),
            {"Content-Type": "application/x-www-form-urlencoded"},
        )
        if self._access.tenant:
            request.add_header("X-Scope-OrgID", self._access.tenant)
        if self._access.token_file:
            request.add_header("Authorization", f"Bearer {self._access.token_file.read_text().strip()}")
        with urllib.request.urlopen(request, timeout=self._access.timeout_s) as answer:  # noqa: S310
            body = answer.read(_MOST_BYTES + 1)
        if len(body) > _MOST_BYTES:
            raise ValueError(f"the answer is over {_MOST_BYTES} bytes")
        found: list[dict[str, Any]] = orjson.loads(body)["data"]["result"]
        return found

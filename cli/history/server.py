"""Questions to a Prometheus's history: raw samples, bounded answers, patience with one that is away.

    server = HistoryServer(HistoryAccess("http://127.0.0.1:9090"))
    server.first_contact()
    server.names(since_ms, until_ms)
    server.samples('{__name__=~"node_load1|node_boot_time_seconds"}', since_ms, until_ms)

Raw samples come from an instant query of a range selector (`metric[3600s]`), not from a range query: each has its own
time, nothing is filled in, and a series that ends has no sample after its end. A range query gives values at its own
steps, and shows a value for five minutes after the series had ended. Mimir and Thanos answer the same questions.
"""

import base64
import itertools
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from typing import Any, TypeAlias
from urllib.parse import urlencode

import msgspec
import numpy as np

from cli.console.errors import Failure
from wire.access.address import token_opener

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# Of one answer: 32 MiB of JSON are 1.2 million samples.
MOST_BYTES = 32 * 1024 * 1024
# Waits between tries, about two minutes in all: a Prometheus that is started again reads its log of writes first.
WAITS_S = (1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)
_TIMEOUT_S = 150.0  # a query's own limit is two minutes
_AGAIN = frozenset({408, 429, 500, 502, 503, 504})
# How servers say that less must be asked for at once. Sources: prometheus/promql/engine.go and web/api/v1/api.go;
# Mimir's globalerror identifiers; Thanos' store limits.
_TOO_MUCH = (
    "too many samples",
    "maximum resolution of 11,000 points",
    "err-mimir-max-",
    "exceeded series limit",
    "exceeded samples limit",
    "exceeded bytes limit",
    "exceeded chunks limit",
    "limit exceeded",
    "query timed out",
    "timed out in",
    "response too large",
    "received message larger than max",
)


class LimitError(Exception):
    """The server, or this program, cannot take so much in one answer: less must be asked for."""


class AwayError(Exception):
    """The server gives no answer, however often it is asked."""


@dataclass(frozen=True, slots=True)
class HistoryAccess:
    """Where it is, and what it wants to see. `authorization` is the whole header."""

    url: str
    authorization: str | None = None
    tenant: str | None = None

    def headers(self) -> dict[str, str]:
        """What each question bears."""
        found = {"Content-Type": "application/x-www-form-urlencoded"}
        if self.authorization is not None:
            found["Authorization"] = self.authorization
        if self.tenant is not None:
            found["X-Scope-OrgID"] = self.tenant
        return found


def basic(user_and_password: str) -> str:
    """The header of basic authentication."""
    return "Basic " + base64.b64encode(user_and_password.encode()).decode()


class _SeriesJson(msgspec.Struct):
    metric: dict[str, str]
    values: list[tuple[float, float]] = []


class _MatrixJson(msgspec.Struct):
    result: list[_SeriesJson]
    resultType: str = "matrix"  # noqa: N815  # Prometheus' name


class _AnswerJson(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    errorType: str = ""  # noqa: N815  # Prometheus' name
    warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class SeriesSamples:
    """One series: its labels, and its samples in order of time. Times are milliseconds since 1970."""

    labels: Mapping[str, str]
    time_ms: Ints
    values: Floats


@dataclass(slots=True)
class HistoryServer:
    """One server. `warnings` are what it said of its own answers."""

    access: HistoryAccess
    sleep: Callable[[float], None] = time.sleep
    waits_s: Sequence[float] = WAITS_S
    warnings: dict[str, int] = field(default_factory=dict)

    def first_contact(self) -> None:
        """See that it is there, lets us in, and is a Prometheus.

        Raises:
            Failure: it is not; the sentence says what to do.
        """
        url = self.access.url
        question = [("query", "vector(1)")]
        try:
            try:
                self._once("query", question)
            except urllib.error.HTTPError as error:
                if error.code not in _AGAIN:
                    raise
                self._ask("query", question)  # it is there, and busy or just starting
        except AwayError as error:
            raise Failure(f"{url} gives no answer ({error}): try again later") from error
        except urllib.error.HTTPError as error:
            raise Failure(f"{url} refuses: {_refusal(error)}") from error
        except LimitError as error:
            raise Failure(f"{url} refuses its first question: {error}") from error
        except (msgspec.MsgspecError, ValueError) as error:
            raise Failure(
                f"{url} is no Prometheus: its answer to /api/v1/query is not of that API ({_short(error)}): "
                "give the address below which /api/v1/query is"
            ) from error
        except (OSError, HTTPException) as error:
            raise Failure(
                f"{url} gives no answer ({_short(error)}): see that the address is right and Prometheus runs"
            ) from error

    def names(self, since_ms: int, until_ms: int, selectors: Sequence[str] = ()) -> list[str]:
        """Every metric's name that there is between two moments, of the series that the selectors choose.

        Raises:
            Failure: a refusal.
            AwayError: no answer after all tries.
        """
        parameters: list[tuple[str, str]] = [("start", _seconds(since_ms)), ("end", _seconds(until_ms))]
        parameters += [("match[]", selector) for selector in selectors]
        try:
            return sorted(msgspec.json.decode(self._ask("label/__name__/values", parameters, get=True), type=list[str]))
        except LimitError as error:
            raise Failure(f"{self.access.url} does not list its metrics: {error}") from error

    def samples(self, selector: str, since_ms: int, until_ms: int, step_ms: int = 0) -> list[SeriesSamples]:
        """Every sample of some series from one moment to before another. With a step, the last one of each step.

        Raises:
            LimitError: less must be asked for at once.
            Failure: a refusal.
            AwayError: no answer after all tries.
        """
        if step_ms:
            # A step's last sample stands at the step's end, and a step without one stays without.
            question = [
                ("query", f"last_over_time({selector}[{step_ms}ms])"),
                ("start", _seconds(since_ms + step_ms - 1)),
                ("end", _seconds(until_ms - 1)),
                ("step", _seconds(step_ms)),
            ]
            data = self._ask("query_range", question)
        else:
            # The first moment is in the range up to 2.x, and out of it from 3.0 on: asked for, and cut off here.
            question = [("query", f"{selector}[{until_ms - since_ms}ms]"), ("time", _seconds(until_ms - 1))]
            data = self._ask("query", question)
        matrix = msgspec.json.decode(data, type=_MatrixJson, strict=False)
        return list(_between(map(_series, matrix.result), since_ms))

    def _ask(self, path: str, parameters: Sequence[tuple[str, str]], get: bool = False) -> bytes:
        reason = ""
        for wait_s in (0.0, *self.waits_s):
            if wait_s:
                self.sleep(wait_s)
            try:
                return self._once(path, parameters, get)
            except urllib.error.HTTPError as error:
                if error.code not in _AGAIN:
                    raise Failure(f"{self.access.url} refuses: {_refusal(error)}") from error
                reason = _refusal(error)
            except (OSError, HTTPException, ValueError, msgspec.MsgspecError) as error:
                reason = _short(error)
        raise AwayError(reason)

    def _once(self, path: str, parameters: Sequence[tuple[str, str]], get: bool = False) -> bytes:
        """The data of an answer.

        Raises:
            LimitError: as `samples`.
            HTTPError, OSError, HTTPException, ValueError, MsgspecError: no answer, or none of this API.
        """
        # Thanos' word against answers with gaps; the others pass it over.
        body = urlencode([*parameters, ("partial_response", "false")])
        url = f"{self.access.url.rstrip('/')}/api/v1/{path}"
        # Labels are asked for by GET: Thanos and some proxies know no other way.
        request = urllib.request.Request(  # noqa: S310 - the command allows http(s) alone
            f"{url}?{body}" if get else url, None if get else body.encode(), self.access.headers()
        )
        try:
            with token_opener().open(request, timeout=_TIMEOUT_S) as answer:
                text = _bounded(answer)
        except urllib.error.HTTPError as error:
            with error:  # it holds the connection
                said = error.read(4096)
            error.msg = _said(said) or error.msg
            if any(words in error.msg for words in _TOO_MUCH) or error.code == 413:
                raise LimitError(error.msg) from error
            raise
        found = msgspec.json.decode(text.replace(b',"+Inf"]', b',"Inf"]'), type=_AnswerJson)
        if found.status != "success":
            raise ValueError(found.error or f"status {found.status!r}")
        for warning in found.warnings:
            self.warnings[warning] = self.warnings.get(warning, 0) + 1
        return bytes(found.data)


def _bounded(answer: HTTPResponse) -> bytes:
    text = answer.read(MOST_BYTES + 1)
    if len(text) > MOST_BYTES:
        raise LimitError(f"the answer is over {MOST_BYTES} bytes")
    return text


def _series(found: _SeriesJson) -> SeriesSamples:
    pairs = np.fromiter(itertools.chain.from_iterable(found.values), np.float64, 2 * len(found.values)).reshape(-1, 2)
    time_ms: Ints = np.rint(pairs[:, 0] * 1000).astype(np.int64)
    return SeriesSamples(found.metric, time_ms, pairs[:, 1].copy())


def _between(found: Iterator[SeriesSamples], since_ms: int) -> Iterator[SeriesSamples]:
    for one in found:
        if not len(one.time_ms) or one.time_ms[-1] < since_ms:
            continue
        first = 0 if one.time_ms[0] >= since_ms else int(np.searchsorted(one.time_ms, since_ms))
        yield SeriesSamples(one.labels, one.time_ms[first:], one.values[first:])


def _seconds(time_ms: int) -> str:
    return f"{time_ms // 1000}.{time_ms % 1000:03d}"


def _refusal(error: urllib.error.HTTPError) -> str:
    """What a refusal means, and what to do."""
    said = f"{error.code} {error.msg}".strip()
    if error.code in (401, 403):
        return f"{said}: give --token-file, or --basic-file, of who may read it"
    if error.code == 404:
        return f"{said}: it has no /api/v1/query below this address, so it is no Prometheus"
    if 300 <= error.code < 400:
        return f"{said}: it leads to {error.headers.get('Location', 'another address')!r}: give that address"
    return said


def _said(body: bytes) -> str:
    """The server's own sentence in a refusal; empty where there is none."""
    try:
        return msgspec.json.decode(body, type=_AnswerJson).error
    except msgspec.MsgspecError:
        text = " ".join(body.decode(errors="replace").split())
        return "" if text.startswith("<") else text[:300]


def _short(error: BaseException) -> str:
    reason = getattr(error, "reason", None) or error
    return (str(reason).splitlines() or [type(error).__name__])[0][:200] or type(error).__name__

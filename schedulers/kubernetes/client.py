"""A thin client of the API server: what is asked is JSON, what comes back is bytes or an error with a name.

    client = Client(find_access(None, None), settings)
    client.call("PATCH", "/api/v1/nodes/gpu-017", patch, JSON_PATCH)

Requests go over kept connections, no faster than the operator allows. A token that has ended is asked for once more.
"""

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Lock
from typing import Any, TypeVar

import httpx2
import msgspec
import orjson

from schedulers.kubernetes.access import AccessError, ClusterAccess, ExecToken, KubernetesSettings
from schedulers.reconcile.actuator import SchedulerAwayError

JSON = "application/json"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"

_MOST_DETAIL = 300
_T = TypeVar("_T")


class ApiError(Exception):
    """The API server said no: `status` of HTTP, `reason` of Kubernetes.

    `is_invalid` is what no repetition mends; a failed `test` of a JSON-Patch is a 422 that names no cause.
    """

    def __init__(self, status: int, reason: str, message: str, causes: bool, retry_after_s: float) -> None:
        super().__init__(f"HTTP {status} {reason}: {message}"[:_MOST_DETAIL])
        self.status = status
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.is_conflict = status == 409 or (status == 422 and not causes)
        self.is_invalid = status in (400, 405, 413, 415) or (status == 422 and causes)


class KubernetesClient:
    """One API server, from any number of threads."""

    def __init__(self, access: ClusterAccess, settings: KubernetesSettings) -> None:
        self.url = access.url
        self._access = access
        self._dry_run = {"dryRun": "All"} if settings.dry_run else {}
        self._pace = RequestPace(settings.requests_per_s)
        self._lock = Lock()
        self._users = 0
        self._followed: set[socket.socket] = set()
        self._closed = False
        limits = httpx2.Limits(max_connections=settings.at_once + 2, max_keepalive_connections=settings.at_once + 2)
        self._extensions = {"sni_hostname": access.server_name} if access.server_name else {}
        self._http = httpx2.Client(
            base_url=access.url,
            verify=access.trust,
            timeout=settings.timeout_s,
            limits=limits,
            follow_redirects=False,
            trust_env=False,
            headers={"user-agent": "foreshock", "accept": JSON},
        )

    def call(
        self, method: str, path: str, body: Any = None, kind: str = JSON, query: Mapping[str, str] | None = None
    ) -> bytes:
        """One request, and its answer's body; a write is only tried where `dry_run` is set.

        Raises:
            ApiError: the server said no.
            SchedulerAwayError: it did not answer, or not as an API server does.
        """
        content = None if body is None else orjson.dumps(body)
        parameters = {**(query or {}), **(self._dry_run if method != "GET" else {})}
        for is_last in (False, True):
            self._pace.wait()
            headers = {"content-type": kind, **self._credentials()}
            with self._using(), self._answering():
                answer = self._http.request(
                    method, path, content=content, params=parameters, headers=headers, extensions=self._extensions
                )
            if answer.status_code == 401 and not is_last:
                self._forget_token()
                continue
            if answer.is_success:
                return answer.content
            raise _error(answer)
        raise AssertionError  # the second round returns or raises

    def get(self, path: str, shape: type[_T], query: Mapping[str, str] | None = None) -> _T:
        """An object, of which only what its shape names is decoded.

        Raises:
            ApiError, SchedulerAwayError: as `call`.
        """
        return self.decode(self.call("GET", path, query=query), shape)

    def decode(self, body: bytes, shape: type[_T]) -> _T:
        """An answer as a shape.

        Raises:
            SchedulerAwayError: it is not that; what answers is no API server.
        """
        try:
            return msgspec.json.decode(body, type=shape)
        except msgspec.DecodeError as error:
            raise SchedulerAwayError(f"{self.url} does not answer as an API server does: {error}") from error

    @contextmanager
    def follow(self, path: str, query: Mapping[str, str], silence_s: float) -> Iterator[Iterator[str]]:
        """The lines of a watch, while the server sends them; `silence_s` without one is an outage.

        Raises:
            ApiError, SchedulerAwayError: as `call`, also while lines are read.
        """
        timeout = httpx2.Timeout(self._http.timeout.connect, read=silence_s)
        with (
            self._using(),
            self._answering(),
            self._http.stream(
                "GET", path, params=query, headers=self._credentials(), timeout=timeout, extensions=self._extensions
            ) as answer,
        ):
            if not answer.is_success:
                answer.read()
                if answer.status_code == 401:
                    self._forget_token()
                raise _error(answer)
            with self._following(answer.extensions["network_stream"].get_extra_info("socket")):
                yield answer.iter_lines()

    def close(self) -> None:
        """Let go of the connections: watches end now, requests that are under way end first.

        A socket that another thread still reads is never closed: its number would be another's next, whose bytes the
        thread would then take.
        """
        with self._lock:
            is_idle = self._users == 0 and not self._closed
            self._closed = True
            for followed in self._followed:
                with suppress(OSError):
                    socket.socket.shutdown(followed, socket.SHUT_RDWR)  # wakes its reader, and keeps the number
        if is_idle:
            self._http.close()

    @contextmanager
    def _using(self) -> Iterator[None]:
        with self._lock:
            if self._closed:
                raise SchedulerAwayError(f"{self.url}: the connection has been given up")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                is_last = self._closed and self._users == 0
            if is_last:
                self._http.close()

    @contextmanager
    def _following(self, followed: socket.socket) -> Iterator[None]:
        with self._lock:
            self._followed.add(followed)
            is_late = self._closed
        try:
            if is_late:
                raise SchedulerAwayError(f"{self.url}: the connection has been given up")
            yield
        finally:
            with self._lock:
                self._followed.discard(followed)

    def _credentials(self) -> dict[str, str]:
        try:
            token = self._access.token()
        except AccessError as error:
            raise SchedulerAwayError(str(error)) from error
        return {"authorization": f"Bearer {token}"} if token else {}

    def _forget_token(self) -> None:
        if isinstance(self._access.token, ExecToken):
            self._access.token.forget()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError) as error:
            raise SchedulerAwayError(f"{self.url}: {type(error).__name__}: {error}"[:_MOST_DETAIL]) from error


class RequestPace:
    """No more than so many a second on average, and a second's worth at once."""

    def __init__(
        self, per_s: float, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._per_s, self._clock, self._sleep = per_s, clock, sleep
        self._lock = Lock()
        self._next = clock() - 1.0  # when the next one would be due if they were evenly spread

    def wait(self) -> None:
        """Return when the next one may go."""
        with self._lock:
            now = self._clock()
            self._next = max(self._next, now - 1.0) + 1.0 / self._per_s
            ahead_s = self._next - now
        if ahead_s > 0:
            self._sleep(ahead_s)


class _ErrorDetails(msgspec.Struct):
    causes: list[Any] | None = None
    retryAfterSeconds: float | None = None  # noqa: N815 - Kubernetes' own name


class _ErrorStatus(msgspec.Struct):
    message: str = ""
    reason: str = ""
    details: _ErrorDetails | None = None


def _error(answer: httpx2.Response) -> ApiError:
    """What a refusal says, whether or not it is a Status of Kubernetes (a proxy's is not)."""
    try:
        status = msgspec.json.decode(answer.content, type=_ErrorStatus)
    except msgspec.DecodeError:
        status = _ErrorStatus(message=answer.text[:200], reason=answer.reason_phrase)
    details = status.details or _ErrorDetails()
    after = answer.headers.get("retry-after", "")
    wait_s = float(after) if after.isascii() and after.isdigit() else details.retryAfterSeconds or 0.0
    return ApiError(answer.status_code, status.reason, status.message, bool(details.causes), wait_s)

"""A thin client of the Foreshock API: typed answers, and one plain sentence when something is wrong.

client = Client(Address("http://127.0.0.1:10870", token))
client.cluster().states  # {"ok": 61, "at_risk": 2, "faulty": 1}
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar
from urllib.parse import quote

import httpx2

from dashboard.answers.cluster import AuditEntry, Cluster, Event, Incident, Ledger, Node, NodeDetail, Run
from dashboard.answers.decoding import AnswerError, decode
from dashboard.answers.goodput import Causes, ClusterGoodput
from dashboard.answers.hints import BudgetUse, Hindsight, Hint, PolicyInForce, Stopped, Trip
from dashboard.answers.models import Models
from dashboard.answers.repair import RepairList
from dashboard.text.advice import CheckpointAdvice, GainsAdvice, SparesAdvice
from dashboard.text.sidecars import Sidecar

T = TypeVar("T")

TIMEOUT_S = 10.0
PAGE = 1000
MAX_ITEMS = 20_000  # a limit on every loop: 12,500 nodes fit


class ApiProblem(Exception):  # noqa: N818  # it is what the page shows, not what the programmer did wrong
    """The API did not give what was asked; the message is one sentence with the remedy, fit to be shown."""


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """Where the API is, and the token that it wants (None on loopback without tokens)."""

    server: str
    token: str | None = None


class ApiClient:
    """Reads and acts through `/api/v1`; safe to share between threads."""

    def __init__(self, address: ApiAddress, transport: httpx2.BaseTransport | None = None) -> None:
        self.server = address.server.rstrip("/")
        if address.token and not (address.token.isascii() and address.token.isprintable()):
            raise ApiProblem("The token is none: it holds a line break or a letter beyond ASCII. Correct --token-file.")
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        try:
            url = httpx2.URL(f"{self.server}/api/v1/")
            # A proxy of the environment leads nowhere from this machine to itself.
            trusting = url.host not in ("127.0.0.1", "localhost", "::1")
            self._http = httpx2.Client(
                base_url=url, headers=headers, timeout=TIMEOUT_S, transport=transport, trust_env=trusting
            )
        except httpx2.InvalidURL as error:
            raise ApiProblem(
                f"{self.server!r} is no address: start the dashboard with --server http://HOST:PORT"
            ) from error

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def cluster(self) -> Cluster:
        """The whole cluster in one object."""
        return self._record(Cluster, self._get("cluster"))

    def nodes(self) -> list[Node]:
        """Every node, the riskiest first."""
        return self._items(Node, "nodes", {}, MAX_ITEMS)

    def node(self, name: str) -> tuple[Node, NodeDetail]:
        """One node, and its incidents, outages, hints, telemetry and scores."""
        body = self._get(f"nodes/{quote(name, safe='')}")
        return self._record(Node, body), self._record(NodeDetail, body)

    def events(self, limit: int, until: datetime | None = None) -> list[Event]:
        """The newest events (before a moment), newest first; `limit` <= 1000."""
        return self._newest(Event, "events", limit, {} if until is None else {"until": until.isoformat()})

    def incidents(self, limit: int, until: datetime | None = None) -> list[Incident]:
        """The newest incidents (that began before a moment), newest first; `limit` <= 1000."""
        return self._newest(Incident, "incidents", limit, {} if until is None else {"until": until.isoformat()})

    def incidents_since(self, limit: int, since: datetime) -> list[Incident]:
        """The incidents that showed since a moment, newest first; `limit` <= 1000."""
        return self._newest(Incident, "incidents", limit, {"since": since.isoformat()})

    def sidecars(self, state: str, limit: int) -> list[Sidecar]:
        """The sidecars in a state (ok, silent, troubled), by node; `limit` <= 1000."""
        return self._records(Sidecar, self._object(self._get("sidecars", {"state": state, "limit": str(limit)})))

    def models(self) -> Models:
        """Which models serve, which are on trial, and how the last training went."""
        return self._record(Models, self._get("models"))

    def runs(self) -> list[Run]:
        """Every training run."""
        return self._items(Run, "runs", {}, PAGE)

    def goodput(self, run: str) -> Ledger:
        """A run's ledger."""
        return self._record(Ledger, self._get(f"runs/{quote(run, safe='')}/goodput"))

    def cluster_goodput(self) -> ClusterGoodput:
        """What became of the cluster's GPU-hours of the last days."""
        return self._record(ClusterGoodput, self._get("goodput/cluster"))

    def causes(self, by: str, since: datetime) -> Causes:
        """What interruptions since a moment cost, by what they are put down to: the hundred costliest."""
        asked = {"by": by, "since": since.isoformat(), "limit": "100"}
        return self._record(Causes, self._get("goodput/causes", asked))

    def checkpoint_advice(self, run: str) -> CheckpointAdvice:
        """How often the run should save, with the measured inputs."""
        return self._record(CheckpointAdvice, self._get("advice/checkpoint", {"run": run}))

    def gains_advice(self, run: str) -> GainsAdvice:
        """What each change would gain the run, the largest first."""
        return self._record(GainsAdvice, self._get("advice/gains", {"run": run}))

    def spares_advice(self) -> SparesAdvice:
        """How many spare nodes the cluster should keep, with the measured inputs."""
        return self._record(SparesAdvice, self._get("advice/spares"))

    def lemons(self) -> RepairList:
        """The nodes that should go to repair, the worst first."""
        return self._record(RepairList, self._get("lemons"))

    def hints(self) -> list[Hint]:
        """The newest thousand hints, newest first."""
        return self._newest(Hint, "hints", PAGE)

    def stopped(self) -> Stopped:
        """What the kill switch stops, and by whom."""
        return self._record(Stopped, self._get("stop"))

    def stop(self, what: str, reason: str) -> None:
        """Stop new holds (`holds`), all orders (`all`), or let them go on (`none`); needs the scope `act`."""
        self._send("POST", "stop", {}, {"stop": what, "reason": reason})

    def trips(self) -> list[Trip]:
        """The breaker's trips that nobody has reset, newest first."""
        asked = {"in_force": "true", "limit": str(PAGE)}
        return self._records(Trip, self._object(self._get("breaker", asked)))

    def reset(self, trip: int, backlog: str) -> None:
        """End a trip: what had called is to `drop`, or each to wait for a person (`review`); needs the scope `act`."""
        self._send("POST", f"breaker/{trip}/reset", {}, {"backlog": backlog})

    def budget(self) -> BudgetUse:
        """How many nodes are held at our request, and how many may be."""
        return self._record(BudgetUse, self._get("budget"))

    def policy(self) -> PolicyInForce:
        """Which policy asks, and whether its file holds."""
        return self._record(PolicyInForce, self._get("policy"))

    def outcomes(self) -> Hindsight:
        """What came of the hints of the last thirty days."""
        return self._record(Hindsight, self._get("hints/outcomes"))

    def audit(self, limit: int) -> list[AuditEntry]:
        """Who asked for what, newest first; `limit` <= 1000."""
        return self._records(AuditEntry, self._object(self._get("audit", {"limit": str(limit)})))

    def decide(self, hint: str, verb: str) -> None:
        """Approve or withdraw a hint (needs a token with the scope `act`)."""
        self._send("POST", f"hints/{quote(hint, safe='')}/{verb}", {})

    def _items(self, kind: type[T], path: str, params: Mapping[str, str], limit: int) -> list[T]:
        """A list, page by page, of at most `limit` records."""
        found: list[T] = []
        cursor: str | None = None
        while len(found) < limit:
            page = {"limit": str(min(PAGE, limit)), **({"cursor": cursor} if cursor else {})}
            body = self._object(self._get(path, {**params, **page}))
            items = self._records(kind, body)
            found += items
            cursor = body.get("next_cursor")
            if not cursor or not items:
                break
        return found

    def _newest(self, kind: type[T], path: str, limit: int, params: Mapping[str, str] | None = None) -> list[T]:
        """The first page of a list that ends with the newest, turned round."""
        return self._records(kind, self._object(self._get(path, {"limit": str(limit), **(params or {})})))[::-1]

    def _records(self, kind: type[T], body: Mapping[str, Any]) -> list[T]:
        items = body.get("items")
        if not isinstance(items, list):
            raise self._strange("it lacks the list `items`")
        return [self._record(kind, item) for item in items]

    def _record(self, kind: type[T], body: Any) -> T:
        try:
            return decode(kind, body)
        except AnswerError as error:
            raise self._strange(str(error)) from error

    def _object(self, body: Any) -> dict[str, Any]:
        if not isinstance(body, dict):
            raise self._strange(f"expected an object, got {type(body).__name__}")
        return body

    def _strange(self, why: str) -> ApiProblem:
        return ApiProblem(f"The answer of {self.server} is not Foreshock's ({why}): check --server and its version.")

    def _get(self, path: str, params: Mapping[str, str] | None = None) -> Any:
        return self._send("GET", path, params or {})

    def _send(self, method: str, path: str, params: Mapping[str, str], body: Mapping[str, str] | None = None) -> Any:
        """One request; every way that it can fail becomes a sentence."""
        try:
            response = self._http.request(method, path, params=dict(params), json=body)
        except httpx2.TimeoutException as error:
            raise ApiProblem(f"{self.server} did not answer within {TIMEOUT_S:.0f} s: it may be overloaded.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ApiProblem(
                f"Nothing answers at {self.server} ({error}): start it with `foreshock serve`, or correct --server."
            ) from error
        if response.status_code >= 400:
            raise ApiProblem(_sentence(response, self.server))
        try:
            return response.json() if response.content else {}
        except ValueError as error:
            raise self._strange("it is no JSON") from error


def _sentence(response: httpx2.Response, server: str) -> str:
    """What an error status means to the person who reads the page."""
    detail = _detail(response)
    match response.status_code:
        case 401:
            return f"{server} wants a token: start the dashboard with --token-file FILE ({detail})."
        case 403:
            return f"The dashboard's token may not do this: give it one with the scope it lacks ({detail})."
        case 404:
            return f"{server} knows nothing of that name ({detail})."
        case 409:
            return f"That is no longer possible: {detail}."
        case status:
            return f"{server} answered {status}: {detail}."


def _detail(response: httpx2.Response) -> str:
    """The `detail` or `title` of an RFC 9457 answer, else the status in words."""
    try:
        body = response.json()
    except ValueError:
        body = None
    said = (body.get("detail") or body.get("title")) if isinstance(body, dict) else None
    return str(said or response.reason_phrase or "no reason given")[:300].rstrip(".")

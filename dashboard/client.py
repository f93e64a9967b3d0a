"""A thin client of the Foreshock API: typed answers, and one plain sentence when something is wrong.

client = Client(Address("http://127.0.0.1:10870", token))
client.cluster().states  # {"ok": 61, "at_risk": 2, "faulty": 1}
"""

import ssl
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import httpx2

from dashboard.answers import SharedAnswers
from dashboard.text.words import STATES
from wire.access.address import INSECURE_OPTION, clear_text
from wire.advice import CheckpointAdviceJson, GainsAdviceJson, MtbfJson, SparesAdviceJson, WhatIfJson
from wire.cluster import ClusterJson
from wire.events import AuditJson, EventJson, IncidentJson
from wire.goodput import AttemptsJson, CausesJson, ClusterGoodputJson, LedgerJson, RunJson
from wire.hints import CallerJson, HindsightJson, HintJson
from wire.message import NOTHING_HERE, AnswerError, Page, decode
from wire.models import ChecksJson, ModelsJson
from wire.nodes import (
    LinkScoreJson,
    MapJson,
    NodeDetailJson,
    NodeGpuJson,
    NodeHourJson,
    NodeJson,
    NodeScoresJson,
    NodeTimelineJson,
    RiskiestJson,
    SearchResultJson,
)
from wire.policy import BudgetJson, PolicyInForceJson, StopJson, TripJson
from wire.repair import RepairListJson
from wire.sidecars import SidecarJson
from wire.verdicts import VerdictJson

T = TypeVar("T")

TIMEOUT_S = 10.0
PAGE = 1000
NODES_PER_S = 400  # 12,500 nodes are read every half minute, a thousand at each turn
SCORES_S = 60.0  # how often the past scores of a node are read
MAX_ITEMS = 20_000  # a limit on every loop: 12,500 nodes fit
# Hours of a node's devices: a week and a day.
MAX_HOURS = 192


def worst_first(nodes: Sequence[NodeJson]) -> list[NodeJson]:
    """Nodes by how bad their state is, then by risk."""
    rank = {state: i for i, state in enumerate(STATES)}
    return sorted(nodes, key=lambda n: (rank.get(n.state, rank["ok"] - 0.5), -(n.score_24h or 0.0), n.node))


class ApiProblem(Exception):  # noqa: N818  # it is what the page shows, not what the programmer did wrong
    """The API refused or failed; the message is one sentence with the remedy, for the page."""


class SignInOver(ApiProblem):
    """The person's sign-in has expired, or the API does not take it."""


@dataclass(frozen=True, slots=True)
class ApiAddress:
    """Where the API is, and the token that it wants (None on loopback without tokens).

    `ca_file` is whom to trust in place of the system's authorities; `cert_file` and `key_file` are shown to the server.
    """

    server: str
    token: str | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    insecure_http: bool = False  # the token may go in clear text: something else encrypts the way

    def trust(self) -> ssl.SSLContext:
        """What certifies the server, and our own certificate where there is one.

        Raises:
            ApiProblem: a file cannot be used.
        """
        try:
            context = ssl.create_default_context(cafile=self.ca_file)
            if self.cert_file is not None:
                context.load_cert_chain(self.cert_file, self.key_file)
        except OSError as error:  # ssl.SSLError is one
            files = " ".join(str(file) for file in (self.ca_file, self.cert_file, self.key_file) if file is not None)
            raise ApiProblem(
                f"A certificate cannot be used ({files}: {error}): correct --ca-file, --cert-file and --key-file."
            ) from error
        return context


class ApiClient:
    """Reads and acts through `/api/v1`; safe to share between threads."""

    def __init__(
        self, address: ApiAddress, transport: httpx2.BaseTransport | None = None, fresh_s: float = 0.0
    ) -> None:
        """`fresh_s`: how long an answer is given once more to whoever asks the same, under the same name."""
        self._shared = SharedAnswers(fresh_s)
        self.server = address.server.rstrip("/")
        self._headers: Mapping[str, str] = {}
        if address.token and not (address.token.isascii() and address.token.isprintable()):
            raise ApiProblem("The token is none: it holds a line break or a letter beyond ASCII. Correct --token-file.")
        if address.token and not address.insecure_http and (why := clear_text(self.server)) is not None:
            raise ApiProblem(f"{why[0].upper()}{why[1:]}; or {INSECURE_OPTION}, where a mesh encrypts the way.")
        headers = {"Authorization": f"Bearer {address.token}"} if address.token else {}
        try:
            url = httpx2.URL(f"{self.server}/api/v1/")
            # A proxy of the environment leads nowhere from this machine to itself.
            trusting = url.host not in ("127.0.0.1", "localhost", "::1")
            trust = address.trust() if url.scheme == "https" and transport is None else True
            self._http = httpx2.Client(
                base_url=url,
                headers=headers,
                timeout=TIMEOUT_S,
                transport=transport,
                trust_env=trusting,
                verify=trust,
            )
        except httpx2.InvalidURL as error:
            raise ApiProblem(
                f"{self.server!r} is no address: start the dashboard with --server http://HOST:PORT"
            ) from error

    def acting_for(self, headers: Mapping[str, str]) -> "ApiClient":
        """The same client for one person: the connections are shared, the headers say who it is."""
        other = copy(self)
        other._headers = dict(headers)
        return other

    def close(self) -> None:
        """Let go of the connections."""
        self._http.close()

    def whoami(self) -> CallerJson:
        """Who the API takes us for, and what it lets us do."""
        return self._get(CallerJson, "whoami")

    def cluster(self) -> ClusterJson:
        """The whole cluster in one object."""
        return self._get(ClusterJson, "cluster")

    def nodes(self) -> list[NodeJson]:
        """Every node, the worst first; a large cluster's are asked for more seldom: a page of them is shared."""
        key = (*self._headers.items(), "nodes")
        return self._shared.get(
            key, lambda: worst_first(self._items(NodeJson, "nodes", MAX_ITEMS)), lambda found: len(found) / NODES_PER_S
        )

    def node(self, name: str) -> NodeDetailJson:
        """One node, and its incidents, outages, hints, telemetry and scores."""
        return self._get(NodeDetailJson, f"nodes/{quote(name, safe='')}")

    def node_scores(self, name: str) -> Sequence[NodeScoresJson]:
        """A node's scores of the last 30 days, oldest first: read once a minute, and nobody waits for the next."""
        key = (*self._headers.items(), "scores", name)
        return self._shared.get(key, lambda: self.node(name).scores, lambda _found: SCORES_S)

    def node_timeline(self, name: str, since: datetime, until: datetime) -> NodeTimelineJson:
        """The jobs of a node, and its errors by the hour, within a window."""
        window = {"since": since.isoformat(), "until": until.isoformat()}
        return self._get(NodeTimelineJson, f"nodes/{quote(name, safe='')}/timeline", window)

    def node_gpus(self, name: str) -> list[NodeGpuJson]:
        """What a node's GPUs are called."""
        return list(self._page(NodeGpuJson, f"nodes/{quote(name, safe='')}/gpus", {}).items)

    def search(self, text: str) -> list[SearchResultJson]:
        """What bears a name, the nearest first."""
        return list(self._page(SearchResultJson, "search", {"q": text}).items)

    def fabric_map(self, since: str | None) -> tuple[MapJson, str]:
        """The map and its tag; with `since`, an earlier tag, what has changed, where the API can tell."""
        params = {} if since is None else {"since": since}
        return self._shared.get((*self._headers.items(), "map", since), lambda: self._map(params))

    def _map(self, params: Mapping[str, str]) -> tuple[MapJson, str]:
        response = self._respond("GET", "map", params)
        return self._decoded(MapJson, response.content), response.headers.get("etag", "")

    def hours(self, name: str, device: str, since: datetime) -> list[NodeHourJson]:
        """What a device of a node (`node`: itself) measured each hour since a moment, at most a week of it."""
        query = {"device": device, "since": since.isoformat(), "limit": str(MAX_HOURS)}
        return list(self._page(NodeHourJson, f"nodes/{quote(name, safe='')}/telemetry", query).items)

    def events(self, limit: int, until: datetime | None = None) -> list[EventJson]:
        """The newest events (before a moment), newest first; `limit` <= 1000."""
        return self._newest(EventJson, "events", limit, {} if until is None else {"until": until.isoformat()})

    def incidents(self, limit: int, until: datetime | None = None) -> list[IncidentJson]:
        """The newest incidents (that began before a moment), newest first; `limit` <= 1000."""
        return self._newest(IncidentJson, "incidents", limit, {} if until is None else {"until": until.isoformat()})

    def incidents_since(self, limit: int, since: datetime) -> list[IncidentJson]:
        """The incidents that showed since a moment, newest first; `limit` <= 1000."""
        return self._newest(IncidentJson, "incidents", limit, {"since": since.isoformat()})

    def incident(self, ident: str) -> IncidentJson:
        """One incident with its thread and the verdicts that put it down to a cause."""
        return self._get(IncidentJson, f"incidents/{quote(ident, safe='')}")

    def printout(self, path: str) -> bytes:
        """A file, as a page of HTML to print, below `/api/v1/`."""
        return self._send("GET", path, {})

    def events_between(self, node: str, since: datetime, until: datetime, limit: int) -> list[EventJson]:
        """The first events of a node within a window, oldest first; `limit` <= 1000."""
        window = {"node": node, "since": since.isoformat(), "until": until.isoformat(), "limit": str(limit)}
        return list(self._page(EventJson, "events", window).items)

    def hints_of(self, node: str) -> list[HintJson]:
        """The newest hints on a node, newest first."""
        return self._newest(HintJson, "hints", PAGE, {"node": node})

    def step(self, kind: str, ident: str, step: str, text: str = "") -> None:
        """Acknowledge, note, silence, close ... one of the `incidents` or `verdicts`; needs the scope `act:approve`."""
        self._send("POST", f"{kind}/{quote(ident, safe='')}/{step}", {}, {"text": text})

    def verdicts(self, limit: int, until: datetime) -> list[VerdictJson]:
        """The newest verdicts whose first sign came before a moment, newest first; `limit` <= 1000."""
        return self._newest(VerdictJson, "verdicts", limit, {"until": until.isoformat()})

    def open_verdicts(self, limit: int, node: str | None = None) -> list[VerdictJson]:
        """The newest verdicts that stand now (and name a node), newest first; `limit` <= 1000."""
        params = {"state": "open"} if node is None else {"state": "open", "node": node}
        return self._newest(VerdictJson, "verdicts", limit, params)

    def verdict(self, ident: str) -> VerdictJson:
        """One verdict with every change of it."""
        return self._get(VerdictJson, f"verdicts/{quote(ident, safe='')}")

    def sidecars(self, state: str, limit: int) -> list[SidecarJson]:
        """The sidecars in a state (ok, silent, troubled), by node; `limit` <= 1000."""
        return list(self._page(SidecarJson, "sidecars", {"state": state, "limit": str(limit)}).items)

    def models(self) -> ModelsJson:
        """Which models serve, which are on trial, and how the last training went."""
        return self._get(ModelsJson, "models")

    def checks(self) -> ChecksJson:
        """What each check said of nodes, and what came of it."""
        return self._get(ChecksJson, "checks")

    def runs(self) -> list[RunJson]:
        """Every training run."""
        return self._items(RunJson, "runs", PAGE)

    def goodput(self, run: str) -> LedgerJson:
        """A run's ledger."""
        return self._get(LedgerJson, f"runs/{quote(run, safe='')}/goodput")

    def attempts(self, run: str) -> AttemptsJson:
        """The newest attempts of a run, part by part."""
        return self._get(AttemptsJson, f"runs/{quote(run, safe='')}/attempts")

    def what_if(self, run: str, changes: Mapping[str, float]) -> WhatIfJson:
        """The run's history lived again with changes, seconds by name: `interval_s`, `restart_s` ..."""
        return self._get(WhatIfJson, "what-if", {"run": run, **{name: str(s) for name, s in changes.items()}})

    def cluster_goodput(self) -> ClusterGoodputJson:
        """What became of the cluster's GPU-hours of the last days."""
        return self._get(ClusterGoodputJson, "goodput/cluster")

    def causes(self, by: str, since: datetime, until: datetime | None = None) -> CausesJson:
        """What the interruptions of a time cost, by cause, node, device ...: the hundred costliest."""
        end = {} if until is None else {"until": until.isoformat()}
        params = {"by": by, "since": since.isoformat(), "limit": "100", **end}
        return self._get(CausesJson, "goodput/causes", params)

    def checkpoint_advice(self, run: str) -> CheckpointAdviceJson:
        """How often the run should save, with the measured inputs."""
        return self._get(CheckpointAdviceJson, "advice/checkpoint", {"run": run})

    def mtbf(self) -> MtbfJson:
        """The time between failures by component, with its interval."""
        return self._get(MtbfJson, "advice/mtbf")

    def gains_advice(self, run: str) -> GainsAdviceJson:
        """What each change would gain the run, the largest first."""
        return self._get(GainsAdviceJson, "advice/gains", {"run": run})

    def spares_advice(self) -> SparesAdviceJson:
        """How many spare nodes the cluster should keep, with the measured inputs."""
        return self._get(SparesAdviceJson, "advice/spares")

    def lemons(self) -> RepairListJson:
        """The nodes that should go to repair, the worst first."""
        return self._get(RepairListJson, "lemons")

    def riskiest(self, count: int) -> RiskiestJson:
        """The nodes to check first, and how likely it is that one of them fails."""
        return self._get(RiskiestJson, "riskiest", {"count": str(count)})

    def link_scores(self, limit: int) -> list[LinkScoreJson]:
        """The links that are the likeliest to be lost within a day; none where they were never scored."""
        return self._items(LinkScoreJson, "links", limit)

    def hints(self) -> list[HintJson]:
        """The newest thousand hints, newest first."""
        return self._newest(HintJson, "hints", PAGE)

    def hint(self, ident: str, node: str) -> HintJson | None:
        """A hint of a node as it is now; None where it is no more among the node's newest."""
        return next((one for one in self.hints_of(node) if one.id == ident), None)

    def stopped(self) -> StopJson:
        """What the kill switch stops, and by whom."""
        return self._get(StopJson, "stop")

    def stop(self, what: str, reason: str) -> None:
        """Stop new holds (`holds`), all orders (`all`), or let them go on (`none`); needs the scope `act`."""
        self._send("POST", "stop", {}, {"stop": what, "reason": reason})

    def trips(self) -> list[TripJson]:
        """The breaker's trips that nobody has reset, newest first."""
        params = {"in_force": "true", "limit": str(PAGE)}
        return list(self._page(TripJson, "breaker", params).items)

    def reset(self, trip: int, backlog: str) -> None:
        """End a trip: what had called is to `drop`, or each to wait for a person (`review`); needs the scope `act`."""
        self._send("POST", f"breaker/{trip}/reset", {}, {"backlog": backlog})

    def budget(self) -> BudgetJson:
        """How many nodes are held at our request, and how many may be."""
        return self._get(BudgetJson, "budget")

    def policy(self) -> PolicyInForceJson:
        """Which policy asks, and whether its file holds."""
        return self._get(PolicyInForceJson, "policy")

    def outcomes(self) -> HindsightJson:
        """What came of the hints of the last thirty days."""
        return self._get(HindsightJson, "hints/outcomes")

    def audit(self, limit: int) -> list[AuditJson]:
        """The audit, newest first; `limit` <= 1000."""
        return list(self._page(AuditJson, "audit", {"limit": str(limit)}).items)

    def decide(self, hint: str, verb: str) -> None:
        """Approve or withdraw a hint (needs a token with the scope `act`)."""
        self._send("POST", f"hints/{quote(hint, safe='')}/{verb}", {})

    def _items(self, kind: type[T], path: str, limit: int) -> list[T]:
        """A list, page by page, of at most `limit` records."""
        found: list[T] = []
        cursor: str | None = None
        while len(found) < limit:
            params = {"limit": str(min(PAGE, limit)), **({"cursor": cursor} if cursor else {})}
            page = self._page(kind, path, params)
            found += page.items
            cursor = page.next_cursor
            if not cursor or not page.items:
                break
        return found

    def _newest(self, kind: type[T], path: str, limit: int, params: Mapping[str, str] | None = None) -> list[T]:
        """The first page of a list that ends with the newest, turned round."""
        return list(self._page(kind, path, {"limit": str(limit), **(params or {})}).items[::-1])

    def _page(self, kind: type[T], path: str, params: Mapping[str, str]) -> Page[T]:
        return self._get(Page[kind], path, params)  # type: ignore[valid-type]

    def _strange(self, why: str) -> ApiProblem:
        return ApiProblem(f"The answer of {self.server} is not Foreshock's ({why}): check --server and its version.")

    def _get(self, kind: type[T], path: str, params: Mapping[str, str] | None = None) -> T:
        key = (*self._headers.items(), kind, path, *(params or {}).items())
        return self._shared.get(key, lambda: self._decoded(kind, self._send("GET", path, params or {})))

    def _decoded(self, kind: type[T], body: bytes) -> T:
        try:
            return decode(kind, body)
        except AnswerError as error:
            raise self._strange(str(error)) from error

    def _send(self, method: str, path: str, params: Mapping[str, str], body: Mapping[str, str] | None = None) -> bytes:
        """The body of one request's answer."""
        return self._respond(method, path, params, body).content

    def _respond(
        self, method: str, path: str, params: Mapping[str, str], body: Mapping[str, str] | None = None
    ) -> httpx2.Response:
        """One request; every way that it can fail becomes a sentence."""
        try:
            response = self._http.request(method, path, params=dict(params), json=body, headers=dict(self._headers))
            if method != "GET":
                self._shared.forget()
        except httpx2.TimeoutException as error:
            raise ApiProblem(f"{self.server} did not answer within {TIMEOUT_S:.0f} s: it may be overloaded.") from error
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise ApiProblem(
                f"Nothing answers at {self.server} ({error}): start it with `foreshock serve`, or correct --server."
            ) from error
        if response.status_code == 401 and self._headers:
            raise SignInOver(f"Your sign-in does not hold any more ({_detail(response)}). Sign in again.")
        if response.status_code >= 400:
            if response.status_code == 401 and "authorization" in self._http.headers:
                raise ApiProblem(_REFUSED.format(self.server, _detail(response)))
            raise ApiProblem(_sentence(response, self.server))
        return response


_REFUSED = "{} refuses the token that the dashboard was given ({}): write a known one into the file of --token-file."


def _sentence(response: httpx2.Response, server: str) -> str:
    """What an error status means to the person who reads the page."""
    detail, told = _detail(response), _told(response)
    match response.status_code:
        case 401:
            return f"{server} wants a token: start the dashboard with --token-file FILE ({detail})."
        case 403:
            return f"You may not do this here ({detail}): it takes another role, or a token with the scope."
        case 404 if told is None or told == NOTHING_HERE:
            return f"{server} does not know this request: it is of another version than the dashboard, or no Foreshock."
        case 404:
            return f"{detail[:1].upper()}{detail[1:]}."
        case 409:
            return f"That is no longer possible: {detail}."
        case 503 if told is not None:
            return f"{server} cannot answer now: {detail}."
        case status:
            return f"{server} answered {status}: {detail}."


def _detail(response: httpx2.Response) -> str:
    """The `detail` of an RFC 9457 answer, else the status in words."""
    return (_told(response) or response.reason_phrase or "no reason given")[:300].rstrip(".")


def _told(response: httpx2.Response) -> str | None:
    """The `detail` of an RFC 9457 answer, or its title; None of any other answer."""
    try:
        body = response.json()
    except ValueError:
        return None
    said = (body.get("detail") or body.get("title")) if isinstance(body, dict) else None
    return None if said is None else str(said)

"""The thin client: what an answer means, how fast it asks, how it ends; of a server that says what few ones do."""

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Thread

import pytest
from real.patience import patience
from real.programs import wait_for

from schedulers.kubernetes.access import ClusterAccess, KubernetesSettings
from schedulers.kubernetes.client import ApiError, KubernetesClient, RequestPace
from schedulers.kubernetes.mirror import NodeMirror
from schedulers.kubernetes.node import KubernetesNode
from schedulers.kubernetes.pods import EvictionRound, Pod, PodMetadata, evict, eviction_version
from schedulers.reconcile.actuator import SchedulerAwayError


@dataclass
class Server:
    """Answers by path; a list of answers is given one after the other, the last for ever."""

    url: str
    answers: dict[str, list[tuple[int, bytes, Mapping[str, str]]]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    def say(self, path: str, *answers: tuple[int, object] | tuple[int, object, Mapping[str, str]]) -> None:
        """What a path answers."""
        bodies = [(a[0], a[1] if isinstance(a[1], bytes) else json.dumps(a[1]).encode(), *a[2:]) for a in answers]
        self.answers[path] = [(b[0], b[1], b[2] if len(b) > 2 else {}) for b in bodies]  # type: ignore[misc]


@pytest.fixture
def server() -> Iterator[Server]:
    """One on the loopback."""

    class Handler(BaseHTTPRequestHandler):
        """Looks its answer up."""

        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            said.asked.append(self.path)
            found = said.answers[self.path.partition("?")[0]]
            status, body, headers = found.pop(0) if len(found) > 1 else found[0]
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            if status == 299:  # a stream that does not end
                self.end_headers()
                self.wfile.write(body)
                self.wfile.flush()
                ended.wait(patience(30))
                self.close_connection = True
                return
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.do_GET()

        def do_PATCH(self) -> None:
            self.do_POST()

        def log_message(self, *words: object) -> None:
            """Quiet."""

    ended = Event()
    http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    said = Server(f"http://127.0.0.1:{http.server_port}")
    thread = Thread(target=http.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield said
    ended.set()
    http.shutdown()
    http.server_close()
    thread.join()


@contextmanager
def asking(server: Server, **settings: object) -> Iterator[KubernetesClient]:
    """A client, closed at the end."""
    client = KubernetesClient(
        ClusterAccess(server.url, ssl.create_default_context()), KubernetesSettings("sim", **settings)
    )  # type: ignore[arg-type]
    try:
        yield client
    finally:
        client.close()


@pytest.mark.parametrize(
    ("status", "body", "conflict", "invalid"),
    [
        (409, {"reason": "Conflict"}, True, False),
        (422, {"reason": "Invalid", "details": {}}, True, False),  # a test of a JSON-Patch that does not hold
        (422, {"reason": "Invalid", "details": {"causes": [{"reason": "FieldValueInvalid"}]}}, False, True),
        (400, {"reason": "BadRequest"}, False, True),
        (403, {"reason": "Forbidden"}, False, False),
        (404, {"reason": "NotFound"}, False, False),
        (500, {"reason": "InternalError"}, False, False),
        (503, b"<html>the proxy is tired</html>", False, False),
    ],
)
def test_a_refusal_says_whether_repeating_helps(
    server: Server, status: int, body: object, conflict: bool, invalid: bool
) -> None:
    """Whoever it comes from."""
    server.say("/x", (status, body))
    with asking(server) as client, pytest.raises(ApiError, match=str(status)) as error:
        client.call("GET", "/x")
    assert (error.value.status, error.value.is_conflict, error.value.is_invalid) == (status, conflict, invalid)


def test_who_throttles_says_how_long(server: Server) -> None:
    """In the header, or in the details."""
    server.say("/header", (429, {}, {"retry-after": "7"}))
    server.say("/details", (429, {"details": {"retryAfterSeconds": 3}}))
    with asking(server) as client:
        for path, wait_s in (("/header", 7.0), ("/details", 3.0)):
            with pytest.raises(ApiError) as error:
                client.call("GET", path)
            assert error.value.retry_after_s == wait_s


def test_what_is_no_api_server_is_an_outage(server: Server) -> None:
    """Say a login page where the API server should be."""
    server.say("/api/v1/nodes", (200, b"<html>Sign in</html>"))
    with asking(server) as client, pytest.raises(SchedulerAwayError, match="does not answer as an API server does"):
        client.get("/api/v1/nodes", KubernetesNode)


def test_a_dry_run_is_said_of_writes_alone(server: Server) -> None:
    """Reading needs none."""
    server.say("/x", (200, {}))
    with asking(server, dry_run=True) as client:
        client.call("GET", "/x")
        client.call("PATCH", "/x", {})
        client.call("POST", "/x", {})
    assert server.asked == ["/x", "/x?dryRun=All", "/x?dryRun=All"]


def test_requests_keep_their_pace() -> None:
    """A second's worth at once, then evenly; who has waited saves up no more than that."""
    now, slept = [0.0], list[float]()
    pace = RequestPace(10.0, clock=lambda: now[0], sleep=slept.append)
    for _ in range(12):
        pace.wait()
    assert slept == pytest.approx([0.1, 0.2])
    now[0] += 100.0
    slept.clear()
    for _ in range(11):
        pace.wait()
    assert slept == pytest.approx([0.1])


def page(version: str, names: list[str], more: str = "") -> dict[str, object]:
    """A page of a list."""
    items = [{"metadata": {"name": name, "resourceVersion": version}} for name in names]
    return {"metadata": {"resourceVersion": version, "continue": more}, "items": items}


STILL = (299, b"")


def test_a_list_comes_in_pages(server: Server) -> None:
    """All of them, in their order; then the watch goes on from there."""
    server.say("/api/v1/nodes", (200, page("5", ["a", "b"], "go")), (200, page("5", ["c"])), STILL)
    with asking(server) as client:
        mirror = NodeMirror(client)
        assert [node.name for node in mirror.nodes()] == ["a", "b", "c"]
        wait_for("the watch is asked for", lambda: len(server.asked) == 3)
        mirror.close()
    assert "continue=go" in server.asked[1]
    assert "watch=1&resourceVersion=5" in server.asked[2]


def test_pages_that_the_server_forgets_are_listed_at_once(server: Server) -> None:
    """410 between two pages."""
    server.say(
        "/api/v1/nodes",
        (200, page("5", ["a"], "go")),
        (410, {"reason": "Expired"}),
        (200, page("6", ["a", "b"])),
        STILL,
    )
    with asking(server) as client:
        mirror = NodeMirror(client)
        assert [node.name for node in mirror.nodes()] == ["a", "b"]
        mirror.close()


def test_a_watch_that_the_server_ends_with_an_error_is_begun_anew(server: Server) -> None:
    """With a list, which has what came in between."""
    gone = b'{"type":"ERROR","object":{"kind":"Status","status":"Failure","code":410}}\n'
    server.say("/api/v1/nodes", (200, page("5", ["a"])), (200, gone), (200, page("9", ["b"])), STILL)
    with asking(server) as client:
        mirror = NodeMirror(client)
        mirror.nodes()
        thread = mirror._thread
        assert thread is not None
        thread.join(patience(30))
        assert [node.name for node in mirror.nodes()] == ["b"]
        mirror.close()


def test_what_the_watch_brings_late_undoes_no_write_of_ours(server: Server) -> None:
    """The newer version stays, whichever comes first."""
    late = b"".join(
        json.dumps({"type": kind, "object": {"metadata": {"name": name, "resourceVersion": version}}}).encode() + b"\n"
        for kind, name, version in (("MODIFIED", "a", "6"), ("ADDED", "b", "10"), ("BOOKMARK", "", "11"))
    )
    server.say("/api/v1/nodes", (200, page("5", ["a"])), (299, late))
    with asking(server) as client:
        mirror = NodeMirror(client)
        mirror._list()
        ours = client.decode(b'{"metadata": {"name": "a", "resourceVersion": "8"}}', KubernetesNode)
        mirror.put(ours)
        thread = Thread(target=mirror._follow)
        thread.start()
        wait_for("the watch has told all", lambda: mirror._version == "11")
        assert mirror.get("a") == ours
        assert mirror.get("b") is not None
        mirror.close()
        client.close()
        thread.join(patience(30))
        assert not thread.is_alive()


def test_a_client_that_is_closed_lets_its_readers_end_first(server: Server) -> None:
    """Else the number of their socket would be another connection's, and they would read what is not theirs."""
    server.say("/watch", (299, b"one\n"))
    reading, go_on, ends = Event(), Event(), list[str]()

    def follow() -> None:
        try:
            with client.follow("/watch", {}, 30.0) as lines:
                for _ in lines:
                    reading.set()
                    go_on.wait(patience(30))
        except SchedulerAwayError as error:
            ends.append(str(error))

    with asking(server) as client:
        thread = Thread(target=follow)
        thread.start()
        assert reading.wait(patience(30))
        client.close()
        assert not client._http.is_closed
        with pytest.raises(SchedulerAwayError, match="given up"):
            client.call("GET", "/watch")
        go_on.set()
        thread.join(patience(30))
        assert not thread.is_alive()
        assert client._http.is_closed


@pytest.mark.parametrize(
    ("served", "version"),
    [
        (["policy/v1beta1"], "policy/v1beta1"),
        (["policy/v1", "policy/v1beta1"], "policy/v1"),
        (["policy/v1"], "policy/v1"),
        ([], "policy/v1"),
    ],
)
def test_evictions_are_asked_in_a_version_that_is_served(server: Server, served: list[str], version: str) -> None:
    """Of Kubernetes from 1.20 to now."""
    server.say("/apis/policy", (200, {"versions": [{"groupVersion": name} for name in served]}))
    with asking(server) as client:
        assert eviction_version(client) == version


def test_each_pod_is_asked_to_go_once(server: Server) -> None:
    """One that ends already is only waited for, one that is gone is not; who is held back is told with the reason."""
    going, gone, other, held, free = (f"/api/v1/namespaces/ns/pods/{name}" for name in ("a", "b", "c", "d", "e"))
    server.say(f"{gone}/eviction", (404, {}))
    server.say(f"{other}/eviction", (409, {}))
    server.say(f"{held}/eviction", (429, {"reason": "TooManyRequests", "message": "the budget"}))
    server.say(f"{free}/eviction", (201, {}))
    pods = [Pod(PodMetadata(name, "ns", f"uid-{name}")) for name in ("b", "c", "d", "e")]
    ending = Pod(PodMetadata("a", "ns", "uid-a", deletionTimestamp="2026-11-22T12:00:00Z"))
    with asking(server) as client:
        came = evict(client, [ending, *pods], "policy/v1")
    assert came == EvictionRound(left=3, blocked={"ns/d": "HTTP 429 TooManyRequests: the budget"})
    assert came.words == "3 pods left, 1 held back (ns/d: HTTP 429 TooManyRequests: the budget)"
    assert server.asked == [f"{path}/eviction" for path in (gone, other, held, free)]
    assert going not in " ".join(server.asked)

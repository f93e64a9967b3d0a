"""The client: typed answers, pages followed, and one plain sentence for every way to fail."""

import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest

from dashboard.client import ApiProblem
from wire.message import NOTHING_HERE


def test_the_cluster_is_typed(api: Any, connect: Any) -> None:
    """States, times and the model come as records."""
    cluster = connect(api.url).cluster()
    assert cluster.now == datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
    assert cluster.states["faulty"] == 1
    assert cluster.sources[0].source == "kernel"


def test_the_token_is_sent_and_a_trailing_slash_does_not_matter(api: Any, connect: Any) -> None:
    """Every request bears the token."""
    connect(f"{api.url}/", "sesame").cluster()
    assert api.asked == [("GET", "cluster", {}, "Bearer sesame")]


def test_pages_are_followed_to_the_end(connect: Any) -> None:
    """A cursor leads to the next page."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        second = request.url.params.get("cursor") == "next"
        items = [{"node": "b"}] if second else [{"node": "a"}]
        return httpx2.Response(200, json={"items": items, "next_cursor": None if second else "next"})

    client = connect("http://api", transport=httpx2.MockTransport(answer))
    assert [node.node for node in client.nodes()] == ["a", "b"]


def test_a_server_that_never_ends_its_pages_is_left_in_time(connect: Any) -> None:
    """There is a limit on every loop: an empty page ends it, and so does the number of items."""
    asked = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json={"items": [{"node": "a"}] * 1000, "next_cursor": "again"})

    nodes = connect("http://api", transport=httpx2.MockTransport(answer)).nodes()
    assert len(nodes) == 20_000
    assert len(asked) == 20
    empty = httpx2.MockTransport(lambda _: httpx2.Response(200, json={"items": [], "next_cursor": "again"}))
    assert connect("http://api", transport=empty).nodes() == []


def test_a_node_is_one_request(api: Any, connect: Any) -> None:
    """The item of the list and the details."""
    node = connect(api.url).node("gpu-017")
    assert (node.node, node.hint and node.hint.state) == ("gpu-017", "proposed")
    assert node.incidents[0].code == 79
    assert node.telemetry[0].power_max_w is None
    assert [entry[1] for entry in api.asked] == ["nodes/gpu-017"]


def test_names_are_escaped_in_the_path(api: Any, connect: Any) -> None:
    """A run may be called anything."""
    with pytest.raises(ApiProblem):
        connect(api.url).goodput("a/b ?x")
    assert api.asked[0][1] == "runs/a%2Fb%20%3Fx/goodput"


def test_the_newest_come_first(api: Any, connect: Any) -> None:
    """Events arrive newest last and are shown newest first, incidents likewise."""
    older = api.answers["events"]["items"][0] | {"time": "2025-03-28T00:00:00Z", "id": "e0"}
    api.answers["events"]["items"].insert(0, older)
    try:
        assert [event.id for event in connect(api.url).events(10)] == ["e1", "e0"]
    finally:
        api.answers["events"]["items"].pop(0)
    connect(api.url).incidents(300)
    assert api.asked[-1] == ("GET", "incidents", {"limit": "300"}, None)


def test_a_decision_is_a_post(api: Any, connect: Any) -> None:
    """Approve and withdraw need no body."""
    api.answers["hints/h1/withdraw"] = {}
    api.answers["hints/h1/approve"] = (204, b"")
    connect(api.url).decide("h1", "withdraw")
    connect(api.url).decide("h1", "approve")
    assert [entry[:2] for entry in api.asked] == [("POST", "hints/h1/withdraw"), ("POST", "hints/h1/approve")]


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (
            401,
            {"detail": "send a known token"},
            r"wants a token: start the dashboard with --token-file.*\(send a known",
        ),
        (403, {"detail": "token 'd' lacks the scope act"}, "may not do this.*lacks the scope act"),
        (404, {"detail": "no node 'g9' has been heard of"}, "^No node 'g9' has been heard of.$"),
        (404, {"detail": NOTHING_HERE}, "does not know this request: it is of another version"),
        (404, b"<html>", "does not know this request"),
        (409, {"detail": "the hint has expired."}, "no longer possible: the hint has expired.$"),
        (503, {"detail": "the database is busy"}, "cannot answer now: the database is busy.$"),
        (500, b"<html>oh</html>", "answered 500: Internal Server Error.$"),
        (500, b"[1]", "answered 500"),
        (200, b"<html>another server</html>", "not Foreshock's.*no JSON.*check --server"),
        (200, [1], "not Foreshock's"),
        (200, {"now": "noon"}, r"not Foreshock's \(ClusterJson.now"),
    ],
)
def test_every_wrong_answer_is_one_sentence_with_a_remedy(
    api: Any, status: int, body: Any, says: str, connect: Any
) -> None:
    """What the page shows."""
    api.answers["cluster"] = (status, body)
    with pytest.raises(ApiProblem, match=says) as caught:
        connect(api.url).cluster()
    assert "\n" not in str(caught.value)


def test_a_token_that_is_refused_is_not_told_as_missing(api: Any, connect: Any) -> None:
    """One was given: another is to be written into its file."""
    api.answers["cluster"] = (401, {"detail": "send a known token"})
    with pytest.raises(
        ApiProblem, match=r"refuses the token that the dashboard was given \(send a known token\): write"
    ):
        connect(api.url, "wrong").cluster()


def test_a_list_without_items_is_no_list(api: Any, connect: Any) -> None:
    """Another server's answer."""
    api.answers["nodes"] = {"nodes": []}
    with pytest.raises(ApiProblem, match="missing required field items"):
        connect(api.url).nodes()
    api.answers["hints"] = [1]
    with pytest.raises(ApiProblem, match="expected object, got array"):
        connect(api.url).hints()


def test_nobody_there_says_how_to_start_the_server(connect: Any) -> None:
    """A port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with pytest.raises(ApiProblem, match=r"Nothing answers at.*foreshock serve"):
        connect(f"http://127.0.0.1:{port}").cluster()


def test_a_silent_server_is_given_up_on(connect: Any) -> None:
    """A timeout is named as one."""

    def never(request: httpx2.Request) -> httpx2.Response:
        raise httpx2.ReadTimeout("too slow", request=request)

    with pytest.raises(ApiProblem, match="did not answer within 10 s"):
        connect("http://api", transport=httpx2.MockTransport(never)).cluster()


@pytest.mark.parametrize("server", ["http://[::1", "http://host:port"])
def test_an_address_that_is_none_is_refused(server: str, connect: Any) -> None:
    """At once, not at the first request."""
    with pytest.raises(ApiProblem, match="is no address: start the dashboard with --server"):
        connect(server)


def test_a_proxy_of_the_environment_is_not_asked_about_this_machine(
    api: Any, monkeypatch: Any, tmp_path: Path, connect: Any
) -> None:
    """Loopback is reached directly."""
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")
    assert connect(api.url).cluster().nodes == 3

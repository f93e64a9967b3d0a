"""What the client makes of gateways, proxies and validators that answer in its server's place."""

from collections.abc import Callable
from typing import Any

import httpx2
import msgspec
import pytest

from dashboard.client import ApiProblem
from wire import message
from wire.cluster import ClusterJson
from wire.goodput import LedgerJson
from wire.message import AnswerError


def decode(kind: Any, body: Any) -> Any:
    """The object of a JSON value."""
    return message.decode(kind, msgspec.json.encode(body))


PROBLEM = {"content-type": "application/problem+json"}


def refusing(connect: Any, response: Callable[[], httpx2.Response]) -> ApiProblem:
    """The trouble that a reading client reports."""
    client = connect("http://api:10870", transport=httpx2.MockTransport(lambda _: response()))
    with pytest.raises(ApiProblem) as caught:
        client.cluster()
    return caught.value


def test_a_problem_document_is_quoted_by_its_detail(connect: Any) -> None:
    """RFC 9457: the detail, else the title; never the type's address."""
    body = {"type": "about:blank", "title": "Unprocessable", "status": 422, "detail": "since: no time: 'noon'."}
    trouble = refusing(connect, lambda: httpx2.Response(422, json=body, headers=PROBLEM))
    assert str(trouble) == "http://api:10870 answered 422: since: no time: 'noon'."
    del body["detail"]
    trouble = refusing(connect, lambda: httpx2.Response(422, json=body, headers=PROBLEM))
    assert str(trouble) == "http://api:10870 answered 422: Unprocessable."


def test_a_validators_list_of_errors_is_bounded(connect: Any) -> None:
    """A page of them does not fill the screen."""
    body = {"detail": [{"loc": ["query", "limit"], "msg": "too large"}] * 50}
    said = str(refusing(connect, lambda: httpx2.Response(422, json=body)))
    assert "too large" in said
    assert len(said) < 400


@pytest.mark.parametrize("status", [502, 503, 504])
def test_a_gateways_page_is_its_status_in_words(connect: Any, status: int) -> None:
    """Not its HTML."""
    said = str(refusing(connect, lambda: httpx2.Response(status, html="<html><h1>nginx</h1></html>")))
    assert f"answered {status}: " in said
    assert "<" not in said


@pytest.mark.parametrize("status", [302, 307])
def test_a_login_page_in_front_is_not_taken_for_the_api(connect: Any, status: int) -> None:
    """A redirect is not followed with the token to wherever it leads."""
    headers = {"location": "https://login.example/"}
    said = str(refusing(connect, lambda: httpx2.Response(status, headers=headers, html="<html>moved</html>")))
    assert "is not Foreshock's (it is no JSON)" in said


def test_a_login_page_with_status_200_is_not_taken_for_the_api(connect: Any) -> None:
    """The commonest of all."""
    said = str(refusing(connect, lambda: httpx2.Response(200, html="<html>Sign in</html>")))
    assert said == "The answer of http://api:10870 is not Foreshock's (it is no JSON): check --server and its version."


def test_an_empty_answer_is_no_answer(connect: Any) -> None:
    """No content is no cluster."""
    assert "(it is no JSON)" in str(refusing(connect, lambda: httpx2.Response(200)))


def test_an_answer_that_is_no_text_is_no_json(connect: Any) -> None:
    """Bytes of another program on the port."""
    assert "no JSON" in str(refusing(connect, lambda: httpx2.Response(200, content=b"\xff\xfe\x00SSH-2.0")))


@pytest.mark.parametrize(
    "error",
    [httpx2.ConnectTimeout, httpx2.ReadTimeout, httpx2.WriteTimeout, httpx2.PoolTimeout],
)
def test_every_timeout_is_named_as_one(connect: Any, error: type[httpx2.TimeoutException]) -> None:
    """Connecting, reading, writing, waiting for a connection."""

    def late() -> httpx2.Response:
        raise error("late")

    assert str(refusing(connect, late)) == "http://api:10870 did not answer within 10 s: it may be overloaded."


@pytest.mark.parametrize("error", [httpx2.ConnectError, httpx2.ReadError, httpx2.RemoteProtocolError])
def test_a_broken_connection_says_how_to_mend_it(connect: Any, error: type[httpx2.HTTPError]) -> None:
    """Refused, cut in the middle, or not HTTP."""

    def broken() -> httpx2.Response:
        raise error("gone")

    said = str(refusing(connect, broken))
    assert said.startswith("Nothing answers at http://api:10870 (gone): start it with `foreshock serve`")


@pytest.mark.parametrize("token", ["sésame", "one\ntwo", "a\tb", "“quoted”"])
def test_a_token_that_cannot_be_one_is_refused_at_once(connect: Any, token: str) -> None:
    """A whole file of them, or a word processor's quotes: no traceback, and the token is not shown."""
    with pytest.raises(ApiProblem, match=r"The token is none.*Correct --token-file") as caught:
        connect("http://api:10870", token)
    assert token not in str(caught.value)


def test_an_empty_token_is_none(connect: Any) -> None:
    """An empty file means no header at all."""
    asked: list[httpx2.Request] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request)
        return httpx2.Response(200, json={"now": "2025-03-29T03:12:00Z"})

    connect("http://api", "", httpx2.MockTransport(answer)).cluster()
    assert "authorization" not in asked[0].headers


def test_a_page_that_fails_in_the_middle_of_a_list_is_no_half_list(connect: Any) -> None:
    """Half the nodes would be taken for all."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        if request.url.params.get("cursor"):
            return httpx2.Response(503, json={"detail": "busy"})
        return httpx2.Response(200, json={"items": [{"node": "a"}], "next_cursor": "b"})

    with pytest.raises(ApiProblem, match="cannot answer now: busy"):
        connect("http://api", transport=httpx2.MockTransport(answer)).nodes()


def test_the_numbers_of_an_object_are_read_as_numbers() -> None:
    """A null among them is left out, text is refused with its name."""
    cluster = decode(ClusterJson, {"now": "2025-03-29T03:12:00Z", "states": {"ok": 3.0, "out": None}})
    assert cluster.states == {"ok": 3}
    with pytest.raises(AnswerError, match=r"LedgerJson\.buckets.*: expected float, got str"):
        decode(LedgerJson, {"run": "r", "wall_s": 1, "buckets": {"waiting": "long"}})

"""Several addresses, over real sockets; TLS with an authority and client certificates of our own."""

import ssl
import subprocess
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest
from real.patience import patience

from collectors.ship.transport import ServerAccess, Servers, Transport, batch_id, in_order

URLS = ["https://a", "https://b", "https://c"]
ACCESS = ServerAccess(timeout_s=patience(2))
PATH = "/api/v1/events"


def preferred(servers: list[Any], node: str) -> list[Any]:
    """The servers in a node's order."""
    by_url = {server.url: server for server in servers}
    return [by_url[url] for url in in_order(list(by_url), node)]


def test_nodes_spread_evenly_and_each_keeps_its_order() -> None:
    """Whichever address is away, its nodes go to the others alike; the order in the file says nothing."""
    orders = [in_order(URLS, f"gpu-{i:05d}") for i in range(12_500)]
    first = Counter(order[0] for order in orders)
    second = Counter(order[1] for order in orders if order[0] == URLS[0])
    assert min(first.values()) > 0.95 * 12_500 / 3
    assert min(second.values()) > 0.9 * first[URLS[0]] / 2
    assert in_order(URLS[::-1], "gpu-00001") == orders[1]


def test_the_next_address_is_tried_and_the_preferred_one_comes_back(recorders: list[Any]) -> None:
    """Away: it rests; when its rest is over it is asked first again."""
    now = [0.0]
    first, second, _third = preferred(recorders, "n1")
    servers = Servers([each.url for each in recorders], "n1", ACCESS, clock=lambda: now[0])
    with closing(servers):
        assert servers.post(PATH, [1]).status == 202
        first.stop()
        assert servers.post(PATH, [2]).status == 202
        first.start()
        assert servers.post(PATH, [3]).status == 202
        now[0] = 11.0
        assert servers.post(PATH, [4]).status == 202
    assert (first.events, second.events) == ([1, 4], [2, 3])


@pytest.mark.parametrize("status", [500, 502, 503, 504])
def test_an_address_that_cannot_is_passed_over(recorders: list[Any], status: int) -> None:
    """A load balancer without a backend, say."""
    first, second, _third = preferred(recorders, "n1")
    first.answers = [(status, {}, {})]
    with closing(Servers([each.url for each in recorders], "n1", ACCESS)) as servers:
        assert servers.post(PATH, [1]).status == 202
    assert second.events == [1]


@pytest.mark.parametrize("reply", [(503, {"Retry-After": "7"}, {}), (429, {}, {}), (401, {}, {}), (422, {}, {})])
def test_what_an_address_says_for_all_is_not_asked_again_elsewhere(recorders: list[Any], reply: Any) -> None:
    """A server that is overrun would be overrun three times over."""
    first, second, third = preferred(recorders, "n1")
    first.answers = [reply]
    with closing(Servers([each.url for each in recorders], "n1", ACCESS)) as servers:
        answer = servers.post(PATH, [1])
    assert (answer.status, answer.retry_after_s) == (reply[0], 7.0 if reply[1] else None)
    assert second.requests == third.requests == []


def test_with_every_address_away_all_are_tried_each_time(recorders: list[Any]) -> None:
    """Nothing is gained by waiting for a rest to end."""
    for each in recorders:
        each.stop()
    last = preferred(recorders, "n1")[2]
    with closing(Servers([each.url for each in recorders], "n1", ACCESS)) as servers:
        assert servers.post(PATH, [1]).status == 0
        last.start()
        assert servers.post(PATH, [1]).status == 202


@pytest.mark.parametrize(("compress", "encoding"), [("zstd", "zstd"), ("gzip", "gzip"), ("none", None)])
def test_a_batch_is_compressed_as_told_and_bears_the_name_of_its_content(
    recorder: Any, compress: Any, encoding: str | None
) -> None:
    """The same content has the same name, however it is packed."""
    with closing(Transport(recorder.url, ServerAccess(timeout_s=patience(2), compress=compress))) as transport:
        transport.post(PATH, ["x" * 5000])
        transport.post(PATH, ["y"])
    large, small = (request["headers"] for request in recorder.requests)
    assert (large.get("content-encoding"), small.get("content-encoding")) == (encoding, None)
    assert large["foreshock-batch"] == batch_id(orjson.dumps(["x" * 5000]))
    assert large["foreshock-batch"] != small["foreshock-batch"]
    assert recorder.events == ["x" * 5000, "y"]


def test_a_server_that_knows_no_zstd_gets_gzip_from_then_on(recorder: Any) -> None:
    """415: an older server, or a proxy that unpacks."""

    def judge(_queue: str, _items: list[Any]) -> Any:
        return (415, {}, {}) if recorder.requests[-1]["headers"].get("content-encoding") == "zstd" else None

    recorder.judge = judge
    with closing(Transport(recorder.url, ServerAccess(timeout_s=patience(2)))) as transport:
        assert transport.post(PATH, ["x" * 5000]).status == 202
        assert transport.post(PATH, ["x" * 5000]).status == 202
    assert [request["headers"]["content-encoding"] for request in recorder.requests] == ["zstd", "gzip", "gzip"]
    assert len({request["headers"]["foreshock-batch"] for request in recorder.requests}) == 1


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, a server's and a client's certificate, as openssl makes them."""
    folder = tmp_path_factory.mktemp("tls")

    def openssl(*arguments: str) -> None:
        try:
            subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
        except FileNotFoundError:
            pytest.skip("openssl is not installed (Debian package openssl)")

    ec = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
    openssl("req", "-x509", *ec, "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=our authority", "-days", "2")
    for name in ("server", "client"):
        openssl("req", *ec, "-keyout", f"{name}.key", "-out", f"{name}.csr", "-subj", f"/CN={name}")
        (folder / "san").write_text("subjectAltName=IP:127.0.0.1")
        signed = ["-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san", "-days", "2"]
        openssl("x509", "-req", "-in", f"{name}.csr", "-out", f"{name}.pem", *signed)
    return folder


def test_an_authority_and_a_client_certificate_of_our_own(recorder: Any, certificates: Path) -> None:
    """Without the authority it is not trusted, without the certificate the server refuses; with both it is taken."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "server.pem", certificates / "server.key")
    context.load_verify_locations(certificates / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    recorder.server.socket = context.wrap_socket(recorder.server.socket, server_side=True)
    url = recorder.url.replace("http", "https")
    ca, cert, key = (certificates / name for name in ("ca.pem", "client.pem", "client.key"))
    answers = {}
    for name, access in (
        ("untrusted", ServerAccess(timeout_s=patience(2), cert_file=cert, key_file=key)),
        ("unknown", ServerAccess(timeout_s=patience(2), ca_file=ca)),
        ("missing", ServerAccess(timeout_s=patience(2), ca_file=certificates / "none.pem")),
        ("good", ServerAccess(timeout_s=patience(2), ca_file=ca, cert_file=cert, key_file=key)),
    ):
        with closing(Transport(url, access)) as transport:
            answers[name] = transport.post(PATH, [name])
    assert "CERTIFICATE_VERIFY_FAILED" in answers["untrusted"].text
    assert answers["unknown"].status == 0
    assert "none.pem" in answers["missing"].text
    assert answers["good"].status == 202
    assert recorder.events == ["good"]

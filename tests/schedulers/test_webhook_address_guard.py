"""Which addresses are connected to: of names, of literal addresses, of IPv4 inside IPv6."""

import ipaddress
import socket
import ssl
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real.patience import patience

from schedulers.webhooks import post as post_module
from schedulers.webhooks.post import (
    METADATA,
    AddressGuard,
    AddressRefusedError,
    is_literal,
    networks,
    permitted,
)
from schedulers.webhooks.settings import WebhookSettings
from schedulers.webhooks.webhook import Webhook
from store.hints.outbox import Delivery

from .cluster import NOW
from .http_receiver import receiving

SECRET = "whsec_c2hvd24taW4tYW4tZXhhbXBsZS1vbmx5LTEyMzQ="
DELIVERY = Delivery("i", "h", "ops", {"type": "x", "data": {}}, 0, NOW)
EVERYTHING = networks(["0.0.0.0/0", "::/0"])


def resolving(monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> list[str]:
    """From now on names resolve to these, one answer after the other; returns what was asked."""
    asked: list[str] = []

    real = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, *rest: Any, **named: Any) -> list[Any]:
        if host[0].isdigit():
            return real(host, port, *rest, **named)
        asked.append(host)
        found = answers[min(len(asked), len(answers)) - 1]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in found]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    return asked


def why_not(text: str, **guard: Any) -> str | None:
    """What the guard says of an address."""
    return AddressGuard(**guard).why_not(ipaddress.ip_address(text))


@pytest.mark.parametrize(
    "address",
    [
        *("169.254.169.254", "fd00:ec2::254", "100.100.100.200", "192.0.0.192", "::ffff:169.254.169.254"),
        *("168.63.129.16", "::ffff:168.63.129.16", "169.254.170.2", "169.254.170.23", "fd00:ec2::23", "fd20:ce::254"),
        *("2002:a83f:8110::1", "64:ff9b::a83f:8110", "2001:0:4136:e378:8000:63bf:57c0:7eef"),  # Azure's in disguise
        *("2001:0:4136:e378:8000:63bf:5601:5601", "fe80::5efe:a9fe:a9fe", "2001:db8::200:5efe:a9fe:a9fe"),
        *("64:ff9b:1::a9fe:a9fe", "::a9fe:a9fe", "::ffff:0:a9fe:a9fe"),
        *(
            "2002:a9fe:a9fe::",
            "64:ff9b::a9fe:a9fe",
            str(ipaddress.IPv4Address(0)),
            "::",
            "224.0.0.1",
            "ff02::1",
            "255.255.255.255",
        ),
    ],
)
def test_some_addresses_are_never_connected_to(address: str) -> None:
    """Not even where everything is allowed and the URL names them: they hand out the machine's credentials."""
    assert why_not(address, allow=EVERYTHING, literal=True, secure=True) is not None


@pytest.mark.parametrize("address", ["169.254.7.7", "fe80::1"])
def test_link_local_takes_a_word_of_the_operator(address: str) -> None:
    """In `allow`."""
    assert why_not(address, literal=True, secure=True) == "link-local"
    assert why_not(address, allow=EVERYTHING) is None


@pytest.mark.parametrize("address", ["127.0.0.1", "127.9.9.9", "::1", "::ffff:127.0.0.1"])
def test_loopback_is_reached_by_its_own_name(address: str) -> None:
    """Or by `allow`; a certificate is no reason."""
    assert why_not(address, secure=True) == "loopback"
    assert why_not(address, literal=True) is None
    assert why_not(address, allow=EVERYTHING) is None


@pytest.mark.parametrize(
    "address",
    [
        *("10.1.2.3", "192.168.1.1", "172.16.0.1", "100.64.3.3", "fd12::1", "::ffff:10.0.0.1", "fec0::1", "feff::9"),
        *("2002:0a01:0203::1", "64:ff9b::a01:203", "2001:0:4136:e378:8000:63bf:f5fe:fdfc", "2a00::5efe:a01:203"),
    ],
)
def test_private_networks_take_a_certificate_or_a_word(address: str) -> None:
    """Most schedulers live there; over plain http a name proves nothing."""
    assert "private" in (why_not(address) or "")
    for guard in ({"secure": True}, {"literal": True}, {"allow": EVERYTHING}):
        assert why_not(address, **guard) is None
    assert why_not("10.1.2.3", allow=networks(["10.0.0.0/8"])) is None
    assert why_not("10.1.2.3", allow=networks(["192.168.0.0/16", "fd00::/8"])) is not None


@given(st.ip_addresses())
def test_every_address_is_judged(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> None:
    """What is not global is never let pass for its name alone; nothing crashes."""
    verdict = AddressGuard().why_not(address)
    if address in METADATA or address.is_loopback or address.is_link_local or address.is_multicast:
        assert verdict is not None
    if isinstance(address, ipaddress.IPv4Address):
        mapped = ipaddress.IPv6Address(f"::ffff:{address}")
        assert AddressGuard().why_not(mapped) == verdict


@pytest.mark.parametrize(
    ("host", "literal"),
    [
        ("127.0.0.1", True), ("::1", True), ("localhost", True), ("LOCALHOST.", True),
        ("2130706433", False), ("0x7f.1", False), ("127.1", False), ("scheduler", False), ("localhost.x", False),
    ],
)  # fmt: skip
def test_what_counts_as_an_address_in_the_url(host: str, literal: bool) -> None:
    """Other ways to write one are names."""
    assert is_literal(host) is literal


def test_an_address_in_disguise_is_refused() -> None:
    """The resolver takes 127.1 for 127.0.0.1."""
    with pytest.raises(AddressRefusedError, match="loopback"):
        permitted("127.1", 80, AddressGuard())


def test_a_name_is_resolved_once_and_that_address_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """The next answer, to a service of the site, comes too late: there is no second question."""
    with receiving() as receiver:
        asked = resolving(monkeypatch, ["127.0.0.1"], ["169.254.169.254"])
        url = f"http://scheduler.example:{receiver.port}/hook"
        hook = Webhook(WebhookSettings("ops", url, SECRET, timeout_s=patience(5.0), allow=("127.0.0.1",)))
        assert hook.send(DELIVERY, NOW).result == "delivered"
        assert asked == ["scheduler.example"]
        assert receiver.got[0][0]["host"] == f"scheduler.example:{receiver.port}"
        refused = hook.send(DELIVERY, NOW)
    assert (refused.result, refused.slow) == ("retry", True)
    assert "169.254.169.254 is a cloud's metadata service" in refused.detail
    assert len(receiver.got) == 1


def test_of_several_addresses_the_refused_ones_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """And one where nobody listens does not keep the message from the next."""
    with receiving() as receiver:
        resolving(monkeypatch, ["169.254.169.254", "127.0.0.2", "127.0.0.1"])
        url = f"http://scheduler.example:{receiver.port}/hook"
        hook = Webhook(WebhookSettings("ops", url, SECRET, timeout_s=patience(5.0), allow=("127.0.0.0/8",)))
        assert hook.send(DELIVERY, NOW).result == "delivered"


def test_without_allow_a_name_does_not_lead_to_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says what to set."""
    with receiving() as receiver:
        resolving(monkeypatch, ["127.0.0.1"])
        outcome = Webhook(WebhookSettings("ops", f"http://x.example:{receiver.port}/", SECRET)).send(DELIVERY, NOW)
    assert outcome.result == "retry"
    assert "127.0.0.1 is loopback" in outcome.detail
    assert "`allow`" in outcome.detail
    assert receiver.got == []


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of scheduler.example and its key."""
    files = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=scheduler.example"
    subject = ["-addext", "subjectAltName=DNS:scheduler.example", "-out", str(files[0]), "-keyout", str(files[1])]
    subprocess.run([*command.split(), *subject], check=True, capture_output=True)
    return files


def tls_answer(listener: socket.socket, certificate: tuple[Path, Path], names: list[str | None]) -> None:
    """Answer one connection over TLS; keeps the name that was asked for."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*map(str, certificate))
    context.sni_callback = lambda _socket, name, _context: names.append(name)
    with listener.accept()[0] as raw:
        try:
            with context.wrap_socket(raw, server_side=True) as connection:
                got = b""
                while not got.endswith(b"}}"):  # a close before all is read would reset the connection
                    got += connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")
        except OSError:
            pass  # the client did not like the certificate


@pytest.mark.parametrize(("name", "result"), [("scheduler.example", "delivered"), ("other.example", "retry")])
def test_the_certificate_must_be_the_name_s(
    monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path], name: str, result: str
) -> None:
    """Though the address is what is connected to: that is why https may lead to a private network."""
    monkeypatch.setattr(post_module, "_tls", lambda: ssl.create_default_context(cafile=str(certificate[0])))
    resolving(monkeypatch, ["127.0.0.1"])
    names: list[str | None] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=tls_answer, args=(listener, certificate, names))
        thread.start()
        url = f"https://{name}:{listener.getsockname()[1]}/"
        hook = Webhook(WebhookSettings("ops", url, SECRET, timeout_s=patience(5.0), allow=("127.0.0.1",)))
        assert hook.send(DELIVERY, NOW).result == result
        thread.join()
    assert names == [name]

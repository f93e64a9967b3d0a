"""One POST to a receiver: to an allowed address only, within a time limit for all of it, without redirects.

The operator's file names the receivers, but not what their names resolve to: whoever answers for a name could turn our
messages to a service of the site itself (server-side request forgery). So a name is resolved once per attempt, and that
very address is used. Which addresses are allowed:

- never: metadata services of clouds, multicast, unspecified and reserved addresses;
- link-local: only where `allow` names the network;
- loopback: where the URL says so itself (a literal address, `localhost`), or `allow` names the network;
- private networks: also over https, whose certificate proves that the name's owner answers;
- all others: yes.

An IPv4 address inside an IPv6 one (mapped, 6to4, NAT64, Teredo, ISATAP) is judged as the IPv4 address that it leads to.
IPv6's old site-local addresses (fec0::/10) are private ones.
"""

import contextlib
import functools
import ipaddress
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import httpx2

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address
Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network

# Who asks these gets the machine's credentials or its cloud's commands.
METADATA = frozenset(
    ipaddress.ip_address(text)
    for text in (
        "169.254.169.254",  # AWS, GCP, Azure, Oracle
        "fd00:ec2::254",  # AWS over IPv6
        "fd20:ce::254",  # GCP over IPv6
        "169.254.170.2",  # AWS ECS: a task's credentials
        "169.254.170.23",  # AWS EKS: a pod's
        "fd00:ec2::23",  # the same over IPv6
        "168.63.129.16",  # Azure's WireServer: a public address that each of its machines reaches
        "100.100.100.200",  # Alibaba
        "192.0.0.192",  # Oracle
    )
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_ISATAP = (0x00005EFE, 0x02005EFE)  # in front of the IPv4 address, which is the last 32 bits (RFC 5214)
_SHARED = ipaddress.ip_network("100.64.0.0/10")  # of carriers; some clouds number their insides with it


class AddressRefusedError(ValueError):
    """No address of a receiver may be connected to; the message says why and what to set."""


@dataclass(frozen=True, slots=True)
class AddressGuard:
    """What the operator allows, and how the receiver is addressed. `literal`: the URL names the address itself."""

    allow: tuple[Network, ...] = ()
    literal: bool = False
    secure: bool = False  # https

    def why_not(self, address: Address) -> str | None:
        """Why an address is refused; None where it is not."""
        led = _led_to(address)
        if led in METADATA:
            return "a cloud's metadata service"
        if led.is_multicast or led.is_unspecified or _is_reserved(led):
            return "no address of one machine"
        if any(led in network for network in self.allow if network.version == led.version):
            return None
        if led.is_link_local:
            return "link-local"
        if led.is_loopback:
            return None if self.literal else "loopback"
        if led.is_private or (led in _SHARED if isinstance(led, ipaddress.IPv4Address) else led.is_site_local):
            return None if self.literal or self.secure else "private, and plain http proves nothing"
        return None


def networks(allow: Sequence[str]) -> tuple[Network, ...]:
    """The networks of a setting: `10.0.0.0/8`, `127.0.0.1`.

    Raises:
        ValueError: one is none; the message names it.
    """
    return tuple(ipaddress.ip_network(text, strict=False) for text in allow)


def is_literal(host: str) -> bool:
    """Whether a URL's host is an address itself, or `localhost`."""
    if host.rstrip(".").lower() == "localhost":
        return True
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def permitted(host: str, port: int, guard: AddressGuard) -> list[str]:
    """The addresses of a host that may be connected to, in the resolver's order.

    Raises:
        AddressRefusedError: none of them may.
        OSError: the name does not resolve.
    """
    found = [str(info[4][0]) for info in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)]
    refused = {text: guard.why_not(ipaddress.ip_address(text)) for text in dict.fromkeys(found)}
    kept = [text for text, why in refused.items() if why is None]
    if not kept:
        said = "; ".join(f"{text} is {why}" for text, why in refused.items())
        raise AddressRefusedError(f"{host} is not connected to: {said} (docs/webhooks.md, `allow`)")
    return kept


def _led_to(address: Address) -> Address:
    """The address that packets end at."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    inner = address.ipv4_mapped or address.sixtofour
    if inner is None and address.teredo is not None:
        inner = address.teredo[1]  # the client behind the tunnel
    if inner is None and (address in _NAT64 or (int(address) >> 32) & 0xFFFFFFFF in _ISATAP):
        inner = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return inner or address


def _is_reserved(address: Address) -> bool:
    # Of IPv6 all that is not handed out yet is "reserved", ::1 and what embeds IPv4 with it.
    return address.is_reserved and not address.is_loopback


# Of an answer so much is read: a vendor's verdict is a line.
MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class WebhookMessage:
    """What goes out: the body, its type, and what a format adds to the headers and the URL."""

    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReceiverAnswer:
    """What came back; `body` is cut at MAX_ANSWER_BYTES."""

    status: int
    retry_after: str | None
    body: bytes


class NoAnswerError(Exception):
    """A receiver that could not be reached, or did not answer as HTTP does; the message says how."""


@dataclass(frozen=True, slots=True)
class ReceiverRoute:
    """How a receiver is reached. With a proxy it is that which resolves the name, and guards."""

    url: str
    guard: AddressGuard
    timeout_s: float
    proxy: str = ""


def post(way: ReceiverRoute, message: WebhookMessage) -> ReceiverAnswer:
    """Send a message; where an address refuses the connection, the name's next one is tried.

    Raises:
        AddressRefusedError: the name leads to none that may be connected to.
        NoAnswerError: nobody took it, or not in time.
    """
    try:
        url = httpx2.URL(way.url)
        url = url.copy_merge_params(message.query) if message.query else url
        addresses = [url.host] if way.proxy else permitted(url.raw_host.decode("ascii"), _port(url), way.guard)
        for position, address in enumerate(addresses):
            try:
                return _post_to(way, url, address, message)
            except httpx2.ConnectError:
                if position == len(addresses) - 1:
                    raise
    except AddressRefusedError:
        raise
    except (httpx2.HTTPError, httpx2.InvalidURL, UnicodeError, OSError, ValueError) as error:
        raise NoAnswerError(f"{type(error).__name__}: {error}"[:300]) from error
    raise NoAnswerError("the name resolves to nothing")


def _post_to(way: ReceiverRoute, url: httpx2.URL, address: str, message: WebhookMessage) -> ReceiverAnswer:
    headers = {"content-type": message.content_type, "user-agent": "foreshock", **message.headers}
    headers["host"] = url.netloc.decode("ascii")
    stop = _Deadline()
    # The certificate is that of the name, and the address is not asked for again.
    extensions = {"sni_hostname": url.raw_host.decode("ascii"), "trace": stop.follow}
    transport = httpx2.HTTPTransport(verify=_tls(), proxy=way.proxy or None)
    with httpx2.Client(transport=transport, timeout=way.timeout_s, follow_redirects=False) as client:
        timer = threading.Timer(way.timeout_s, stop.cut)
        timer.start()
        try:
            direct = url.copy_with(host=address)
            request = client.build_request("POST", direct, content=message.body, headers=headers, extensions=extensions)
            answer = client.send(request, stream=True)
            try:
                body = b""
                for chunk in answer.iter_bytes():
                    body += chunk
                    if len(body) >= MAX_ANSWER_BYTES:
                        break
            finally:
                answer.close()
        finally:
            timer.cancel()
    return ReceiverAnswer(answer.status_code, answer.headers.get("retry-after"), body[:MAX_ANSWER_BYTES])


class _Deadline:
    """Ends a connection when its time is over: a timeout of each read alone lets a slow answer drip for hours."""

    def __init__(self) -> None:
        self._stream: Any = None

    def follow(self, event: str, info: Mapping[str, Any]) -> None:
        """Told by the client what it does; keeps the connection that it made."""
        if event in ("connection.connect_tcp.complete", "connection.start_tls.complete"):
            self._stream = info["return_value"]

    def cut(self) -> None:
        """End it: whoever reads from it finds it closed."""
        found = None if self._stream is None else self._stream.get_extra_info("socket")
        if isinstance(found, socket.socket):
            with contextlib.suppress(OSError):  # it has ended by itself
                socket.socket.shutdown(found, socket.SHUT_RDWR)


def _port(url: httpx2.URL) -> int:
    return url.port or (443 if url.scheme == "https" else 80)


@functools.cache
def _tls() -> ssl.SSLContext:
    # Reading the certificates takes longer than a message.
    return httpx2.create_ssl_context()

"""One POST to a receiver: to an address that the guard let pass, within a time for all of it, without redirects."""

import contextlib
import functools
import socket
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx2

from schedulers.webhooks.address_guard import AddressRefusedError, Guard, permitted

# Of an answer so much is read: a vendor's verdict is a line.
MAX_ANSWER_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True)
class Message:
    """What goes out: the body, its type, and what a format adds to the headers and the URL."""

    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; `body` is cut at MAX_ANSWER_BYTES."""

    status: int
    retry_after: str | None
    body: bytes


class NoAnswerError(Exception):
    """A receiver that could not be reached, or did not answer as HTTP does; the message says how."""


@dataclass(frozen=True, slots=True)
class Way:
    """How a receiver is reached. With a proxy it is that which resolves the name, and guards."""

    url: str
    guard: Guard
    timeout_s: float
    proxy: str = ""


def post(way: Way, message: Message) -> Answer:
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


def _post_to(way: Way, url: httpx2.URL, address: str, message: Message) -> Answer:
    headers = {"content-type": message.content_type, "user-agent": "foreshock", **message.headers}
    headers["host"] = url.netloc.decode("ascii")
    stop = _Stop()
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
    return Answer(answer.status_code, answer.headers.get("retry-after"), body[:MAX_ANSWER_BYTES])


class _Stop:
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

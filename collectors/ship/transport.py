"""POST of one JSON document to the server: compressed, with the token, over a connection that is kept.

The standard library's client, for its size: the sidecar's memory is held to twice node_exporter's. TLS trusts what
the system trusts, or one CA file; proxies are not used.
"""

import hashlib
import importlib
import random
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path
from typing import Any, Literal, Protocol, TypeAlias
from urllib.parse import urlsplit

import orjson

from wire.access.address import clear_text

# How long to wait before the next try: longer each time, never the same for two nodes.


class Backoff:
    """Doubling waits with jitter between half and the whole of each step, in seconds."""

    def __init__(self, first_s: float, most_s: float) -> None:
        self._first_s = first_s
        self._most_s = most_s
        self._step_s = first_s

    def next_s(self) -> float:
        """The wait before the next try."""
        step, self._step_s = self._step_s, min(self._step_s * 2, self._most_s)
        # Jitter spreads the sidecars of a cluster whose server comes back; nothing secret hangs on it.
        return step * random.uniform(0.5, 1.0)  # noqa: S311

    def reset(self) -> None:
        """It worked: the next wait is short again."""
        self._step_s = self._first_s


Compress: TypeAlias = Literal["zstd", "gzip", "none"]
_COMPRESS_FROM = 1024  # smaller bodies gain nothing
_MOST_RETRY_AFTER_S = 3600.0
_MOST_ANSWER_BYTES = 1024 * 1024
_DENIED = frozenset({401, 403})


@dataclass(frozen=True, slots=True)
class ServerAnswer:
    """What the server said, of a problem its `detail`. `status` 0: it was not reached, `text` says why."""

    status: int
    text: str = ""
    body: bytes = b""
    retry_after_s: float | None = None

    def is_denied(self) -> bool:
        """Whether a person must act: no time mends a token."""
        return self.status in _DENIED

    def why(self) -> str:
        """Why it did not take what it was sent, for a log."""
        if self.is_denied():
            return f"the server denies the token (HTTP {self.status}: {self.text}): give one with the scope `ingest`"
        return self.text or f"HTTP {self.status}"


@dataclass(frozen=True, slots=True)
class ServerAccess:
    """How a server is talked to. Files are read when they are needed, so that what is rotated holds at once."""

    token_file: Path | None = None
    timeout_s: float = 10.0
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    compress: Compress = "zstd"
    insecure_http: bool = False  # the token may go in clear text: something else encrypts the way

    def refusal(self, url: str) -> str | None:
        """Why our token may not go to an address; None where it may, or there is none."""
        return None if self.token_file is None or self.insecure_http else clear_text(url)


class ServerClient(Protocol):
    """What takes items to one address."""

    def post(self, path: str, items: Sequence[Any] | Mapping[str, Any]) -> ServerAnswer:
        """Send items; never raises: a server that is away is an answer too."""

    def close(self) -> None:
        """Let go of the connection."""


class Transport:
    """A client of one server over HTTP. Not safe for several threads."""

    def __init__(self, server: str, access: ServerAccess) -> None:
        parts = urlsplit(server)
        self._secure = parts.scheme == "https"
        self._address = (parts.hostname or "", parts.port or (443 if self._secure else 80))
        self._prefix = parts.path.rstrip("/")
        self._access = access
        self._refusal = access.refusal(server)
        self._compress: Compress = access.compress
        self._connection: HTTPConnection | None = None
        self._tls: tuple[object, ssl.SSLContext] | None = None

    def post(self, path: str, items: Sequence[Any] | Mapping[str, Any]) -> ServerAnswer:
        """Send items as a JSON array (an object as it is). Never raises: a server that is away is an answer too."""
        if self._refusal is not None:
            return ServerAnswer(0, self._refusal)
        body = orjson.dumps(items)
        headers = {"Content-Type": "application/json", "Foreshock-Batch": batch_id(body)}
        try:
            if self._access.token_file is not None:  # read each time: a token that is rotated holds at once
                token = self._access.token_file.read_text(encoding="utf-8").strip()
                if not token:
                    return ServerAnswer(0, f"{self._access.token_file} is empty: write the token into it")
                headers["Authorization"] = f"Bearer {token}"
            answer = self._post(path, body, headers)
            if answer.status == 415 and self._compress == "zstd":  # an older server, or a proxy that unpacks
                self._compress = "gzip"
                answer = self._post(path, body, headers)
        except (OSError, HTTPException, ValueError) as error:
            return ServerAnswer(0, f"{type(error).__name__}: {error}")
        return answer

    def close(self) -> None:
        """Let go of the connection."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _post(self, path: str, body: bytes, headers: dict[str, str]) -> ServerAnswer:
        if self._compress != "none" and len(body) >= _COMPRESS_FROM:
            body = packed(body, self._compress)
            headers = {**headers, "Content-Encoding": self._compress}
        return self._exchange(self._prefix + path, body, headers)

    def _exchange(self, path: str, body: bytes, headers: dict[str, str]) -> ServerAnswer:
        kept = self._connection
        try:
            return self._ask(kept or self._connect(), path, body, headers)
        except (OSError, HTTPException) as error:
            self.close()
            if kept is None or isinstance(error, TimeoutError):
                raise
            # The server had closed the kept connection: a fresh one decides. Sending twice changes nothing.
        try:
            return self._ask(self._connect(), path, body, headers)
        except (OSError, HTTPException):
            self.close()
            raise

    @staticmethod
    def _ask(connection: HTTPConnection, path: str, body: bytes, headers: dict[str, str]) -> ServerAnswer:
        connection.request("POST", path, body, headers)
        with connection.getresponse() as response:
            content = response.read(_MOST_ANSWER_BYTES)
            if response.read(1):
                raise HTTPException("the answer is far too long: is this the API's address?")
            if response.length:
                raise HTTPException("the answer broke off")
            return ServerAnswer(
                response.status,
                _detail(content),
                content,
                retry_after_s(response.getheader("Retry-After"), datetime.now(UTC)),
            )

    def _connect(self) -> HTTPConnection:
        host, port = self._address
        timeout_s = self._access.timeout_s
        if self._secure:
            self._connection = HTTPSConnection(host, port, timeout=timeout_s, context=self._context())
        else:
            self._connection = HTTPConnection(host, port, timeout=timeout_s)
        return self._connection

    def _context(self) -> ssl.SSLContext:
        """Made anew only when a file has changed: reading the system's authorities takes a while."""
        access = self._access
        files = (access.ca_file, access.cert_file, access.key_file)
        stamp = [file and (file.stat().st_mtime_ns, file.stat().st_ino) for file in files]
        if self._tls is None or self._tls[0] != stamp:
            context = ssl.create_default_context(cafile=access.ca_file)
            if access.cert_file is not None:
                context.load_cert_chain(access.cert_file, access.key_file)
            self._tls = (stamp, context)
        return self._tls[1]


def _detail(content: bytes) -> str:
    """What an answer says: the `detail` of a problem (RFC 9457), else how it begins."""
    try:
        return str(orjson.loads(content)["detail"])[:300]
    except (ValueError, KeyError, TypeError):
        return content[:300].decode("utf-8", errors="replace")


def batch_id(body: bytes) -> str:
    """The name of a batch, made of its content: the same batch sent again has the same."""
    return hashlib.blake2b(body, digest_size=16).hexdigest()


def packed(body: bytes, compress: Compress) -> bytes:
    """The body compressed. On real batches zstd takes a quarter of gzip's time and leaves half its bytes."""
    if compress == "zstd":
        import zstandard  # 1.5 MB of memory that a quiet node does without

        return zstandard.ZstdCompressor(level=1).compress(body)
    import gzip

    return gzip.compress(body, compresslevel=3)


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After asks for (a number or a date), at most an hour; None where it says nothing."""
    if header is None:
        return None
    try:
        wait_s = float(header)
    except ValueError:
        try:
            wait_s = (parsedate_to_datetime(header) - now).total_seconds()
        except (ValueError, TypeError):
            return None
    return min(max(0.0, wait_s), _MOST_RETRY_AFTER_S) if wait_s == wait_s else None


# Several addresses of one server: each node prefers one of them, so that a cluster's sidecars spread evenly.
#
#     servers = Servers(["https://a:10870", "https://b:10870"], "gpu-017", Access(token_file=Path("token")))
#     answer = servers.post("/api/v1/events", items)
#
# The order is a hash of the node's name with each address, so that of 12,500 sidecars those of an address that is away
# go to all the others alike. An address that does not answer rests, ever longer, and then is preferred again.

# No answer, or one that the address's own process did not give or could not. With a Retry-After it is alive, and busy.
_AWAY = frozenset({0, 500, 502, 503, 504})
_FIRST_REST_S = 10.0
_MOST_REST_S = 300.0


@dataclass(slots=True)
class _ServerAddress:
    client: ServerClient
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_REST_S, _MOST_REST_S))
    rests_until_s: float = 0.0  # monotonic


class Servers:
    """A client of whichever address answers. Not safe for several threads."""

    def __init__(
        self,
        urls: Sequence[str],
        node: str,
        access: ServerAccess,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`urls` in any order: http(s)://, or nats:// (tls://) where a queue stands in front of the server."""
        self._addresses = [_ServerAddress(make_client(url, access)) for url in in_order(urls, node)]
        self._clock = clock

    def post(self, path: str, items: Sequence[Any] | Mapping[str, Any]) -> ServerAnswer:
        """Send items to the first address that takes or refuses them; the last one's answer where all are away."""
        answer = ServerAnswer(0, "no server is known")
        awake = [address for address in self._addresses if address.rests_until_s <= self._clock()]
        for address in awake or self._addresses:
            answer = address.client.post(path, items)
            if answer.status not in _AWAY or answer.retry_after_s is not None:
                address.backoff.reset()
                address.rests_until_s = 0.0
                break
            address.rests_until_s = self._clock() + address.backoff.next_s()
        return answer

    def close(self) -> None:
        """Let go of every connection."""
        for address in self._addresses:
            address.client.close()


def in_order(urls: Sequence[str], node: str) -> list[str]:
    """The addresses as a node prefers them: the same each time, another order for another node."""
    return sorted(dict.fromkeys(urls), key=lambda url: hashlib.blake2b(f"{node} {url}".encode()).digest())


def make_client(url: str, access: ServerAccess) -> ServerClient:
    """The client that an address asks for by its scheme."""
    if url.startswith(("nats://", "tls://")):
        # Loaded where it is asked for: its packages are an extra.
        client: ServerClient = importlib.import_module("collectors.ship.nats_transport").NatsTransport(url, access)
        return client
    return Transport(url, access)

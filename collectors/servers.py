"""Several addresses of one server: each node prefers one of them, so that a cluster's sidecars spread evenly.

    servers = Servers(["https://a:10870", "https://b:10870"], "gpu-017", Access(token_file=Path("token")))
    answer = servers.post("/api/v1/events", items)

The order is a hash of the node's name with each address, so that of 12,500 sidecars those of an address that is away go
to all the others alike. An address that does not answer rests, ever longer, and then is preferred again.
"""

import hashlib
import importlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from collectors.backoff import Backoff
from collectors.transport import Access, Answer, Client, Transport

# No answer, or one that the address's own process did not give or could not. With a Retry-After it is alive, and busy.
_AWAY = frozenset({0, 500, 502, 503, 504})
_FIRST_REST_S = 10.0
_MOST_REST_S = 300.0


@dataclass(slots=True)
class _Address:
    client: Client
    backoff: Backoff = field(default_factory=lambda: Backoff(_FIRST_REST_S, _MOST_REST_S))
    rests_until_s: float = 0.0  # monotonic


class Servers:
    """A client of whichever address answers. Not safe for several threads."""

    def __init__(
        self,
        urls: Sequence[str],
        node: str,
        access: Access,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`urls` in any order: http(s)://, or nats:// where a queue stands in front of the server."""
        self._addresses = [_Address(make_client(url, access)) for url in in_order(urls, node)]
        self._clock = clock

    def __enter__(self) -> "Servers":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def post(self, path: str, items: Sequence[Any]) -> Answer:
        """Send items to the first address that takes or refuses them; the last one's answer where all are away."""
        answer = Answer(0, "no server is known")
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


def make_client(url: str, access: Access) -> Client:
    """The client that an address asks for by its scheme."""
    if url.startswith("nats://"):
        # Loaded where it is asked for: its packages are an extra.
        client: Client = importlib.import_module("collectors.nats_transport").NatsTransport(url, access)
        return client
    return Transport(url, access)

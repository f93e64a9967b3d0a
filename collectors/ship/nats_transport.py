"""Batches through NATS JetStream, for very large sites: a queue that keeps them, before the server that stores them.

    client = NatsTransport("nats://queue:4222", Access(token_file=Path("sidecar.creds")))
    client.post("/api/v1/events", items)  # 202 once JetStream has it on its disk, and not before

A batch goes to `foreshock.events.NODE`, `foreshock.telemetry.NODE` or `foreshock.heartbeats.NODE`: a JSON array, zstd,
under the id of its content, so that JetStream itself drops what is sent twice within its window. The subject is the
node that the records are of: NATS lets each user publish to the subjects of its own node alone. What speaks of the
fleet (no node, a switch, a scheduler) goes to `foreshock.events.=`, and whoever may publish there may speak for all.
"""

import asyncio
import re
import ssl
import threading
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, TypeVar
from urllib.parse import unquote, urlsplit

import orjson

from collectors.ship.transport import ServerAccess, ServerAnswer, batch_id, packed
from store.records.event_sources import FLEET_KINDS, FLEET_SOURCES
from wire.access.address import clear_text

PREFIX = "foreshock"
# Stands for no node in a subject: the fleet.
FLEET = "="
KINDS = ("events", "telemetry", "heartbeats")
ID_HEADER = "Nats-Msg-Id"
ENCODING_HEADER = "Content-Encoding"
_ROUTE = "/api/v1/"
_PLAIN = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
_MOST_TOKEN = 200
# What a credentials file holds beside the seed of its key.
_KEY = "BEGIN NATS USER JWT"
# As a server that takes 1 MiB a message has it, less what the headers take.
_MOST_BYTES = 1024 * 1024 - 4096

T = TypeVar("T")
# nats-server 2: Permissions Violation for Publish to "foreshock.events.gpu-018"; nats-py makes small letters of it.
_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"', re.IGNORECASE)


def token_of(node: str | None) -> str:
    """A node's name as a part of a subject: what no part may hold is `=` and two hex digits, byte by byte."""
    text = "".join(c if c in _PLAIN else "".join(f"={byte:02X}" for byte in c.encode()) for c in node or "")
    return text[:_MOST_TOKEN] or FLEET


def node_of(token: str) -> str:
    """The node that a part of a subject stands for."""
    return unquote(token.replace("%", "%25").replace("=", "%"), errors="replace")


def subjects_of(path: str, items: Sequence[Any]) -> dict[str, list[Any]] | None:
    """Items by where they go, which their nodes say; None for an address that the queue does not know."""
    kind = path.removeprefix(_ROUTE)
    if kind not in KINDS or not path.startswith(_ROUTE):
        return None
    found: dict[str, list[Any]] = {}
    for item in items:
        found.setdefault(f"{PREFIX}.{kind}.{_place_of(item)}", []).append(item)
    return found


def _place_of(item: Any) -> str:
    """The part of a subject that says of which node an item is."""
    if not isinstance(item, Mapping) or item.get("source") in FLEET_SOURCES or item.get("kind") in FLEET_KINDS:
        return FLEET
    node = item.get("node")
    return token_of(node if isinstance(node, str) else None)


class NatsTransport:
    """A client of one NATS server, or of the cluster that it belongs to. Not safe for several threads.

    The token file is a credentials file (`nsc generate creds`), or holds a plain token, or the password of the user
    that the address names; user and password may both stand in the address. nats-py is asyncio: it runs in a thread of
    its own.
    """

    def __init__(self, url: str, access: ServerAccess) -> None:
        self._url = url
        self._access = access
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: Any = None
        self._denied = ""  # the last subject that NATS did not let this user publish to

    def post(self, path: str, items: Sequence[Any] | Mapping[str, Any]) -> ServerAnswer:
        """Publish items, a message for each node. Never raises: a queue that is away is an answer too.

        Where one message fails, all come again: JetStream and the store know those that were taken.
        """
        subjects = None if isinstance(items, Mapping) else subjects_of(path, items)
        if subjects is None:
            return ServerAnswer(404, f"{path} does not go through NATS")
        for subject, own in subjects.items():
            refused = self._post(subject, own)
            if refused is not None:
                return refused
        return ServerAnswer(202, body=orjson.dumps({"accepted": len(items), "known": 0, "rejected": []}))

    def _post(self, subject: str, items: Sequence[Any]) -> ServerAnswer | None:
        """Publish items as one message; None: JetStream has it."""
        body = orjson.dumps(items)
        message = packed(body, "zstd")
        if len(message) > _MOST_BYTES:
            return ServerAnswer(413, f"{len(message)} bytes are too many for one message")
        headers = {ID_HEADER: f"{subject}:{batch_id(body)}", ENCODING_HEADER: "zstd"}
        try:
            self._run(self._publish(subject, message, headers))
        except Exception as error:  # noqa: BLE001 - nats-py raises a hundred kinds; all mean: not taken, try again
            self._drop()
            return self._refusal(subject, error)
        return None

    def _refusal(self, subject: str, error: Exception) -> ServerAnswer:
        """The answer to an error. NATS says a denied subject aside, and lets the publisher wait for its answer."""
        denied, self._denied = self._denied, ""
        if denied != subject:
            return _answer(error)
        text = f"NATS does not let this user publish to {subject}"
        # What is refused for good is put aside by the shipper; a node that may not send its own waits for a person.
        return ServerAnswer(422 if subject.endswith(f".{FLEET}") else 401, text)

    async def _note(self, error: Exception) -> None:
        """What NATS says aside."""
        found = _DENIED.search(str(error))
        if found is not None:
            self._denied = found[1]

    def close(self) -> None:
        """Let go of the connection and end the thread."""
        self._drop()
        if self._loop is not None and self._thread is not None:
            with suppress(Exception):  # it has a limit: what does not end by then is left
                self._run(_end_tasks())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = self._thread = None

    async def _publish(self, subject: str, message: bytes, headers: dict[str, str]) -> None:
        timeout_s = self._access.timeout_s
        if self._client is None:
            self._client = await connect(self._url, self._access, error_cb=self._note)
        await self._client.jetstream(timeout=timeout_s).publish(subject, message, timeout=timeout_s, headers=headers)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            self._loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=self._loop.run_forever, name="nats", daemon=True)
            self._thread.start()
        # Connecting and publishing have limits of their own; this one is for a name service that hangs.
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(3 * self._access.timeout_s)
        except TimeoutError:
            future.cancel()
            raise

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # it was broken: nothing is left to close
                self._run(client.close())


async def _end_tasks() -> None:
    """End what nobody waits for any more: a message whose time was over may still be on its way."""
    rest = asyncio.all_tasks() - {asyncio.current_task()}
    for task in rest:
        if not task.cancelling():  # one that is letting go of its connection goes on with that
            task.cancel()
    await asyncio.gather(*rest, return_exceptions=True)


async def connect(url: str, access: ServerAccess, **options: Any) -> Any:
    """A connection; without `options` one that does not mend itself: whoever posts again makes a new one.

    Raises:
        Exception: nats-py's own, OSError, ValueError: no server, not allowed, a file that cannot be read, a secret
            that would go in clear text.
    """
    from nats.aio.client import Client  # an extra: only who has such an address needs it

    async def quiet(_error: Exception) -> None:
        """What goes wrong comes back from the call; nats-py would print it as well."""

    client = Client()
    url, secrets = _secrets_of(url, access)
    settings: dict[str, Any] = {"allow_reconnect": False, "error_cb": quiet, "connect_timeout": access.timeout_s}
    if access.ca_file is not None or access.cert_file is not None or url.startswith("tls://"):
        settings["tls"] = ssl.create_default_context(cafile=access.ca_file)
        if access.cert_file is not None:
            settings["tls"].load_cert_chain(access.cert_file, access.key_file)
    if _KEY in _said_by_file(access):
        settings["user_credentials"] = str(access.token_file)
    # Asked for when the server has said whether it wants TLS: nats-py goes on without, where it does not.
    settings |= {name: partial(_secret, client, access, secret) for name, secret in secrets.items()}
    try:
        await client.connect(url, **{**settings, **options})
    except BaseException:
        await client.close()  # it leaves the socket of a connection open that was refused
        raise
    return client


def _said_by_file(access: ServerAccess) -> str:
    return "" if access.token_file is None else access.token_file.read_text(encoding="utf-8").strip()


def _secrets_of(url: str, access: ServerAccess) -> tuple[str, dict[str, str]]:
    """The address without them, and what nats-py would send as it stands: token, user and password.

    A credentials file is none of those: its key signs what the server says, and stays here.
    """
    parts, said = urlsplit(url), _said_by_file(access)
    user, password = (None if text is None else unquote(text) for text in (parts.username, parts.password))
    secrets: dict[str, str] = {}
    if user is not None and password is not None:
        secrets = {"user": user, "password": password}
    if said and _KEY not in said:
        secrets |= {"user": user, "password": said} if user is not None and password is None else {"token": said}
    elif not said and user is not None and password is None:
        secrets = {"token": user}
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl(), secrets


def _secret(client: Any, access: ServerAccess, secret: str) -> str:
    """The secret, once the connection is one that may carry it.

    Raises:
        ConnectionRefusedError: it would go in clear text.
    """
    said, server = client._server_info, client._current_server
    is_safe = access.insecure_http or said.get("tls_required")
    why = None if is_safe else clear_text(f"nats://{server.uri.netloc}")
    if why is not None:
        raise ConnectionRefusedError(f"{why}: the NATS server asks for no TLS")
    return secret


def _answer(error: Exception) -> ServerAnswer:
    """What the shipper does about an error: a refused name is a person's work, all else passes."""
    text = f"{type(error).__name__}: {error}"
    name = type(error).__name__
    if name == "NoStreamResponseError":
        return ServerAnswer(503, "JetStream has no stream for it: start `foreshock consume`, which makes it")
    if "authorization" in text.lower() or "permissions violation" in text.lower():
        return ServerAnswer(401, text)
    if name == "MaxPayloadError":
        return ServerAnswer(413, text)
    if getattr(error, "err_code", None):  # JetStream's own word: the stream is full, say
        return ServerAnswer(503, text)
    return ServerAnswer(0, text)

"""Request bodies: read under a limit, unpacked, split into records that can fail one by one."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from api.edge.admission import AtEdge, Edge, write_slot
from api.edge.problem import Problem
from api.edge.work_budget import worked
from api.server.state import Server, State
from parsers.text.packed import PackedError, small_frame, unzipped, unzstd
from wire.message import JsonBody, body_schema

# A body that is no larger, unpacked, and holds no more objects, lines and values, may be read in the event loop: it
# takes a few milliseconds, whatever it is made of. Forty events have some 120 objects and 500 values.
_SMALL_BYTES, _SMALL_OBJECTS, _SMALL_VALUES = 16 * 1024, 256, 2048


@asynccontextmanager
async def bounded_body(request: Request, server: State, edge: Edge) -> AsyncIterator[bytes]:
    """The body as sent; it has its room among all bodies for as long as the block lasts.

    Raises:
        Problem: 408 where it does not come, 413 over the limit, 415 for an unknown encoding, 429 of a node that sends
            too much at a time, 503 without room.
        ClientDisconnect: the client went away meanwhile.
    """
    taken = bytearray()
    with edge.shares.held(request) as take:
        try:
            await _read(request, server, edge, (taken, take))
            yield bytes(taken)
        finally:
            edge.bodies.give_back(len(taken))


async def _read(request: Request, server: State, edge: Edge, into: tuple[bytearray, Callable[[int], None]]) -> None:
    """Read the body into a buffer; each part first takes its room in the share of its node."""
    taken, take = into
    limit = server.settings.body_limit_bytes
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in _UNPACK:
        raise Problem(415, f"Content-Encoding {encoding[:40]!r} is not taken: use gzip, zstd or identity")
    announced = request.headers.get("content-length", "0")
    if announced.isdigit() and int(announced) > limit:
        raise _too_large(limit)
    body_s = server.settings.limits.body_s
    try:
        async with asyncio.timeout(body_s or None):
            async for part in request.stream():
                if len(taken) + len(part) > limit:
                    raise _too_large(limit)
                take(len(part))
                edge.bodies.take(len(part))
                taken += part
    except TimeoutError:
        raise Problem(408, f"the body was not there within {body_s:g} s", {"Connection": "close"}) from None
    finally:
        edge.charge(request, len(taken))


async def _packed(request: Request, server: Server, edge: AtEdge) -> AsyncIterator[bytes]:
    async with bounded_body(request, server, edge) as packed:
        yield packed


Packed = Annotated[bytes, Depends(_packed, scope="function")]


def unpack(request: Request, server: State, packed: bytes) -> bytes:
    """The body unpacked, still under the limit. Not async: it may take a while."""
    limit = server.settings.body_limit_bytes
    found = unpacked_within(request, packed, limit)
    if found is None:
        raise _too_large(limit)
    return found


def unpacked_within(request: Request, packed: bytes, limit: int) -> bytes | None:
    """The body unpacked; None where it is over a limit.

    Raises:
        Problem: 400, it is not packed as it says; 413 or 503, it takes too much work.
    """
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    take_apart = _UNPACK[encoding]
    if take_apart is None:
        return packed if len(packed) <= limit else None
    found = bytearray()
    try:
        for piece in worked(take_apart(packed)):
            found += piece
            if len(found) > limit:
                return None
    except PackedError as error:
        raise Problem(400, f"the body is no {encoding}: {error}") from error
    return bytes(found)


def small_body(request: Request, packed: bytes) -> bytes | None:
    """The body unpacked, where it is so small that it may be read where it stands: a hop to another thread costs more.

    Raises:
        Problem: as of `unpacked_within`.
    """
    found = unpacked_within(request, packed, _SMALL_BYTES) if len(packed) <= _SMALL_BYTES else None
    if found is None or found.count(b"{") > _SMALL_OBJECTS or found.count(b"\n") > _SMALL_OBJECTS:
        return None
    return found if found.count(b",") <= _SMALL_VALUES else None


async def stay(request: Request) -> None:
    """Go on only while somebody waits for the answer.

    Raises:
        ClientDisconnect: nobody does; what was sent comes again.
    """
    if await request.is_disconnected():
        raise ClientDisconnect


async def _turn(
    request: Request, _packed: Packed, _slot: Annotated[None, Depends(write_slot, scope="function")]
) -> None:
    """A slot to write, requested only when the body is there: a slow sender holds none."""
    await stay(request)


def _unpacked(request: Request, server: Server, packed: Packed, _turn: Annotated[None, Depends(_turn)]) -> bytes:
    return unpack(request, server, packed)


Body = Annotated[bytes, Depends(_unpacked)]


def _too_large(limit: int) -> Problem:
    return Problem(413, f"the body is over {limit} bytes, unpacked: send it in parts")


# Of one body. A sender packs it as one; files put together are a few.
MOST_PARTS = 10_000


def _gunzip(packed: bytes) -> Iterator[bytes]:
    return unzipped([packed], MOST_PARTS, padded=False)


def _unzstd(packed: bytes) -> Iterator[bytes]:
    content = small_frame(packed)
    return unzstd([packed], MOST_PARTS) if content is None else iter((content,))


_UNPACK: Mapping[str, Callable[[bytes], Iterator[bytes]] | None] = {
    "gzip": _gunzip,
    "x-gzip": _gunzip,
    "zstd": _unzstd,
    "identity": None,
    "": None,
}


# How request bodies appear in the published description.

_NDJSON = "application/x-ndjson"


def records_body(example: dict[str, Any], text: str) -> dict[str, Any]:
    """A body of records: a JSON array, or one object a line; gzip and zstd are unpacked."""
    schema = {"type": "array", "items": {"type": "object"}}
    return {
        "requestBody": {
            "required": True,
            "description": text,
            "content": {
                "application/json": {"schema": schema, "example": [example]},
                _NDJSON: {"schema": {"type": "string"}},
            },
        }
    }


# A small JSON body of one form: read under the limits of all bodies, and only once the caller is known to be allowed.
#
# ack: Annotated[AckJson, Depends(json_of(AckJson))]

M = TypeVar("M", bound=JsonBody)


def json_of(kind: type[M]) -> Callable[[Request, Server, bytes], M]:
    """A dependency that gives the body as an object of a kind; 422 with the first field that does not fit."""
    decoder = msgspec.json.Decoder(kind)

    def read(request: Request, server: Server, packed: Packed) -> M:
        try:
            return decoder.decode(unpack(request, server, packed) or b"{}")
        except msgspec.ValidationError as error:
            text, _, place = str(error).partition(" - at `$")
            name = place.strip("`.")
            raise Problem(422, f"{name or 'the body'}: {text}{_allowed(kind, name)}") from error
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise Problem(422, f"the body is no JSON: {error}") from error

    return read


def _allowed(kind: type[JsonBody], name: str) -> str:
    """The words that a field may hold, where they are few."""
    words = body_schema(kind).get("properties", {}).get(name, {}).get("enum", ())
    return f": use {', '.join(map(str, words[:-1]))} or {words[-1]}" if len(words) > 1 else ""


def described(kind: type[JsonBody], example: Mapping[str, Any]) -> dict[str, Any]:
    """The body in the published description, for `openapi_extra`."""
    content = {"application/json": {"schema": body_schema(kind), "example": dict(example)}}
    return {"requestBody": {"required": True, "content": content}}

"""Request bodies: read under a limit, unpacked, split into records that can fail one by one."""

import asyncio
import gzip
import io
import zlib
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeVar

import msgspec
import zstandard
from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from api.edge.admission import AtEdge, Edge, write_slot
from api.edge.problem import Problem
from api.server.state import Server, State
from wire.message import JsonBody, body_schema


@asynccontextmanager
async def bounded_body(request: Request, server: State, edge: Edge) -> AsyncIterator[bytes]:
    """The body as sent; it has its room among all bodies for as long as the block lasts.

    Raises:
        Problem: 408 where it does not come, 413 over the limit, 415 for an unknown encoding, 503 without room.
        ClientDisconnect: the client went away meanwhile.
    """
    taken = bytearray()
    try:
        await _read(request, server, edge, taken)
        yield bytes(taken)
    finally:
        edge.bodies.give_back(len(taken))


async def _read(request: Request, server: State, edge: Edge, taken: bytearray) -> None:
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
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    limit = server.settings.body_limit_bytes
    try:
        unpacked = _UNPACK[encoding](packed, limit + 1)
    except (OSError, EOFError, zlib.error, zstandard.ZstdError) as error:
        raise Problem(400, f"the body is no {encoding}: {error}") from error
    if len(unpacked) > limit:
        raise _too_large(limit)
    return unpacked


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


def _gunzip(packed: bytes, size: int) -> bytes:
    with gzip.GzipFile(fileobj=io.BytesIO(packed)) as stream:
        return stream.read(size)


def _unzstd(packed: bytes, size: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=2**27)
    with unpacker.stream_reader(io.BytesIO(packed), read_across_frames=True) as stream:
        found = stream.read(size)
    if len(found) < size:
        _check_whole(unpacker, packed)
    return found


def _check_whole(unpacker: zstandard.ZstdDecompressor, packed: bytes) -> None:
    """A reader takes a stream that is cut short for its end, and so would lose records in silence."""
    while packed:
        frame = unpacker.decompressobj()
        frame.decompress(packed)
        if not frame.eof:
            raise zstandard.ZstdError("it is cut short")
        packed = frame.unused_data


def _identity(packed: bytes, _size: int) -> bytes:
    return packed


_UNPACK = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd, "identity": _identity, "": _identity}


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
            raise Problem(422, f"{place.strip('`.') or 'the body'}: {text}") from error
        except (msgspec.DecodeError, RecursionError) as error:
            raise Problem(422, f"the body is no JSON: {error}") from error

    return read


def described(kind: type[JsonBody], example: Mapping[str, Any]) -> dict[str, Any]:
    """The body in the published description, for `openapi_extra`."""
    content = {"application/json": {"schema": body_schema(kind), "example": dict(example)}}
    return {"requestBody": {"required": True, "content": content}}

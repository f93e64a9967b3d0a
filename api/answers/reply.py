"""Answers: JSON with times in RFC 3339, UTC, microseconds; fast, since the store's records are typed already."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, TypeVar

import orjson
from fastapi import Response

from store.records.event import format_time
from store.records.incident import ThreadEntry
from wire.message import decode

T = TypeVar("T")


def reply(value: Any, status: int = 200) -> Response:
    """A JSON answer of records, dicts, lists and times."""
    return Response(dump(value), status, media_type="application/json")


def listing(items: Sequence[Any], next_cursor: str | None = None) -> Response:
    """One page."""
    return reply({"items": items, "next_cursor": next_cursor})


def content_of(kind: type[T], response: Response) -> T:
    """What an answer of another route says, typed: for a page that is made of answers."""
    return decode(kind, bytes(response.body))


def thread_json(thread: Iterable[ThreadEntry]) -> list[dict[str, Any]]:
    """The entries of a thread in an answer."""
    return [{"time": entry.time, **asdict(entry.word)} for entry in thread]


def dump(value: Any) -> bytes:
    """The bytes of a JSON document."""
    # Column names of SQLAlchemy are a kind of str that orjson takes only so.
    return orjson.dumps(value, default=_plain, option=orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_NON_STR_KEYS)


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return format_time(value)
    if isinstance(value, frozenset | tuple | set):
        return list(value)
    raise TypeError(f"{type(value).__name__} has no JSON form")

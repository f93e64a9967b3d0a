"""Pages: `limit` and an opaque `cursor` in, `items` and `next_cursor` out; the order is (time, id)."""

import base64
import binascii
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

import orjson
from fastapi import Query
from pydantic import BeforeValidator

from api.edge.problem import Problem
from store.records.event import RecordError, from_us, parse_time, to_us
from store.tables.pages import moment_of

MAX_LIMIT = 1000
_MOST_SEQ = 2**31 - 1  # what a list is numbered to; PostgreSQL compares its column with nothing beyond


@dataclass(frozen=True, slots=True)
class PageCursor:
    """Where a page ended. `backwards`: the pages lead to older ones."""

    time: datetime
    id: str
    backwards: bool = False

    def encode(self) -> str:
        """As the client hands it back: text that means nothing to it."""
        return base64.urlsafe_b64encode(orjson.dumps([to_us(self.time), self.id, self.backwards])).decode().rstrip("=")


def decode(text: str) -> PageCursor:
    """The cursor of a text.

    Raises:
        Problem: 422, it is none of ours.
    """
    try:
        padded = text + "=" * (-len(text) % 4)
        micros, ident, backwards = orjson.loads(base64.b64decode(padded, altchars=b"-_", validate=True))
        if type(micros) is int and type(ident) is str and type(backwards) is bool and "\x00" not in ident:
            return PageCursor(from_us(micros), ident, backwards)
    except (binascii.Error, ValueError, TypeError, OverflowError):
        pass
    raise Problem(422, "the cursor is none of this server's: start again without one")


def decode_seq(cursor: str | None) -> int | None:
    """The sequence number at which a page of a numbered list ended; None without a cursor.

    Raises:
        Problem: 422, it is another list's.
    """
    if cursor is None:
        return None
    text = decode(cursor).id
    if not (text.isascii() and text.isdigit() and len(text) < 18 and int(text) <= _MOST_SEQ):
        raise Problem(422, "the cursor is not one of this list's: start again without one")
    return int(text)


def page_of(
    rows: Sequence[dict[str, Any]], limit: int, newest: bool, time: str = "time"
) -> tuple[Sequence[dict[str, Any]], str | None]:
    """A page of at most `limit` out of objects read one beyond it, and the cursor of the next.

    Objects are oldest first; `newest` means that the page was read from the end and the next one lies before it.
    `time` is what orders them, beside `id`.
    """
    more = len(rows) > limit
    kept = rows[-limit:] if newest else rows[:limit]
    if not more:
        return kept, None
    edge = kept[0] if newest else kept[-1]
    return kept, PageCursor(moment_of(edge, time), edge["id"], newest).encode()


def _moment(value: Any) -> Any:
    """A time of a query. A `+` that nobody escaped has become a blank."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if len(text) > 6 and text[-6] == " " and text[-3] == ":":
        text = f"{text[:-6]}+{text[-5:]}"
    try:
        moment = parse_time(text)
    except RecordError as error:
        raise ValueError(str(error)) from error
    if not 1970 <= moment.year < 9999:
        raise ValueError("the year must lie between 1970 and 9998")
    return moment


def time_of(text: str) -> datetime | None:
    """The time that a text of a query is; None where it is none."""
    try:
        found = _moment(text)
    except ValueError:
        return None
    return found if isinstance(found, datetime) else None


Moment = Annotated[datetime, BeforeValidator(_moment)]
CursorText = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before.")]
Name = Annotated[str, Query(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]

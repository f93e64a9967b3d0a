"""JSON objects to typed records.

    decode(Event, {"time": "2025-03-01T04:05:06Z", "node": "gpu-017", "kind": "xid", "code": 79, ...})

A field that the server does not send takes its default, and a field that the record does not know is ignored:
a dashboard and a server of neighbouring versions understand each other.
"""

import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from datetime import UTC, datetime
from typing import Any, TypeVar

T = TypeVar("T")


class AnswerError(ValueError):
    """An answer that is not what `/api/v1` promises; the message names the field."""


def decode(kind: type[T], item: Any) -> T:
    """The record of a JSON object.

    Raises:
        AnswerError: it is no object, or a field is missing or of another type.
    """
    if not isinstance(item, Mapping):
        raise AnswerError(f"expected an object for {kind.__name__}, got {type(item).__name__}")
    # Annotations are types here, not text: no answer pays for resolving them again.
    hints = kind.__annotations__
    found = {}
    for f in fields(kind):  # type: ignore[arg-type]  # every kind here is a dataclass
        optional = f.default is not MISSING or f.default_factory is not MISSING
        if item.get(f.name) is not None:
            found[f.name] = _value(hints[f.name], item[f.name], f"{kind.__name__}.{f.name}")
        elif not optional and types.NoneType not in typing.get_args(hints[f.name]):
            raise AnswerError(f"{kind.__name__}.{f.name} is missing")
        elif not optional:
            found[f.name] = None
    return kind(**found)


def _value(hint: Any, raw: Any, where: str) -> Any:
    """One field: times become aware UTC, objects records, lists tuples."""
    if isinstance(hint, types.UnionType):
        hint = next(arm for arm in typing.get_args(hint) if arm is not types.NoneType)
    if hint is Any:
        return raw
    try:
        if hint is datetime:
            moment = datetime.fromisoformat(raw)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC)
        origin = typing.get_origin(hint)
        if origin is tuple:
            return tuple(_value(typing.get_args(hint)[0], part, where) for part in raw)
        if origin is dict:
            kind = typing.get_args(hint)[1]
            known = raw.items() if kind is Any else ((name, part) for name, part in raw.items() if part is not None)
            return {name: _value(kind, part, f"{where}.{name}") for name, part in known}
        return decode(hint, raw) if isinstance(hint, type) and is_dataclass(hint) else hint(raw)
    except AnswerError:
        raise
    except (AttributeError, TypeError, ValueError, OverflowError) as error:
        raise AnswerError(f"{where} cannot be {str(raw)[:40]!r}") from error

"""A settings record out of a mapping, every key and type checked; what does not fit is named with its place."""

import difflib
import math
from collections import abc
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from cli.console.errors import Failure
from wire.money.price import GpuHourPrice, parse_price

T = TypeVar("T")


def fill(kind: type[T], value: Any, place: str) -> T:
    """The record of a mapping; keys that are not there keep their defaults.

    Args:
        place: what to call the mapping in a message: file and key.

    Raises:
        Failure: an unknown key, a value of the wrong type, or a key that must be there and is not.
    """
    table = mapping(value, place)
    hints = get_type_hints(kind)
    check_keys(table, hints, place)
    try:
        return kind(**{key: convert(hints[key], found, f"{place}, {key}") for key, found in table.items()})
    except TypeError as error:
        needed = [f.name for f in fields(kind) if f.name not in table]  # type: ignore[arg-type]  # a dataclass
        raise Failure(f"{place}: a key is missing (one of {', '.join(needed)})") from error


def mapping(value: Any, place: str) -> Mapping[str, Any]:
    """The value as a mapping; nothing is an empty one.

    Raises:
        Failure: it is something else.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise Failure(f"{place}: expected keys and values, found {_said(value)}")
    return {str(key): found for key, found in value.items()}


def listed(value: Any, place: str) -> list[Any]:
    """The value as a list; nothing is an empty one.

    Raises:
        Failure: it is something else.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise Failure(f"{place}: expected a list, found {_said(value)}")
    return value


def check_keys(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Refuse a key that is not known.

    Raises:
        Failure: names the key and the nearest that is known.
    """
    names = sorted(known)
    for key in table:
        if key not in names:
            near = difflib.get_close_matches(key, names, n=1)
            hint = f": did you mean {near[0]!r}?" if near else f": known are {', '.join(names)}" if names else ""
            raise Failure(f"{place}: unknown key {key!r}{hint}")


def convert(kind: Any, value: Any, place: str) -> Any:
    """The value as the type asks; an integer is a number, a word of the environment what it reads as.

    Raises:
        Failure: it is none.
    """
    if is_dataclass(kind) and isinstance(kind, type):
        return fill(kind, value, place)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise Failure(f"{place}: {_said(value)} is none of {', '.join(get_args(kind))}")
        return value
    if kind == Path | None and (value is None or (isinstance(value, str) and value)):
        return None if value is None else Path(value)
    if kind in (int | None, float | None, str | None):
        return None if value is None else convert(get_args(kind)[0], value, place)
    if kind == tuple[str, ...]:
        return _words(value, place)
    if kind == GpuHourPrice | None:
        return _price(value, place)
    if get_origin(kind) is abc.Mapping:
        of = get_args(kind)[1]
        return {key: convert(of, found, f"{place}, {key}") for key, found in mapping(value, place).items()}
    if kind is float and type(value) in (int, float):
        value = float(value)
    if type(value) is kind and (kind in (str, bool) or 0 <= value < math.inf):
        return value
    expected = {float: "a finite number, not negative", int: "a whole number, not negative", bool: "true or false"}
    raise Failure(f"{place}: expected {expected.get(kind, 'text')}, found {_said(value)}")


def _words(value: Any, place: str) -> tuple[str, ...]:
    if not isinstance(value, list) or any(type(word) is not str for word in value):
        raise Failure(f"{place}: expected a list of texts, one a word, found {_said(value)}")
    return tuple(value)


def _price(value: Any, place: str) -> GpuHourPrice | None:
    try:
        return None if value is None else parse_price(str(value))
    except ValueError as error:
        raise Failure(f"{place}: {error}") from error


def _said(value: Any) -> str:
    return "nothing" if value is None else f"{str(value)[:40]!r}"

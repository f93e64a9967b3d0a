"""JSON objects in general: the class of all, marks for their fields, pages, and how they are published and read.

    class NodeJson(JsonObject):
        node: str
        rack: str | None = None
        state: Annotated[str, one_of(NodeState)] = "unknown"

The server sends every field of an answer unless it is marked `Sometimes`: the published schema requires it. A default
serves the reader of an answer of an older server; of an `Always` it is None, which the server itself never sends. A
reader ignores keys that it does not know, and takes words of a newer server as they come: `one_of` publishes the known
words and refuses none. A body (`JsonBody`) is checked as it is declared: what has no default must be there, and a
`Literal` takes its words alone.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Annotated, Any, Generic, TypeAlias, TypeVar, get_args

import msgspec
from msgspec import Meta

T = TypeVar("T")

# The `detail` of a 404 where no route is: a thing that is not known has another.
NOTHING_HERE = "nothing is at this address; /docs lists what there is"
_SOMETIMES = "x-sometimes"
_NEVER_NULL = "x-never-null"
_OFFSET = re.compile(rb"T\d\d:\d\d:\d\d(?:\.\d+)?[+-]\d\d")
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:?\d\d)?")


class JsonObject(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One JSON object of an answer. What was read of JSON holds no circle: no search for garbage has to look at it."""


class JsonBody(JsonObject, frozen=True, kw_only=True):
    """One JSON object of a request."""


Sometimes: TypeAlias = Annotated[T, Meta(extra_json_schema={_SOMETIMES: True})]
Always: TypeAlias = Annotated[T | None, Meta(extra_json_schema={_NEVER_NULL: True})]
Time: TypeAlias = Annotated[datetime, Meta(tz=True)]
Text: TypeAlias = Annotated[str, Meta(min_length=1, max_length=255, pattern=r"^[^\x00]*$")]


def example(*values: Any) -> Meta:
    """Values of a field for the published description."""
    return Meta(examples=list(values))


def one_of(words: Any) -> Meta:
    """The words of a `Literal`, published as the only ones; a reader takes others too."""
    return Meta(extra_json_schema={"enum": list(get_args(words))})


class Page(JsonObject, Generic[T], frozen=True, kw_only=True):
    """One page of a list; `next_cursor` is null on the last."""

    items: tuple[T, ...]
    next_cursor: Sometimes[str | None] = None


class AnswerError(ValueError):
    """An answer that is not what `/api/v1` promises; the message names the field."""


def published(kinds: Iterable[Any]) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The schema of each kind, and the components that they refer to, for an OpenAPI document."""
    schemas, components = msgspec.json.schema_components(kinds, ref_template="#/components/schemas/{name}")
    for component in components.values():
        properties = component.get("properties", {})
        needed = [name for name, schema in properties.items() if not schema.pop(_SOMETIMES, False)]
        for schema in properties.values():
            if schema.pop(_NEVER_NULL, False):
                (arm,) = (arm for arm in schema.pop("anyOf") if arm != {"type": "null"})
                del schema["default"]
                schema |= arm
        component.pop("required", None)
        component |= {"required": needed} if needed else {}
    return list(schemas), components


def body_schema(kind: type[JsonBody]) -> dict[str, Any]:
    """The schema of a body, which refers to nothing."""
    _refs, components = msgspec.json.schema_components([kind])
    schema: dict[str, Any] = components[kind.__name__]
    return schema


def decode(kind: type[T], text: bytes) -> T:
    """The object of a JSON text; times are aware, UTC.

    Raises:
        AnswerError: it is no JSON, or a field is missing or of another type.
    """
    try:
        if not _OFFSET.search(text):
            return msgspec.json.decode(text, type=kind)
    except (msgspec.ValidationError, RecursionError):
        pass  # what another version writes otherwise is read below, or named there
    except msgspec.DecodeError as error:
        raise AnswerError("it is no JSON") from error
    try:
        return msgspec.convert(_plain(msgspec.json.decode(text)), kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise AnswerError(_complaint(kind, str(error))) from error
    except msgspec.DecodeError as error:
        raise AnswerError("it is no JSON") from error


def _complaint(kind: Any, text: str) -> str:
    """An error of msgspec, which begins with the field: "NodeJson.gpus: expected int, got str"."""
    what, _, place = text.replace("`", "").partition(" - at $")
    name = (get_args(kind) or (kind,))[0].__name__
    return f"{name}{place}: {what[:1].lower()}{what[1:]}"


def _plain(value: Any) -> Any:
    """The value without nulls, which stand for absent keys, with whole numbers as int and every time in UTC."""
    if isinstance(value, dict):
        return {name: _plain(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and _MOMENT.fullmatch(value):
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).astimezone(UTC).isoformat()
        except (ValueError, OverflowError):
            return value
    return value

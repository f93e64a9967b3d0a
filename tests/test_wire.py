"""The JSON objects of the wire: their names, that they never change, and what the marks of their fields publish."""

from importlib import import_module
from pathlib import Path

import pytest

import wire
from wire.message import Always, JsonBody, JsonObject, Page, Sometimes, published

_FILES = sorted(Path(wire.__file__).parent.glob("[a-z]*.py"))
_FOUND = [value for path in _FILES for value in vars(import_module(f"wire.{path.stem}")).values()]
KINDS = {one.__name__: one for one in _FOUND if isinstance(one, type) and issubclass(one, JsonObject)}


class MarkedJson(JsonObject, frozen=True, kw_only=True):
    """One field of each mark."""

    name: str = ""
    age_s: Always[float] = None
    file: Sometimes[str | None] = None


@pytest.mark.parametrize("kind", KINDS.values())
def test_every_object_ends_in_json_is_frozen_and_takes_names(kind: type[JsonObject]) -> None:
    """No class of a record has such a name, so none is taken for the other."""
    assert kind.__name__.endswith("Json") or kind in (JsonObject, JsonBody, Page)
    assert kind.__struct_config__.frozen
    assert not any(field in kind.__match_args__ for field in kind.__struct_fields__)


def test_the_server_sends_each_field_but_those_that_come_sometimes() -> None:
    """A default is for a reader alone; `Always` is never null on the wire."""
    schema = published([MarkedJson])[1]["MarkedJson"]
    assert schema["required"] == ["name", "age_s"]
    assert schema["properties"]["age_s"] == {"type": "number"}
    assert MarkedJson() == MarkedJson(name="", age_s=None, file=None)

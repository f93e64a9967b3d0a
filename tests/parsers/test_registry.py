"""The registry of formats, and finding a log's format."""

import pytest
from registries import modules

from parsers import formats
from parsers.registry import PARSERS, detect
from parsers.text.parser import Context, parse


def test_the_registry_and_the_folder_hold_the_same_formats() -> None:
    """A new format is one file in `formats/` and one line in the registry; nothing else is in that folder."""
    assert {module.__name__.rpartition(".")[2] for module in modules(formats)} == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_a_format_describes_itself_and_knows_its_sample(name: str) -> None:
    """Its sample decodes without error, and `auto` knows it."""
    entry = PARSERS[name]
    errors: list[str] = []
    events = list(parse(entry.make(Context(year=2025)), [entry.sample], lambda _n, error: errors.append(str(error))))
    assert entry.name == name
    assert entry.description
    assert errors == []
    assert len(events) == (0 if PARSERS[name].shape == "table" else 1)  # a header alone is no event
    assert detect([entry.sample]) == name


@pytest.mark.parametrize("name", PARSERS)
def test_an_empty_input_gives_nothing(name: str) -> None:
    """No line, blank lines."""
    for lines in ([], [""], ["", "  ", ""]):
        assert list(parse(PARSERS[name].make(Context()), lines)) == []

"""Many lines at once are recognised as one by one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.intake.logs import format_of_lines
from parsers.registry import MIXED, PARSERS, detect, recogniser


def one_by_one(text: str) -> str | None:
    """The first format of the registry whose pattern finds something in the line."""
    return next((name for name, entry in PARSERS.items() if entry.recognises.search(text)), None)


SAMPLES = [entry.sample for entry in PARSERS.values()]
OTHERS = [
    "",
    "hello",
    " [",
    "Nov 20 22:18:11\x1f928774 [8EAC6C0] 0x02 ->\x0bSUBNET UP",
    "{",
    "ünïcode ４７ Xid",
    "2025-03-01T04:05:06+00:00 gpu-1 kernel: NVRM: Xid (PCI:0000:0f:00): 79, x",
    "  indented kernel: NVRM: Xid",
    "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP",
]


@pytest.mark.parametrize("name", PARSERS)
def test_each_format_s_own_sample_is_recognised_alike(name: str) -> None:
    """The first of the registry, as before."""
    sample = PARSERS[name].sample
    assert recogniser()(sample) == one_by_one(sample)


@given(st.sampled_from(SAMPLES + OTHERS), st.text(max_size=40), st.text(max_size=40))
def test_any_line_is_recognised_alike(line: str, before: str, after: str) -> None:
    """Also where other text stands around it, of any language."""
    for text in (line, before + line + after, before):
        assert recogniser()(text) == one_by_one(text)


@given(st.lists(st.sampled_from(SAMPLES + OTHERS), max_size=6))
def test_lines_speak_for_the_same_format(lines: list[str]) -> None:
    """One, several, none; a table's header and a document's inside go first, as before."""
    assert format_of_lines(lines) == detect(lines)


def test_lines_of_several_formats_are_mixed() -> None:
    """So that each goes to its own parser."""
    assert format_of_lines([PARSERS["kernel"].sample, PARSERS["opensm"].sample]) == MIXED
    assert format_of_lines(OTHERS[:5]) is None

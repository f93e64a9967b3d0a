"""What is read the fast way is what the readable way gives; `tests/result_digests.py` compares whole versions so."""

import random

import pytest
from fuzz import corpus, mutated
from hypothesis import given
from hypothesis import strategies as st

import parsers.formats.kernel
from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.decoder import may_tell, readings
from parsers.kernel_messages.registry import FAMILIES
from parsers.text.parser import Context, ParseError, clean
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Event

LINES = 4000
# Pieces of prefixes, near each other in form.
TIMES = (
    *("2026-11-20T22:31:54.121678+00:00", "2026-11-20T22:31:54Z", "2026-11-20 22:31:54,5", "2026-13-20T22:31:54+0100"),
    *(
        "Nov 20 22:31:54",
        "Nov  2 2:31:54.1",
        "Dec 31 23:59:59",
        "Jan  1 00:00:00",
        "Xyz 20 22:31:54",
        "lis 20 22:31:54",
    ),
    *("[ 12.5]", "[Nov20 22:31]", "Fri 2026-11-20 22:31:54 UTC", "1763677914.5", "<4>", "stdout F", "[pod/a/b]", ""),
)
NODES = ("vm", "gpu-017.example.org", "kern.info", "kern.warn vm", "10.0.0.1", "stdout", "Nov", "vm:", "[", "-", "")
TAGS = ("kernel:", "kernel[0]:", "kernel", "NVRM:", "nvidia-nvswitch3:", "nhc[7]:", "kernel: kernel:", "")
UPTIMES = ("", "[ 12.5]", "[12]", "[ 12.5 <    0.1>]", "[ 12.5] [ 12.5]", "[ 12.5]  ", "[drm]", "[  12.5")
MESSAGES = (
    "NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
    "message repeated 3 times: [ NVRM: Xid (PCI:0000:3b:00): 79, x]",
    "message repeated x times: [ y]",
    " [ 12.5] ",
    "",
)


def readers() -> tuple[PrefixReader, PrefixReader]:
    """Two of the same log: each holds the last time that it saw."""
    context = Context(year=2026)
    return PrefixReader(Stamps(context)), PrefixReader(Stamps(context))


@given(
    lines=st.lists(
        st.tuples(*map(st.sampled_from, (TIMES, NODES, TAGS, UPTIMES, MESSAGES))).map(" ".join), min_size=1, max_size=6
    )
)
def test_a_prefix_is_read_as_by_its_form(lines: list[str]) -> None:
    """Whatever stands beside whatever, with the times that came before."""
    fast, by_form = readers()
    for line in lines:
        text = line.replace("  ", " ")
        assert [fast.read(text), fast.read(line)] == [by_form.by_form(text), by_form.by_form(line)]


def test_damaged_lines_are_read_as_by_their_forms() -> None:
    """Lines of the fixtures, cut and spliced; the messages as by all families in turn, also when they come again."""
    chance, known = random.Random(23), corpus()["kernel"]  # a seed gives the same lines each time
    fast, by_form = readers()
    for _ in range(LINES):
        text = clean(mutated(chance, known))
        record = fast.read(text)
        assert record == by_form.by_form(text)
        tag = None if record.from_kernel() else record.tag
        for _again in range(2):
            told = [reading for _message, reading in readings(record.message, None) if reading is not None]
            assert may_tell(record.message) or not told
            for message, reading in readings(record.message, tag):
                assert (reading and (reading[0].name, reading[1])) == in_turn(message, tag)


def test_a_line_is_passed_over_only_where_it_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parser that looks at the message first gives what one gives that reads every line by its form."""
    chance, known = random.Random(24), corpus()["kernel"]  # a seed gives the same lines each time
    texts = [clean(mutated(chance, known)) for _ in range(LINES)]
    stamped = [f"2026-11-20T22:31:54.1+00:00 gpu-1 kernel: {message_of(text)}" for text in texts]
    yearless = [f"Nov 20 22:31:54 gpu-1 kernel: {message_of(text)}" for text in texts[:500]]
    lines = texts + stamped + stamped[:500] + yearless
    fast = told_by(lines)
    monkeypatch.setattr(parsers.formats.kernel, "kernel_line", lambda _text: None)
    assert fast == told_by(lines)
    assert len(fast) > 500


def message_of(text: str) -> str:
    """What is left of a line without its prefix."""
    return readers()[0].read(text).message


def told_by(lines: list[str]) -> list[object]:
    """The events of lines, and the errors, in order."""
    parser, found = KernelParser(Context(year=2026)), list[object]()
    for number, line in enumerate(lines):
        try:
            found += parser.feed(line, number)
        except ParseError as error:
            found.append(str(error))
    return [*found, *parser.flush()]


def in_turn(message: str, tag: str | None) -> tuple[str, Event] | None:
    """The first of all families that knows a message, and what it makes of it."""
    for family in FAMILIES:
        if tag is None or tag in family.tags:
            event = family.decode(message)
            if event is not None:
                return family.name, event
    return None

"""Whatever comes, a parser raises nothing but ParseError, and what it gives is a sound record."""

from pathlib import Path

import orjson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from parsers.registry import PARSERS, detect
from parsers.text.parser import Context, ParseError, clean
from store.records.event import event_id, from_wire, to_wire

FIXTURES = Path(__file__).parents[2] / "fixtures"
REAL = {
    name: [
        line
        for path in sorted((FIXTURES / name).iterdir())
        if path.suffix in (".log", ".txt", ".json", ".prom") and not path.name.startswith("LICENSE")
        for line in path.read_bytes().split(b"\n")
        if line
    ]
    for name in PARSERS
}


def survive(name: str, lines: list[bytes]) -> None:
    """Feed lines as a live source does, flushing now and then."""
    parser = PARSERS[name].make(Context(year=2026, run="r"))
    for number, raw in enumerate(lines, start=1):
        for step in (lambda: parser.feed(clean(raw), number), parser.flush if number % 5 == 0 else list):  # noqa: B023  # called at once
            try:
                events = list(step())
            except ParseError as error:
                assert str(error)
                continue
            for event in events:
                wire = orjson.loads(orjson.dumps(to_wire(event)))
                assert from_wire(wire) == event
                assert event_id(event)
                assert event.source == name
                assert event.line is not None
                assert event.line <= number


@pytest.mark.parametrize("name", PARSERS)
@given(lines=st.lists(st.binary(max_size=200), max_size=8))
def test_arbitrary_bytes_never_stop_a_parser(name: str, lines: list[bytes]) -> None:
    """Noise."""
    survive(name, lines)
    detect([clean(line) for line in lines])


@pytest.mark.parametrize("name", PARSERS)
@settings(max_examples=75, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_real_lines_that_are_damaged_never_stop_a_parser(name: str, data: st.DataObject) -> None:
    """Cut, spliced, with bytes changed: close enough to the form to get deep."""
    lines = []
    for _ in range(data.draw(st.integers(1, 6))):
        line = bytearray(data.draw(st.sampled_from(REAL[name])))
        for _ in range(data.draw(st.integers(0, 3))):
            at = data.draw(st.integers(0, len(line)))
            line[at : at + data.draw(st.integers(0, 4))] = data.draw(st.binary(max_size=4))
        lines.append(bytes(line[: data.draw(st.integers(0, len(line)))] if data.draw(st.booleans()) else line))
    survive(name, lines)


@pytest.mark.parametrize("name", PARSERS)
def test_long_runs_of_any_letter_do_not_run_away(name: str) -> None:
    """64 KiB lines made to make patterns backtrack: a quadratic one would hang this test."""
    parser = PARSERS[name].make(Context(year=2026))
    heads = [line[: max(1, len(line) // 2)] for line in REAL[name][::25]] + [b"", b"NVRM: Xid (", b"<1>1 "]
    for number, head in enumerate(heads[:60]):
        for letter in (b"a", b" ", b"[", b"\\", b'"', b"1", b".", b"|", b"=", b"iteration ", b"checkpoint "):
            try:
                list(parser.feed(clean(head + letter * (60_000 // len(letter))), number))
            except ParseError:
                continue

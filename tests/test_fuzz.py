"""The fuzzer: a short run of it, and that it notices."""

import random
from collections.abc import Iterable

import pytest
from fuzz import MUTATIONS, corpus, feed, mutated, run

from parsers.registry import PARSERS
from parsers.text.parser import Context
from store.records.event import Event

CORPUS = corpus()


def test_every_format_has_lines_to_mutate() -> None:
    """Of its fixtures."""
    assert set(CORPUS) == set(PARSERS)
    assert all(CORPUS.values())


@pytest.mark.parametrize("seed", range(100, 200))
def test_mutated_lines_stop_no_parser(seed: int) -> None:
    """A hundred runs of two hundred lines; `make fuzz` does millions."""
    assert run(seed, CORPUS)["lines"] == 200


def test_a_seed_gives_the_same_run_each_time() -> None:
    """So that a failure can be looked at."""
    first, again = ([mutated(random.Random(7), CORPUS["kernel"]) for _ in range(3)] for _ in range(2))
    assert first == again


@pytest.mark.parametrize("mutation", sorted(set(MUTATIONS), key=lambda mutation: mutation.__name__))
def test_a_mutation_changes_lines_and_survives_an_empty_one(mutation) -> None:  # type: ignore[no-untyped-def]
    """Of twenty tries one at least."""
    chance, line = random.Random(1), b"NVRM: Xid (PCI:0000:3b:00): 79"
    changed = []
    for _ in range(20):
        work = bytearray(line)
        mutation(chance, work, [line, b"other"])
        changed.append(bytes(work) != line)
        mutation(chance, bytearray(), [line])
    assert any(changed)


def test_a_parser_that_fails_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any exception but ParseError, and an event that is no sound record."""

    class Failing:
        def __init__(self, _context: Context) -> None:
            pass

        def feed(self, text: str, line: int) -> Iterable[Event]:
            raise KeyError(text)

        def flush(self) -> Iterable[Event]:
            return [Event(None, None, "other", "x")]

    from dataclasses import replace

    import fuzz

    monkeypatch.setattr(fuzz, "PARSERS", {"kernel": replace(PARSERS["kernel"], make=Failing)})
    with pytest.raises(KeyError):
        feed("kernel", [b"x"])
    with pytest.raises(AssertionError):
        feed("kernel", [])

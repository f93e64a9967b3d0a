"""A folded log gives the ledger of the whole log, to the millisecond, in whatever parts its lines come in."""

import random
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_program import Program

from goodput.ledger import Ledger, RunRecords, account
from goodput.log import fold
from goodput.log.fold import FoldedLog, brought_up, folded
from goodput.log.fold_json import decode, encode
from goodput.log.pace import pace_of
from goodput.log.rows import LogRow, order_of
from store.job import Job


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lines fill a tail and a chapter."""
    monkeypatch.setattr(fold, "TAIL", 3)
    monkeypatch.setattr(fold, "CHAPTER", 16)


def of_all(rows: list[LogRow], jobs: list[Job]) -> Ledger:
    """The ledger from scratch."""
    return account(RunRecords("run", jobs, [row.line for row in order_of(rows)[1]]))


def of_folded(log: FoldedLog, jobs: list[Job]) -> Ledger:
    """The ledger of a folded log."""
    return account(RunRecords("run", jobs, log.lines(), pace=log.pace()))


def parts(rows: list[LogRow], chance: random.Random, late: int) -> Iterator[list[LogRow]]:
    """The rows in batches; some come later than they should."""
    places = [
        (place + (chance.randint(1, late) if late and chance.random() < 0.1 else 0)) for place in range(len(rows))
    ]
    coming = [row for _place, row in sorted(zip(places, rows, strict=True), key=lambda pair: pair[0])]
    while coming:
        size = chance.choice([1, 2, 5, 30, 200])
        yield coming[:size]
        coming = coming[size:]


@settings(max_examples=300)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from([0, 0, 2, 10, 100]))
def test_lines_that_come_in_parts_give_the_ledger_of_them_all(
    seed: int, whole_seconds: bool, undated: bool, late: int
) -> None:
    """After every part, in order and late, written out and read back in between."""
    program = Program(seed, whole_seconds, undated)
    rows, chance = program.rows(), random.Random(seed)
    log = folded([])
    known: list[LogRow] = []

    def reread(since_us: int | None) -> list[LogRow]:
        return [row for row in known if since_us is None or row.stored_us >= since_us]

    for part in parts(rows, chance, late):
        known += part
        log = brought_up(log, part, reread)
        again = decode(encode(log))
        assert again == log
        log = again
        assert log.count == len(known)
        assert log.pace() == pace_of([row.line for row in order_of(known)[1]])
        assert of_folded(log, program.jobs) == of_all(known, program.jobs)

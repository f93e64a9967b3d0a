"""A folded log gives the ledger of the whole log, to the millisecond, in whatever parts its lines come in."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from made_program import START_US, Program

from goodput.account import account
from goodput.ledger import Ledger, RunRecords
from goodput.log import folded_log
from goodput.log.folded_log import FoldedLog, folded, with_news
from goodput.log.training_log import LogRow, order_of, pace_of, row_of
from goodput.reading.log import decode, encode
from goodput.wall_time.attempts import handovers_ms
from store.records.job import Job


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few lines fill a tail and a chapter."""
    monkeypatch.setattr(folded_log, "TAIL", 3)
    monkeypatch.setattr(folded_log, "CHAPTER", 16)


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


@settings(max_examples=120)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from([0, 0, 2, 10, 100]))
# A program that starts anew within a second of the last one's end: the job's start lies between two plain lines.
@example(seed=373357, whole_seconds=False, undated=False, late=0)
@example(seed=2550521062, whole_seconds=True, undated=False, late=0)
# A start without a time, accounted last, goes back to an iteration that lines told after it.
@example(seed=3869485986, whole_seconds=True, undated=True, late=0)
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
        log = with_news(log, part, reread, handovers_ms(program.jobs))
        again = decode(encode(log))
        assert again == log
        log = again
        assert log.count == len(known)
        assert log.pace() == pace_of([row.line for row in order_of(known)[1]])
        assert of_folded(log, program.jobs) == of_all(known, program.jobs)


def iterations(since_s: float, first: int, count: int, each_s: float) -> list[tuple[str, float, dict[str, Any]]]:
    """Successive iteration lines: kind, time and what they tell."""
    return [
        (
            "iteration",
            since_s + each_s * place,
            {"iteration": first + place - 1, "iterations": 1, "elapsed_ms": 1000 * each_s},
        )
        for place in range(1, count + 1)
    ]


def test_a_load_that_names_its_iteration_finds_when_that_ended() -> None:
    """Although the lines after it begin with a later one: what was lost is counted from the iteration of the load."""
    told = [*iterations(0, 1, 7, 2.0), *iterations(14, 8, 23, 2.125)]
    told += [("checkpoint_load", 80.0, {"iteration": 13, "duration_ms": 2000.0}), *iterations(90, 17, 4, 2.0)]
    rows = [
        row_of((kind, START_US + int(now_s * 1e6), said, "run.log", number, f"{number:05d}"), START_US)
        for number, (kind, now_s, said) in enumerate(told, start=1)
    ]
    log = folded(rows)
    assert len(log.lines()) < len(rows) / 2
    assert of_folded(log, []) == of_all(rows, [])
    assert of_folded(log, []).buckets_ms["lost_work"] == 17 * 2125


def told_of(jobs: Sequence[Job], chance: random.Random) -> list[Job]:
    """What the scheduler tells at some moment: it may not have told of a job, or not that it ended."""
    found = []
    for job in jobs:
        if (told := chance.choice(["nothing", "open", "all", "all"])) != "nothing":
            found.append(job if told == "all" else replace(job, end=None, state="RUNNING"))
    return found


@settings(max_examples=100)
@given(st.integers(0, 2**32), st.booleans(), st.booleans(), st.sampled_from([0, 0, 2, 10, 100]))
def test_jobs_that_come_after_their_lines_part_them_all_the_same(
    seed: int, whole_seconds: bool, undated: bool, late: int
) -> None:
    """A job's start or end that is told when the lines around it stand together already parts them again."""
    program = Program(seed, whole_seconds, undated)
    rows, chance = program.rows(), random.Random(seed)
    log = folded([])
    known: list[LogRow] = []

    def reread(since_us: int | None) -> list[LogRow]:
        return [row for row in known if since_us is None or row.stored_us >= since_us]

    for part in [*parts(rows, chance, late), []]:
        known += part
        jobs = told_of(program.jobs, chance)
        log = with_news(log, part, reread, handovers_ms(jobs))
        assert decode(encode(log)) == log
        assert of_folded(log, jobs) == of_all(known, jobs)

"""A GPU that is named again and again by wrong numbers is a suspect; one report names nobody."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from diagnosis.corruption.recurrence import HALF_LIFE, note_recurring, recurring
from diagnosis.incidents.intake import fold_everything
from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from store.database.connections import open_database
from store.events.append import append_events, append_jobs
from store.records.event import Event, with_id
from store.records.job import Job
from store.tables.hint_tables import metadata

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
LINE = "torchtitan.sdc_replay.SDCReplayMismatch: SDC replay mismatch: step={step}, attempt=1, rank={rank}, x=1"


def line(text: str) -> Event:
    """The event of one line of a training log."""
    (event,) = parse(PARSERS["training"].make(Context(run="llm", year=2026)), [text], lambda *_: None)
    return event


def report(time: datetime, rank: int = 11, text: str = LINE) -> Event:
    """A replay that gave other numbers, by a line of the training log."""
    return with_id(replace(line(text.format(step=3000, rank=rank)), time=time))


def store(folder: Path, *events: Event) -> sa.Engine:
    """A store of a job of four nodes and what it reported."""
    engine = open_database(f"sqlite:///{folder / 'store.db'}")
    metadata.create_all(engine)
    start = NOON - timedelta(days=60)
    job = Job("7", "llm", "RUNNING", start, start, None, 4, "gpu-[001-004]", None)
    with engine.begin() as connection:
        append_jobs(connection, [job])
        append_events(connection, list(events), NOON)
    return engine


def test_the_line_names_the_rank_that_computes_wrongly_not_the_one_who_noticed() -> None:
    """The prefix is the reporter's."""
    event = line("[rank17]: " + LINE.format(step=3500, rank=42))
    assert event.cause == "hardware"
    assert {key: event.attributes[key] for key in ("error", "rank", "iteration")} == {
        "error": "replay_mismatch",
        "rank": 42,
        "iteration": 3500,
    }


def test_a_second_occasion_makes_a_gpu_a_suspect_and_is_told_once(tmp_path: Path) -> None:
    """Rank 11 of four nodes of eight is GPU 3 of the second."""
    engine = store(tmp_path, report(NOON - timedelta(hours=9)), report(NOON - timedelta(hours=1)))
    with engine.connect() as connection:
        (found,) = recurring(connection, NOON)
    assert (found.node, found.device.index, found.severity, found.attributes["count"]) == ("gpu-002", 3, "warning", 2)
    assert [note_recurring(engine, NOON), note_recurring(engine, NOON + timedelta(minutes=5))] == [1, 0]


def test_one_occasion_names_nobody_however_many_report_it(tmp_path: Path) -> None:
    """Two dozen ranks notice the same step."""
    engine = store(tmp_path, *(report(NOON - timedelta(seconds=number)) for number in range(24)))
    with engine.connect() as connection:
        assert recurring(connection, NOON) == []


def test_reports_of_long_ago_count_for_less(tmp_path: Path) -> None:
    """Two that are a half-life old are one."""
    old = NOON - HALF_LIFE
    engine = store(tmp_path, report(old), report(old + timedelta(hours=8)))
    with engine.connect() as connection:
        assert recurring(connection, NOON) == []
        assert len(recurring(connection, old + timedelta(hours=9))) == 1


def test_other_ranks_are_other_gpus(tmp_path: Path) -> None:
    """Two reports of two GPUs are no recurrence, nor is a rank that the job has not."""
    day = timedelta(days=1)
    engine = store(tmp_path, report(NOON - day), report(NOON, rank=12), report(NOON - day, 99), report(NOON, 99))
    with engine.connect() as connection:
        assert recurring(connection, NOON) == []


def test_a_nan_alone_is_the_programs(tmp_path: Path) -> None:
    """Three of them over days on one GPU accuse nobody."""
    nan = "rank 11: found NaN in local grad norm for bucket #0 in backward pass. Device: 3, node: gpu-002"
    engine = store(tmp_path, *(report(NOON - timedelta(days=day), text=nan) for day in range(3)))
    with engine.connect() as connection:
        assert recurring(connection, NOON) == []


def test_results_of_the_vendors_tests_count_with_the_programs_words(tmp_path: Path) -> None:
    """One report of a replay and one failed test of the same GPU are two; a test that is only slow is none."""
    results = Path("fixtures/dcgmi/v4.json").read_text()
    parser = PARSERS["dcgmi"].make(Context(node="gpu-002"))
    tested = list(parse(parser, results.replace('"entity_id": 1', '"entity_id": 3').splitlines(), lambda *_: None))
    assert sum(event.kind == "health_check_failed" for event in tested) == 2
    dated = [with_id(replace(event, time=NOON - timedelta(hours=2)), "diag") for event in tested]
    engine = store(tmp_path, *dated)
    with engine.connect() as connection:
        assert recurring(connection, NOON) == []
    with engine.begin() as connection:
        append_events(connection, [report(NOON - timedelta(hours=9))], NOON)
    with engine.connect() as connection:
        (found,) = recurring(connection, NOON)
    assert (found.node, found.device.index, found.attributes["count"]) == ("gpu-002", 3, 2)


def test_the_verdict_of_a_recurrence_names_the_gpu(tmp_path: Path) -> None:
    """As diagnose would tell it, from the store."""
    engine = store(tmp_path, report(NOON - timedelta(hours=9)), report(NOON - timedelta(hours=1)))
    note_recurring(engine, NOON)
    fold_everything(engine)
    with engine.connect() as connection:
        scene = read_scene(connection, at=NOON + timedelta(seconds=10))
        assert scene is not None
        first = explain(scene)[0]
    assert (first.cause_class, first.node) == ("gpu", "gpu-002")

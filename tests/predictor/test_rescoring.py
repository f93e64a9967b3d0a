"""Scoring again from what is kept gives what a scorer that begins anew gives, whatever came in between."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, fill_trained, node, outage, put, rollup

from predictor.history.precursor_log import PrecursorLog
from predictor.live.live_history import LiveHistory
from predictor.live.scoring import Scorer
from store.database.connections import writing
from store.events.append import append_events
from store.models.scores import scores_of
from store.records.event import Device, Event
from store.records.score import Score
from store.tables import schema

NAMES = [f"gpu-{number:03d}" for number in range(48)]
# Kind, code, severity, cause, the sources that tell it: some are told twice, by two sources.
_TOLD = (
    ("xid", 79, "fatal", "hardware", ("kernel", "gpud")),
    ("xid", 48, "error", "hardware", ("kernel", "gpud", "dcgm")),
    ("ecc_sbe", None, "info", "hardware", ("dcgm",)),
    ("link_down", None, "error", "fabric", ("opensm", "kernel")),
    ("link_up", None, "info", "fabric", ("opensm",)),
    ("edac", None, "warning", "hardware", ("kernel",)),
)


def random_events(random: np.random.Generator, names: list[str], at: datetime, count: int) -> list[Event]:
    """Of the 29 days before a moment, most of them of the last hour; many of one node and second, in no order."""
    found = []
    for number in range(count):
        kind, code, severity, cause, sources = _TOLD[int(random.integers(len(_TOLD)))]
        ago = timedelta(minutes=float(random.uniform(0, 60))) if number % 3 else timedelta(days=random.uniform(0, 29))
        moment = at - ago
        name = names[int(random.integers(len(names)))]
        if number % 2:  # as a log that tells many things of few nodes at once
            moment, name = moment.replace(minute=0, second=0, microsecond=0), names[number % 4]
        found.append(
            Event(
                moment,
                name,
                str(random.choice(sources)),
                kind,
                code,
                severity,  # type: ignore[arg-type]
                cause,  # type: ignore[arg-type]
                device=Device("gpu", index=int(random.integers(8))),
                attributes={"count": int(random.integers(1, 9))} if kind == "ecc_sbe" else {},
            )
        )
    return found


def assert_reasons_stand(engine: sa.Engine, scores: list[Score]) -> None:
    """Their contributions add up to the score, and their events are in the store."""
    with engine.connect() as connection:
        known = set(connection.scalars(sa.select(schema.events.c.id)))
    for one in scores:
        assert sum(reason.contribution for reason in one.reasons) == pytest.approx(one.score, abs=1e-9)
        assert known >= {event for reason in one.reasons for event in reason.events}


def happenings(engine: sa.Engine, random: np.random.Generator) -> Iterator[datetime]:
    """What a day may bring; each time a moment to score at."""
    at, names = day(50.01), [*NAMES, "a-stranger", "stranger"]
    for turn in range(7):
        at += timedelta(minutes=float(random.uniform(1, 90)))
        with writing(engine).begin() as connection:
            received = RECEIVED + timedelta(minutes=10 * turn)
            append_events(connection, random_events(random, names, at, 60), received)
        if turn == 2:
            put(engine, [node("a-stranger")], rollups=[rollup("a-stranger", 49.5)])  # every other's number rises
        if turn == 3:
            put(engine, outages=[outage("gpu-006", 50.02, None), outage("gpu-009", 48.0, 3.0)])
        if turn == 4:
            back = schema.outages.update().where(schema.outages.c.node == "gpu-006", schema.outages.c.end.is_(None))
            with writing(engine).begin() as connection:
                connection.execute(back.values(end=at - timedelta(minutes=1)))
        if turn == 5:
            at += timedelta(hours=25)  # so that what no window reaches is forgotten
        yield at


def scored(scorer: Scorer, engine: sa.Engine, at: datetime) -> list[Score]:
    """What a scorer has saved."""
    count = scorer.score(at)
    with engine.connect() as connection:
        found = scores_of(connection, at)
    assert len(found) == count
    return found


def test_scores_and_reasons_are_those_of_a_scorer_that_begins_anew(any_engine: sa.Engine) -> None:
    """Bit for bit: late events, some of the same moment, unknown nodes that become known, outages and their ends."""
    fill_trained(any_engine, nodes=len(NAMES))
    kept, told = Scorer(any_engine), set()
    for at in happenings(any_engine, np.random.default_rng(5)):
        again, anew = scored(kept, any_engine, at), scored(Scorer(any_engine), any_engine, at)
        assert again == anew
        assert_reasons_stand(any_engine, again)
        told |= {reason.text for score in again for reason in score.reasons}
    assert len(told) > 50


def test_outages_of_a_node_are_cited_by_its_own_reasons_alone(engine: sa.Engine) -> None:
    """A node that comes before it in the list of names does not take its events."""
    fill_trained(engine, nodes=len(NAMES))
    at, kept = day(59), Scorer(engine)
    with engine.connect() as connection:
        begun = connection.execute(sa.select(schema.outages.c.start, schema.outages.c.node)).all()
    put(engine, events=[Event(start, name, "sacctmgr", "outage", severity="error") for start, name in begun])
    kept.score(at)
    put(engine, [node("a-first")])
    with engine.connect() as connection:
        query = sa.select(schema.events.c.id, schema.events.c.node)
        node_of = {row.id: row.node for row in connection.execute(query)}
    cited = [
        (score.node, node_of[event])
        for score in scored(kept, engine, at + timedelta(minutes=1))
        for reason in score.reasons
        for event in reason.events
    ]
    assert cited
    assert all(name == of for name, of in cited)


@pytest.mark.parametrize("history_d", [28, 56])
def test_only_what_has_come_is_read(any_engine: sa.Engine, monkeypatch: pytest.MonkeyPatch, history_d: int) -> None:
    """As many rows as are new, however long the history is: counted, since seconds depend on the machine."""
    put(any_engine, [node(name) for name in NAMES])
    random, at, received = np.random.default_rng(1), day(60), RECEIVED
    with writing(any_engine).begin() as connection:
        for back in range(history_d):
            ago = timedelta(days=back)
            append_events(connection, random_events(random, NAMES, at - ago, 30), received - ago)
    live, rows = LiveHistory(any_engine), []
    live.look(at)
    take = PrecursorLog.take

    def counted(log: PrecursorLog, part: list[object]) -> int:
        rows.append(len(part))
        return take(log, part)

    monkeypatch.setattr(PrecursorLog, "take", counted)
    for turn in range(1, 4):
        at, received = at + timedelta(minutes=1), received + timedelta(minutes=10)
        with writing(any_engine).begin() as connection:
            append_events(connection, random_events(random, NAMES, at, 40), received)
        live.look(at)
        assert sum(rows) <= 30 + 2 * 40 * turn  # what came last is read once more
    assert sum(rows) > 60

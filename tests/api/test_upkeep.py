"""Judging and training beside the server: when they are due, that they work, and what a failure leaves behind."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, fill, node, outage, put

from api.loops.model_upkeep import ChildError, Upkeep
from api.server.settings import TrainingSchedule
from api.server.state import State
from store.database.connections import writing
from store.database.coordination import acquire
from store.events.append import append_events, append_links, append_nodes
from store.models.registry import StoredModel, last_training, list_models, note_training, save_model
from store.models.scores import link_score_page
from store.models.scorings import Scoring, newest_moment, save_scoring
from store.records.event import Device, Event

from .conftest import QUIET, Clock

MODEL = StoredModel("m", day(20), day(20), 24, ("outages_28d",), {}, b"0", "d")


@pytest.fixture
def clock() -> Clock:
    """Stands ten days after the model's training."""
    return Clock(day(30))


@pytest.fixture
def upkeep(engine: sa.Engine, clock: Clock) -> Iterator[Upkeep]:
    """Of a server whose model is ten days old and was judged just now; twelve outages since."""
    put(engine, outages=[outage(f"n{i}", 21 + i / 10) for i in range(12)])
    with writing(engine).begin() as connection:
        save_model(connection, MODEL)
        save_scoring(connection, Scoring("m", 24, day(30), {"n1": 0.5}))
    yield Upkeep(State(replace(QUIET, training=TrainingSchedule(nice=0)), engine, clock))


def with_settings(upkeep: Upkeep, **changes: object) -> Upkeep:
    """The same with other settings of training."""
    settings = replace(upkeep.state.settings, training=TrainingSchedule(**{"nice": 0, **changes}))  # type: ignore[arg-type]  # by name
    return Upkeep(replace(upkeep.state, started=settings))


def note(upkeep: Upkeep, outcome: str, moment: datetime) -> None:
    """How a training went."""
    with writing(upkeep.state.engine).begin() as connection:
        note_training(connection, moment, outcome, "server", {})


def last(upkeep: Upkeep) -> tuple[str, str | None]:
    """The newest word on training, and why."""
    with upkeep.state.engine.connect() as connection:
        found = last_training(connection)
    assert found is not None
    return found.outcome, found.detail.get("why")


def always() -> bool:
    """Go on."""
    return True


@pytest.mark.parametrize(
    ("changes", "due"),
    [({}, True), ({"every_days": 11.0}, False), ({"every_days": 0.0}, False), ({"least_outages": 13}, False)],
)
def test_training_is_due_after_a_while_with_enough_news(upkeep: Upkeep, changes: dict[str, float], due: bool) -> None:
    """Never by itself where that is switched off."""
    assert with_settings(upkeep, **changes).is_training_due() is due


def test_no_model_is_no_reason_to_train(engine: sa.Engine, clock: Clock) -> None:
    """The first is made by a person."""
    upkeep = Upkeep(State(QUIET, engine, clock))
    assert not upkeep.is_training_due()
    assert not upkeep.is_judging_due()


@pytest.mark.parametrize(
    ("outcome", "days_ago", "due"),
    [("trained", 6, False), ("trained", 7, True), ("failed", 0.9, False), ("failed", 1, True), ("started", 1, True)],
)
def test_after_a_training_there_is_a_rest(upkeep: Upkeep, outcome: str, days_ago: float, due: bool) -> None:
    """A week after a good one; a day after one that failed, or of which nobody knows the end: the server died."""
    note(upkeep, outcome, day(30 - days_ago))
    assert upkeep.is_training_due() is due


def test_too_little_news_is_written_down_once_a_day(upkeep: Upkeep, clock: Clock) -> None:
    """Not at every look."""
    picky = with_settings(upkeep, least_outages=50)
    for _ in range(3):
        assert not picky.is_training_due()
    assert last(picky) == ("put off", "12 unplanned outages since the last training, 50 are waited for")
    with upkeep.state.engine.connect() as connection:
        count = sa.text("SELECT count(*) FROM audit WHERE subject = 'training'")
        assert connection.scalar(count) == 1
    clock.forward(days=1)
    picky.is_training_due()
    with upkeep.state.engine.connect() as connection:
        assert connection.scalar(count) == 2


def test_judging_is_due_twice_a_day(upkeep: Upkeep, clock: Clock) -> None:
    """By the champion's last scoring."""
    clock.forward(hours=11)
    assert not upkeep.is_judging_due()
    clock.forward(hours=1)
    assert upkeep.is_judging_due()


@pytest.mark.integration
def test_a_training_that_fails_is_told_and_not_tried_at_once(upkeep: Upkeep) -> None:
    """A real child; the store knows too little. The server goes on with the model that it has."""
    with pytest.raises(ChildError, match=r"too few outages|too short"):
        upkeep.turn(always)
    outcome, why = last(upkeep)
    assert outcome == "failed"
    assert why is not None
    assert why.startswith("foreshock train: exit 2")
    upkeep.turn(always)
    with upkeep.state.engine.connect() as connection:
        assert [row["id"] for row in list_models(connection)] == ["m"]
        assert acquire(upkeep.state.engine, "training", "another", None, 1.0)


@pytest.mark.integration
def test_a_training_that_takes_too_long_is_ended_and_so_is_one_whose_server_stops(upkeep: Upkeep, clock: Clock) -> None:
    """No child is left behind."""
    with pytest.raises(ChildError, match="not done within 0 s"):
        with_settings(upkeep, within_s=0.0).turn(always)
    clock.forward(days=2)
    asked = iter([True, True, False])
    with upkeep.state.engine.begin() as connection:
        connection.execute(sa.text("UPDATE scorings SET time = 9e15"))
    with pytest.raises(ChildError, match="the server stops"):
        upkeep.turn(lambda: next(asked, False))
    assert last(upkeep)[0] == "failed"


def test_of_two_servers_one_trains(upkeep: Upkeep) -> None:
    """Whoever holds the lease; the other lets it be, and says nothing."""
    assert acquire(upkeep.state.engine, "training", "another", None, 60.0)
    upkeep.turn(always)
    with upkeep.state.engine.connect() as connection:
        assert last_training(connection) is None


@pytest.mark.integration
def test_the_server_judges_its_models_and_trains_a_challenger(postgres_engine: sa.Engine, clock: Clock) -> None:
    """From the first champion on, by real children; a restart changes nothing."""
    from predictor.live.training import TrainSettings, train

    fill(postgres_engine, nodes=24, days=40)
    (first,) = train(postgres_engine, until=day(25), settings=TrainSettings(horizons_h=(24,)))
    clock.now = day(39)
    state = State(
        replace(QUIET, training=TrainingSchedule(least_outages=1, window_days=35, nice=0)), postgres_engine, clock
    )
    Upkeep(state).turn(always)
    with postgres_engine.connect() as connection:
        roles = {row["id"]: (row["horizon_h"], row["role"], row["by"]) for row in list_models(connection)}
        (challenger,) = list_models(connection, role="challenger")
        assert newest_moment(connection, first) == day(39)
    assert roles[first] == (24, "champion", "train")
    # The first of the other horizon has nobody to be held against.
    assert sorted(roles.values()) == [
        (24, "challenger", "server"),
        (24, "champion", "train"),
        (168, "champion", "server"),
    ]
    assert challenger["trained_until"] > day(38)
    assert challenger["since"] == day(39)
    assert last(Upkeep(state))[0] == "trained"
    before = roles
    clock.forward(seconds=1)
    again = Upkeep(state)
    assert not again.is_training_due()
    clock.forward(hours=12)
    again.turn(always)
    with postgres_engine.connect() as connection:
        assert newest_moment(connection, challenger["id"]) == day(39) + timedelta(hours=12, seconds=1)
        assert {row["id"] for row in list_models(connection)} == set(before)


def flap(at_d: float, host: int) -> Event:
    """A host's port that vanishes, as a subnet manager tells it."""
    return Event(day(at_d), f"gpu-{host}", "opensm", "port_removed", None, "error", "fabric", device=Device("port"))


def with_fabric(engine: sa.Engine, losses: int) -> None:
    """Forty hosts on a leaf, of which four lose their links again and again."""
    cables = [
        {"switch": "leaf-0", "port": i + 1, "peer": f"gpu-{i}", "peer_port": 1, "peer_type": "hca"} for i in range(40)
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [node(f"gpu-{i}") for i in range(40)])
        append_links(connection, cables)
        append_events(connection, [flap(2 + 27 * n / losses, n % 4) for n in range(losses)], RECEIVED)


@pytest.mark.parametrize(("losses", "every_h", "due"), [(39, 6.0, False), (40, 6.0, True), (40, 0.0, False)])
def test_links_are_scored_by_the_server_once_enough_were_lost(
    upkeep: Upkeep, losses: int, every_h: float, due: bool
) -> None:
    """Never by itself where that is switched off."""
    with_fabric(upkeep.state.engine, losses)
    assert with_settings(upkeep, links_every_h=every_h).are_links_due() is due


@pytest.mark.integration
def test_links_are_scored_again_after_a_while(upkeep: Upkeep, clock: Clock) -> None:
    """A real child; the links that were lost before stand first."""
    with_fabric(upkeep.state.engine, 120)
    calm = with_settings(upkeep, every_days=0.0)
    calm.turn(always)
    with upkeep.state.engine.connect() as connection:
        rows = link_score_page(connection, 24, 100)
    assert len(rows) == 40
    assert {row["link"] for row in rows[:4]} == {f"leaf-0/{i + 1}" for i in range(4)}
    assert not calm.are_links_due()
    with writing(upkeep.state.engine).begin() as connection:
        connection.execute(sa.text("UPDATE link_scores SET horizon_h = 168"))
    assert Upkeep(calm.state).are_links_due()  # a person's, of another horizon
    with writing(upkeep.state.engine).begin() as connection:
        connection.execute(sa.text("UPDATE link_scores SET horizon_h = 24"))
    clock.forward(hours=-1)
    assert Upkeep(calm.state).are_links_due()  # a person's, of a moment to come
    clock.forward(hours=7)
    assert calm.are_links_due()


@pytest.mark.integration
def test_a_scoring_of_links_that_fails_is_not_tried_at_once(upkeep: Upkeep, clock: Clock) -> None:
    """A real child: its time is over. The next try is a day later."""
    with_fabric(upkeep.state.engine, 120)
    hasty = with_settings(upkeep, every_days=0.0, within_s=0.0)
    with pytest.raises(ChildError, match="foreshock links: not done within 0 s"):
        hasty.turn(always)
    clock.forward(hours=23)
    assert not hasty.are_links_due()
    clock.forward(hours=1)
    assert hasty.are_links_due()

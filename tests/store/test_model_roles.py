"""Which model serves: its changes and their audit; trainings; what models said, packed; the control group; 0006."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from store.database.connections import open_database, writing
from store.events.append import append_outages
from store.hints.control_group import ControlGroup, control_key, read_control_key
from store.hints.hint_log import audit_page
from store.models.registry import (
    RoleError,
    StoredModel,
    challengers,
    count_outages,
    give_role,
    last_training,
    list_models,
    newest_champion,
    note_training,
    read_model,
    retire,
    save_checks,
    save_model,
    serving_model,
)
from store.models.scorings import (
    Scoring,
    drop_scorings,
    newest_moment,
    newest_scoring_of,
    read_scorings,
    save_scoring,
)
from store.records.outage import Outage
from store.tables import schema

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MODEL = StoredModel("m1", NOW, NOW - HOUR, 24, ("a", "b"), {"auc": 0.9}, b"\x00\xff", "digest")


@pytest.fixture
def connection(any_engine: sa.Engine) -> Iterator[sa.Connection]:
    """A transaction on either kind of database."""
    with writing(any_engine).begin() as connection:
        yield connection


def put(connection: sa.Connection, ident: str, role: Any, horizon_h: int = 24, days_ago: float = 0) -> None:
    """A model with a role, that learned until so many days ago."""
    made = NOW - 24 * days_ago * HOUR
    save_model(connection, replace(MODEL, id=ident, role=role, horizon_h=horizon_h, created=made, trained_until=made))


def roles(connection: sa.Connection) -> dict[str, str]:
    """The role of each model."""
    return {row["id"]: row["role"] for row in list_models(connection)}


def test_a_model_comes_back_with_all_that_is_known_of_it(connection: sa.Connection) -> None:
    """Its making, its role and its checks; checks join those of before."""
    whole = replace(
        MODEL, kind="history", role="challenger", data={"rows": 5}, code="1+ab", why="new", by="ops", since=NOW
    )
    save_model(connection, replace(whole, profile={"a": {"edges": [0.0]}}, checks={"trial": {"days": 1}}))
    save_checks(connection, "m1", {"drift": {"state": "ok"}})
    save_checks(connection, "unknown", {"drift": {}})
    found = read_model(connection, "m1")
    checks = {"trial": {"days": 1}, "drift": {"state": "ok"}}
    assert found == replace(whole, profile={"a": {"edges": [0.0]}}, checks=checks)
    assert read_model(connection, "m2") is None


def test_a_list_leaves_out_what_is_heavy(connection: sa.Connection) -> None:
    """Those that serve come first, by horizon; then those on trial; then the newest of the others."""
    put(connection, "old", "retired", days_ago=9)
    put(connection, "no", "rejected", days_ago=3)
    put(connection, "try", "challenger", days_ago=1)
    put(connection, "week", "champion", 168)
    put(connection, "day", "champion")
    found = list_models(connection)
    assert [row["id"] for row in found] == ["day", "week", "try", "no", "old"]
    assert not {"blob", "profile", "features"} & set(found[0])
    assert found[0]["bytes"] == 2
    assert [row["id"] for row in list_models(connection, role="challenger")] == ["try"]
    assert [row["id"] for row in list_models(connection, ident="no")] == ["no"]


def test_a_new_champion_retires_the_one_of_its_horizon(connection: sa.Connection) -> None:
    """Both changes are in the audit, with who made them and why; again, nothing is written."""
    put(connection, "a", "champion", days_ago=7)
    put(connection, "b", "challenger")
    put(connection, "w", "champion", 168)
    for _ in range(2):
        give_role(connection, "b", "champion", "better by 0.1", "judge", NOW)
    assert roles(connection) == {"a": "retired", "b": "champion", "w": "champion"}
    entries = audit_page(connection, 9, None, None)
    assert [(entry["actor"], entry["action"], entry["subject"]) for entry in entries] == [
        ("judge", "champion", "b"),
        ("judge", "retired", "a"),
    ]
    assert [entry["detail"] for entry in entries] == [
        {"was": "challenger", "why": "better by 0.1"},
        {"was": "champion", "why": "followed by b"},
    ]
    found = read_model(connection, "b")
    assert found is not None
    assert (found.why, found.by, found.since) == ("better by 0.1", "judge", NOW)


def test_what_is_on_trial_or_was_rejected_never_serves(connection: sa.Connection) -> None:
    """A retired one does, of moments that the champion had learned from already."""
    put(connection, "no", "rejected")
    put(connection, "try", "challenger")
    assert serving_model(connection, 24) is None
    assert newest_champion(connection) is None
    put(connection, "old", "retired", days_ago=30)
    put(connection, "now", "champion", days_ago=7)
    served = [serving_model(connection, 24, at) for at in (None, NOW, NOW - 240 * HOUR, NOW - 9999 * HOUR)]
    assert [getattr(model, "id", None) for model in served] == ["now", "now", "old", "now"]
    assert getattr(newest_champion(connection), "id", None) == "now"
    assert [model.id for model in challengers(connection, 24)] == ["try"]


def test_the_champion_is_not_taken_out_of_use(connection: sa.Connection) -> None:
    """Nothing would serve; one on trial is rejected, an unknown one refused."""
    put(connection, "now", "champion")
    put(connection, "try", "challenger")
    with pytest.raises(RoleError, match="promote another"):
        retire(connection, "now", "", "ops", NOW)
    with pytest.raises(RoleError, match="models list"):
        give_role(connection, "none", "champion", "", "ops", NOW)
    retire(connection, "try", "no need", "ops", NOW)
    assert roles(connection) == {"now": "champion", "try": "rejected"}


def test_the_last_training_is_told(connection: sa.Connection) -> None:
    """Its newest word, whatever else the audit holds."""
    assert last_training(connection) is None
    note_training(connection, NOW, "started", "server", {})
    note_training(connection, NOW + HOUR, "failed", "server", {"why": "no outages"})
    put(connection, "a", "challenger")
    give_role(connection, "a", "champion", "", "ops", NOW + 2 * HOUR)
    found = last_training(connection)
    assert found is not None
    assert (found.time, found.outcome, found.detail) == (NOW + HOUR, "failed", {"why": "no outages"})


def test_unplanned_outages_are_counted_within_a_window(connection: sa.Connection) -> None:
    """The first moment counts, the last does not; planned ones never."""
    starts = [(0, False), (1, False), (1, True), (2, False)]
    made = [
        Outage(f"n{i}", NOW + h * HOUR, None, "DOWN", "x", None, planned, "hardware")
        for i, (h, planned) in enumerate(starts)
    ]
    append_outages(connection, made)
    assert count_outages(connection, NOW, NOW + 2 * HOUR) == 2


def test_what_a_model_said_comes_back(connection: sa.Connection) -> None:
    """By moment; the same moment again replaces it; what is old goes."""
    for hours in (2, 1, 0):
        save_scoring(connection, Scoring("m1", 24, NOW - hours * HOUR, {"n1": 0.1, "n2": 1 / 3}, {"a": [1, 2]}))
    save_scoring(connection, Scoring("m1", 24, NOW, {"n1": 0.5}))
    save_scoring(connection, Scoring("m2", 24, NOW, {"n1": 0.9}))
    found = list(read_scorings(connection, "m1", NOW - HOUR))
    assert [scoring.time for scoring in found] == [NOW - HOUR, NOW]
    assert found[0] == Scoring("m1", 24, NOW - HOUR, {"n1": 0.1, "n2": 0.33333333}, {"a": [1, 2]})
    assert (found[1].scores, found[1].spread) == ({"n1": 0.5}, {})
    assert [scoring.time for scoring in read_scorings(connection, "m1", until=NOW - HOUR)] == [NOW - 2 * HOUR]
    assert newest_moment(connection, "m1") == NOW
    assert getattr(newest_scoring_of(connection, "m1", NOW - HOUR / 2), "time", None) == NOW - HOUR
    assert newest_scoring_of(connection, "m3") is None
    assert drop_scorings(connection, NOW - HOUR) == 1
    assert [scoring.time for scoring in read_scorings(connection, "m1")] == [NOW - HOUR, NOW]


def test_every_server_of_a_database_has_the_same_key(any_engine: sa.Engine) -> None:
    """Whoever asks first makes it."""
    with writing(any_engine).begin() as connection:
        connection.execute(schema.keys.delete())
        assert read_control_key(connection) is None
    key = control_key(any_engine)
    again = open_database(any_engine.url.render_as_string(hide_password=False))
    assert control_key(again) == key
    assert len(key) == 32
    again.dispose()


def test_the_control_group_is_a_share_of_the_nodes_drawn_anew_each_period() -> None:
    """The same all through a period, others with another key, nobody where the share is nothing."""
    group = ControlGroup(b"k" * 32, 0.03, timedelta(days=28))
    names = [f"gpu-{i:05}" for i in range(20_000)]
    drawn = {name for name in names if group.holds(name, NOW)}
    assert 0.026 < len(drawn) / len(names) < 0.034
    begin = datetime(1970, 1, 1, tzinfo=UTC) + group.number(NOW) * group.period
    for moment in (begin, begin + group.period - HOUR):
        assert {name for name in names[:2000] if group.holds(name, moment)} == drawn & set(names[:2000])
    for other in (replace(group, key=b"l" * 32), replace(group, share=0.03, period=timedelta(days=27))):
        found = {name for name in names if other.holds(name, NOW)}
        assert len(found & drawn) < 0.1 * len(drawn)
    after = {name for name in names if group.holds(name, begin + group.period)}
    assert len(after & drawn) < 0.1 * len(drawn)
    assert ControlGroup.of(group.key, 3.0, 28.0) == group
    assert ControlGroup.of(group.key, 0.0, 28.0) is None
    assert ControlGroup.of(group.key, 3.0, 0.0) is None
    assert drawn <= {name for name in names if replace(group, share=0.05).holds(name, NOW)}

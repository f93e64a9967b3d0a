"""`foreshock hints stop|resume|breaker`."""

import json
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.commands.hints import hints
from cli.console.output import person
from schedulers.policy.kill_switch import effective_stop
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.hints.hint_log import audit_page
from store.hints.stops import note_trip

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)


def run(engine: sa.Engine, *arguments: str) -> Result:
    """Run the command on a database."""
    return CliRunner().invoke(hints, [*arguments, "--db", engine.url.render_as_string()])


def test_a_person_stops_and_lets_go_on(engine: sa.Engine) -> None:
    """Each with a reason, under the user's name."""
    for words, stop in ((("stop",), "holds"), (("stop", "--all"), "all"), (("resume",), "none")):
        done = run(engine, *words, "--reason", "fabric work")
        assert done.exit_code == 0, done.output
        with engine.connect() as connection:
            assert effective_stop(connection, Policy()) == stop
    with engine.connect() as connection:
        entries = audit_page(connection, 9, None, "switch")
    assert [(entry["actor"], entry["action"]) for entry in entries] == [
        (person(), "resume"),
        (person(), "stop"),
        (person(), "stop"),
    ]


@pytest.mark.parametrize("words", [("stop",), ("stop", "--reason", " "), ("resume",)])
def test_without_a_reason_nothing_is_stopped(engine: sa.Engine, words: tuple[str, ...]) -> None:
    """Whoever finds it must know why."""
    assert run(engine, *words).exit_code == 2
    with engine.connect() as connection:
        assert effective_stop(connection, Policy()) == "none"


def test_trips_are_listed_and_reset(engine: sa.Engine) -> None:
    """In force, or all; reset twice is reset once, with the other word it is refused."""
    assert "has not tripped" in run(engine, "breaker", "list").output
    with writing(engine).begin() as connection:
        note_trip(connection, ("leaf", "leaf-3"), "breaker: 4 nodes of leaf leaf-3", 4, NOW, "policy")
    assert "leaf-3" in run(engine, "breaker", "list").output
    for _ in range(2):
        done = run(engine, "breaker", "reset", "1", "--backlog", "review")
        assert (done.exit_code, "trip 1 of leaf leaf-3 is reset; backlog: review" in done.output) == (0, True)
    assert json.loads(run(engine, "breaker", "list", "--json").output) == []
    (row,) = json.loads(run(engine, "breaker", "list", "--all", "--json").output)
    assert (row["seq"], row["reset_by"], row["backlog"], row["time"]) == (
        1,
        person(),
        "review",
        "2025-03-01T12:00:00.000000Z",
    )
    other = run(engine, "breaker", "reset", "1", "--backlog", "drop")
    assert (other.exit_code, "with the backlog review" in other.output) == (2, True)
    assert run(engine, "breaker", "reset", "9", "--backlog", "drop").exit_code == 2
    assert run(engine, "breaker", "reset", "1").exit_code == 2

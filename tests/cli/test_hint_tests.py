"""`foreshock hints validated|outcomes`."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.commands.hints import hints
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import audit_page, close_hint, save_hint
from store.hints.validations import validations_of
from store.records.hint import Hint
from store.records.node import Node
from store.tables import hint_tables

# The command takes the real time.
NOW = datetime.now(UTC)
DAY = timedelta(days=1)


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A node that is held, and two hints that have been judged."""
    held = Hint("h1", "gpu-001", "cordon", "sent", "foreshock: t", "foreshock", NOW, NOW + DAY)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-001", gpus=8), Node("gpu-002", gpus=8)])
        save_hint(connection, held, NOW, {})
        save_hint(connection, replace(held, id="soft", node="gpu-002", action="avoid"), NOW, {})
        for ident, state, right in (("old", "shadow", True), ("taken", "sent", False)):
            old: Any = replace(held, id=ident, state=state, created=NOW - 4 * DAY, node="gpu-002")
            save_hint(connection, old, NOW - 4 * DAY, {})
            close_hint(connection, old, "expired", NOW - 3 * DAY, "policy")
            row = {"hint": ident, "judged": NOW, "right": right, "lead_s": 7200.0, "held_gpu_h": 12.25}
            connection.execute(hint_tables.hint_outcomes.insert().values(**row))
    return engine.url.render_as_string()


def run(*arguments: str) -> Result:
    """Run the command."""
    return CliRunner().invoke(hints, list(arguments))


def test_a_person_says_what_a_test_said(url: str, engine: sa.Engine) -> None:
    """It is kept with who said it, and counts as a test does."""
    done = run("validated", "gpu-001", "--db", url, "--failed", "--detail", "row remap pending")
    assert (done.exit_code, done.output) == (0, "hint h1 of node gpu-001: its test has failed; it stays held\n")
    done = run("validated", "gpu-001", "--db", url, "--passed")
    assert done.output.endswith("its test has passed; it is released once its healthy time is over\n")
    with engine.connect() as connection:
        first, second = validations_of(connection, ["h1"])["h1"]
        newest = audit_page(connection, 1, None, "h1")[0]
    assert (first.passed, first.output, second.passed) == (False, "row remap pending", True)
    assert first.command == f"reported by {newest['actor']}"


@pytest.mark.parametrize(
    ("arguments", "status", "says"),
    [
        (("gpu-002", "--passed"), 2, "no open hint of ours holds node gpu-002"),
        (("gpu-009", "--passed"), 2, "no open hint of ours holds node gpu-009"),
        (("gpu-001",), 2, "--passed"),
    ],
)
def test_what_is_not_held_cannot_pass(url: str, arguments: tuple[str, ...], status: int, says: str) -> None:
    """Nor is a result guessed."""
    done = run("validated", "--db", url, *arguments)
    assert (done.exit_code, says in done.output) == (status, True)


def test_the_outcomes_are_a_table(url: str) -> None:
    """With the interval, and a word on what cannot be judged."""
    text = run("outcomes", "--db", url).output
    assert "PRECISION" in text
    assert "100% (21% to 100%)" in text
    assert "2.0 h" in text
    assert "12.2" in text
    assert "0 false holds per 1000 node-days" in text
    assert "acted: a held node cannot show" in text


def test_the_outcomes_as_json(url: str) -> None:
    """All figures; of a shorter time fewer."""
    found = json.loads(run("outcomes", "--db", url, "--json").output)
    assert [(one["basis"], one["judged"], one["right"]) for one in found["tallies"]] == [
        ("shadow", 1, 1),
        ("acted", 1, 0),
    ]
    priced = run("outcomes", "--db", url, "--gpu-hour-price", "1000 EUR", "--json").output
    for one in json.loads(priced)["tallies"]:
        assert float(one["held_money"]["amount"]) == one["held_gpu_h"] * 1000
    assert "held EUR" in run("outcomes", "--db", url, "--gpu-hour-price", "1000 EUR").output
    assert run("outcomes", "--db", url, "--days", "2").output.startswith("no hint of the last 2 days has been judged")
    assert run("outcomes", "--db", url, "--days", "0").exit_code == 2

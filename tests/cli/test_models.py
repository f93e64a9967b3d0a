"""`foreshock models` and `train --role`: which model serves, which are on trial, and a person's word on it."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from real.programs import need

from cli.main import foreshock
from store.database.connections import migrate, open_database, writing
from store.models.registry import StoredModel, note_training, save_model

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
MODEL = StoredModel("now", NOW, NOW, 24, ("a",), {"holdout": {"average_precision": 0.25}}, b"x", "d", why="the first")


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A database with a champion and a challenger."""
    with writing(engine).begin() as connection:
        save_model(connection, replace(MODEL, checks={"drift": {"state": "ok"}}))
        save_model(connection, replace(MODEL, id="new", role="challenger", kind="history"))
        note_training(connection, NOW, "failed", "server", {"why": "no outages"})
    engine.dispose()
    return str(engine.url)


def run(*arguments: str) -> Result:
    """`foreshock models ARGUMENTS`."""
    return CliRunner().invoke(foreshock, ["models", *arguments])


def test_models_are_listed_for_people_and_programs(url: str) -> None:
    """Those that serve first; how the last training went."""
    shown = run("list", "--db", url).output
    assert shown.index("now") < shown.index("new")
    assert "0.25" in shown
    assert "the server's last training, 2025-03-01T12:00:00.000000Z: failed: no outages" in shown
    found = json.loads(run("list", "--db", url, "--json").output)
    assert [(row["id"], row["role"], row["kind"]) for row in found] == [
        ("now", "champion", "gbt"),
        ("new", "challenger", "history"),
    ]
    assert found[0]["trained_until"] == "2025-03-01T12:00:00.000000Z"
    assert [row["id"] for row in json.loads(run("list", "--db", url, "--role", "challenger", "--json").output)] == [
        "new"
    ]
    assert run("list", "--db", url, "--role", "retired").output == "no model is retired\n"


def test_one_model_is_shown_whole(url: str) -> None:
    """Its figures and checks; an unknown one is told apart."""
    assert "  holdout: {'average_precision': 0.25}" in run("show", "now", "--db", url).output
    assert json.loads(run("show", "now", "--db", url, "--json").output)["checks"] == {"drift": {"state": "ok"}}
    missing = run("show", "none", "--db", url)
    assert (missing.exit_code, "foreshock models list" in missing.output) == (2, True)


def test_a_person_promotes_and_retires(url: str) -> None:
    """The champion before is retired; the only one that serves cannot be."""
    assert run("promote", "new", "--db", url, "--why", "seen to be better").output == "model new is the champion\n"
    found = {row["id"]: row for row in json.loads(run("list", "--db", url, "--json").output)}
    assert (found["new"]["role"], found["new"]["why"]) == ("champion", "seen to be better")
    assert (found["now"]["role"], found["now"]["why"]) == ("retired", "followed by new")
    refused = run("retire", "new", "--db", url)
    assert (refused.exit_code, "promote another" in refused.output) == (2, True)
    assert run("promote", "now", "--db", url).exit_code == 0
    assert run("retire", "new", "--db", url).exit_code == 0
    assert run("promote", "none", "--db", url).exit_code == 2


def test_judging_without_scorings_says_so(tmp_path: Path) -> None:
    """A database without a model, and a model that cannot be used."""
    url = f"sqlite:///{tmp_path / 'e.db'}"
    engine = open_database(url)
    migrate(engine)
    assert run("judge", "--db", url).output == "no scoring is due\n"
    assert json.loads(run("judge", "--db", url, "--json").output) == {"scored": 0, "verdicts": []}
    assert run("list", "--db", url).output == "no model yet: run `foreshock train`\n"
    with writing(engine).begin() as connection:
        save_model(connection, MODEL)
    engine.dispose()
    broken = run("judge", "--db", url)
    assert (broken.exit_code, "damaged" in broken.output) == (2, True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make a process the first of its own")
@pytest.mark.parametrize(("parent", "status"), [("1", 0), ("2", 1)])
def test_a_server_that_is_the_first_process_of_a_container_has_its_models_judged(
    engine: sa.Engine, parent: str, status: int
) -> None:
    """Its process id is the one that an orphan's parent has elsewhere; whose parent is another one does nothing."""
    engine.dispose()
    command = [sys.executable, "-m", "foreshock", "models", "judge", "--db", str(engine.url)]
    server = f"import subprocess, sys; sys.exit(subprocess.call({[*command, '--background', '5', parent]}))"
    apart = [need("unshare", "util-linux"), "--pid", "--fork", "--kill-child"]
    done = subprocess.run([*apart, sys.executable, "-c", server], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (status, "no scoring is due\n" if status == 0 else "")

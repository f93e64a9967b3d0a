"""`foreshock advise` and `foreshock what-if` over a stored run, on bad input and on an empty database."""

import json
import re
from datetime import UTC, datetime

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from stored_run import store_run

from cli.main import foreshock
from store.database.connections import open_database, writing
from store.events.append import append_events, append_nodes
from store.records.event import Event
from store.records.node import Node


@pytest.fixture
def empty(engine: sa.Engine) -> str:
    """The URL of an empty database."""
    return str(engine.url)


@pytest.fixture
def url(empty: str) -> str:
    """The URL of a database with a run that failed thrice."""
    engine = open_database(empty)
    store_run(engine)
    engine.dispose()
    return empty


def run(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, arguments)


def told(*arguments: str) -> dict[str, object]:
    """What a command prints as JSON."""
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, object] = json.loads(result.stdout)
    return found


def test_checkpoint_advice_with_a_predictor(url: str) -> None:
    """For people what to do upon a warning; as JSON the whole plan."""
    options = ("--recall", "0.6", "--precision", "0.5", "--lead-s", "300")
    result = run("advise", "checkpoint", "--db", url, *options)
    assert result.exit_code == 0, result.output
    assert "with warnings: save every" in result.stdout
    assert "saves in the background pay below a stall of" in result.stdout
    plan = told("advise", "checkpoint", "--db", url, *options)["prediction"]
    assert isinstance(plan, dict)
    assert plan["use_warnings"]
    late = run("advise", "checkpoint", "--db", url, "--recall", "0.6", "--precision", "0.5", "--lead-s", "1")
    assert "warnings are no reason to save: a warning comes too late for a save" in late.stdout
    assert told("advise", "checkpoint", "--db", url)["prediction"] is None


def test_spares_advice_has_a_curve_over_sizes(url: str) -> None:
    """From the cluster's size to a hundred thousand GPUs."""
    curve = told("advise", "spares", "--db", url)["curve"]
    assert isinstance(curve, list)
    assert [row["nodes"] for row in curve] == [3, 128, 512, 1250, 2048, 12500]
    assert "12500" in run("advise", "spares", "--db", url).stdout


def test_without_an_outage_no_number_of_spares_is_told_as_known(empty: str) -> None:
    """Two nodes over ten days: up to both, where a repair takes a day."""
    engine = open_database(empty)
    moments = [datetime(2026, 1, day, tzinfo=UTC) for day in (1, 11)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1"), Node("gpu-2")])
        append_events(connection, [Event(one, "gpu-1", "kernel", "xid", code=13) for one in moments], moments[1])
    engine.dispose()
    said = run("advise", "spares", "--db", empty).stdout
    assert "the cluster: how many spare nodes to keep for 2 is not known" in said
    assert "up to 2, where a repair takes" in said
    assert "keep 0" not in said


def test_the_budget_says_whether_the_target_is_met(url: str) -> None:
    """The minutes allowed, those spent, by part and at other sizes."""
    result = run("advise", "budget", "--db", url, "--target", "0.99")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("llm: a goodput of 99.0% on 2 nodes allows 00:07:13 a failure")
    for words in ("the target is missed", "detection", "lost_work", "12500", "FIELD B4"):
        assert words in result.stdout
    assert told("advise", "budget", "--db", url, "--target", "0.5")["met"] is True


def test_gains_are_ranked(url: str) -> None:
    """A line each."""
    result = run("advise", "gains", "--db", url, "--detection-s", "10", "--worst", "1")
    assert result.exit_code == 0, result.output
    assert "detection from 5.33 min to 10 s: +" in result.stdout
    assert re.search(r"failures from \d+ to [\d.]+ without the worst node: ", result.stdout)
    gains = told("advise", "gains", "--db", url)["gains"]
    assert isinstance(gains, list)
    assert [gain["gain"] for gain in gains] == sorted((gain["gain"] for gain in gains), reverse=True)


def test_times_between_failures_by_component(url: str) -> None:
    """Of the runs and of the cluster; the law where it can be told."""
    result = run("advise", "mtbf", "--db", url)
    assert result.exit_code == 0, result.output
    assert "stops of the runs" in result.stdout
    assert "unplanned outages of the cluster" in result.stdout
    assert "runs of at least two sizes and a failure are needed" in result.stdout


def test_what_if_tells_the_replay_and_the_formula(url: str) -> None:
    """Both, with the interval of the replay."""
    result = run("what-if", "--db", url, "--detection-s", "10")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("llm: goodput ")
    assert "replayed as it was (measured " in result.stdout
    assert "; by the formula +" in result.stdout
    every = ("--interval-s", "500", "--save-s", "1", "--write-s", "20", "--restart-s", "60", "--spares", "1")
    found = told("what-if", "--db", url, *every, "--recall", "0.5", "--precision", "0.5", "--move-s", "30")
    assert found["stops_then"] == 1.5


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("what-if",), "nothing would be otherwise"),
        (("what-if", "--recall", "0.5"), "--recall and --precision belong together"),
        (("what-if", "--hold-top", "0.1"), "no score was stored before the run's stops"),
        (("what-if", "--hold-top", "0.1", "--recall", "0.1", "--precision", "1"), "give one of them"),
        (("advise", "checkpoint", "--precision", "0.5"), "--recall and --precision belong together"),
        (("advise", "checkpoint", "--registered-model"), "`foreshock train` makes one"),
        (("advise", "gains", "--run", "x"), "knows no run 'x'"),
        (("advise", "budget", "--target", "1"), "1.0 is not in the range"),
        (("what-if", "--interval-s", "0"), "0.0 is not in the range"),
        (("what-if", "--detection-s", "nan"), "a what-if needs an interval above zero"),
        (("what-if", "--interval-s", "inf"), "a what-if needs an interval above zero"),
        (
            ("advise", "checkpoint", "--recall", "1", "--precision", "1", "--window-s", "nan"),
            "a window is not below zero",
        ),
        (("advise", "gains", "--recall", "1", "--precision", "1", "--window-s", "5"), "No such option"),
        (("advise", "gains", "--lead-s", "5"), "--lead-s tells more of a predictor"),
        (("what-if", "--lead-s", "5"), "--lead-s tells more of a predictor"),
        (("advise", "checkpoint", "--window-s", "5"), "--window-s tells more of a predictor"),
        (
            ("advise", "checkpoint", "--recall", "1", "--precision", "1", "--registered-model"),
            "--registered-model has its own recall",
        ),
    ],
)
def test_what_cannot_be_answered_fails_in_one_sentence(url: str, arguments: tuple[str, ...], sentence: str) -> None:
    """Exit 2, on stderr."""
    result = run(*arguments, "--db", url)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", ["budget", "gains", "mtbf", "checkpoint", "spares"])
def test_an_empty_database_says_what_to_ingest(empty: str, command: str) -> None:
    """One sentence with the remedy."""
    result = run("advise", command, "--db", empty)
    assert result.exit_code == 2
    assert "ingest" in result.stderr

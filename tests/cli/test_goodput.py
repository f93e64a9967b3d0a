"""`foreshock goodput`, `advise` and `diagnose` on a small run, on bad input and on an empty database."""

import json
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.main import foreshock
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import open_database, writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Attribute, Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

START = datetime(2025, 3, 1, tzinfo=UTC)


def at(seconds: float) -> datetime:
    """A moment, seconds after the start."""
    return START + timedelta(seconds=seconds)


def line(kind: str, seconds: float, **told: Attribute) -> Event:
    """One training event."""
    return Event(at(seconds), None, "training", kind, attributes={"run": "llm", **told})


@pytest.fixture
def empty(engine: sa.Engine) -> str:
    """The URL of an empty database."""
    return str(engine.url)


@pytest.fixture
def url(empty: str) -> str:
    """The URL of a database with one run that failed once."""
    engine = open_database(empty)
    log: list[Event] = []
    for n in range(1, 7):
        began = 26 * (n - 1) + 10
        log.append(line("iteration", began + 20, iteration=n, iterations=1, elapsed_ms=20_000.0))
        log.append(line("checkpoint_save", began + 20, iteration=n, duration_ms=6000.0))
    gpu = Device("gpu", pci="0000:0f:00.0")
    fault = Event(at(180), "gpu-1", "kernel", "xid", code=79, severity="fatal", cause="hardware", device=gpu)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("gpu-1", gpus=8), Node("gpu-2", gpus=8)])
        append_jobs(connection, [Job("1", "llm", "FAILED", at(0), at(0), at(200), 2, "gpu-[1-2]")])
        update_incidents(connection, append_events(connection, [*log, fault], at(9999)).new)
    engine.dispose()
    return empty


def run(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, arguments)


def test_the_ledger_prints_its_buckets_and_interruptions(url: str) -> None:
    """For people: shares, times, the culprit."""
    result = run("goodput", "--db", url)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("llm: goodput 60.00% of 00:03:20 (2025-03-01T00:00:00")
    assert "2 nodes, 16 GPUs, 1 attempt" in result.stdout
    assert "gpu-1 gpu 0000:0f:00.0 (xid 79)" in result.stdout
    assert "2025-03-01T00:03:00Z  hardware" in result.stdout


def test_the_ledger_as_json_is_a_list_of_runs(url: str) -> None:
    """DESIGN's object."""
    (told,) = json.loads(run("goodput", "--db", url, "--run", "llm", "--json").stdout)
    assert (told["run"], told["wall_s"], sum(told["buckets"].values())) == ("llm", 200.0, 200.0)
    assert told["interruptions"][0]["culprit"]["node"] == "gpu-1"
    (then,) = json.loads(run("goodput", "--db", url, "--until", "2025-03-01T00:00:30Z", "--json").stdout)
    assert then["wall_s"] == 30.0


def test_the_culprits_are_ranked(url: str) -> None:
    """A table with the evidence, or JSON."""
    result = run("diagnose", "--db", url)
    assert result.exit_code == 0, result.output
    assert "last progress 2025-03-01T00:02:40Z, end 2025-03-01T00:03:20Z" in result.stdout
    assert "for gpu-1/0000:0f:00.0: " in result.stdout
    told, *_ = json.loads(run("diagnose", "--db", url, "--run", "llm", "--at", "2025-03-01T01:00:00Z", "--json").stdout)
    assert (told["rank"], told["node"], told["cause"]) == (1, "gpu-1", "hardware")


def test_a_stop_without_a_sign_says_so(url: str) -> None:
    """Nothing happened until then."""
    result = run("diagnose", "--db", url, "--run", "llm", "--at", "2025-03-01T00:02:50Z")
    assert result.exit_code == 0
    assert "no cause that is known here explains it" in result.stdout


def test_checkpoint_advice_shows_inputs_and_formula(url: str) -> None:
    """What it is, what it brings, what it rests on."""
    result = run("advise", "checkpoint", "--db", url)
    assert result.exit_code == 0, result.output
    for words in ("llm: save every", "goodput expected", "save_s", "Young 1974", "failures per node-day (measured)"):
        assert words in result.stdout
    assert json.loads(run("advise", "checkpoint", "--db", url, "--json").stdout)["inputs"]["save_s"] == 6.0


def test_spares_advice_shows_inputs_and_formula(url: str) -> None:
    """For the cluster or for a run; without an outage no number, and why."""
    result = run("advise", "spares", "--db", url)
    assert result.exit_code == 0, result.output
    assert "the cluster: how many spare nodes to keep for 2 is not known: no unplanned outage is told" in result.stdout
    assert "keep 0" not in result.stdout
    engine = open_database(url)
    with writing(engine).begin() as connection:
        append_outages(connection, [Outage("gpu-1", at(180), at(190), "DOWN", "Xid 79", None, False, "hardware")])
    engine.dispose()
    assert "the cluster: keep " in run("advise", "spares", "--db", url).stdout
    told = run("advise", "spares", "--db", url, "--run", "llm", "--confidence", "0.9")
    assert "run 'llm'" in told.stdout
    assert "90.0%" in told.stdout
    assert json.loads(run("advise", "spares", "--db", url, "--json").stdout)["confidence"] == 0.99


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("goodput",), "knows no training run"),
        (("goodput", "--run", "x"), "knows no training run"),
        (("diagnose",), "no interrupted run and no incident"),
        (("diagnose", "--run", "x"), "run 'x' has no interruption"),
        (("advise", "checkpoint"), "knows no training run"),
        (("advise", "spares"), "knows no nodes"),
        (("goodput", "--until", "never"), "--until: 'never' is no time"),
        (("diagnose", "--at", "never"), "--at: 'never' is no time"),
    ],
)
def test_what_cannot_be_answered_fails_in_one_sentence(empty: str, arguments: tuple[str, ...], sentence: str) -> None:
    """Exit 2, on stderr."""
    result = run(*arguments, "--db", empty)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.startswith("Error: ")
    assert result.stdout == ""


def test_an_unknown_run_names_those_that_are_known(url: str) -> None:
    """Among them the one that was meant."""
    result = run("goodput", "--db", url, "--run", "lm")
    assert result.exit_code == 2
    assert "knows no run 'lm': it knows llm" in result.stderr

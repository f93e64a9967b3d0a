"""`foreshock policy`: a file tried, the versions in force, a policy over stored history."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.main import foreshock
from diagnosis.incidents.incidents_table import update_incidents
from schedulers.policy.settings import Budgets, Policy, canonical, version_of
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.hints.policy_history import note_policy
from store.records.event import Event
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.runs.ledgers import StoredLedger, save_ledgers
from store.runs.losses import Loss

EXAMPLE = Path(__file__).parents[2] / "deploy" / "policy.example.yaml"
NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


def run(*words: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, ["policy", *words])


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """Two nodes, one of which failed an hour after an Xid 79; the other had one and lived on."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node("a", "r", "l", gpus=8), Node("b", "r", "l", gpus=8)])
        facts: dict[str, Any] = {"source": "kernel", "kind": "xid", "code": 79, "severity": "fatal", "message": "x"}
        events = [Event(time=NOW + i * HOUR, node=node, cause="hardware", **facts) for i, node in enumerate("ab")]
        update_incidents(connection, append_events(connection, events, received=NOW + 240 * HOUR).new)
        append_outages(connection, [Outage("a", NOW + HOUR, NOW + 3 * HOUR, "DOWN", "x", None, False, "hardware")])
    engine.dispose()
    return str(engine.url)


def noted(url: str, *policies: Policy) -> None:
    """Policies that came into force, an hour apart."""
    engine = open_database(url)
    with writing(engine).begin() as connection:
        for i, policy in enumerate(policies):
            note_policy(connection, version_of(policy), canonical(policy), NOW + i * HOUR)
    engine.dispose()


def test_a_file_that_holds_is_said_so_with_its_version_and_thresholds() -> None:
    """For jobs of several sizes; JSON has the whole policy."""
    result = run("check", str(EXAMPLE))
    assert result.exit_code == 0
    assert f"{EXAMPLE} holds: version {version_of(Policy())}, mode shadow" in result.output
    told = json.loads(run("check", str(EXAMPLE), "--json").output)
    assert told["policy"] == json.loads(canonical(Policy()))
    assert {row["job_gpus"]: round(row["avoid"], 4) for row in told["thresholds"]}[1024] == 0.0688


def test_a_file_that_does_not_hold_is_refused_with_its_place(tmp_path: Path) -> None:
    """Exit 2; one sentence."""
    file = tmp_path / "p.yaml"
    for text, words in (
        ("mode: act\n", "begin the file with `version: 1`"),
        ("version: 1\nbudget: {}\n", "did you mean 'budgets'?"),
        ("version: 1\nmode: [\n", ":3 is no YAML"),
    ):
        file.write_text(text)
        for command in (("check", str(file)), ("dry-run", str(file), "--db", "sqlite:///x")):
            result = run(*command)
            assert (result.exit_code, str(file) in result.output, words in result.output) == (2, True, True)
    assert run("check", str(tmp_path / "none")).exit_code == 2


def test_the_versions_are_shown_with_what_each_changed(url: str) -> None:
    """The newest first; the first one changed nothing."""
    noted(url, Policy(), Policy(mode="act", budgets=Budgets(nodes=4)), Policy(mode="act"))
    told = json.loads(run("show", "--db", url, "--json").output)
    assert [row["mode"] for row in told] == ["act", "act", "shadow"]
    assert [row["changes"] for row in told] == [
        ["budgets.nodes 4 -> 8"],
        ["budgets.nodes 8 -> 4", "mode shadow -> act"],
        [],
    ]
    assert told[0]["version"] == version_of(Policy(mode="act"))
    page = run("show", "--db", url, "--limit", "1").output
    assert "budgets.nodes 4 -> 8" in page
    assert "shadow" not in page


def test_a_dry_run_tells_what_would_have_been_asked_and_whether_it_was_right(url: str) -> None:
    """One of two nodes may be held: the other waits until that one is repaired."""
    span = ("--since", "2025-03-01T00:00:00Z", "--until", "2025-03-05T00:00:00Z")
    told = json.loads(run("dry-run", str(EXAMPLE), "--db", url, *span, "--json").output)
    assert (told["version"], told["nodes"], told["node_days"], told["outages"]) == (version_of(Policy()), 2, 7.0, 1)
    assert told["by_action"] == {"cordon": 2}
    assert [(one["node"], one["action"], one["since"][11:16], one["held_back"]) for one in told["episodes"]] == [
        ("a", "cordon", "12:00", None),
        ("b", "avoid", "13:00", "budget: 1 node is held already, 2 % of the nodes may be"),
        ("b", "cordon", "16:00", None),  # at the step after the release
    ]
    assert told["held_back"] == [{"limit": "budget", "count": 1, "example": told["episodes"][1]["held_back"]}]


def test_a_dry_run_counts_no_days_of_which_nothing_is_known(url: str) -> None:
    """The records begin at noon of the first: neither a span from before that nor the usual one counts more."""
    until = ("--until", "2025-03-05T00:00:00Z")
    for since in ((), ("--since", "2025-02-01T00:00:00Z")):
        told = json.loads(run("dry-run", str(EXAMPLE), "--db", url, *until, *since, "--json").output)
        assert told["node_days"] == 7.0
        assert told["since"] == ("2025-02-01T00:00:00.000000Z" if since else "2025-03-01T12:00:00.000000Z")


def test_what_one_node_tells_of_long_ago_moves_a_dry_runs_beginning_by_a_week_at_most(
    url: str, engine: sa.Engine
) -> None:
    """Its clock, or its word: all others have no days then."""
    told_of = Event(time=NOW - 9000 * HOUR, node="b", source="kernel", kind="xid", code=13, message="x")
    with writing(engine).begin() as connection:
        append_events(connection, [told_of], received=NOW + 240 * HOUR)
    told = json.loads(run("dry-run", str(EXAMPLE), "--db", url, "--until", "2025-03-05T00:00:00Z", "--json").output)
    assert told["since"] == "2025-02-22T12:00:00.000000Z"
    assert told["node_days"] == 7.0 + 2 * 7


def test_without_limits_both_are_held(url: str, tmp_path: Path) -> None:
    """Two of two nodes are more than the default's share."""
    file = tmp_path / "p.yaml"
    file.write_text("version: 1\nbudgets: {percent_of_nodes: 100}\n")
    span = ("--since", "2025-03-01T00:00:00Z", "--until", "2025-03-05T00:00:00Z")
    told = json.loads(run("dry-run", str(file), "--db", url, *span, "--step-min", "30", "--json").output)
    mine = next(row for row in told["table"] if (row["policy"], row["asked"]) == ("this policy", "cordon, drain"))
    assert (mine["count"], mine["right"], mine["false"], mine["caught"], mine["lead_h_p50"]) == (2, 1, 1, 1, 1.0)
    assert mine["held_gpu_h"] == 8 * (1 + 24.5)
    assert mine["false_per_1000_node_days"] == pytest.approx(1000 / 7)
    held = {row["policy"]: row["count"] for row in told["table"] if row["asked"] == "cordon, drain"}
    assert held == {"no action": 0, "cordon on fatal xid": 2, "this policy": 2, "this without limits": 2}
    page = run("dry-run", str(file), "--db", url, *span).output
    assert "this policy" in page
    assert "cordon on fatal xid" in page
    assert "7 node-days, 1 unplanned outage" in page


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--since", "2025-03-02T00:00:00Z", "--until", "2025-03-01T00:00:00Z"), "is not before"),
        (("--since", "yesterday"), "--since"),
        (("--step-min", "0"), "--step-min"),
    ],
)
def test_a_span_that_is_none_is_refused(url: str, options: tuple[str, ...], words: str) -> None:
    """Exit 2."""
    result = run("dry-run", str(EXAMPLE), "--db", url, *options)
    assert (result.exit_code, words in result.output) == (2, True)


def test_a_dry_run_of_an_empty_database_says_what_to_do(tmp_path: Path) -> None:
    """Load records, or name a time."""
    url = f"sqlite:///{tmp_path / 'e.db'}"
    engine: sa.Engine = open_database(url)
    migrate(engine)
    engine.dispose()
    result = run("dry-run", str(EXAMPLE), "--db", url)
    assert (result.exit_code, "foreshock ingest" in result.output) == (2, True)


def lost(url: str) -> None:
    """A run whose second job `c` stopped, 40 GPU-hours; its first, on `b`, had ended well; `d` is idle."""
    engine = open_database(url)
    facts: dict[str, Any] = {"cause": "hardware", "code": "xid:79", "node": "c", "device": None, "leaf": None}
    facts |= {"driver": None, "incident": None, "lost_work_ms": 7_200_000, "restart_ms": 1_800_000}
    loss = Loss("r", 0, NOW + 30 * HOUR, **facts, lost_gpu_ms=144_000_000)
    jobs = [
        Job("7", "r", "COMPLETED", NOW, NOW, NOW + 2 * HOUR, 2, "b", None),
        Job("8", "r", "NODE_FAIL", NOW + 12 * HOUR, NOW + 12 * HOUR, NOW + 30.1 * HOUR, 2, "c", None),
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(name, "s", "m", gpus=8) for name in "cd"])
        append_jobs(connection, jobs)
        save_ledgers(connection, [StoredLedger("r", NOW, NOW, {}, {}, [loss])])
    engine.dispose()


def test_a_dry_run_tells_what_would_have_been_saved(url: str, tmp_path: Path) -> None:
    """The scores of a file have `c` avoided before its job is started; the habit knows nothing of scores."""
    lost(url)
    scores = tmp_path / "s.csv"
    scores.write_text("time,node,score\n2025-03-01T23:00:00Z,c,0.5\n2025-03-01T11:00:00Z,a,0.001\n")
    words = ("dry-run", str(EXAMPLE), "--db", url, "--until", "2025-03-05T00:00:00Z", "--scores", str(scores))
    told = json.loads(run(*words, "--json").output)
    assert told["since"] == "2025-03-01T11:00:00.000000Z"  # the first of the scores
    rows = {row["policy"]: row for row in told["savings"]}
    assert {name: row["averted_gpu_h"] for name, row in rows.items()} == {
        "no action": 0.0,
        "cordon on fatal xid": 0.0,
        "this policy": 40.0,
        "this without limits": 40.0,
    }
    assert {row["lost_gpu_h"] for row in rows.values()} == {40.0}
    mine = rows["this policy"]
    assert mine["saved_gpu_h"] == 40.0
    assert mine["net_gpu_h"] == 40.0 - mine["held_gpu_h"] - mine["moves_gpu_h"] - mine["checkpoint_gpu_h"]
    assert mine["net_at_worst_gpu_h"] == mine["net_gpu_h"] - mine["avoided_gpu_h"]
    assert mine["needless_moves"] == 1  # job 7 was asked to go on without b, and ended well
    assert [one["run"] for one in told["episodes"] if one["action"] == "swap"] == ["r"]
    page = run(*words).output
    priced = run(*words, "--gpu-hour-price", "2.50 EUR").output
    assert "1 interruption cost 40 GPU-hours, EUR 100.00" in priced
    assert "this policy: net EUR " in priced
    assert "1 interruption cost 40 GPU-hours\n" in page
    assert "NET GPU H" in page


def test_without_ledgers_what_would_have_been_saved_is_not_known(url: str) -> None:
    """And not nothing."""
    span = ("--since", "2025-03-01T00:00:00Z", "--until", "2025-03-02T00:00:00Z")
    assert json.loads(run("dry-run", str(EXAMPLE), "--db", url, *span, "--json").output)["savings"] is None
    assert "`foreshock goodput --db URL` makes" in run("dry-run", str(EXAMPLE), "--db", url, *span).output


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("time,node,score\n2025-03-01T12:00:00Z,a,2\n", "line 2"),
        ("time,node,score\n2025-03-01T12:00:00Z,other,0.1\n", "not one of its nodes is in the database"),
        ("time,node,score\n2025-03-05T00:00:00Z,a,0.1\n", "outside of the span"),
        ("time,node,score\n2025-02-27T00:00:00Z,a,0.1\n", "outside of the span"),
    ],
)
def test_scores_that_say_nothing_of_the_span_are_refused(url: str, tmp_path: Path, text: str, words: str) -> None:
    """Exit 2: an empty report would look as though nothing had to be asked."""
    file = tmp_path / "s.csv"
    file.write_text(text)
    span = ("--since", "2025-03-01T00:00:00Z", "--until", "2025-03-05T00:00:00Z")
    words_of_it = ("dry-run", str(EXAMPLE), "--db", url, *span, "--scores", str(file))
    result = run(*words_of_it)
    assert (result.exit_code, words in result.output) == (2, True)
    file.write_text("time,node,score\n2025-02-28T01:00:00Z,a,0.1\n")
    assert run(*words_of_it).exit_code == 0  # less than a day old at the beginning

"""`foreshock train`, `score` and `backtest` as a user runs them."""

import csv
import io
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from fleet_store import day, fill, fill_trained

from cli.console.output import progress_bar
from cli.main import foreshock
from predictor.hazard.prior import packaged
from predictor.live.prior import ensure_prior
from store.records.event import format_time
from store.tables import schema


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """A store with sixty days of a fleet."""
    fill(engine, nodes=24)
    return str(engine.url)


def run(*arguments: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(foreshock, list(arguments))


def good(*arguments: str) -> str:
    """The output of a command that must end well."""
    result = run(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_train_then_score_then_the_riskiest_come_first(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The way of a user: figures of the models, then the nodes by risk, in JSON or as a table."""
    models = json.loads(good("train", "--db", url, "--json"))
    assert [model["horizon_h"] for model in models] == [24, 168]
    assert all(model["positives"] >= 8 for model in models)
    scores = json.loads(good("score", "--db", url, "--json"))
    assert {(score["node"], score["horizon_h"]) for score in scores} >= {("gpu-001", 24), ("gpu-001", 168)}
    assert set(scores[0]["reasons"][0]) == {"text", "contribution", "events"}
    with monkeypatch.context() as patched:
        patched.setattr("cli.commands.predict._withheld", lambda *_: {"gpu-001": "faulty"})
        assert good("score", "--db", url).startswith("1 node is not listed: a score of one that has failed")
    *table, rest = good("score", "--db", url, "--top", "5").splitlines()
    assert rest == "and 19 more: --top 24 lists all"
    assert table[0].split()[:3] == ["NODE", "SCORE", "24H"]
    risks = [float(line.split()[1]) for line in table[1:]]
    assert len(risks) == 5
    assert risks == sorted(risks, reverse=True)
    assert "HOLDOUT ROC AUC" in good("train", "--db", url)


def test_where_too_little_is_learned_training_says_so_and_what_serves(engine: sa.Engine) -> None:
    """Though the prior was there already, as on a site whose server ran before its history was loaded."""
    fill(engine, nodes=24, days=8)
    ensure_prior(engine, day(1), packaged())
    told = good("train", "--db", str(engine.url)).splitlines()
    serving = json.loads(good("models", "list", "--db", str(engine.url), "--json"))
    assert {model["role"] for model in serving} == {"champion"}
    for model in serving:
        words = "too few outages to show that what is learned here is better"
        assert f"{model['horizon_h']} h: {words}: {model['id']} serves" in told


def test_what_becomes_of_a_prior_is_said(engine: sa.Engine, tmp_path: Path) -> None:
    """Of an imported one and of one that took in what the site saw: its role, its horizon, and why."""
    fill(engine, nodes=24, days=8)
    url, file = str(engine.url), str(tmp_path / "prior.json")
    good("prior", "export", file, "--db", url)
    imported = good("prior", "import", file, "--db", url).splitlines()
    assert [line.partition("; ")[0].partition(": ")[2] for line in imported] == [
        "champion of 24 h",
        "champion of 168 h",
    ]
    unreadable = run("prior", "import", "/proc/self/mem", "--db", url)
    assert (unreadable.exit_code, "/proc/self/mem cannot be read: " in unreadable.stderr) == (2, True)
    assert all("of its failures are local" in line for line in good("prior", "update", "--db", url).splitlines())


def test_scoring_the_past_with_a_later_model_is_noted(engine: sa.Engine) -> None:
    """It works, and says so on stderr."""
    fill_trained(engine, nodes=24)
    url = str(engine.url)
    result = run("score", "--db", url, "--at", format_time(day(30)), "--json")
    assert result.exit_code == 0
    assert "after --at" in result.stderr


def test_scoring_the_present_notes_nothing(engine: sa.Engine) -> None:
    """A model may have learned up to a moment after the last record; nobody asked for an earlier one."""
    fill_trained(engine, nodes=24)
    with engine.begin() as connection:
        later = schema.models.update().values(trained_until=datetime.now(UTC))
        connection.execute(later)
    result = run("score", "--db", str(engine.url), "--json")
    assert result.exit_code == 0
    assert result.stderr == ""


def test_backtest_writes_the_report_the_scores_and_the_page(url: str, tmp_path: Path) -> None:
    """Every promised key; one line of scores a moment and node at risk."""
    scores, page = tmp_path / "scores.csv", tmp_path / "report.html"
    options = ("--test-start", "2025-02-10", "--test-end", "2025-02-20T00:00:00Z", "--cadence-h", "12")
    out = good("backtest", "--db", url, *options, "--scores", str(scores), "--html", str(page), "--json")
    report = json.loads(out)
    assert report["purge_h"] == 36
    assert report["folds"][0]["train_end"] == "2025-02-08T12:00:00.000000Z"
    rows = read_rows(scores)
    assert {row["time"] for row in rows} == {format_time(day(40 + i / 2)) for i in range(20)}
    assert len(rows) >= report["rows"]
    assert all(0 < float(row["score"]) < 1 for row in rows)
    assert "<h1>Backtest" in page.read_text()


def read_rows(path: Path) -> Sequence[dict[str, str]]:
    """The rows of a scores file."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


def test_backtest_for_people_shows_the_baselines_beside_the_model(url: str) -> None:
    """A short table."""
    out = good("backtest", "--db", url, "--horizon-h", "72")
    assert [line.split()[0] for line in out.splitlines()[1:5]] == ["RANKING", "model", "history_count", "rules"]
    assert "false cordons" in out
    lists = (
        "\nlists of the riskiest nodes: how many hold one that fails within 72 h, and how many the scores said\nNODES"
    )
    assert lists in out


def test_a_backtest_of_few_outages_says_that_it_says_little(url: str) -> None:
    """One row that was foreseen makes a perfect ranking; of many nothing is said."""
    few = good("backtest", "--db", url, "--test-start", format_time(day(56)), "--fold-days", "40")
    assert "with fewer than 20 such rows the figures say little: load a longer history or more nodes\n" in few
    assert "say little" not in good("backtest", "--db", url, "--horizon-h", "168", "--fold-days", "40")


def test_backtest_at_given_moments(url: str, tmp_path: Path) -> None:
    """Times of a file, comments and a heading left out."""
    moments, scores = tmp_path / "moments", tmp_path / "scores.csv"
    moments.write_text("time\n# chosen by hand\n2025-02-12T06:00:00Z\n\n2025-02-10T00:00:00Z,x\n")
    good("backtest", "--db", url, "--moments", str(moments), "--scores", str(scores), "--json")
    assert {row["time"] for row in read_rows(scores)} == {format_time(day(40)), format_time(day(42.25))}


@pytest.mark.parametrize(
    ("text", "said"),
    [("2025-02-10\nsoon\n", "line 2: 'soon' is no time"), ("# none\n", "holds no moment"), (None, "cannot read")],
)
def test_a_bad_file_of_moments_is_refused(url: str, tmp_path: Path, text: str | None, said: str) -> None:
    """Exit 2, with file, line and remedy."""
    path = tmp_path / "moments"
    if text is not None:
        path.write_text(text)
    result = run("backtest", "--db", url, "--moments", str(path))
    assert result.exit_code == 2
    assert said in result.stderr
    assert str(path) in result.stderr


@pytest.mark.parametrize("command", [("train",), ("score",), ("backtest",)])
def test_an_empty_database_is_bad_input(engine: sa.Engine, command: tuple[str, ...]) -> None:
    """Exit 2 and what to do, on stderr."""
    result = run(*command, "--db", str(engine.url))
    assert result.exit_code == 2
    assert "foreshock ingest" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("train", "--until", "soon"), "'soon' is no time"),
        (("train", "--until", "2025-01-04T00:00:00Z"), "are needed"),
        (("backtest", "--test-start", "2025-01-02"), "later --test-start"),
        (("backtest", "--horizon-h", "0"), "--horizon-h"),
        (("backtest", "--html", "/nowhere/at/all.html"), "cannot write /nowhere/at/all.html"),
    ],
)
def test_what_cannot_be_done_exits_with_2(engine: sa.Engine, arguments: tuple[str, ...], said: str) -> None:
    """One sentence on stderr, no traceback."""
    fill(engine, nodes=24)
    result = run(*arguments, "--db", str(engine.url))
    assert result.exit_code == 2, result.output
    assert said in result.stderr
    assert "Traceback" not in result.output


def test_a_progress_bar_shows_on_a_terminal_only(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On stderr, so that JSON on stdout stays clean."""
    stream = Terminal()
    monkeypatch.setattr("sys.stderr", stream)
    with progress_bar("Learning") as progress:
        assert progress is not None
        progress(1, 4)
        progress(4, 4)
    assert "Learning" in stream.getvalue()
    assert "100%" in stream.getvalue()
    monkeypatch.setattr("sys.stderr", io.StringIO())
    with progress_bar("Learning") as progress:
        assert progress is None


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        """Yes."""
        return True


def test_backtest_tells_what_acting_is_worth(url: str, tmp_path: Path) -> None:
    """Cost at the job's size, each policy under every ranking; without a truth its key is null."""
    page = tmp_path / "report.html"
    options = ("--job-gpus", "10000", "--policy", "top=5%,hold_h=48", "--policy", "threshold=0.05")
    report = json.loads(good("backtest", "--db", url, *options, "--html", str(page), "--json"))
    assert report["cost"]["break_even_precision"] == pytest.approx(0.00704)
    assert [one["policy"] for one in report["what_if"]] == [
        "top=5%,hold_h=48,budget=5%", "threshold=0.05,hold_h=24,budget=5%",
    ]  # fmt: skip
    assert list(report["what_if"][0]["rankings"]) == ["model", "history_count", "rules", "recency", "prior"]
    assert list(report["what_if"][1]["rankings"]) == ["model"]
    assert report["truth"] is None
    assert report["intervals"]["roc_auc"][0] < report["roc_auc"] < report["intervals"]["roc_auc"][1]
    assert "Precision over recall" in page.read_text()


@pytest.mark.parametrize(
    ("option", "value", "said"),
    [("--policy", "top=9", "out of range"), ("--truth", "/nowhere", "cannot read /nowhere/outages.json")],
)
def test_bad_policies_and_truths_are_bad_input(url: str, option: str, value: str, said: str) -> None:
    """Exit 2, and no report."""
    result = run("backtest", "--db", url, "--fold-days", "40", option, value)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stdout == ""

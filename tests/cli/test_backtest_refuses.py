"""`foreshock backtest` with a feature that knows the future: no report, exit 3, and the feature's name."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from fleet_store import day, fill, node, outage, put

from cli.main import foreshock
from predictor.dataset import matrix
from predictor.history.arrays import DAY_MS, FAR_FUTURE_MS, Feature, History, Rows

Values = np.ndarray


def days_to_the_next_outage(history: History, rows: Rows) -> Values:
    """What is asked for, as an input."""
    found = np.full(len(rows), 400.0)
    for its, start in zip(history.outages.node, history.outages.start_ms, strict=True):
        ahead = (start - rows.time_ms) / DAY_MS
        found = np.where((rows.node == its) & (ahead > 0), np.minimum(found, ahead), found)
    return found


def outages_of_its_life(history: History, rows: Rows) -> Values:
    """How often the node fails, later failures among them: a good guess at most, and a leak all the same."""
    counts: Values = np.bincount(history.outages.node, minlength=len(history.fleet.names)).astype(float)
    return counts[rows.node]


def days_of_service_left(history: History, rows: Rows) -> Values:
    """Made of `in_service_until`: whoever fails for good leaves."""
    left = (history.fleet.until_ms[rows.node] - rows.time_ms) / DAY_MS
    return np.where(history.fleet.until_ms[rows.node] == FAR_FUTURE_MS, np.nan, left)


def has_an_end(history: History, rows: Rows) -> Values:
    """Made of `in_service_until` too, and weak: those that are still in service have none."""
    found: Values = (history.fleet.until_ms[rows.node] < FAR_FUTURE_MS).astype(float)
    return found


def plant(monkeypatch: pytest.MonkeyPatch, leak: Callable[[History, Rows], Values]) -> None:
    """One more maker of features."""
    feature = Feature("planted", "planted", None)
    maker = SimpleNamespace(FEATURES=(feature,), compute=lambda history, rows: {"planted": leak(history, rows)})
    monkeypatch.setattr(matrix, "MAKERS", (*matrix.MAKERS, maker))
    monkeypatch.setattr(matrix, "FIXED", (*matrix.FIXED, feature))


def mortal(engine: sa.Engine) -> None:
    """A fleet like one of disks: what fails leaves for good, and some leave alive."""
    random = np.random.default_rng(1)
    names = [f"disk-{i}" for i in range(150)]
    ends = {name: float(random.uniform(3, 60)) for name in names[:90]}
    put(
        engine,
        [node(name, None, in_service_until=day(ends[name]) if name in ends else None) for name in names],
        outages=[outage(name, ends[name], None) for name in names[:60]],
    )


def backtest(engine: sa.Engine, *more: str) -> Result:
    """The command, in this process."""
    return CliRunner().invoke(foreshock, ["backtest", "--db", str(engine.url), *more])


@pytest.mark.parametrize(
    ("leak", "fleet", "said"),
    [
        (days_to_the_next_outage, fill, "feature 'planted' alone tells who fails with ROC AUC 1.0"),
        (outages_of_its_life, fill, "feature 'planted' knows the future"),
        (days_of_service_left, mortal, "feature 'planted' alone tells who fails"),
        (has_an_end, mortal, "feature 'planted' knows the future"),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_a_planted_leak_is_found_and_nothing_is_reported(
    engine: sa.Engine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    leak: Callable[[History, Rows], Values],
    fleet: Callable[[sa.Engine], None],
    said: str,
) -> None:
    """Exit 3, one sentence that names the feature and what to look at; no figures, no page, no scores."""
    fleet(engine)
    plant(monkeypatch, leak)
    page, scores = tmp_path / "page.html", tmp_path / "scores.csv"
    result = backtest(engine, "--json", "--html", str(page), "--scores", str(scores))
    assert result.exit_code == 3, result.output
    assert said in result.stderr
    assert "look at" in result.stderr
    assert result.stdout == ""
    assert not page.exists()
    assert not scores.exists()


@pytest.mark.parametrize("fleet", [fill, mortal])
def test_the_same_fleets_are_judged_without_the_leak(engine: sa.Engine, fleet: Callable[[sa.Engine], None]) -> None:
    """Or the refusals above would prove nothing."""
    fleet(engine)
    result = backtest(engine, "--fold-days", "40")
    assert result.exit_code == 0, result.output


def test_a_purge_that_is_too_short_is_refused(engine: sa.Engine) -> None:
    """The fold and the least purge are named."""
    fill(engine, nodes=24)
    result = backtest(engine, "--purge-h", "35")
    assert result.exit_code == 3
    assert "the fold judged from 2025-" in result.stderr
    assert "at least 36 h (--purge-h)" in result.stderr

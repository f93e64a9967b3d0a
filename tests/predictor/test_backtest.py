"""The backtest over a whole store."""

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put

from predictor.dataset.folds import BacktestSettings, Fold, NoDataError
from predictor.dataset.labels import label
from predictor.evaluate.backtest import backtest, learned_by, run_backtest
from predictor.evaluate.report import to_html
from predictor.history.arrays import every, to_ms
from predictor.history.store_reader import read_fleet, read_outage_log
from predictor.model.fit import TooFewPositivesError
from store.database.connections import writing
from store.tables import schema

SETTINGS = BacktestSettings(test_start=day(35), fold_days=10, learn_cadence_h=24)
KEYS = {
    "horizon_h", "purge_h", "folds", "nodes", "positives", "prevalence", "roc_auc", "average_precision", "lift",
    "recall_at_top", "precision_at_top", "lead_time_h", "false_cordons_per_1000_node_days", "baselines",
    "lists", "lead_time_h_by_class",
}  # fmt: skip


def test_the_report_has_the_promised_keys_and_finds_the_lemons(engine: sa.Engine) -> None:
    """On a fleet with lemons and precursors the model beats chance; the figures agree with each other."""
    fill(engine, nodes=48)
    report = backtest(engine, SETTINGS)
    assert set(report) >= KEYS
    assert (report["horizon_h"], report["purge_h"], report["nodes"]) == (24, 36, 48)
    assert report["roc_auc"] > 0.7
    assert report["lift"] == pytest.approx(report["average_precision"] / report["prevalence"])
    assert report["prevalence"] == report["positives"] / report["rows"]
    assert set(report["recall_at_top"]) == {"0.01", "0.02", "0.05"}
    assert report["baselines"]["history_count"]["roc_auc"] > 0.6
    assert "recall_at_top" in report["baselines"]["rules"]
    assert 0 < report["lead_time_h"]["p10"] <= report["lead_time_h"]["p90"] <= 24
    classes = report["lead_time_h_by_class"].values()
    assert sum(one["outages"] for one in classes) == report["outages"]
    assert sum(one["foreseen"] for one in classes) <= report["outages"]
    assert [one["lists"] for one in report["lists"]] == [
        24
    ] * 3  # of 1, 5 and 10 of 48 nodes; the last of 25 days has no known answer
    assert report["lists"][0]["hit"] <= report["lists"][-1]["hit"]
    assert len(report["served"]) == len(report["folds"])
    assert {one["kind"] for one in report["served"]} <= {"blend", "history", "rules"}
    assert all("the last 2 folds" in one["why"] and one["settings"]["leaves"] for one in report["served"])


def test_every_node_at_risk_is_scored_at_every_moment(engine: sa.Engine) -> None:
    """Moments as given, even one whose answer is unknown; nodes that are out have no score."""
    fill(engine, nodes=32)
    told: list[tuple[int, int]] = []
    moments = (day(40), day(50.5), day(59.9))
    found = run_backtest(engine, BacktestSettings(moments=moments), lambda done, of: told.append((done, of)))
    assert sorted(set(found.judged.time_ms.tolist())) == [to_ms(moment) for moment in moments]
    with engine.connect() as connection:
        fleet = read_fleet(connection)
        asked = every(len(fleet.names), moments)
        risky = asked.only(label(fleet, read_outage_log(connection, fleet), asked, 24, to_ms(day(60))).at_risk)
    np.testing.assert_array_equal(found.judged.node, risky.node)
    assert ((found.judged.scores > 0) & (found.judged.scores < 1)).all()
    assert told[-1][0] == told[-1][1]


def test_scores_do_not_depend_on_what_came_later(engine: sa.Engine) -> None:
    """The same fold on a store that ends at its last moment: the very same scores."""
    fill(engine, nodes=32)
    moments = (day(45), day(46))
    whole = run_backtest(engine, BacktestSettings(moments=moments)).judged.scores
    with writing(engine).begin() as connection:
        for table, column in ((schema.events, "time"), (schema.telemetry, "time"), (schema.outages, "start")):
            connection.execute(table.delete().where(table.c[column] >= day(46)))
    np.testing.assert_array_equal(run_backtest(engine, BacktestSettings(moments=moments)).judged.scores, whole)


def test_a_store_without_outages_cannot_be_learned_from(engine: sa.Engine) -> None:
    """Too few positives: a clear refusal, not a model of nothing."""
    fill(engine, nodes=8, days=60)
    with writing(engine).begin() as connection:
        connection.execute(schema.outages.delete())
    with pytest.raises(TooFewPositivesError, match="0 of"):
        backtest(engine, SETTINGS)


def test_a_site_with_too_few_outages_is_scored_by_the_prior(engine: sa.Engine) -> None:
    """As it would be in operation; the report says what served, and claims no gain over itself."""
    fill(engine, nodes=8, days=60)
    with writing(engine).begin() as connection:
        connection.execute(schema.outages.delete())
    put(engine, outages=[outage("gpu-001", 20), outage("gpu-001", 50), outage("gpu-002", 52)])
    found = run_backtest(engine, SETTINGS)
    assert {one["kind"] for one in found.report["served"]} == {"prior"}
    assert "outages to learn from" in found.report["served"][0]["why"]
    np.testing.assert_array_equal(found.judged.scores, found.ranks["prior"])


def test_quiet_test_days_give_nulls(engine: sa.Engine) -> None:
    """Outages to learn from but none to judge by: figures without meaning are None."""
    names = [f"n{i}" for i in range(12)]
    put(engine, [node(name) for name in names], outages=[outage(n, 3 + 2 * i) for i, n in enumerate(names)])
    put(engine, outages=[outage("n0", 59, 1, planned=True)])
    report = backtest(engine, BacktestSettings(test_start=day(40), learn_cadence_h=12))
    assert report["positives"] == 0
    assert report["roc_auc"] is report["average_precision"] is report["lift"] is None
    assert "<td>-</td>" in to_html(report)


def test_an_empty_store_is_said_to_be_empty(engine: sa.Engine) -> None:
    """With the command that fills it."""
    with pytest.raises(NoDataError, match="foreshock ingest"):
        backtest(engine, SETTINGS)


def test_a_sliding_window_forgets() -> None:
    """Only the days before the fold's end of learning."""
    fold = Fold(day(30), day(31.5), day(40))
    moments = np.array([to_ms(day(d)) for d in (1, 3, 20, 30, 31)])
    assert learned_by(moments, fold, BacktestSettings()).tolist() == [True, True, True, True, False]
    sliding = BacktestSettings(learn_days=28)
    assert learned_by(moments, fold, sliding).tolist() == [False, True, True, True, False]


def test_the_page_shows_every_figure(engine: sa.Engine) -> None:
    """Self-contained: no script, no address of another site."""
    fill(engine, nodes=32)
    report = backtest(engine, SETTINGS)
    page = to_html(report)
    assert page.startswith("<!doctype html>")
    assert f"{report['average_precision']:.4g}" in page
    assert "history count" in page
    assert "<script" not in page
    assert "http" not in page

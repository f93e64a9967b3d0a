"""Lists of the riskiest nodes, held against plain code; lead times by what failed."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day

from predictor.dataset.labels import Labels
from predictor.history.arrays import DAY_MS, HOUR_MS
from predictor.history.what_failed import NOUNS, failure_classes
from predictor.model.riskiest import LISTS, NodeLosses, list_record
from predictor.model.skill import Judged, first_flags, foreseen, lead_times_by_class
from store.database.connections import writing
from store.records.score import at_least_one
from store.tables import schema

NODES, MOMENTS = 240, 28


def judged(seed: int = 3, every_h: int = 12) -> Judged:
    """Scores of moments half a horizon apart that come true by chance; a tenth of the answers is not known."""
    random = np.random.default_rng(seed)
    time_ms = np.repeat(np.arange(MOMENTS) * every_h * HOUR_MS, NODES)
    node = np.tile(np.arange(NODES), MOMENTS)
    scores = random.choice([0.01, 0.05, 0.2, 0.4], len(node))
    known = random.random(len(node)) < 0.9
    positive = known & (random.random(len(node)) < scores)
    start = np.where(positive, time_ms + random.integers(1, 24, len(node)) * HOUR_MS, np.nan)
    return Judged(time_ms, node, scores, Labels(known, known, positive, start))


def test_lists_are_those_of_plain_code() -> None:
    """A horizon apart, the riskiest first; a list is hit when one of its nodes failed."""
    rows = judged()
    rows = replace(rows, scores=rows.scores + np.random.default_rng(1).uniform(0, 0.001, len(rows.scores)))
    for record in list_record(rows, 24):
        failing, said = [], []
        for moment in range(0, MOMENTS, 2):
            here = [i for i in np.flatnonzero(rows.known) if rows.time_ms[i] == moment * 12 * HOUR_MS]
            chosen = sorted(here, key=lambda i: -rows.scores[i])[: record["nodes"]]
            failing.append(sum(rows.labels.positive[i] for i in chosen))
            said.append(1 - np.prod([1 - rows.scores[i] for i in chosen]))
        assert (record["lists"], record["hit"]) == (MOMENTS / 2, sum(count > 0 for count in failing))
        assert record["failing"] == pytest.approx(np.mean(failing))
        assert record["said"] == pytest.approx(np.mean(said))
        assert record["low"] <= record["share"] <= record["high"]


def test_what_was_said_came_where_scores_are_true() -> None:
    """Over many lists the shares meet; equal scores at the edge are drawn by lot, not by name."""
    found = [record for seed in range(30) for record in list_record(judged(seed), 24) if record["nodes"] == 5]
    said, came = (np.mean([one[name] for one in found]) for name in ("said", "share"))
    assert came == pytest.approx(said, abs=0.05)
    same = judged()
    flat = Judged(same.time_ms, same.node, np.full(len(same.node), 0.1), same.labels)
    few = np.flatnonzero(flat.node < 5)
    by_name = flat.labels.positive[few].mean()
    assert list_record(flat, 24)[1]["failing"] / 5 != pytest.approx(by_name, abs=1e-9)


def test_losses_count_on_the_listed_nodes_within_the_horizon_alone() -> None:
    """Of a node below the list, of before and after, nothing."""
    time_ms = np.repeat([0, DAY_MS], 4)
    no = np.zeros(8, dtype=np.bool_)
    labels = Labels(~no, ~no, no, np.full(8, np.nan))
    scores = np.array([0.5, 0.1, 0.1, 0.1, 0.1, 0.5, 0.1, 0.1])  # node 0 first, node 1 on the second day
    rows = Judged(time_ms, np.tile(np.arange(4), 2), scores, labels)
    lost = NodeLosses(
        np.array([0, 0, 1, 1]),
        np.array([HOUR_MS, DAY_MS + 1, HOUR_MS, DAY_MS + HOUR_MS]),
        np.array([1.0, 2.0, 4.0, 8.0]),
    )
    (one,) = list_record(rows, 24, lost)
    assert (one["nodes"], one["lost_gpu_h"]) == (1, (1.0 + 8.0) / 2)
    assert list_record(rows, 24)[0]["lost_gpu_h"] is None


def test_without_any_row_nothing_is_claimed() -> None:
    """No list, no share."""
    empty = judged().only(np.zeros(NODES * MOMENTS, dtype=np.bool_))
    assert list_record(empty, 24) == []


def test_a_list_is_a_quarter_of_the_fleet_at_the_most() -> None:
    """Fifty of sixty nodes are no list of the riskiest."""
    assert [one["nodes"] for one in list_record(judged(), 24)] == list(LISTS)
    rows = judged()
    assert [one["nodes"] for one in list_record(rows.only(rows.node < 60), 24)] == [1, 5, 10]


def test_chances_multiply() -> None:
    """At least one of several."""
    assert at_least_one([]) == 0.0
    assert at_least_one([0.5, 0.5, 0.0]) == 0.75


def test_an_outage_is_foreseen_from_its_first_flag() -> None:
    """Each distinct outage once, those that were never flagged among them; by class they add up."""
    rows = judged()
    found = foreseen(rows, top=0.2)
    pairs = {
        (n, s) for n, s, hit in zip(rows.node, rows.labels.next_start_ms, rows.labels.positive, strict=True) if hit
    }
    assert set(zip(found.node, found.start_ms, strict=True)) == pairs
    assert sorted(found.lead_h[np.isfinite(found.lead_h)]) == sorted(first_flags(rows, top=0.2))
    classes = ["nvlink" if n % 2 else "no_sign" for n in found.node]
    told = lead_times_by_class(found, classes)
    assert sum(one["outages"] for one in told.values()) == len(found.node)
    assert sum(one["foreseen"] for one in told.values()) == np.isfinite(found.lead_h).sum()
    assert told["nvlink"]["p10"] <= told["nvlink"]["p90"]


def fault(node: str, at_d: float, **more: Any) -> dict[str, Any]:
    """An incident of a minute."""
    row = {"id": f"{node}-{at_d}", "node": node, "start": day(at_d), "end": day(at_d) + timedelta(minutes=1)}
    row |= {"kind": "xid", "code": 74, "severity": "error", "cause": "hardware", "action": "none"}
    return row | {"device": {}, "message": "m", "count": 1, "kinds": {}} | more


def test_what_failed_is_the_gravest_fault_near_the_beginning(engine: sa.Engine) -> None:
    """Not one of hours before, nor what an application did; of faults as grave the nearer one."""
    with writing(engine).begin() as connection:
        rows = [
            fault("a", 1.0),
            fault("a", 1.01, code=79, severity="fatal"),
            fault("b", 1.0 - 0.2, code=48),
            fault("b", 1.0, code=31, cause="application"),
            fault("c", 0.99, code=74),
            fault("c", 1.0, code=63),
            fault("c", 1.02, code=48, severity="fatal"),
        ]
        connection.execute(schema.incidents.insert(), rows)
        named = [("a", day(1.012)), ("b", day(1.0)), ("c", day(1.0)), ("d", day(1.0))]
        found = failure_classes(connection, named)
    assert found == ["hardware_xid", "no_sign", "row_remap", "no_sign"]
    assert set(found) <= set(NOUNS)
    with engine.connect() as connection:
        assert failure_classes(connection, []) == []

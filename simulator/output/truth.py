"""The truth beside an archive: what failed, where the hours went, what could be known, and by which figures.

The oracle's scores are the ceiling for any model on this archive: it knows each node's true hazard and the precursors
that run, but not the future. Rankings (ROC-AUC, average precision, lift, recall at the top) share ranks at ties.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import orjson
from numpy.typing import NDArray

from simulator.calibration import calibration, described
from simulator.faults.fault import NodeFailure
from simulator.faults.hazard import Availability
from simulator.site import DAY_MS, GPUS, HOUR_MS, PCI, gpu_uuid, leaf_name
from simulator.state import SimulatedCluster
from simulator.training.accounting import RunAccount, SimulatedInterruption
from store.records.event import format_time

TOPS = (0.01, 0.02, 0.05)


@dataclass(frozen=True, slots=True)
class Ranking:
    """Figures of one horizon; None where one side is empty. `lift` = average precision / prevalence."""

    rows: int
    positives: int
    prevalence: float | None
    roc_auc: float | None
    average_precision: float | None
    lift: float | None
    recall_at_top: dict[str, float | None]


def rank(scores: NDArray[np.float64], labels: NDArray[np.bool_], groups: NDArray[np.int64]) -> Ranking:
    """Judge scores (rows) against labels. The top shares are taken within each group: one moment, all its nodes."""
    rows, positives = int(labels.size), int(labels.sum())
    if not 0 < positives < rows:
        empty: dict[str, float | None] = {str(top): None for top in TOPS}
        return Ranking(rows, positives, positives / rows if rows else None, None, None, None, empty)
    prevalence = positives / rows
    precision = average_precision(scores, labels)
    return Ranking(
        rows=rows,
        positives=positives,
        prevalence=prevalence,
        roc_auc=roc_auc(scores, labels),
        average_precision=precision,
        lift=precision / prevalence,
        recall_at_top={str(top): _recall(scores, labels, groups, top) for top in TOPS},
    )


def roc_auc(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The chance that a positive is scored above a negative (Mann-Whitney; ties count half)."""
    _, inverse, counts = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    positives = int(labels.sum())
    above = float(ranks[labels].sum()) - positives * (positives + 1) / 2
    return above / (positives * (labels.size - positives))


def average_precision(scores: NDArray[np.float64], labels: NDArray[np.bool_]) -> float:
    """The mean precision over the recalled positives, thresholds at distinct scores."""
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(labels[order])
    ends = np.append(np.flatnonzero(np.diff(scores[order])), scores.size - 1)
    precision = hits[ends] / (ends + 1)
    gained = np.diff(hits[ends], prepend=0) / int(labels.sum())
    return float((precision * gained).sum())


def _recall(scores: NDArray[np.float64], labels: NDArray[np.bool_], groups: NDArray[np.int64], top: float) -> float:
    found = 0
    for group in np.unique(groups):
        rows = np.flatnonzero(groups == group)
        best = rows[np.argsort(-scores[rows], kind="stable")[: max(1, round(top * rows.size))]]
        found += int(labels[best].sum())
    return found / int(labels.sum())


HORIZONS_H = (24, 168)
_FIRST_DAY = 7  # before, no model would have learned anything


def oracle(cluster: SimulatedCluster) -> dict[str, Any]:
    """Figures per horizon (hours, as text), with a score a day of every node that is in service then."""
    return {
        "cadence_h": 24,
        "horizons": {str(horizon_h): asdict(_judge(cluster, horizon_h)) for horizon_h in HORIZONS_H},
    }


def _judge(cluster: SimulatedCluster, horizon_h: int) -> Any:
    scores, labels, moments = hidden_scores(cluster, horizon_h)
    return rank(np.array(scores, dtype=np.float64), np.array(labels, dtype=np.bool_), np.array(moments, dtype=np.int64))


def hidden_scores(cluster: SimulatedCluster, horizon_h: int) -> tuple[list[float], list[bool], list[int]]:
    """Scores, labels (an unplanned outage within the horizon) and moments (ms) of every day and node at risk."""
    rows = list(_hidden(cluster, horizon_h))
    return [row[2] for row in rows], [row[3] for row in rows], [row[0] for row in rows]


def hidden_chances(cluster: SimulatedCluster, horizon_h: int) -> NDArray[np.float64]:
    """The oracle's scores as (days, nodes), as each day begins; NaN where a node is not at risk, or nobody asked."""
    found = np.full((cluster.settings.days, cluster.layout.nodes), np.nan)
    for now, node, score, _ in _hidden(cluster, horizon_h):
        found[now // DAY_MS, node] = score
    return found


def _hidden(cluster: SimulatedCluster, horizon_h: int) -> Iterator[tuple[int, int, float, bool]]:
    """Moment, node, score and label of every day and node at risk."""
    by_node: dict[int, list[NodeFailure]] = defaultdict(list)
    for failure in cluster.outages:
        by_node[failure.node].append(failure)
    availability = Availability(cluster.layout, cluster.outages)
    for drain in cluster.drains:
        availability.add(drain)
    span_ms = horizon_h * HOUR_MS
    for day in range(min(_FIRST_DAY, cluster.settings.days // 3), cluster.settings.days):
        now = day * DAY_MS
        if now + span_ms > cluster.settings.length_ms:
            break
        for node in range(cluster.layout.nodes):
            if availability.usable(node, now):
                unseen = float(cluster.hazard.rate[day, node]) * (1.0 - cluster.hazard.visible_share)
                follows = any(now < failure.start_ms <= now + span_ms for failure in by_node[node])
                yield now, node, _score(by_node[node], unseen, now, horizon_h), follows


def _score(failures: list[NodeFailure], unseen_per_day: float, now_ms: int, horizon_h: int) -> float:
    """1 - the chance that neither an unseen fault nor a running precursor ends in an outage."""
    survives = math.exp(-unseen_per_day * horizon_h / 24)
    for failure in failures:
        if failure.visible and failure.warning_ms <= now_ms < failure.fault_ms:
            age_h = (now_ms - failure.warning_ms) / HOUR_MS
            before, after = (_lead_cdf(failure, hours) for hours in (age_h, age_h + horizon_h))
            survives *= 1.0 - min((after - before) / max(1.0 - before, 1e-9), 0.99)
    return 1.0 - survives


def _lead_cdf(failure: NodeFailure, hours: float) -> float:
    """The chance that a precursor of the failure's class lasts no longer."""
    median_h, sigma = failure.kind.lead_h
    return 0.5 * (1 + math.erf(math.log(max(hours, 1e-6) / median_h) / (sigma * math.sqrt(2))))


def write_truth(cluster: SimulatedCluster, directory: Path) -> dict[str, Any]:
    """Write `outages.json`, `goodput.json`, `oracle.json` and `parameters.json`; returns the oracle's figures."""
    directory.mkdir(parents=True, exist_ok=True)
    hidden = oracle(cluster)
    settings = {**asdict(cluster.settings), "start": format_time(cluster.settings.start)}
    figures = calibration(cluster.settings.calibration)
    if cluster.settings.mechanisms:
        figures = replace(figures, parameters=cluster.parameters)
    else:
        del settings["mechanisms"]
    parts: dict[str, Any] = {
        "outages": outages(cluster),
        "goodput": goodput(cluster),
        "oracle": hidden,
        "parameters": {
            "settings": settings,
            "parameters": described(figures),
        },
    }
    for name, value in parts.items():
        (directory / f"{name}.json").write_bytes(orjson.dumps(value, option=orjson.OPT_INDENT_2))
    return hidden


def outages(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    """Every unplanned outage; `fault` = when the device broke, `warning` = when true precursors began, if any."""
    return [
        {
            "node": cluster.layout.names[failure.node],
            "start": _time(cluster, failure.start_ms),
            "end": _time(cluster, failure.end_ms),
            "class": failure.kind.name,
            "visible": failure.visible,
            "fault": _time(cluster, failure.fault_ms),
            "warning": _time(cluster, failure.warning_ms) if failure.visible else None,
            "repair": failure.tier,
            "device": _device(cluster, failure),
        }
        for failure in cluster.outages
    ]


def goodput(cluster: SimulatedCluster) -> list[dict[str, Any]]:
    """The account of every run, in the shape of `foreshock goodput --json`."""
    return [_account(cluster, account) for account in cluster.accounts]


def _account(cluster: SimulatedCluster, account: RunAccount) -> dict[str, Any]:
    nodes = next(max(len(a.nodes) for a in run.attempts) for run in cluster.runs if run.name == account.run)
    return {
        "run": account.run,
        "nodes": nodes,
        "gpus": nodes * GPUS,
        "start": _time(cluster, account.start_ms),
        "end": _time(cluster, account.end_ms),
        "wall_s": account.wall_ms / 1000,
        "buckets": {bucket: length / 1000 for bucket, length in account.buckets_ms.items()},
        "goodput": account.buckets_ms["productive"] / account.wall_ms,
        "gpu_hours": {bucket: length / HOUR_MS for bucket, length in account.gpu_ms.items()},
        "interruptions": [_interruption(cluster, cut) for cut in account.interruptions],
    }


def _interruption(cluster: SimulatedCluster, cut: SimulatedInterruption) -> dict[str, Any]:
    fault = cut.attempt.fault
    if fault is None:
        raise ValueError(f"attempt {cut.attempt.job_id} ended well: it is no interruption")
    return {
        "time": _time(cluster, fault.fault_ms),
        "cause": fault.kind.cause,
        "class": fault.kind.name if fault.leaf is None else "leaf",
        "culprit": _device(cluster, fault),
        "lost_s": cut.lost_ms / 1000,
    }


def _device(cluster: SimulatedCluster, fault: NodeFailure) -> dict[str, Any]:
    if fault.leaf is not None:
        return {"type": "switch", "node": leaf_name(fault.leaf), "pci": None, "index": None, "uuid": None}
    node = cluster.layout.names[fault.node]
    device: dict[str, Any] = {"type": fault.kind.device, "node": node, "pci": None, "index": None, "uuid": None}
    if fault.kind.device == "gpu":
        device |= {"pci": f"{PCI[fault.gpu]}.0", "index": fault.gpu, "uuid": gpu_uuid(fault.node, fault.gpu)}
    return device


def _time(cluster: SimulatedCluster, offset_ms: int) -> str:
    return format_time(cluster.settings.moment(offset_ms))

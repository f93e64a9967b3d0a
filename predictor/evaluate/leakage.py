"""What must hold before a backtest may be believed; where it does not, there is no report.

Four checks: the answers learned from were known before the judged time; no feature changes when the history ends at
the moment; no single feature, and not the model, is better than any honest one has ever been (FIELD A1: the best
published ranking of nodes reaches an AUC of 0.83; D7: 0.95 is a reason to look for leakage).

A leak that tells of a part of the failures alone hardly moves an AUC. It shows at the top of the ranking: most of what
stands there fails. That is a doubt, not a refusal: a board that is already lost and not yet taken out looks alike.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from predictor.dataset.executor import Executor, InProcess
from predictor.dataset.folds import Fold, needed_purge_h
from predictor.dataset.labels import Labels
from predictor.history.arrays import Bools, Feature, Floats, Ints, Rows, from_ms, to_ms
from predictor.model.skill import CORDON_TOP, Judged, drawn_figures, flagged_share, node_weights
from store.records.event import format_time

# Beyond belief: an AUC above the first whose interval ends above the second, of enough outages of enough nodes.
BELIEF_AUC = 0.99
BELIEF_LOW_AUC = 0.975
DOUBT_AUC = 0.95
DOUBT_OF_ORACLE = 0.6
# At the top: average precision, and the part of what the riskiest hundredth could hold, if their intervals lie above;
# a pure part is a threshold of so high a precision that finds so many of the positives (rows, nodes, share of them).
DOUBT_PRECISION = 0.3
DOUBT_OF_TOP = 0.5
PURE_PRECISION = 0.8
PURE_ROWS = 8
DOUBT_PURE = 0.05
# Where counting past outages does as well, the failures repeat and nothing is odd: so many times what a baseline has.
OVER_BASELINE = 3.0
LEAST_POSITIVES = 20
LEAST_NODES = 5
# A ranking is judged as well from this many negatives.
_NEGATIVES = 20_000
_SEED = 20_250_301
_SAMPLED_PARTS = 3
_SAMPLED_NODES = 40
# Sums of other pieces may differ in the last digits of a float32.
_TOLERANCE = 1e-5


class LeakageError(ValueError):
    """The backtest has seen the future; the message names the fold or the feature, and what to look at."""


def check_purge(fold: Fold, learned_ms: Ints, horizon_h: int) -> None:
    """Refuse a fold that learned from an answer which was not known long before its first judged moment.

    Args:
        learned_ms: the moments of the rows that the fold's model learned from.

    Raises:
        LeakageError: the last of them lies less than the horizon and 12 h before.
    """
    if not len(learned_ms):
        return
    last = int(learned_ms.max())
    gap_h = (to_ms(fold.test_start) - last) / 3_600_000
    if gap_h < needed_purge_h(horizon_h):
        raise LeakageError(
            f"the fold judged from {format_time(fold.test_start)} learned from {format_time(from_ms(last))}, "
            f"{gap_h:g} h before it, whose answers come within {horizon_h} h: "
            f"leave out at least {needed_purge_h(horizon_h)} h (--purge-h)"
        )


AsOf = Callable[[Rows], tuple[tuple[str, ...], NDArray[np.float32]]]


@dataclass(frozen=True, slots=True)
class SampledRows:
    """Rows whose features are asked again: `values` is (rows, features) as the backtest has them.

    `positive` says which rows an outage follows: what knows the future differs there first.
    """

    rows: Rows
    values: NDArray[np.float32]
    features: Sequence[Feature]
    positive: Bools

    def places(self) -> list[Ints]:
        """Some rows of some moments, all positive ones of them included.

        The moments are the first, the last, and of each third of them the one with the most positives.
        """
        moments = np.unique(self.rows.time_ms)
        if not len(moments):
            return []
        hits = np.bincount(np.searchsorted(moments, self.rows.time_ms), self.positive, len(moments))
        parts = [part for part in np.array_split(np.arange(len(moments)), _SAMPLED_PARTS) if len(part)]
        chosen = {0, len(moments) - 1, *(int(part[np.argmax(hits[part])]) for part in parts)}
        generator = np.random.default_rng(_SEED)
        found = []
        for moment in moments[sorted(chosen)]:
            at = np.flatnonzero(self.rows.time_ms == moment)
            kept = generator.permutation(at)[:_SAMPLED_NODES]
            found.append(np.union1d(kept, at[self.positive[at]]))
        return found


def check_look_ahead(compute_asof: AsOf, sampled: SampledRows, run: Executor | None = None) -> None:
    """Refuse a feature whose value changes when the history is read only up to the row's moment.

    Args:
        compute_asof: names and values of the features of rows of one moment, from a history that ends there: nothing
            that comes later is in it, neither events nor the ends of outages nor the ends of service. A feature that
            such a history does not have yet is not compared.
        run: asks for the moments apart.

    Raises:
        LeakageError: a feature differs.
    """
    found = _difference(compute_asof, sampled, run)
    if found is not None:
        name, how = found
        raise LeakageError(
            f"feature {name!r} knows the future: {how} when the history ends there; "
            "look at what it reads after the moment"
        )


def check_readings(live: AsOf, whole: AsOf, sampled: SampledRows, run: Executor | None = None) -> list[str]:
    """The same check by a live score's short reading; what differs there only because less was read is a doubt.

    Args:
        whole: a `compute_asof` that reads as far back as the backtest did; asked where the short one differs.

    Raises:
        LeakageError: a feature differs with the whole past as well.
    """
    found = _difference(live, sampled, run)
    if found is None:
        return []
    check_look_ahead(whole, sampled, run)
    name, how = found
    return [f"feature {name!r} is not what a live score would see: {how} when no more is read than then"]


def _difference(compute_asof: AsOf, sampled: SampledRows, run: Executor | None) -> tuple[str, str] | None:
    """The first feature that differs, and how."""
    position = {feature.name: i for i, feature in enumerate(sampled.features)}
    places = sampled.places()
    readings = (run or InProcess()).map(compute_asof, [sampled.rows.only(at) for at in places])
    for at, (names, requested) in zip(places, readings, strict=True):
        for column, name in enumerate(names):
            if name not in position:
                continue
            was, again = sampled.values[at, position[name]], requested[:, column]
            same = np.isclose(again, was, rtol=_TOLERANCE, atol=_TOLERANCE, equal_nan=True)
            for row in np.flatnonzero(~same)[:1]:
                moment = format_time(from_ms(int(sampled.rows.time_ms[at[row]])))
                return name, f"at {moment} it is {was[row]:g}, and {again[row]:g}"
    return None


def check_features(
    values: NDArray[np.float32],
    judged: Judged,
    features: Sequence[Feature],
    ranks: Iterable[Floats] = (),
    negative_share: float = 1.0,
) -> list[str]:
    """Refuse a feature that alone tells who fails, better than anything honest has ever done; doubts of the others.

    A value that is missing may tell it as well, so whether it is missing is judged too.

    Args:
        values: (rows, features); all rows of `judged`, known or not (its scores are not looked at).
        ranks: what the baselines say of the same rows.
        negative_share: the rows hold this share of all negatives.

    Raises:
        LeakageError: one feature's AUC is beyond belief.
    """
    kept = _fewer(judged)
    if not _enough(judged.only(kept)):
        return []
    seen, whole = judged.only(kept), judged.only(judged.labels.known)
    each = (replace(whole, scores=rank[judged.labels.known]) for rank in ranks)
    usual = max((pure_part(one, negative_share) for one in each), default=0.0)
    found = []
    for column, feature in enumerate(features):
        measured = values[:, column].astype(np.float64)
        # As the model may use it: what is missing goes to either side.
        missing = np.isnan(measured)
        sides = [np.where(missing, side, measured) for side in (-np.inf, np.inf)] if missing.any() else [measured]
        for side in (one[kept] for one in sides):
            # Low values may tell it as well as high ones.
            up = side if _auc(side, seen.labels) >= 0.5 else -side
            _refuse(replace(seen, scores=up), f"feature {feature.name!r} alone", _LOOK_AT_FEATURE)
        part = max(_purest(side, judged, kept, negative_share) for side in sides)
        if part >= max(DOUBT_PURE, OVER_BASELINE * usual):
            found.append(f"feature {feature.name!r} alone {_FINDS.format(part)}; {_LOOK_AT_FEATURE}")
    return found


def _purest(values: Floats, judged: Judged, sample: Bools, negative_share: float) -> float:
    """The larger of the pure parts that a feature has from above and from below."""
    most = 0.0
    for up in (values, -values):
        scored = replace(judged, scores=up)
        # With fewer negatives a part can only look purer, so that what is not pure there is pure nowhere.
        if pure_part(scored.only(sample), negative_share) >= DOUBT_PURE:
            most = max(most, pure_part(scored.only(judged.labels.known), negative_share))
    return most


def pure_part(judged: Judged, negative_share: float = 1.0) -> float:
    """The largest share of the positives that one threshold finds while most of what it finds is positive.

    0 where what it finds is too little to say so: fewer than `PURE_ROWS` rows, or `LEAST_NODES` nodes.

    Args:
        judged: known rows alone.
        negative_share: they hold this share of all negatives: each stands for as many as were left out with it.
    """
    positive = judged.labels.positive
    order = np.argsort(-judged.scores, kind="stable")
    score, hits = judged.scores[order], np.cumsum(positive[order])
    ends = np.flatnonzero(np.append(score[1:] != score[:-1], True))
    found_in_all = hits[ends] + (ends + 1 - hits[ends]) / negative_share
    pure = ends[hits[ends] >= PURE_PRECISION * found_in_all]
    if not len(pure):
        return 0.0
    found = order[: pure[-1] + 1]
    found = found[positive[found]]
    if len(found) < PURE_ROWS or len(np.unique(judged.node[found])) < LEAST_NODES:
        return 0.0
    return len(found) / int(positive.sum())


_FINDS = f"finds {{:.0%}} of the failures, and at least {PURE_PRECISION:.0%} of what it finds fails"
_LOOK_AT_FEATURE = "look at how it is made: it may hold the outage itself, the end of service, or a later reading"
_LOOK_AT_MODEL = (
    "look for events that are written down before an outage by those who plan it, for outages that are told twice, "
    "and for columns that are filled in afterwards"
)


def check_model(judged: Judged) -> None:
    """Refuse a model that is too good.

    Raises:
        LeakageError: its AUC is beyond belief.
    """
    seen = judged.only(judged.known)
    if _enough(seen):
        _refuse(seen, "the model", _LOOK_AT_MODEL)


def doubts(roc_auc: float | None, of_oracle: float | None = None) -> list[str]:
    """What a reader should know about figures that are not refused and yet higher than any published.

    Args:
        of_oracle: the average precision as a part of the oracle's, on a simulated cluster.
    """
    found = []
    if roc_auc is not None and roc_auc >= DOUBT_AUC:
        found.append(
            f"ROC AUC {roc_auc:.3f}: from {DOUBT_AUC} on take it for a leak until it is explained; {_LOOK_AT_MODEL}"
        )
    if of_oracle is not None and of_oracle > DOUBT_OF_ORACLE:
        found.append(
            f"the average precision is {of_oracle:.2f} of the oracle's, who sees the hidden state: above "
            f"{DOUBT_OF_ORACLE} take it for a leak until it is explained; {_LOOK_AT_MODEL}"
        )
    return found


def doubts_at_top(judged: Judged, ranks: Mapping[str, Floats], report: Mapping[str, Any]) -> list[str]:
    """Where the top of the model's ranking is better than chance and the baselines allow.

    Args:
        judged: known rows alone.
        ranks: what the baselines say of the same rows.
        report: `intervals` and `baselines`.
    """
    if not _enough(judged):
        return []
    positive, top = judged.labels.positive, str(CORDON_TOP)
    ideal = flagged_share(replace(judged, scores=positive.astype(np.float64)), CORDON_TOP)
    could = float(ideal[positive].sum()) / int(positive.sum())
    sure, others = report["intervals"], list(report["baselines"].values())
    precision = (sure["average_precision"] or [0.0])[0]
    held = (sure["recall_at_top"][top] or [0.0])[0] / could
    found = []
    limit = max(DOUBT_PRECISION, OVER_BASELINE * max((one["average_precision"] for one in others), default=0.0))
    if precision > limit:
        found.append(f"the average precision is at least {precision:.2f}, above {limit:.2f}; {_LOOK_AT_MODEL}")
    limit = max(DOUBT_OF_TOP, OVER_BASELINE * max((one["recall_at_top"][top] / could for one in others), default=0.0))
    if held > limit:
        found.append(
            f"the riskiest {CORDON_TOP:.0%} hold at least {held:.0%} of the failures that they could hold, "
            f"above {limit:.0%}; {_LOOK_AT_MODEL}"
        )
    part = pure_part(judged)
    usual = max((pure_part(replace(judged, scores=rank)) for rank in ranks.values()), default=0.0)
    if part >= max(DOUBT_PURE, OVER_BASELINE * usual):
        found.append(f"one threshold on the score {_FINDS.format(part)}; {_LOOK_AT_MODEL}")
    return found


def _enough(judged: Judged) -> bool:
    positive = judged.labels.positive
    return int(positive.sum()) >= LEAST_POSITIVES and len(np.unique(judged.node[positive])) >= LEAST_NODES


def _fewer(judged: Judged) -> Bools:
    """All known positives and some of the known negatives."""
    kept: Bools = judged.labels.known & judged.labels.positive
    negatives = np.flatnonzero(judged.labels.known & ~judged.labels.positive)
    kept[np.random.default_rng(_SEED).permutation(negatives)[:_NEGATIVES]] = True
    return kept


def _refuse(judged: Judged, who: str, remedy: str) -> None:
    auc = _auc(judged.scores, judged.labels)
    if auc <= BELIEF_AUC:
        return
    nodes, node = np.unique(judged.node, return_inverse=True)
    drawn = drawn_figures(replace(judged, node=node.ravel().astype(np.int64)), node_weights(len(nodes)))["roc_auc"]
    low = float(np.nanpercentile(drawn, 2.5))
    if low > BELIEF_LOW_AUC:
        raise LeakageError(
            f"{who} tells who fails with ROC AUC {auc:.4f} (at least {low:.4f}): beyond belief "
            f"(the limit is {BELIEF_AUC}, the best published figure 0.83); {remedy}"
        )


def _auc(scores: Floats, labels: Labels) -> float:
    """The chance that a positive is above a negative; 0 where one side is empty."""
    positive = labels.positive
    if not positive.any() or positive.all():
        return 0.0
    ordered = np.sort(scores[~positive])
    hits = scores[positive]
    above = np.searchsorted(ordered, hits, side="left") + np.searchsorted(ordered, hits, side="right")
    return float(above.sum()) / (2.0 * len(ordered) * len(hits))

"""What the predictor must not lose to on real disks: gradient boosting on features made by hand, for these data alone.

    python -m benchmarks.drives_reference ../shared/data/drives [--scores scores.csv] [--monthly]

30 days ahead, on the first of each month; learned once from landmarks whose answer was known, and judged from 2015-07
on. `--first 2014-03-01 --test 2015-05-01` is the cut of the data's own note; `--monthly` learns anew for each month.
`--scores` takes what `foreshock backtest --scores` wrote: both are then judged on the rows that both scored.
Its features, its size and its half-life were chosen on the judged months, which flatters it.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import average_precision_score
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

HORIZON_D = 30
FIRST, TEST, LAST = "2013-07-01", "2015-07-01", "2015-12-01"
MEMBERS, NEGATIVES, HALF_LIFE_D, DRAWS = 5, 20, 180.0, 200
_FAR = 10**6
Figures = tuple[float, float]
# Drives, whether each fails, and its features.
Landmark = tuple[NDArray[np.int64], NDArray[np.bool_], NDArray[np.float32]]


def days(times: "pd.Series[str]") -> "pd.Series[int]":
    """Dates as days since 1970; a missing one is far away."""
    found = pd.to_datetime(times, utc=True)
    return ((found - pd.Timestamp(0, tz="UTC")) // pd.Timedelta(days=1)).fillna(_FAR).astype(np.int64)


class Drives:
    """The archive by drive and day: `values` has one row a change, in order of drive and day."""

    def __init__(self, folder: Path) -> None:
        nodes = pd.read_csv(folder / "nodes.csv", dtype=str)
        self.names = nodes["node"].to_numpy()
        self.since = days(nodes["in_service_since"]).to_numpy()
        self.until = days(nodes["in_service_until"]).to_numpy()
        self.model = nodes["gpu_model"].astype("category").cat.codes.to_numpy(dtype=np.float64)
        index = pd.Series(np.arange(len(nodes)), index=self.names)
        outages = pd.read_csv(folder / "outages.csv", sep="|", dtype=str)
        self.fails = np.full(len(nodes), _FAR, dtype=np.int64)
        np.minimum.at(self.fails, index[outages["NodeName"]].to_numpy(), days(outages["TimeStart"]).to_numpy())
        rows = pd.concat(pq.read_table(file).to_pandas() for file in sorted((folder / "telemetry").glob("*.parquet")))
        rows["n"], rows["d"] = index[rows["node"].astype(str)].to_numpy(), days(rows["time"]).to_numpy()
        rows = rows.sort_values(["n", "d"], kind="stable")
        self.measures = [name for name in rows.columns if str(name).startswith("smart_")]
        self.values = rows.groupby("n")[self.measures].ffill().to_numpy(np.float64)
        node, self.day = rows["n"].to_numpy(), rows["d"].to_numpy()
        self.key = node * _FAR + self.day
        rose = np.zeros(self.values.shape, dtype=np.bool_)
        rose[1:] = (self.values[1:] > self.values[:-1]) & (node[1:] == node[:-1])[:, None]
        self.rises = np.cumsum(rose, axis=0).astype(np.float64)
        last = pd.DataFrame(np.where(rose, self.day[:, None], np.nan)).groupby(node).ffill()
        self.last_rise = last.to_numpy()
        self.first = np.full(len(nodes), _FAR, dtype=np.int64)
        np.minimum.at(self.first, node, self.day)

    def at(self, node: NDArray[np.int64], day: int, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """The rows of a table that stood before a day; NaN where there was none yet."""
        place = np.searchsorted(self.key, node * _FAR + day) - 1
        stood = place >= np.searchsorted(self.key, node * _FAR)
        return np.where(stood[:, None], table[np.maximum(place, 0)], np.nan)

    def landmark(self, day: int) -> Landmark:
        """Drives with 30 days of telemetry whose fate is known, whether each fails, and its features."""
        alive = (self.since <= day) & (day < self.until) & (self.fails > day) & (self.first <= day - 30)
        fails = self.fails <= day + HORIZON_D
        node = np.flatnonzero(alive & (fails | (self.until >= day + HORIZON_D)))
        now = self.at(node, day, self.values)
        parts = [now, *(now - self.at(node, day - window, self.values) for window in (7, 30, 90))]
        parts.append(self.at(node, day, self.rises) - self.at(node, day - 30, self.rises))
        parts.append(day - self.at(node, day, self.last_rise))
        parts.append(day - self.at(node, day, self.day[:, None].astype(np.float64)))
        parts.append(self.model[node][:, None])
        return node, fails[node], np.concatenate(parts, axis=1).astype(np.float32)


def boosted(
    values: NDArray[np.float32], fails: NDArray[np.bool_], age_d: NDArray[np.float64], asked: NDArray[np.float32]
) -> NDArray[np.float64]:
    """The mean log-odds of several boosters, each on all failures and a part of the others."""
    random, said = np.random.default_rng(7), np.zeros(len(asked))
    positive, negative = np.flatnonzero(fails), np.flatnonzero(~fails)
    for member in range(MEMBERS):
        drawn = random.choice(negative, size=min(len(negative), NEGATIVES * len(positive)), replace=False)
        kept = np.concatenate([positive, drawn])
        booster = HistGradientBoostingClassifier(
            learning_rate=0.03, max_iter=120, max_leaf_nodes=16, min_samples_leaf=40, l2_regularization=1.0,
            max_features=0.3, early_stopping=False, random_state=member,
        )  # fmt: skip
        with threadpool_limits(1):
            booster.fit(values[kept], fails[kept], sample_weight=0.5 ** (age_d[kept] / HALF_LIFE_D))
            said += booster.decision_function(asked) / MEMBERS
    return said


def figures(fails: NDArray[np.bool_], scores: NDArray[np.float64], weight: NDArray[np.float64]) -> Figures:
    """Average precision, and recall at 1 % false positives."""
    order = np.argsort(-scores, kind="stable")
    false = np.cumsum((weight * ~fails)[order])
    found = (weight * fails)[order][false <= 0.01 * false[-1]].sum()
    return float(average_precision_score(fails, scores, sample_weight=weight)), float(found / (weight * fails).sum())


def tell(name: str, drawn: list[Figures], whole: Figures) -> None:
    """One line: both figures with their intervals by drive."""
    low, high = np.percentile(np.array(drawn), [2.5, 97.5], axis=0)
    words = ("AP", "recall at 1 % false positives")
    parts = [f"{words[i]} {whole[i]:.4f} [{low[i]:.4f}, {high[i]:.4f}]" for i in range(2)]
    print(f"{name:12}{'  '.join(parts)}")


def reference(parts: dict[int, Landmark], judged: list[int], test: int) -> NDArray[np.float64]:
    """The scores of the judged landmarks, learned from those whose answer was known before the day `test`."""
    learned = [moment for moment in parts if moment + HORIZON_D < test]
    values, fails = (np.concatenate([parts[moment][i] for moment in learned]) for i in (2, 1))
    age_d = np.concatenate([np.full(len(parts[moment][0]), float(test - moment)) for moment in learned])
    return boosted(values, fails, age_d, np.concatenate([parts[moment][2] for moment in judged]))


def main() -> None:
    """Learn, judge, compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--scores", type=Path)
    parser.add_argument("--first", default=FIRST, help="the first landmark, a day that begins a month")
    parser.add_argument("--test", default=TEST, help="the first landmark that is judged")
    parser.add_argument("--monthly", action="store_true", help="learn anew for each judged landmark")
    arguments = parser.parse_args()
    drives = Drives(arguments.folder)
    moments = days(pd.Series(pd.date_range(arguments.first, LAST, freq="MS").astype(str))).tolist()
    test = int(days(pd.Series([arguments.test])).iloc[0])
    parts = {moment: drives.landmark(moment) for moment in moments}
    judged = [moment for moment in moments if moment >= test]
    lessons = [([moment], moment) for moment in judged] if arguments.monthly else [(judged, test)]
    said = np.concatenate([reference(parts, some, until) for some, until in lessons])
    node, came = (np.concatenate([parts[moment][i] for moment in judged]) for i in range(2))
    frame = pd.DataFrame({"node": drives.names[node], "n": node, "came": came, "reference": said})
    frame["day"] = np.concatenate([np.full(len(parts[moment][0]), moment) for moment in judged])
    names = ["reference"]
    if arguments.scores is not None:
        ours = pd.read_csv(arguments.scores, dtype={"node": str})
        ours["day"] = days(ours["time"])
        frame, names = frame.merge(ours[["day", "node", "score"]], on=["day", "node"]), ["reference", "score"]
    compare(frame, names)


def compare(frame: pd.DataFrame, names: list[str]) -> None:
    """Each ranking, and the difference of two, with whole drives drawn anew."""
    came, random = frame["came"].to_numpy(dtype=np.bool_), np.random.default_rng(1)
    drive = np.unique(frame["n"], return_inverse=True)[1]
    drives = int(drive.max()) + 1
    weights = [np.bincount(random.integers(drives, size=drives), minlength=drives)[drive] for _ in range(DRAWS)]
    print(f"{len(frame)} rows, {came.sum()} failures")
    drawn, whole = {}, {}
    for name in names:
        scores = frame[name].to_numpy(dtype=np.float64)
        whole[name] = figures(came, scores, np.ones(len(came)))
        drawn[name] = [figures(came, scores, weight.astype(np.float64)) for weight in weights]
        tell(name, drawn[name], whole[name])
    if len(names) == 2:
        first, second = names
        pairs = zip(drawn[first], drawn[second], strict=True)
        gains = [(b[0] - a[0], b[1] - a[1]) for a, b in pairs]
        gain = (whole[second][0] - whole[first][0], whole[second][1] - whole[first][1])
        tell("difference", gains, gain)


if __name__ == "__main__":
    main()

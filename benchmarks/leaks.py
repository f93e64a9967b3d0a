"""How much of a leak the doubts find, on simulated worlds that `foreshock worlds DIR` has made.

    python -m benchmarks.leaks DIR

For each world: its own features, which must not be doubted, and a flag planted on 10, 30, 60 and 90 % of the rows that
an outage follows.
"""

import json
import sys
from pathlib import Path

import numpy as np

from cli.worlds.world import World, store_of
from predictor.dataset.dataset import Dataset, dataset
from predictor.dataset.folds import BacktestSettings, plan
from predictor.dataset.labels import TrainingSample, sample
from predictor.evaluate.leakage import check_features
from predictor.history.arrays import Feature, to_ms
from predictor.history.store_reader import data_span
from predictor.links.subjects import NODES
from predictor.model.skill import Judged

SHARES = (0.1, 0.3, 0.6, 0.9)
HORIZON_H = 24


def lesson(directory: Path, world: World) -> tuple[TrainingSample, Dataset]:
    """The rows that a backtest of the world learns from, with their features."""
    engine = store_of(directory, world)
    with engine.connect() as connection:
        span = data_span(connection)
        planned = plan(span, BacktestSettings(horizon_h=HORIZON_H))
        population = NODES.population(connection, to_ms(span[1]) if span else 0)
        learned = sample(population, planned.learn, HORIZON_H)
        return learned, dataset(connection, population, learned.rows, NODES.history)


def main(directory: Path) -> None:
    """One line a world."""
    for done in sorted(directory.glob("*/world.json")):
        world = World(**json.loads(done.read_bytes()))
        learned, rows = lesson(directory, world)
        judged = Judged(learned.rows.time_ms, learned.rows.node, np.zeros(len(learned.rows)), learned.labels)
        usual = [one.rank(rows) for one in NODES.baselines.values()]
        clean = check_features(rows.values, judged, rows.features, usual, learned.negative_share)
        said = [f"{world.name}: {int(learned.labels.positive.sum())} positive rows, {len(clean)} of its own doubted"]
        for share in SHARES:
            drawn = np.random.default_rng(7).random(len(learned.rows)) < share
            flag = (learned.labels.positive & drawn).astype(np.float32)[:, None]
            found = check_features(flag, judged, (Feature("planted", "history"),), usual, learned.negative_share)
            said.append(f"{share:.0%} ({int(flag.sum())} rows) {'doubted' if found else 'not found'}")
        print("; ".join(said), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]))

"""What is learned from: rows with their answers and features, how much each counts, and the time that each watched."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from predictor.dataset.labels import TrainingSample
from predictor.hazard.hazard import HazardHours
from predictor.hazard.signs import sign_values
from predictor.history.arrays import DAY_MS, HOUR_MS, Bools, Feature, Floats, Grid, Ints
from predictor.model.baselines import BASELINES, Baseline
from predictor.model.fit import FitSettings, RowWeights, fit
from predictor.model.forest import Forest


@dataclass(frozen=True, slots=True)
class TrainingSet:
    """Rows whose answer is known. `values` is (rows, features), NaN where unknown; `sample` may hold a share of the
    negatives; `baselines` are what a model of them must beat."""

    values: Grid
    features: tuple[Feature, ...]
    sample: TrainingSample
    horizon_h: int
    baselines: Mapping[str, Baseline] = field(default_factory=lambda: BASELINES)

    @property
    def positive(self) -> Bools:
        """Which rows an outage follows."""
        return self.sample.labels.positive

    @property
    def time_ms(self) -> Ints:
        """The moment of each row."""
        return self.sample.rows.time_ms

    def column(self, name: str) -> Grid:
        """One feature of every row."""
        return self.values[:, [feature.name for feature in self.features].index(name)]

    def only(self, kept: Bools) -> "TrainingSet":
        """The rows that a mask keeps."""
        sample = self.sample.only(kept)
        return replace(self, values=self.values[kept], sample=sample)

    def stands_for(self) -> Floats:
        """How many rows each row stands for: those of its kind that were not drawn, too."""
        return np.where(self.positive, 1.0, 1.0 / self.sample.negative_share)

    def outages(self) -> Ints:
        """A number for the outage that each positive row speaks of, in order of the positive rows."""
        at = self.positive
        pairs = np.stack([self.sample.rows.node[at], self.sample.labels.next_start_ms[at].astype(np.int64)])
        number: Ints = np.unique(pairs, axis=1, return_inverse=True)[1].ravel()
        return number

    def weights(self) -> Floats:
        """How much each row counts: every outage the same, however many rows speak of it."""
        found = np.ones(len(self.positive))
        if self.positive.any():
            number = self.outages()
            rows = np.bincount(number)
            found[self.positive] = (rows.mean() / rows)[number]
            found[self.positive] *= self.positive.sum() / found[self.positive].sum()
        return found

    def fit(self, settings: FitSettings) -> Forest:
        """A forest of all rows.

        Raises:
            TooFewPositivesError: there is too little to learn from.
        """
        age_d = (self.time_ms.max(initial=0) - self.time_ms) / DAY_MS
        weights = RowWeights(self.weights(), age_d)
        return fit(self.values, self.positive, self.features, settings, self.sample.negative_share, weights)


def node_hours(lesson: TrainingSet) -> HazardHours:
    """The rows of a lesson as time at risk: until the outage, or over the horizon (right-censored there).

    Windows of rows overlap where moments are closer than the horizon: of an outage each row that speaks of it has its
    share, and hours count as much less. Where moments are farther apart, what is between them was not watched.
    """
    positive, start_ms = lesson.positive, lesson.sample.labels.next_start_ms
    hours = np.where(positive, (start_ms - lesson.time_ms) / HOUR_MS, float(lesson.horizon_h)) * lesson.stands_for()
    failed = np.zeros(len(positive))
    overlap = max(lesson.horizon_h / lesson.sample.cadence_h, 1.0)
    if positive.any():
        number = lesson.outages()
        rows = np.bincount(number)
        failed[positive] = (1.0 / rows)[number]
    signs = sign_values(lesson.values, [feature.name for feature in lesson.features])
    return HazardHours(signs, hours / overlap, failed, np.zeros(len(positive), dtype=np.int64))

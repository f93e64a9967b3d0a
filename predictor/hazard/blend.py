"""The served score: the geometric mean of two hazards, that of the trees and the additive one, calibrated as one.

    hazard = additive ** weight * trees ** (1 - weight);  score = 1 - exp(-hazard * horizon), on the calibrated line

A weight of 1 is the additive hazard alone (the prior of the package, before there is anything to grow trees from).
Its reasons are exact: the logarithm of the hazard is a sum of what the groups of signs moved in each of the two, see
`predictor/live/reasons.py`.
"""

import io
from dataclasses import dataclass

import numpy as np

from predictor.hazard.hazard import per_hour
from predictor.hazard.signs import SIGN_NAMES, SIGNS, sign_values
from predictor.history.arrays import Floats, Grid, Ints
from predictor.model.forest import Forest, ModelError, digest, from_bytes, sigmoid, to_bytes

# A hazard over a horizon is held within these: what follows is finite.
_LEAST, _MOST = 1e-9, 40.0


@dataclass(frozen=True, slots=True)
class HazardBlend:
    """Trees and an additive hazard.

    Attributes:
        forest: the trees, with their own calibration; of a weight of 1 they are not asked.
        names: the features of the rows that it is asked with.
        rates: (classes, signs), failures per node-hour per unit of sign.
        weight: that of the additive hazard, 0 to 1.
        slope, offset: the line through the log-odds of both together.
    """

    forest: Forest
    names: tuple[str, ...]
    rates: Floats
    horizon_h: float
    weight: float
    slope: float = 1.0
    offset: float = 0.0

    @property
    def feature(self) -> Ints:
        """The columns that it asks."""
        asked = {sign.feature for sign, rate in zip(SIGNS, self.rates.sum(axis=0), strict=True) if rate > 0}
        own = [at for at, name in enumerate(self.names) if name in asked]
        trees = [] if self.weight >= 1 else self.forest.feature.tolist()
        return np.unique(np.array([*own, *trees], dtype=np.int64))

    def log_hazards(self, rows: Grid, signs: Floats | None = None) -> tuple[Floats, Floats]:
        """The logarithms of both hazards over the horizon, of the additive one and of the trees.

        Args:
            signs: those of the rows, where the caller has them already.
        """
        told = sign_values(rows, self.names) if signs is None else signs
        added = np.log(np.clip(per_hour(self.rates, told) * self.horizon_h, _LEAST, _MOST))
        if self.weight >= 1:
            return added, np.zeros(len(rows))
        return added, log_hazard(self.forest.calibrated(self.forest.log_odds(rows)))

    def blended(self, log_hazards: tuple[Floats, Floats]) -> Floats:
        """The logarithm of both hazards together over the horizon, before calibration."""
        added, trees = log_hazards
        return self.weight * added + (1 - self.weight) * trees

    def log_odds(self, rows: Grid) -> Floats:
        """Log-odds before calibration. `rows` is (n, features), NaN where unknown."""
        return log_odds_of(self.blended(self.log_hazards(rows)))

    def calibrated(self, log_odds: Floats) -> Floats:
        """Log-odds on the line that was calibrated."""
        return self.slope * log_odds + self.offset

    def probability(self, rows: Grid) -> Floats:
        """Calibrated probabilities."""
        return sigmoid(self.calibrated(self.log_odds(rows)))


def log_hazard(log_odds: Floats) -> Floats:
    """Log-odds as the logarithm of a hazard over the horizon: log(-log(1 - p)) = log(log(1 + odds))."""
    found: Floats = np.log(np.clip(np.logaddexp(0.0, log_odds), _LEAST, _MOST))
    return found


def log_odds_of(log_hazards: Floats) -> Floats:
    """The inverse of `log_hazard`: log(exp(hazard) - 1)."""
    found: Floats = np.log(np.expm1(np.clip(np.exp(log_hazards), _LEAST, _MOST)))
    return found


def no_trees() -> Forest:
    """A forest that says nothing."""
    nothing = np.empty(0, dtype=np.int64)
    threshold, left = np.empty(0, dtype=np.float32), np.empty(0, dtype=np.bool_)
    return Forest(nothing, nothing, threshold, left, np.empty(0, dtype=np.uint16), np.empty((0, 16)), 0.0)


def stored(model: Forest | HazardBlend) -> bytes:
    """A model as compressed NumPy archives: the forest's alone, or within the blend's."""
    if isinstance(model, Forest):
        return to_bytes(model)
    buffer = io.BytesIO()
    numbers = np.array([model.horizon_h, model.weight, model.slope, model.offset])
    forest = np.frombuffer(to_bytes(model.forest), dtype=np.uint8)
    names, signs = np.array(model.names), np.array(SIGN_NAMES)
    np.savez_compressed(buffer, blend=numbers, forest=forest, names=names, signs=signs, rates=model.rates)
    return buffer.getvalue()


def loaded(blob: bytes, sha256: str) -> Forest | HazardBlend:
    """The model of stored bytes.

    Raises:
        ModelError: the digest differs, or the bytes are no model.
    """
    if digest(blob) != sha256:
        return from_bytes(blob, sha256)  # says so
    try:
        with np.load(io.BytesIO(blob), allow_pickle=False) as parts:
            if "blend" not in parts:
                return from_bytes(blob, sha256)
            horizon_h, weight, slope, offset = parts["blend"].tolist()
            inner, rates = parts["forest"].tobytes(), parts["rates"]
            names, signs = tuple(parts["names"].tolist()), tuple(parts["signs"].tolist())
    except (KeyError, ValueError, OSError) as error:
        raise ModelError("the stored model is of another kind: train again with `foreshock train`") from error
    if signs != SIGN_NAMES or rates.ndim != 2 or rates.shape[1] != len(SIGNS):
        raise ModelError("the stored model knows other signs: train again with `foreshock train`")
    return HazardBlend(from_bytes(inner, digest(inner)), names, rates, horizon_h, weight, slope, offset)

"""Why a score is what it is: how much lower it would be, had each group of signs not been there.

Ablation by group: the features of one group are set to what they are where nothing has happened, and the forest is
asked again. Exact for this model, cheap (only groups in which something happened are asked), the same every time.
Two groups that say the same thing hide each other a little: their contributions need not add up to the score.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from predictor.feature import Feature
from predictor.forest import Forest
from predictor.history import Bools, Floats, Ints

MAX_REASONS = 5
# What moves a score by less than this share of it is noise to a reader.
MIN_SHARE = 0.05


def references(rows: NDArray[np.float32], features: Sequence[Feature]) -> NDArray[np.float32]:
    """The value of each feature where nothing has happened; the fleet's median of `rows` where none is fixed."""
    found = np.empty(len(features), dtype=np.float32)
    for i, feature in enumerate(features):
        if feature.reference is not None:
            found[i] = feature.reference
        else:
            known = rows[np.isfinite(rows[:, i]), i]
            found[i] = np.median(known) if len(known) else np.nan
    return found


def contributions(
    forest: Forest, rows: NDArray[np.float32], probability: Floats, features: Sequence[Feature]
) -> dict[str, Floats]:
    """By group, by how much each row's probability falls when the group is set to its reference; (rows,) each."""
    reference = references(rows, features)
    changed = ~((rows == reference) | (np.isnan(rows) & np.isnan(reference)))
    found = {}
    for group in dict.fromkeys(feature.group for feature in features):
        columns: Ints = np.array([i for i, feature in enumerate(features) if feature.group == group], dtype=np.int64)
        asked: Bools = changed[:, columns].any(axis=1)
        without = rows[asked]
        without[:, columns] = reference[columns]
        moved = np.zeros(len(rows))
        if asked.any():
            moved[asked] = probability[asked] - forest.probability(without)
        found[group] = moved
    return found


def strongest(moved: Mapping[str, Floats], row: int, probability: float) -> list[tuple[str, float]]:
    """The groups that raised a row's score most, with their contributions, largest first."""
    raised = [(group, float(values[row])) for group, values in moved.items()]
    raised = [(group, by) for group, by in raised if by > 0 and by >= MIN_SHARE * probability]
    return sorted(raised, key=lambda item: (-item[1], item[0]))[:MAX_REASONS]

"""The features: what is known of a node at a moment that may tell its outages.

Every feature is as of a moment t and uses only what was known then: events with time < t, telemetry hours that had
ended by t, outages begun before t (an end at or after t is hidden). `tests/predictor/test_leakage.py` proves it.

To add one: write it in a module with FEATURES and `compute`, or a new module, and list that module in MAKERS.
"""

from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from predictor import neighbour_features, outage_features, precursor_features, telemetry_features
from predictor.feature import Feature
from predictor.history import History, Ints

MAKERS: tuple[ModuleType, ...] = (outage_features, precursor_features, telemetry_features, neighbour_features)
FEATURES: tuple[Feature, ...] = tuple(feature for maker in MAKERS for feature in maker.FEATURES)
NAMES: tuple[str, ...] = tuple(feature.name for feature in FEATURES)
BY_NAME: dict[str, Feature] = {feature.name: feature for feature in FEATURES}


def feature_grid(history: History, moments_ms: Ints) -> NDArray[np.float32]:
    """Every feature at every moment of every node: (moments, nodes, features), in the order of NAMES."""
    grid = np.empty((len(moments_ms), len(history.fleet.names), len(NAMES)), dtype=np.float32)
    position = {name: i for i, name in enumerate(NAMES)}
    for maker in MAKERS:
        for name, values in maker.compute(history, moments_ms).items():
            grid[:, :, position[name]] = values
    return grid

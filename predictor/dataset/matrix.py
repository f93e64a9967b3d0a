"""The features: what is known of a node at a moment that may tell its outages.

Every feature is as of a moment t and uses only what was known then: events with time < t, telemetry hours that had
ended by t, outages begun before t (an end at or after t is hidden). `tests/predictor/test_leakage.py` proves it.

To add one: write it in a module with FEATURES and `compute`, or a new module, and list that module in MAKERS.
A numeric column of telemetry needs none of that: `measure_features` makes features of whatever there is.
"""

from collections.abc import Sequence
from types import ModuleType

import numpy as np
from numpy.typing import NDArray

from predictor.features import device_measures, devices, neighbours, outages, precursors, telemetry
from predictor.history.arrays import Feature, History, Rows

# What a new event or outage changes at once, and what only a new hour of telemetry does.
EVENTFUL: tuple[ModuleType, ...] = (outages, precursors, neighbours, devices)
HOURLY: tuple[ModuleType, ...] = (telemetry, device_measures)
MAKERS: tuple[ModuleType, ...] = (outages, precursors, telemetry, neighbours, devices)
# What every history has; the measures of its telemetry come on top.
FIXED: tuple[Feature, ...] = tuple(feature for maker in MAKERS for feature in maker.FEATURES)


def features_of(history: History) -> tuple[Feature, ...]:
    """The columns of `matrix`, in order."""
    return FIXED + device_measures.features_of(history)


def matrix(history: History, rows: Rows, measures: Sequence[str] | None = None) -> NDArray[np.float32]:
    """Every feature of every row: (rows, features), in the order of `features_of`; NaN where unknown.

    Args:
        measures: make features of these measures; None takes those that differ.
    """
    chosen = device_measures.chosen_measures(history.measures) if measures is None else measures
    names = [feature.name for feature in FIXED + device_measures.features_of_measures(chosen)]
    position = {name: i for i, name in enumerate(names)}
    found = np.empty((len(rows), len(names)), dtype=np.float32)
    # By subject and time, so that neighbouring rows look at neighbouring entries: five times as fast.
    order = np.lexsort((rows.time_ms, rows.node))
    sorted_rows = rows.only(order)
    for maker in MAKERS:
        for name, values in maker.compute(history, sorted_rows).items():
            found[order, position[name]] = values
    for measure in chosen:
        for name, values in device_measures.compute(history, sorted_rows, [measure]).items():
            found[order, position[name]] = values
    return found


def aligned(values: NDArray[np.float32], names: tuple[str, ...], wanted: tuple[str, ...]) -> NDArray[np.float32]:
    """The columns that a model knows, in its order; NaN where the history has no such column (yet, or any more)."""
    if names == wanted:
        return values
    position = {name: i for i, name in enumerate(names)}
    found = np.full((len(values), len(wanted)), np.nan, dtype=np.float32)
    for i, name in enumerate(wanted):
        if name in position:
            found[:, i] = values[:, position[name]]
    return found

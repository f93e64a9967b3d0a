"""The features of a moment from a history that ends there: what a backtest holds its own values against."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

import numpy as np
import sqlalchemy as sa
from numpy.typing import NDArray

from predictor.dataset import Reader
from predictor.features import features_of, matrix
from predictor.history import FAR_FUTURE_MS, from_ms
from predictor.reading import read_history
from predictor.rows import Rows

Reading = tuple[tuple[str, ...], NDArray[np.float32]]


def reader(
    connection: sa.Connection, read: Reader = read_history, since: datetime | None = None
) -> Callable[[Rows], Reading]:
    """A function from rows of one moment to the names of the features and their values, (rows, features).

    It reads the store up to that moment and no further. Nobody knows then how long a node will serve, so that its end
    of service is hidden too.

    Args:
        since: read all that features of this moment and later ones need; None reads no more than a live score does.
    """

    def compute(rows: Rows) -> Reading:
        moment_ms = int(rows.time_ms[0])
        history = read(connection, since or from_ms(moment_ms), from_ms(moment_ms))
        until_ms = np.where(history.fleet.until_ms > moment_ms, FAR_FUTURE_MS, history.fleet.until_ms)
        history = replace(history, fleet=replace(history.fleet, until_ms=until_ms))
        return tuple(feature.name for feature in features_of(history)), matrix(history, rows)

    return compute

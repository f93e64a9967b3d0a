"""What may fail: a node, or a link. The same features, labels and model serve both."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

import numpy as np
import sqlalchemy as sa

from predictor.baselines import BASELINES, Columns, history_count
from predictor.dataset import Population, read_population
from predictor.history import Floats, History
from predictor.links import link_history, link_population
from predictor.reading import read_history


@dataclass(frozen=True, slots=True)
class Subjects:
    """How one kind of subject is read, and what a model of it must beat."""

    noun: str
    population: Callable[[sa.Connection, int], Population]
    history: Callable[[sa.Connection, datetime, datetime], History]
    baselines: Mapping[str, Callable[[Columns], Floats]]


def flaps(rows: Columns) -> Floats:
    """How often the link was lost in the last 7 days: what an operator goes by."""
    return np.nan_to_num(rows.column("link_flap_7d")).astype(np.float64)


NODES = Subjects("node", read_population, read_history, BASELINES)
LINKS = Subjects("link", link_population, link_history, {"history_count": history_count, "rules": flaps})

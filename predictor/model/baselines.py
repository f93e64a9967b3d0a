"""What a model must beat: rankings that need no learning (FIELD A3.5: they are hard to beat)."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray

from predictor.history.arrays import Floats

Kind: TypeAlias = Literal["gbt", "hazard", "blend", "history", "rules", "prior"]


class Columns(Protocol):
    """Rows whose features are asked for by name: a dataset, a lesson."""

    def column(self, name: str) -> NDArray[np.float32]:
        """One feature of every row."""


@dataclass(frozen=True, slots=True)
class Baseline:
    """A ranking without learning, and how it serves where the trees do not beat it.

    Attributes:
        kind: what a model is called that is made of it.
        words: the same for people.
        rank: the score of every row; only its order means something.
        columns: the features that it goes by.
    """

    kind: Kind
    words: str
    rank: Callable[[Columns], Floats]
    columns: tuple[str, ...]


_LONG_AGO_D = -1e6
_SIGNS = ("hardware_xid_7d", "row_remap_7d", "memory_7d", "link_flap_7d")


def _column(rows: Columns, name: str) -> Floats:
    return np.nan_to_num(rows.column(name)).astype(np.float64)


def history_count(rows: Columns) -> Floats:
    """Unplanned outages of the last 28 days, and all of them: a lemon fails again."""
    return _column(rows, "outages_28d") + _column(rows, "outages_all")


def rules(rows: Columns) -> Floats:
    """1 where the last 7 days had a hardware Xid, a row remapping, an uncorrectable memory error or a link flap."""
    fired: Floats = np.max([_column(rows, name) > 0 for name in _SIGNS], axis=0).astype(np.float64)
    return fired


def flaps(rows: Columns) -> Floats:
    """How often the link was lost in the last 7 days: what an operator goes by."""
    return _column(rows, "link_flap_7d")


def recency(rows: Columns) -> Floats:
    """Minus the days since the last unplanned outage began; the least where none is known."""
    found: Floats = np.nan_to_num(-rows.column("outage_age_d").astype(np.float64), nan=_LONG_AGO_D)
    return found


_HISTORY = Baseline("history", "history only", history_count, ("outages_28d", "outages_all"))
BASELINES: Mapping[str, Baseline] = {
    "history_count": _HISTORY,
    "rules": Baseline("rules", "rules only", rules, _SIGNS),
}
LINK_BASELINES: Mapping[str, Baseline] = {
    "history_count": _HISTORY,
    "rules": Baseline("rules", "flaps of 7 days only", flaps, ("link_flap_7d",)),
}

"""What a model must beat: rankings that need no learning (FIELD A3.5: they are hard to beat)."""

from collections.abc import Callable, Mapping
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from predictor.history import Floats


class Columns(Protocol):
    """Rows whose features are asked for by name: a dataset, a lesson."""

    def column(self, name: str) -> NDArray[np.float32]:
        """One feature of every row."""


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


BASELINES: Mapping[str, Callable[[Columns], Floats]] = {"history_count": history_count, "rules": rules}
# What each goes by, for a model that serves in place of the trees.
COLUMNS: Mapping[str, tuple[str, ...]] = {"history": ("outages_28d", "outages_all"), "rules": _SIGNS}

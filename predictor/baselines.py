"""What a model must beat: rankings that need no learning (FIELD A3.5: they are hard to beat)."""

from collections.abc import Callable, Mapping

import numpy as np

from predictor.dataset import Cube
from predictor.features import NAMES
from predictor.history import Grid


def _column(cube: Cube, name: str) -> Grid:
    return np.nan_to_num(cube.values[:, :, NAMES.index(name)])


def history_count(cube: Cube) -> Grid:
    """Unplanned outages of the last 28 days, and all of them: a lemon fails again."""
    return _column(cube, "outages_28d") + _column(cube, "outages_all")


def rules(cube: Cube) -> Grid:
    """1 where the last 7 days had a hardware Xid, a row remapping, an uncorrectable memory error or a link flap."""
    signs = ("hardware_xid_7d", "row_remap_7d", "memory_7d", "link_flap_7d")
    fired: Grid = np.max([_column(cube, name) > 0 for name in signs], axis=0).astype(np.float32)
    return fired


BASELINES: Mapping[str, Callable[[Cube], Grid]] = {"history_count": history_count, "rules": rules}

"""Signs: what a hazard adds up, each a number >= 0 made of one feature, 0 where nothing has happened or nobody knows.

    sign_values(values, names)      # (signs, rows), in the order of SIGNS

    one      1: the base rate                    unit: the hour alone
    rate     failures a day, as failures an hour  unit: share of that rate
    log      log(1 + count)                       unit: 1.7 events
    decay    exp(-days / scale)                   unit: an event now; after `scale` days 0.37 of it
    above    (value - from) / scale, at most 5    unit: `scale` beyond `from`

Each value depends on its own row alone, and is made column by column, so that how many rows are asked together changes
no bit of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from predictor.history.arrays import Floats, Grid
from predictor.history.families import FAMILIES, INCIDENT

_MOST = 5.0  # an exporter's nonsense temperature is no certainty of a failure
_MOST_COUNT = 1e6


@dataclass(frozen=True, slots=True)
class Sign:
    """One thing that may add to a node's hazard.

    Attributes:
        feature: the column that it is made of; the base rate has none.
        form: how, as above.
        scale: days of a decay, or the unit of a value above `start`.
    """

    feature: str
    form: Literal["one", "rate", "log", "decay", "above"]
    scale: float = 1.0
    start: float = 0.0

    @property
    def name(self) -> str:
        """What files and reports call it: `hardware_xid_7d log`, `outage_age_d decay 2`."""
        scaled = f" {self.scale:g}" if self.form in ("decay", "above") else ""
        return f"{self.feature} {self.form}{scaled}".strip()

    def of(self, column: Grid) -> Floats:
        """The sign of each value of its feature, NaN being no sign."""
        known = np.where(np.isfinite(column), column, -1.0).astype(np.float64)
        if self.form == "rate":
            return np.clip(known, 0.0, 24.0) / 24.0
        if self.form == "log":
            return np.log1p(np.clip(known, 0.0, _MOST_COUNT))
        if self.form == "decay":
            return np.where(known >= 0, np.exp(-np.maximum(known, 0.0) / self.scale), 0.0)
        return np.clip((known - self.start) / self.scale, 0.0, _MOST)


def _of_family(name: str, counted: bool, per_device: bool) -> list[Sign]:
    """Events of a family: how recent at three scales, how many in three windows."""
    found = [Sign(f"{name}_age_d", "decay", scale) for scale in (0.5, 3.0, 14.0)]
    found += [Sign(f"{name}_{window}", "log") for window in ("1d", "7d", "28d")]
    if counted:
        found.append(Sign(f"{name}_sum_7d", "log"))
    if per_device:
        found.append(Sign(f"{name}_device_7d", "log"))
    return found


BASE = Sign("", "one")
SIGNS: tuple[Sign, ...] = (
    BASE,
    Sign("outage_hazard", "rate"),
    Sign("model_hazard", "rate"),
    *(Sign("outage_age_d", "decay", scale) for scale in (2.0, 10.0, 40.0)),
    *(Sign("repair_age_d", "decay", scale) for scale in (0.5, 3.0, 14.0)),
    *(Sign(name, "log") for name in ("outages_7d", "outages_28d", "outages_90d", "outages_all", "refaults_90d")),
    Sign("out_share_28d", "above", 0.1),
    Sign("planned_28d", "log"),
    Sign("driver_age_d", "decay", 3.0),
    Sign("service_age_d", "decay", 30.0),
    *(sign for one in (*FAMILIES, INCIDENT) for sign in _of_family(one.name, one.counted, one.per_device)),
    Sign("gpu_temp_max_c", "above", 5.0, 80.0),
    Sign("memory_temp_max_c", "above", 5.0, 90.0),
    *(Sign(name, "above", 3.0, 2.0) for name in ("gpu_temp_trend_c", "gpu_temp_above_leaf_c", "gpu_temp_above_job_c")),
    Sign("gpu_temp_spread_c", "above", 5.0, 10.0),
    Sign("gpu_temp_spread_trend_c", "above", 3.0, 2.0),
    Sign("telemetry_gap_24h", "above", 0.1),
    Sign("telemetry_gap_7d", "above", 0.1),
    Sign("samples_lost_24h", "above", 0.1),
    *(Sign(f"{group}_outages_{window}", "log") for group in ("leaf", "rack") for window in ("24h", "28d")),
    Sign("leaf_flaps_24h", "log"),
)
SIGN_NAMES = tuple(sign.name for sign in SIGNS)


def sign_values(values: Grid, names: Sequence[str]) -> Floats:
    """Every sign of every row, (signs, rows); a feature that the rows have not is no sign.

    Args:
        values: (rows, features), NaN where unknown.
        names: the features, in the order of the columns.
    """
    place = {name: at for at, name in enumerate(names)}
    found = np.zeros((len(SIGNS), len(values)))
    for at, sign in enumerate(SIGNS):
        if sign.form == "one":
            found[at] = 1.0
        elif sign.feature in place:
            found[at] = sign.of(values[:, place[sign.feature]])
    return found

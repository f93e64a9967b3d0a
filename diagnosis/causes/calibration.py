"""From the share of a suspect to a probability that means what it says: by a table, fitted on held-back cases."""

from bisect import bisect_right
from functools import cache

from store.records.catalog_rows import rows

_LEAST, _MOST = 0.001, 0.999


def calibrated(share: float) -> float:
    """The probability that a suspect of this share is the cause: between the points of the table, on a line."""
    points = _points()
    share = min(1.0, max(0.0, share))
    if not points:
        return min(_MOST, max(_LEAST, share))
    place = bisect_right(points, (share, 2.0))
    left = points[place - 1] if place else (0.0, 0.0)
    right = points[place] if place < len(points) else (1.0, points[-1][1])
    width = right[0] - left[0]
    value = left[1] if width <= 0 else left[1] + (right[1] - left[1]) * (share - left[0]) / width
    return min(_MOST, max(_LEAST, value))


@cache
def _points() -> list[tuple[float, float]]:
    return sorted((float(row["share"]), float(row["probability"])) for row in rows("calibration"))

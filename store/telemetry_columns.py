"""Which columns of an archive's telemetry are measures beyond the store's own columns, and what they are called there.

smart_5                          -> smart_5, as it is
DCGM_FI_DEV_ECC_SBE_AGG_TOTAL    -> ecc_sbe_lifetime, as a sidecar calls it (`catalogs/telemetry.csv`)
DCGM_FI_DEV_GPU_TEMP             -> none of these: the store has columns, or events, of it
"""

import re
from collections import Counter

import pyarrow as pa

from store.telemetry import COUNTERS, GAUGES, MAX_DEVICE_NAME
from store.telemetry_names import find

_OWN = {field: name for field, (name, _) in GAUGES.items()} | dict(COUNTERS)
_KEYS = ("time", "node", "gpu")
# What pandas writes of an index that has no name: a number of the row.
_INDEX = re.compile(r"__index_level_\d+__")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


def other_columns(schema: pa.Schema) -> tuple[dict[str, tuple[str, float]], tuple[str, ...]]:
    """Of each measure its column and the factor to its unit, and a sentence of each column of numbers left out."""
    counts = Counter(schema.names)
    taken = {name: field for field, name in _OWN.items() if field in counts}
    measures: dict[str, tuple[str, float]] = {}
    left_out = []
    for field in dict.fromkeys(schema.names):
        if field in _KEYS or field in _OWN or _INDEX.fullmatch(field):
            continue
        if counts[field] == 1 and not _is_number(schema.field(field).type):
            continue
        named = measure_of(field)
        if named is None:
            continue
        name, factor = named
        if counts[field] > 1:
            left_out.append(f"column {field!r}: there are {counts[field]} of that name")
        elif not name or _CONTROL.search(name):
            left_out.append(f"column {field!r}: give it a name that can be printed")
        elif name in taken:
            left_out.append(f"column {field!r}: {taken[name]!r} has the same name, {name!r}")
        else:
            taken[name], measures[name] = field, (field, factor)
    return measures, tuple(left_out)


def measure_of(field: str) -> tuple[str, float] | None:
    """A column's name in the store and the factor to its unit; None for one that the catalogue leaves out."""
    known = find("dcgm", field)
    if known is None:
        return field[:MAX_DEVICE_NAME], 1.0
    if not known.template:
        return None
    return known.named({}) or field[:MAX_DEVICE_NAME], known.factor


def _is_number(kind: pa.DataType) -> bool:
    return any(is_one(kind) for is_one in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal))

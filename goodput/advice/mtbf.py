"""Time between failures by component, with exact intervals, and whether it falls with the number of nodes as 1 / N.

    by_component({"gpu": 12, "host": 3}, node_days=4_000.0, nodes=64)
    scale_law([RunCount(64, 5, 30.0), RunCount(512, 41, 30.0)]).exponent      # 1.01

Intervals: Garwood 1936. The law: failures of a run are Poisson with mean c N^b t; b = 1 means that each node adds as
much risk as any other, so that MTBF ~ 1 / N. b is fitted by maximum likelihood and tested against 1 by the likelihood
ratio (Wilks 1938: twice the logarithm is chi-squared with one degree of freedom).
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, Literal, TypeAlias, get_args

from goodput.formulas.failure_rates import interval

# Which component of a cluster failed: from what an interruption's culprit or an outage's reason says.
#
# component_of("gpu", "xid", 79, "hardware")            # 'gpu'
# component_of_outage("Xid 74 on 0000:0f:00.0", "hardware")  # 'nvlink'

Component: TypeAlias = Literal[
    "gpu",
    "gpu memory",
    "nvlink",
    "link or optic",
    "switch",
    "power or cooling",
    "storage",
    "host",
    "software",
    "unknown",
]
COMPONENTS: tuple[Component, ...] = get_args(Component)

# Xids by what they speak of, after NVIDIA's catalogue (`store/catalogs/xid.csv`).
_MEMORY_XIDS = frozenset({48, 63, 64, 92, 94, 95, 140, 160, 171, 172})
_NVLINK_XIDS = frozenset({74, 136, 137, *range(144, 151)})
_WORDS: tuple[tuple[str, Component], ...] = (
    (r"nvlink|nvswitch|sxid|fabric.?manager", "nvlink"),
    (r"\b(gpu|hbm)\b.*\becc\b|\bdbe\b|\bsbe\b|hbm|row.?remap|^ecc_", "gpu memory"),
    (r"\bpsu\b|power|thermal|overheat|temperature|\bfan\b|cooling", "power or cooling"),
    (r"\bgpu|_gpu|fallen off|\bgsp\b|nvrm", "gpu"),
    (r"switch", "switch"),
    (r"infiniband|\bib\b|\blinks?\b|link_|_link|\bnic\b|\bhca\b", "link or optic"),
    (r"optic|transceiver|cable|flap|port_|ib_port|network", "link or optic"),
)
_BY_WORD = tuple((re.compile(pattern, re.IGNORECASE), component) for pattern, component in _WORDS)
_BY_TYPE: dict[str, Component] = {
    "switch": "switch",
    "nvswitch": "nvlink",
    "port": "link or optic",
    "hca": "link or optic",
    "gpu": "gpu",
    "npu": "gpu",
    "mlu": "gpu",
    "hpu": "gpu",
    "disk": "storage",
    "dimm": "host",
    "cpu": "host",
    "psu": "power or cooling",
    "fan": "power or cooling",
}
_BY_CAUSE: dict[str, Component] = {
    "fabric": "link or optic",
    "storage": "storage",
    "host": "host",
    "application": "software",
    "driver": "software",
    "hardware": "host",  # of a node, where nothing says which part
}


@lru_cache(maxsize=4_096)  # thousands of interruptions are of a few kinds
def component_of(device: str | None, kind: str | None, code: int | None, cause: str) -> Component:
    """The component that a culprit is: by its Xid, its kind's words, its device's type, else by the cause."""
    if kind in ("xid", "quoted_xid") and code is not None:
        return _of_xid(code, cause)
    if device == "switch":
        return "switch"
    found = _of_words(kind or "")
    return found or _BY_TYPE.get(device or "") or _BY_CAUSE.get(cause, "unknown")


def component_of_outage(reason: str, cause: str) -> Component:
    """The component that an outage's reason names, else what its cause says."""
    xid = re.search(r"\bxid\D{0,3}(\d+)", reason, re.IGNORECASE)
    if xid:
        return _of_xid(int(xid[1]), cause)
    return _of_words(reason) or _BY_CAUSE.get(cause, "unknown")


def _of_xid(code: int, cause: str) -> Component:
    if code in _NVLINK_XIDS:
        return "nvlink"
    if code in _MEMORY_XIDS:
        return "gpu memory"
    return "software" if cause == "application" else "gpu"


def _of_words(text: str) -> Component | None:
    return next((component for pattern, component in _BY_WORD if pattern.search(text)), None)


_SIGNIFICANT = 0.05
_CHI_SQUARED_95 = 3.841458820694124  # the 95 % quantile with one degree of freedom
_STEEPEST = 12.0  # exponents beyond are not told apart
_STEPS = 80


@dataclass(frozen=True, slots=True)
class ComponentRate:
    """A component's failures: per 1000 node-days, hours between two of one node, and between two of all nodes."""

    component: str
    failures: int
    per_1000_node_days: float
    low: float
    high: float
    mtbf_node_h: float | None
    mtbf_h: float | None
    mtbf_low_h: float
    mtbf_high_h: float | None

    def to_json(self) -> dict[str, Any]:
        """As plain values; None where nothing failed: longer than any time."""
        return asdict(self)


def by_component(failures: Mapping[str, int], node_days: float, nodes: int) -> list[ComponentRate]:
    """The rate of each component and of all together (`all`), the most frequent first.

    Args:
        nodes: the scale that `mtbf_h` is told for.

    Raises:
        ValueError: no node-days, or no nodes.
    """
    if node_days <= 0 or nodes < 1:
        raise ValueError("a time between failures needs node-days and at least one node")
    ordered = sorted(failures.items(), key=lambda item: (-item[1], item[0]))
    return [_rate(name, count, node_days, nodes) for name, count in [("all", sum(failures.values())), *ordered]]


def _rate(component: str, count: int, node_days: float, nodes: int) -> ComponentRate:
    low, high = (mean / node_days for mean in interval(count))
    rate = count / node_days
    return ComponentRate(
        component=component,
        failures=count,
        per_1000_node_days=1000 * rate,
        low=1000 * low,
        high=1000 * high,
        mtbf_node_h=24 / rate if count else None,
        mtbf_h=24 / rate / nodes if count else None,
        mtbf_low_h=24 / high / nodes,
        mtbf_high_h=24 / low / nodes if count else None,
    )


@dataclass(frozen=True, slots=True)
class RunCount:
    """How often a run of so many nodes failed in so many days."""

    nodes: int
    failures: int
    days: float


@dataclass(frozen=True, slots=True)
class ScaleLaw:
    """The fitted exponent of failures over nodes, its 95 % interval, and how likely data are that lie so far from 1."""

    exponent: float
    low: float
    high: float
    p_value: float
    runs: int
    failures: int

    @property
    def holds(self) -> bool:
        """Whether the counts agree with MTBF ~ 1 / N (at 5 %)."""
        return self.p_value >= _SIGNIFICANT

    def to_json(self) -> dict[str, Any]:
        """As plain values."""
        return {**asdict(self), "holds": self.holds}


def scale_law(runs: Sequence[RunCount]) -> ScaleLaw | None:
    """How failures grow with nodes; None without a failure, or where all runs are of one size: nothing tells."""
    watched = [run for run in runs if run.nodes > 0 and run.days > 0]
    # Runs of one size are as good as one long run.
    seen = [
        RunCount(
            nodes,
            sum(run.failures for run in watched if run.nodes == nodes),
            sum(run.days for run in watched if run.nodes == nodes),
        )
        for nodes in sorted({run.nodes for run in watched})
    ]
    total = sum(run.failures for run in seen)
    if total < 1 or len(seen) < 2:
        return None

    def likelihood(exponent: float) -> float:
        """Logarithm, with the constant at its best for this exponent; what is the same for all is left out."""
        # Shifted by the largest term: nodes to the power of the exponent leave a float's range.
        sizes = [exponent * math.log(run.nodes) + math.log(run.days) for run in seen]
        top = max(sizes)
        log_sum = top + math.log(sum(math.exp(size - top) for size in sizes))
        return sum(run.failures * exponent * math.log(run.nodes) for run in seen) - total * log_sum

    best = _top(likelihood)
    peak = likelihood(best)

    def inside(exponent: float) -> bool:
        return 2 * (peak - likelihood(exponent)) < _CHI_SQUARED_95

    ratio = max(0.0, 2 * (peak - likelihood(1.0)))
    low, high = _edge(inside, best, -_STEEPEST), _edge(inside, best, _STEEPEST)
    return ScaleLaw(best, low, high, math.erfc(math.sqrt(ratio / 2)), len(watched), total)


def _top(likelihood: Callable[[float], float]) -> float:
    """Where a concave function is highest (thirds)."""
    low, high = -_STEEPEST, _STEEPEST
    for _ in range(2 * _STEPS):
        first, second = low + (high - low) / 3, high - (high - low) / 3
        low, high = (first, high) if likelihood(first) < likelihood(second) else (low, second)
    return (low + high) / 2


def _edge(inside: Callable[[float], bool], best: float, far: float) -> float:
    """The exponent between the best and a far one at which the interval ends."""
    if inside(far):
        return far
    near = best
    for _ in range(_STEPS):
        middle = (near + far) / 2
        near, far = (middle, far) if inside(middle) else (near, middle)
    return near

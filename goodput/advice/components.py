"""Which component of a cluster failed: from what an interruption's culprit or an outage's reason says.

component_of("gpu", "xid", 79, "hardware")            # 'gpu'
component_of_outage("Xid 74 on 0000:0f:00.0", "hardware")  # 'nvlink'
"""

import re
from functools import lru_cache
from typing import Literal, TypeAlias, get_args

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

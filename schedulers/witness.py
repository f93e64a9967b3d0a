"""Whether two detectors that look at a node in different ways both saw it fail: as good as a confirmed fault.

    corroborated(signs, 3600.0) -> (kernel: nvlink_error, dcgm: row_remap_failure) or None

The score is no detector: it is computed from the same events. Nor is what repeats others (`store/sources.py`): alerts,
gpud and NVSentinel read the same log lines and counters, an alert may even come from our own score; what a program
says of itself is as often the victim of another node's fault. The same thing told twice (the kernel's Xid 63, and
DCGM's field that repeats the number) is one sign.
"""

from collections.abc import Mapping, Sequence

from store.event import CAUSES, Cause
from store.signs import Sign

Pair = tuple[Sign, Sign]

# How a source looks at the machine. One that is not named corroborates nothing.
FAMILY: Mapping[str, str] = {
    **dict.fromkeys(("kernel", "ascend", "fabricmanager"), "driver"),
    **dict.fromkeys(
        ("opensm", "ufm", "switch", "infiniband", "iblinkinfo", "perfquery", "ibqueryerrors", "ibnetdiscover"), "fabric"
    ),
    **dict.fromkeys(("dcgm", "nvml", "npu", "amd", "cambricon", "node_exporter"), "telemetry"),
    # It tries the machine itself, whatever else it reads.
    "nhc": "check",
}
_OF_THE_NODE: frozenset[Cause] = frozenset({"hardware", "fabric"})
assert set(CAUSES) >= _OF_THE_NODE  # noqa: S101  # a word that is misspelt would corroborate nothing for ever


def corroborated(signs: Sequence[Sign], within_s: float) -> Pair | None:
    """The newest two signs of one node that come from different families, no further apart than `within_s` seconds."""
    told = sorted((sign for sign in signs if _counts(sign)), key=lambda sign: (sign.end, sign.incident), reverse=True)
    for place, later in enumerate(told):
        for earlier in told[place + 1 :]:
            if _independent(later, earlier) and (later.start - earlier.end).total_seconds() <= within_s:
                return earlier, later
    return None


def _counts(sign: Sign) -> bool:
    return sign.source in FAMILY and sign.cause in _OF_THE_NODE and sign.severity in ("error", "fatal")


def _independent(one: Sign, other: Sign) -> bool:
    return FAMILY[one.source] != FAMILY[other.source] and (one.kind, one.code) != (other.kind, other.code)

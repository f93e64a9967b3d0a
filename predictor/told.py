"""What several sources tell within a minute counts once: an Xid of the kernel log that two detectors repeat is one Xid.

    told = Told()
    told.already(node=3, family=7, source="kernel", time_ms=1_000)      # False: the first to say so
    told.already(node=3, family=7, source="gpud", time_ms=1_500)        # True: gpud repeats the kernel
    told.already(node=3, family=7, source="kernel", time_ms=1_600)      # True: it says what gpud just said

It looks back only: what is said later changes nothing that was counted before.
"""

from dataclasses import dataclass, field

from predictor.history import INCIDENT_GAP_MS


@dataclass(slots=True)
class Told:
    """When each source last spoke of a node and family."""

    _last: dict[tuple[int, int], dict[str, int]] = field(default_factory=dict)

    def already(self, node: int, family: int, source: str, time_ms: int) -> bool:
        """Whether another source told the same within the minute before; events are given in order of time."""
        spoke = self._last.setdefault((node, family), {})
        repeated = any(other != source and time_ms - then <= INCIDENT_GAP_MS for other, then in spoke.items())
        spoke[source] = time_ms
        return repeated

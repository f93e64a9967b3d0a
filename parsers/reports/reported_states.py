"""The last state that a detector reported of each device or node, so that a repeated report gives no second event.

states = ReportedStates()
states.changed(("gpu-017", "NodeNotReady"), ("false",))    -> True
states.changed(("gpu-017", "NodeNotReady"), ("false",))    -> False
"""

from collections import OrderedDict

# States remembered of devices and nodes; beyond, the oldest are forgotten.
MAX_STATES = 65_536


class ReportedStates:
    """Holds the states of at most MAX_STATES devices and nodes."""

    def __init__(self) -> None:
        self._states: OrderedDict[tuple[str, ...], tuple[str, ...]] = OrderedDict()

    def changed(self, key: tuple[str, ...], state: tuple[str, ...] | None) -> bool:
        """Whether a state is news; None is the healthy one, which is news only after another."""
        before = self._states.pop(key, None)
        if state is not None:
            self._states[key] = state
            if len(self._states) > MAX_STATES:
                self._states.popitem(last=False)
        return before != state

"""The loop of one scheduler that is read back: turns at once on news, else every `observe_s`; back-off while away.

Each has a thread of its own: a Kubernetes API that does not answer keeps nobody from draining in Slurm.
"""

import logging
import random
import threading
import time
from collections.abc import Callable

from api.gauges.schedulers import SchedulerGauges
from api.server.state import State
from schedulers.reconcile.actuator import Actuator, SchedulerAwayError
from schedulers.reconcile.turn import TurnContext, run_actuator
from schedulers.registry import make_actuator

# Seconds between tries while a scheduler is away, doubling; with jitter between half and the whole.
FIRST_S, MOST_S = 0.5, 30.0
_log = logging.getLogger(__name__)


class ActuatorTurns:
    """The turns of one scheduler."""

    def __init__(self, acting: TurnContext, gauges: SchedulerGauges, wake: threading.Event) -> None:
        self._acting = acting
        self._gauges = gauges
        self.wake = wake
        self._wait_s = FIRST_S
        self._not_before = float("-inf")
        self._away_since: float | None = None
        self._orphans: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """As configured."""
        return self._acting.actuator.name

    def turn(self, keep_on: Callable[[], bool]) -> None:
        """Bring the scheduler to where the hints want it, unless it is away and its time has not come."""
        if time.monotonic() < self._not_before:
            return
        try:
            turned = run_actuator(self._acting, keep_on)
        except SchedulerAwayError as error:
            self._is_away(error)
            return
        self._is_back()
        self._gauges.up(self.name, turned)
        orphans = frozenset(hold.node for hold in turned.orphans)
        if orphans - self._orphans:
            _log.warning(
                "%s: %d nodes bear a mark of ours that no hint explains, as %s: they are left; release them by hand",
                *(self.name, len(orphans), min(orphans)),
            )
        self._orphans = orphans

    def close(self) -> None:
        """After the last turn: a successor need not wait for what we hold to run out."""
        self._acting.actuator.close()

    def _is_away(self, error: SchedulerAwayError) -> None:
        self._gauges.away(self.name)
        actuator = self._acting.actuator
        if self._away_since is None:
            self._away_since = time.monotonic()
            _log.warning("%s (%s) does not answer: %s; it is tried again", actuator.name, actuator.address, error)
        wait_s = self._wait_s * random.uniform(0.5, 1.0)  # noqa: S311  # jitter, no secret
        self._wait_s = min(2 * self._wait_s, MOST_S)
        self._not_before = time.monotonic() + wait_s
        timer = threading.Timer(wait_s, self.wake.set)
        timer.daemon = True
        timer.start()

    def _is_back(self) -> None:
        if self._away_since is not None:
            away_s = time.monotonic() - self._away_since
            _log.warning("%s answers again, after %.0f s", self.name, away_s)
        self._away_since, self._wait_s, self._not_before = None, FIRST_S, float("-inf")


def make_acting(state: State) -> tuple[ActuatorTurns, ...]:
    """The turns of every scheduler that the settings name."""
    actuators: list[Actuator] = [make_actuator(settings) for settings in state.settings.actuators]
    if not actuators:
        return ()
    names, lock = tuple(actuator.name for actuator in actuators), threading.Lock()
    gauges = SchedulerGauges(state.metrics.registry)
    return tuple(
        ActuatorTurns(
            TurnContext(state.engine, actuator, names, lambda: state.settings.policy, state.clock, lock),
            gauges,
            state.wakes.actuator(actuator.name),
        )
        for actuator in actuators
    )

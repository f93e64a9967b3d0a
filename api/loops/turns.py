"""What each background loop does in one turn."""

import logging
import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from api.gauges.schedulers import SchedulerGauges
from api.loops.ledgers import LedgerTurns
from api.loops.model_upkeep import Upkeep
from api.loops.repair_list import LemonTurns
from api.loops.scoring import FleetScorer
from api.loops.verdicts import VerdictStream, VerdictTurns
from api.server.state import State
from api.server.wakes import MarkWatch
from diagnosis.corruption.recurrence import note_recurring
from diagnosis.incidents.intake import fold_intake
from diagnosis.links.link_outliers import note_outliers
from diagnosis.links.port_flaps import note_flappers
from diagnosis.slow.slow_nodes import note_slow
from schedulers.checks.check_history import note_checks
from schedulers.lifecycle.hindsight import judge_due
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.lifecycle.validation import Validator
from schedulers.policy.decision import Decision
from schedulers.policy.kill_switch import effective_stop
from schedulers.policy.settings import Release, canonical, version_of
from schedulers.reconcile.actuator import Actuator, SchedulerAwayError
from schedulers.reconcile.delivery import HintReceiver
from schedulers.reconcile.dispatch import Dispatch, run_dispatch
from schedulers.reconcile.turn import TurnContext, run_actuator
from schedulers.registry import SCHEDULERS, avoid_takers, make_actuator
from schedulers.webhooks.settings import WebhookSettings
from store.database.audit_chain import audit_head
from store.database.closed_days import compact_days
from store.database.connections import writing
from store.database.coordination import FAULTS
from store.database.partitions import KEEP_AHEAD, ensure_days
from store.database.retention import prune
from store.events.event_pages import newest_time
from store.events.incident_intake import MOST_EVENTS
from store.hints.policy_history import newest_policy, note_policy, note_rules
from store.nodes.node_states import newest_scoring
from store.telemetry.packing import CLOSED_FOR, pack_closed_days

# Features age even when nothing comes in: silence is a sign, too.
_RESCORE = timedelta(hours=1)
_HORIZON_H = 24
# Between two turns, in a flood: so many times as long as the last one took, and no longer than this: incidents shall
# not be much older than their events, and hints look at all nodes each time.
_REST = 3.0
_FOLD_REST_S, _POLICY_REST_S, _LONG_REST_S = 1.0, 5.0, 2.0
# Seconds between tries while a scheduler is away, doubling; with jitter between half and the whole.
FIRST_S, MOST_S = 0.5, 30.0
_log = logging.getLogger(__name__)
_SLOW = "%d nodes slow their job down, or do no longer"


class ActuatorTurns:
    """The turns of one scheduler that is read back: at once on news, else every `observe_s`; back-off while it is away.

    Each has a thread of its own: a Kubernetes API that does not answer keeps nobody from draining in Slurm.
    """

    def __init__(self, acting: TurnContext, gauges: SchedulerGauges, wake: threading.Event) -> None:
        self._acting = acting
        self.gauges = gauges  # one for all
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
        self.gauges.up(self.name, turned)
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
        self.gauges.away(self.name)
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


def make_acting(state: State, gauges: SchedulerGauges | None = None) -> tuple[ActuatorTurns, ...]:
    """The turns of every scheduler that the settings name. `gauges` are those of before, where there were some."""
    actuators: list[Actuator] = [make_actuator(settings) for settings in state.settings.actuators]
    if not actuators:
        return ()
    names, lock = tuple(actuator.name for actuator in actuators), threading.Lock()
    gauges = SchedulerGauges(state.metrics.registry) if gauges is None else gauges
    return tuple(
        ActuatorTurns(
            TurnContext(state.engine, actuator, names, lambda: state.settings.policy, state.clock, lock),
            gauges,
            state.wakes.actuator(actuator.name),
        )
        for actuator in actuators
    )


def _receivers(webhooks: Sequence[WebhookSettings]) -> tuple[HintReceiver, ...]:
    return tuple(SCHEDULERS["webhook"](webhook) for webhook in webhooks)


class _Pace:
    """Whether long work may go on; asked now and then, it rests first, so that requests have their turn."""

    def __init__(self, keep_on: Callable[[], bool]) -> None:
        self._keep_on = keep_on
        self._began = time.perf_counter()

    def __call__(self) -> bool:
        time.sleep(min(_REST * (time.perf_counter() - self._began), _LONG_REST_S))
        self._began = time.perf_counter()
        return self._keep_on()


class Turns:
    """The turns of one server's loops, and what they remember between two."""

    def __init__(self, state: State, jitter: Callable[[], float]) -> None:
        self._state = state
        self._newest: datetime | None = None
        self._ledgers = LedgerTurns(state.engine, state.clock)
        self._lemons = LemonTurns(state)
        self._verdicts = VerdictTurns(state)
        self._stream = VerdictStream(state)
        self._upkeep = Upkeep(state)
        self._scorer = FleetScorer(state.engine)
        self._marks = MarkWatch(state.engine, state.wakes)
        self.acting = make_acting(state)
        self._tests = Validator(state.engine, state.clock, lambda outcome: state.metrics.tests.labels(outcome).inc())
        self._gauges = self.acting[0].gauges if self.acting else None
        self._webhooks = state.settings.webhooks
        self._dispatch = Dispatch(
            *(state.engine, _receivers(self._webhooks), state.settings.mode, jitter), wall=lambda: datetime.now(UTC)
        )

    def renew_acting(self) -> tuple[ActuatorTurns, ...]:
        """The turns of the schedulers as the settings name them now."""
        self.acting = make_acting(self._state, self._gauges)
        if self.acting:
            self._gauges = self.acting[0].gauges
        return self.acting

    def score(self, _keep_on: Callable[[], bool]) -> None:
        """Score every node, if something has changed since the last time: by the prior, before there is a model."""
        now = self._state.clock()
        with self._state.engine.connect() as connection:
            newest = newest_time(connection)
            scored = newest_scoring(connection, _HORIZON_H, now)
        if newest is None:
            return
        news = self._state.news.is_set() or newest != self._newest
        if scored is not None and not news and now - scored < _RESCORE:
            return
        self._state.news.clear()
        try:
            scores = self._scorer.score(now)
        except Exception:
            self._state.news.set()
            raise
        self._newest = newest
        _log.info("scored %d times", scores)

    def days(self, _keep_on: Callable[[], bool]) -> None:
        """Make the tables of today and the next days, before anybody writes to them."""
        now = datetime.now(UTC)
        ahead = range(KEEP_AHEAD.days + 1)
        ensure_days(self._state.engine, [now + timedelta(days=day) for day in ahead], tries=20)

    def prune(self, keep_on: Callable[[], bool]) -> None:
        """Let go of what is kept no longer."""
        gone = prune(self._state.engine, self._state.settings.keep.before(self._state.clock()), keep_on)
        _log.info("pruned %s", gone)

    def closed_days(self, keep_on: Callable[[], bool]) -> None:
        """Pack the telemetry of days that are over, then write their tables anew: no more room than they need."""
        engine, now, going = self._state.engine, self._state.clock(), _Pace(keep_on)
        hours = pack_closed_days(engine, now, going)
        days = compact_days(engine, ("events", "telemetry"), now - CLOSED_FOR, going)
        _log.info("packed %d hours of nodes, wrote %d closed days anew", hours, days)

    def policy(self, keep_on: Callable[[], bool]) -> None:
        """Bring the hints up to now, and wake the dispatch at once."""
        began = time.perf_counter()
        self._marks.served((FAULTS,))
        settings, wakes = self._state.settings, self._state.wakes
        is_news = wakes.grave.is_set()
        wakes.grave.clear()  # before anything is read: what comes in meanwhile is for the next turn
        now = self._state.clock()
        takers = avoid_takers((*settings.actuators, *settings.webhooks))
        given = (self._state.engine, settings.policy, now, settings.silent_after_s)
        decision = run_policy(*given, takers=takers, is_news=is_news)
        if decision != Decision():
            self._state.wakes.hints()
        if self._state.wakes.policy.is_set() and keep_on():
            # In a flood, the requests' turn.
            time.sleep(min(_REST * (time.perf_counter() - began), _POLICY_REST_S))

    def watch(self, _keep_on: Callable[[], bool]) -> None:
        """See what other processes have changed."""
        self._marks.turn()

    def audit(self, _keep_on: Callable[[], bool]) -> None:
        """Log the head of the audit's chain: logs that are kept elsewhere are an anchor for it."""
        with self._state.engine.connect() as connection:
            head = audit_head(connection)
        _log.info("audit: the newest row is at place %d, its hash is %s", head.position, head.hash)

    def tests(self, keep_on: Callable[[], bool]) -> None:
        """Run the tests of held nodes that may be released, until none runs."""
        self._tests.turn(self._release, keep_on)

    def _release(self) -> Release | None:
        """The settings of those tests as they are now; None while all is stopped."""
        policy = self._state.settings.policy
        with self._state.engine.connect() as connection:
            return None if effective_stop(connection, policy) == "all" else policy.release

    def hindsight(self, _keep_on: Callable[[], bool]) -> None:
        """Judge the hints whose time is over."""
        judge_due(self._state.engine, self._state.clock())

    def checks(self, keep_on: Callable[[], bool]) -> None:
        """Keep the record of each check: what it said, and what came of it."""
        left_out = note_checks(self._state.engine, self._state.clock(), _Pace(keep_on))
        if left_out:
            _log.warning("%d sayings of checks are in no record: their nodes have too many checks at once", left_out)

    def policies(self, _keep_on: Callable[[], bool]) -> None:
        """Write down the policy in force, where it is not that of before."""
        policy = self._state.settings.policy
        with self._state.engine.connect() as connection:
            if newest_policy(connection) == version_of(policy):
                return
        with writing(self._state.engine).begin() as connection:
            note_policy(connection, version_of(policy), canonical(policy), self._state.clock())

    def ledgers(self, keep_on: Callable[[], bool]) -> None:
        """Compute the ledgers of the runs that have news."""
        self._ledgers.turn(keep_on)

    def models(self, keep_on: Callable[[], bool]) -> None:
        """Judge and train, if that is due."""
        self._upkeep.turn(keep_on)

    def links(self, keep_on: Callable[[], bool]) -> None:
        """Tell of links that stand out in their NVLink domain, ports that flap, GPUs with wrong numbers, slow nodes.

        What one of the looks cannot read keeps no other from its turn.
        """
        engine, now = self._state.engine, self._state.clock()
        looks: tuple[tuple[str, Callable[[], int]], ...] = (
            ("%d NVLinks stand out among those of their domain", lambda: note_outliers(engine, now)),
            ("%d ports go down again and again", lambda: note_flappers(engine, now, _Pace(keep_on))),
            ("%d GPUs computed wrong numbers more than once", lambda: note_recurring(engine, now)),
            (_SLOW, lambda: note_slow(engine, now, shifted_alone=False)),
        )
        failed: list[Exception] = []
        for words, look in looks:
            try:
                if found := look():
                    _log.info(words, found)
            except Exception as error:  # noqa: BLE001  # told once all have had their turn
                failed.append(error)
        for other in failed[1:]:
            _log.error("another look at links or slow nodes failed", exc_info=other)
        if failed:
            raise failed[0]

    def slow(self, _keep_on: Callable[[], bool]) -> None:
        """Tell of slow nodes among those whose devices just left their usual level."""
        if slow := note_slow(self._state.engine, self._state.clock(), shifted_alone=True):
            _log.info(_SLOW, slow)

    def lemons(self, _keep_on: Callable[[], bool]) -> None:
        """Keep the repair list ready."""
        self._lemons.turn()

    def rules(self, _keep_on: Callable[[], bool]) -> None:
        """Write down the rules in force, where they are not those of before."""
        rules = self._state.rules()
        with writing(self._state.engine).begin() as connection:
            note_rules(connection, rules.version, rules.text, self._state.clock())

    def incidents(self, keep_on: Callable[[], bool]) -> None:
        """Make incidents of the fault events that came in, until none waits.

        After each fold some time is left to the requests: in a flood both want the same processor, and a fold of
        more faults costs less for each. Where more waits than one fold takes, it goes on at once.
        """
        while keep_on():
            began = time.perf_counter()
            folded = fold_intake(self._state.engine, on_grave=self._state.wakes.fault)
            if not folded:
                return
            self._state.metrics.folded.inc(folded)
            if folded < MOST_EVENTS:
                time.sleep(min(_REST * (time.perf_counter() - began), _FOLD_REST_S))

    def verdicts(self, keep_on: Callable[[], bool]) -> None:
        """Explain what came in, until nothing waits; then rest as long as that took, for the requests want a turn."""
        self._verdicts.turn(keep_on)

    def end_verdicts(self) -> None:
        """No turn of the verdicts comes any more."""
        self._verdicts.end()

    def stream(self, _keep_on: Callable[[], bool]) -> None:
        """Wake those who listen, where verdicts have changed."""
        self._stream.turn()

    def dispatch(self, keep_on: Callable[[], bool]) -> None:
        """Send what is owed."""
        settings = self._state.settings
        policy = settings.policy
        if settings.webhooks != self._webhooks:
            self._webhooks = settings.webhooks
            self._dispatch = replace(self._dispatch, schedulers=_receivers(self._webhooks))
        means = replace(self._dispatch, mode=policy.mode, stop=lambda connection: effective_stop(connection, policy))
        for outcome in run_dispatch(means, self._state.clock(), keep_on):
            self._state.metrics.deliveries.labels(outcome.result).inc()

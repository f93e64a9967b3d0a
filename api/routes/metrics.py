"""`GET /metrics`: this server's counters, and what the database knows of nodes and hints, read at scrape."""

from collections import Counter
from collections.abc import Iterable
from datetime import datetime
from typing import Any, get_args

from fastapi import APIRouter, Response
from prometheus_client.core import GaugeMetricFamily, Metric
from sqlalchemy.exc import SQLAlchemyError

from api.answers.node_states import present
from api.edge.admission import ProbeSlot
from api.gauges.audit import audit_gauges
from api.gauges.goodput import GoodputGauges
from api.gauges.hints import hindsight_gauges, limit_gauges
from api.gauges.left_schedulers import left_behind_gauge
from api.gauges.models import model_gauges
from api.gauges.verdicts import verdict_gauges
from api.server.state import Server, State
from store.events.incident_intake import IntakeBacklog, read_waiting
from store.hints.hint_log import read_hints
from store.models.registry import last_training, list_models
from store.nodes.fleet import node_risks
from store.records.hint import HINT_ACTIONS, OPEN_STATES, HintAction, HintState
from store.records.node import NodeState

router = APIRouter(tags=["health"])

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@router.get(
    "/metrics",
    operation_id="metrics",
    summary="Metrics for Prometheus",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(server: Server, _slot: ProbeSlot) -> Response:
    """Counters of this process (and of those that share its port), and gauges of what the database knows."""
    return Response(server.metrics.page(), media_type=CONTENT_TYPE)


class StoreCollector:
    """Gauges of what the database knows; without a database they are missing, not zero."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._goodput = GoodputGauges()

    def describe(self) -> Iterable[Metric]:
        """Nothing ahead: registering must not touch the database."""
        return ()

    def collect(self) -> Iterable[Metric]:
        """The gauges, as of now."""
        up = GaugeMetricFamily("foreshock_database_up", "Whether the database answered this scrape.")
        try:
            with self._state.engine.connect() as connection:
                now = self._state.clock()
                views = node_risks(connection, present(connection, self._state.settings, now))
                waiting = read_waiting(connection)
                models, last = list_models(connection), last_training(connection)
                hints = Counter((hint.action, hint.state) for hint in read_hints(connection, states=OPEN_STATES))
                judged = tuple(hindsight_gauges(connection, now))
                left = tuple(left_behind_gauge(connection, self._state.settings))
                chain = tuple(audit_gauges(connection))
                verdicts = tuple(verdict_gauges(connection))
                limits = tuple(limit_gauges(connection, self._state.settings.policy))
                goodput = self._goodput.families(connection, now, dict(self._state.settings.shapes))
        except SQLAlchemyError:
            up.add_metric([], 0.0)
            yield up
            return
        up.add_metric([], 1.0)
        yield up
        yield _risks(views)
        yield _states(views)
        yield _hints(hints)
        yield from limits
        yield from left
        yield from chain
        yield from verdicts
        yield from _intake(waiting, self._state.clock())
        yield from judged
        yield from model_gauges(models, last)
        yield from goodput


def _risks(views: Iterable[Any]) -> Metric:
    risk = GaugeMetricFamily(
        "foreshock_node_failure_risk_ratio",
        "Probability of an unplanned outage of a node within a horizon.",
        labels=["node", "horizon"],
    )
    for view in views:
        for horizon, score in (("24h", view.score_24h), ("7d", view.score_7d)):
            if score is not None:
                risk.add_metric([view.node, horizon], score)
    return risk


def _states(views: Iterable[Any]) -> Metric:
    found = Counter(view.state for view in views)
    states = GaugeMetricFamily("foreshock_nodes", "Nodes by state.", labels=["state"])
    for state in get_args(NodeState):
        states.add_metric([state], found[state])
    return states


def _hints(found: Counter[tuple[HintAction, HintState]]) -> Metric:
    hints = GaugeMetricFamily("foreshock_open_hints", "Open hints by action and state.", labels=["action", "state"])
    for action in HINT_ACTIONS:
        for state in OPEN_STATES:
            hints.add_metric([action, state], found[action, state])
    return hints


def _intake(waiting: IntakeBacklog, now: datetime) -> Iterable[Metric]:
    events = GaugeMetricFamily("foreshock_intake_events", "Fault events that no incident counts yet.")
    events.add_metric([], waiting.events)
    yield events
    age = GaugeMetricFamily("foreshock_intake_age_seconds", "How long the oldest of them has waited.")
    age.add_metric([], 0.0 if waiting.oldest is None else max(0.0, (now - waiting.oldest).total_seconds()))
    yield age
    aside = GaugeMetricFamily("foreshock_intake_set_aside_events", "Fault events of which no incident could be made.")
    aside.add_metric([], waiting.set_aside)
    yield aside

"""Schedulers that are read back, in a server with its loops: from a fault to the hold, a person's word, an outage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from real.patience import patience
from real.programs import wait_for

from api.app import create_app
from api.loops.turns import make_acting
from api.server.settings import ApiSettings, Intervals
from api.server.state import State
from api.server.wakes import MarkWatch, Wakes
from diagnosis.incidents.intake import fold_everything, fold_intake, put_faults
from schedulers.lifecycle.operator_actions import withdraw
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision
from schedulers.policy.settings import Policy
from schedulers.reconcile.actuator import Hold, Order, OrderReport, SchedulerAwayError
from schedulers.registry import ACTUATORS, ActuatorKind
from store.database.connections import writing
from store.database.coordination import FAULTS, HINTS, move_mark, read_marks
from store.events.append import append_events, append_nodes
from store.hints.hint_log import read_hints
from store.records.event import Device, Event
from store.records.node import Node

QUIET = Intervals(score_s=0, policy_s=3600, dispatch_s=0, observe_s=3600, ledgers_s=0, lemons_s=0, models_s=0)


@dataclass
class Shelf:
    """A scheduler in memory, and its own settings."""

    name: str = "slurm"
    nodes: dict[str, Hold] = field(default_factory=lambda: {node: Hold(node) for node in ("gpu-1", "gpu-2")})
    is_away: bool = False
    tries: int = 0
    is_closed: bool = False
    avoid_takes: bool = False

    @property
    def address(self) -> str:
        """Nowhere."""
        return "shelf"

    def started(self) -> None:
        """It forgets nothing."""

    def observe(self) -> list[Hold]:
        """Every node."""
        self.tries += 1
        if self.is_away:
            raise SchedulerAwayError("nobody is there")
        return list(self.nodes.values())

    def carry_out(self, orders: list[Order]) -> list[OrderReport]:
        """As told."""
        for order in orders:
            let_go = order.action == "release"
            action, ident = (None, None) if let_go else (order.action, order.hint)
            self.nodes[order.node] = replace(self.nodes[order.node], action=action, hint=ident)
        return [OrderReport(order.node, "done") for order in orders]

    def ask_jobs(self, _orders: object) -> list[OrderReport]:
        """None runs."""
        return []

    def close(self) -> None:
        """Once."""
        assert not self.is_closed
        self.is_closed = True

    def holds(self, node: str = "gpu-1") -> bool:
        """Whether a node is held for us."""
        return self.nodes[node].action is not None


@pytest.fixture(autouse=True)
def shelf_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its settings are itself."""
    monkeypatch.setitem(ACTUATORS, "shelf", ActuatorKind(Shelf, lambda shelf: shelf))  # type: ignore[misc]


def now() -> datetime:
    """The present."""
    return datetime.now(UTC)


def nodes(engine: sa.Engine) -> None:
    """Two known nodes, and enough others that one may be held."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i}", f"r{i}", f"l{i}") for i in range(1, 60)])


@contextmanager
def serving(engine: sa.Engine, *shelves: Shelf, mode: str = "act") -> Iterator[TestClient]:
    """A server whose loops turn on news alone."""
    nodes(engine)
    policy = Policy(mode=mode)  # type: ignore[arg-type]
    settings = ApiSettings(policy=policy, actuators=shelves, intervals=QUIET)
    with TestClient(create_app(settings, engine, now)) as client:
        wait_for("the first turns are over", lambda: all(shelf.tries for shelf in shelves))
        yield client


def fault(node: str = "gpu-1") -> bytes:
    """A GPU that has fallen off the bus, as a sidecar sends it."""
    device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
    record = {
        "time": now().isoformat(),
        "node": node,
        "source": "kernel",
        "kind": "xid",
        "code": 79,
        "severity": "fatal",
        "cause": "hardware",
        "action": "reboot_node",
        "device": device,
        "message": "GPU has fallen off the bus.",
        "attributes": {},
    }
    return orjson.dumps(record)


def post(client: TestClient, body: bytes) -> None:
    """Send events."""
    headers = {"content-type": "application/x-ndjson"}
    assert client.post("/api/v1/events", content=body, headers=headers).status_code < 300


def state_of(engine: sa.Engine) -> list[str]:
    """The states of the hints of nodes."""
    with engine.connect() as connection:
        return [hint.state for hint in read_hints(connection) if hint.job is None]


def test_a_fault_is_a_hold_at_once_in_every_scheduler(any_engine: sa.Engine) -> None:
    """No loop's interval comes round in this test: news alone move them."""
    shelves = (Shelf(), Shelf("kube"))
    with serving(any_engine, *shelves) as client:
        post(client, fault())
        wait_for("both hold the node", lambda: all(shelf.holds() for shelf in shelves))
        wait_for("the hint is confirmed", lambda: state_of(any_engine) == ["confirmed"])
        page = client.get("/metrics").text
        assert not any(shelf.is_closed for shelf in shelves)
    assert all(shelf.is_closed for shelf in shelves), "the server has stopped: another may take over"
    assert 'foreshock_scheduler_up{scheduler="kube"} 1.0' in page
    assert 'foreshock_scheduler_holds{owner="ours",scheduler="slurm"} 1.0' in page
    assert 'foreshock_scheduler_orders_total{result="done",scheduler="slurm"} 1.0' in page
    assert 'foreshock_scheduler_observation_age_seconds{scheduler="slurm"}' in page


def test_a_scheduler_that_is_away_keeps_no_other_waiting_and_is_tried_again(
    engine: sa.Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told of once, and holds the node when it is back."""
    slurm, kube = Shelf(), Shelf("kube", is_away=True)
    with serving(engine, slurm, kube) as client:
        post(client, fault())
        wait_for("the one that is there holds the node", slurm.holds)
        wait_for("the hint is sent", lambda: state_of(engine) == ["sent"])
        wait_for("the other is tried several times", lambda: kube.tries >= 3)
        assert 'foreshock_scheduler_up{scheduler="kube"} 0.0' in client.get("/metrics").text
        kube.is_away = False
        wait_for("it holds the node, too", kube.holds)
        wait_for("the hint is confirmed", lambda: state_of(engine) == ["confirmed"])
    said = [record.message for record in caplog.records if "kube" in record.message]
    assert len([text for text in said if "does not answer: nobody is there" in text]) == 1
    assert len([text for text in said if "answers again" in text]) == 1


def test_a_persons_words_reach_the_schedulers_without_waiting(engine: sa.Engine) -> None:
    """Over the API, and from another process: both move the mark."""
    shelf = Shelf()
    with serving(engine, shelf, mode="approve") as client:
        post(client, fault())
        wait_for("there is a proposal", lambda: state_of(engine) == ["proposed"])
        assert not shelf.holds()
        (hint,) = client.get("/api/v1/hints").json()["items"]
        assert client.post(f"/api/v1/hints/{hint['id']}/approve").status_code == 200
        wait_for("the node is held", shelf.holds)
        wait_for("the hint is confirmed", lambda: state_of(engine) == ["confirmed"])
        with writing(engine).begin() as connection:
            withdraw(connection, hint["id"], now(), "alice")
        wait_for("the node is let go", lambda: not shelf.holds())


def test_a_hint_is_listed_with_what_each_scheduler_holds(engine: sa.Engine) -> None:
    """In the list, on the node's page, and in the answer to a person's word."""
    shelf, kube = Shelf(), Shelf("kube", nodes={})
    with serving(engine, shelf, kube) as client:
        post(client, fault())
        wait_for("the hint is confirmed", lambda: state_of(engine) == ["confirmed"])
        (hint,) = client.get("/api/v1/hints").json()["items"]
        (of_node,) = client.get("/api/v1/nodes/gpu-1").json()["hints"]
        answer = client.post(f"/api/v1/hints/{hint['id']}/withdraw").json()
    assert (hint["job"], hint["state"]) == (None, "confirmed")
    found = [(each["scheduler"], each["state"], each["action"]) for each in hint["placements"]]
    assert found == [("kube", "absent", "cordon"), ("slurm", "confirmed", "cordon")]
    assert hint["placements"][0]["asked"] is None
    assert hint["placements"][1]["asked"] <= hint["placements"][1]["observed"]
    assert of_node["placements"] == hint["placements"]
    assert answer["placements"] == hint["placements"]


def test_a_fold_in_another_process_is_noticed_by_the_mark(any_engine: sa.Engine) -> None:
    """The one that acts did not fold."""
    shelf = Shelf()
    with serving(any_engine, shelf):
        _store(any_engine, "fatal")
        wait_for("the node is held", shelf.holds)


def _store(engine: sa.Engine, severity: str, fold: Callable[[sa.Engine], object] = fold_everything) -> None:
    """As another server process does: events and what comes to incidents."""
    device = Device("gpu", "0000:0f:00.0")
    event = Event(
        id=f"e-{severity}",
        time=now(),
        node="gpu-1",
        source="kernel",
        kind="xid",
        code=79,
        severity=severity,  # type: ignore[arg-type]
        cause="hardware",
        action="reboot_node",
        device=device,
        message="GPU has fallen off the bus.",
        attributes={},
    )
    with writing(engine).begin() as connection:
        put_faults(connection, append_events(connection, [event], received=now()).new, received=now())
    fold(engine)


@pytest.mark.parametrize(("severity", "told"), [("fatal", 1), ("error", 1), ("warning", 0)])
def test_what_is_folded_is_told_where_it_is_grave(any_engine: sa.Engine, severity: str, told: int) -> None:
    """By a call in this process, and by the mark elsewhere."""
    calls: list[int] = []
    _store(any_engine, severity, lambda engine: fold_intake(engine, on_grave=lambda: calls.append(1)))
    with any_engine.connect() as connection:
        assert (len(calls), read_marks(connection).get(FAULTS, 0)) == (told, told)


def _bump(engine: sa.Engine, name: str) -> None:
    with writing(engine).begin() as connection:
        move_mark(connection, name)


def test_a_mark_wakes_whom_it_concerns_once(engine: sa.Engine) -> None:
    """The first look is no news; what was looked at already wakes nobody."""
    wakes = Wakes()
    slurm = wakes.actuator("slurm")
    watch = MarkWatch(engine, wakes)
    watch.served((FAULTS,))
    _bump(engine, HINTS)
    watch.turn()
    assert not (wakes.policy.is_set() or slurm.is_set() or wakes.dispatch.is_set())
    _bump(engine, FAULTS)
    watch.turn()
    assert (wakes.policy.is_set(), slurm.is_set()) == (True, False)
    wakes.policy.clear()
    watch.turn()
    assert not wakes.policy.is_set()
    _bump(engine, FAULTS)
    watch.served((FAULTS,))
    watch.turn()
    assert not wakes.policy.is_set()
    _bump(engine, HINTS)
    watch.served((FAULTS,))
    watch.turn()
    assert all(event.is_set() for event in (wakes.policy, slurm, wakes.dispatch))


def test_a_scheduler_that_is_away_is_not_asked_before_its_time(engine: sa.Engine) -> None:
    """However often it is woken, and longer each time."""
    shelf = Shelf(is_away=True)
    state = State(ApiSettings(actuators=(shelf,), intervals=QUIET), engine, now)
    (turns,) = make_acting(state)
    for _ in range(5):
        turns.turn(lambda: True)
    assert shelf.tries == 1
    assert turns.wake.wait(patience(60)), "it is woken when its time has come"
    turns.turn(lambda: True)
    assert shelf.tries == 2


def test_orphans_are_told_of_once(engine: sa.Engine, caplog: pytest.LogCaptureFixture) -> None:
    """Until another one is found."""
    shelf = Shelf(nodes={"gpu-1": Hold("gpu-1", action="cordon", hint="who")})
    state = State(ApiSettings(actuators=(shelf,), intervals=QUIET), engine, now)
    (turns,) = make_acting(state)
    turns.turn(lambda: True)
    turns.turn(lambda: True)
    assert caplog.text.count("no hint explains") == 1
    shelf.nodes["gpu-2"] = Hold("gpu-2", action="cordon", hint="whose")
    turns.turn(lambda: True)
    assert caplog.text.count("no hint explains") == 2
    sample = {"scheduler": "slurm", "owner": "orphan"}
    assert state.metrics.registry.get_sample_value("foreshock_scheduler_holds", sample) == 2.0


def test_a_process_that_does_not_act_tells_nothing_of_schedulers(engine: sa.Engine) -> None:
    """Another one does."""
    state = State(ApiSettings(actuators=(Shelf(),), intervals=QUIET), engine, now)
    make_acting(state)
    assert state.metrics.registry.get_sample_value("foreshock_scheduler_up", {"scheduler": "slurm"}) is None


def test_what_is_seen_of_a_scheduler_grows_old(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """And is told no more by a process that has stopped acting."""
    from api.gauges import schedulers as scheduler_gauges

    state = State(ApiSettings(actuators=(Shelf(),), intervals=QUIET), engine, now)
    (turns,) = make_acting(state)
    turns.turn(lambda: True)
    real = scheduler_gauges.time.monotonic
    for later, is_told in ((30.0, True), (timedelta(minutes=10).total_seconds(), False)):
        monkeypatch.setattr(scheduler_gauges.time, "monotonic", lambda later=later: real() + later)
        age = state.metrics.registry.get_sample_value(
            "foreshock_scheduler_observation_age_seconds", {"scheduler": "slurm"}
        )
        assert (age is not None and age >= later) == is_told


def test_only_a_grave_fault_is_news_to_the_policy(engine: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A turn after it does not look twice; the turns behind that one do again."""
    told: list[bool] = []

    def listening(*given: Any, is_news: bool, **more: Any) -> Decision:
        told.append(is_news)
        return run_policy(*given, is_news=is_news, **more)

    monkeypatch.setattr("api.loops.turns.run_policy", listening)
    with serving(engine, Shelf()) as client:
        wakes = client.app.state.foreshock.wakes  # type: ignore[attr-defined]
        wait_for("the first turn is over", lambda: bool(told))
        assert told == [False]
        post(client, fault())
        wait_for("the policy hears of it", lambda: True in told)  # a turn behind it may be over already

        def later() -> bool:
            wakes.policy.set()
            return not told[-1]

        wait_for("a later turn is as any", later)


def test_faults_of_other_processes_are_news_and_peoples_words_are_none(engine: sa.Engine) -> None:
    """By the mark that moved."""
    wakes = Wakes()
    watch = MarkWatch(engine, wakes)
    watch.turn()
    for name, is_news in ((HINTS, False), (FAULTS, True)):
        with writing(engine).begin() as connection:
            move_mark(connection, name)
        watch.turn()
        assert (wakes.policy.is_set(), wakes.grave.is_set()) == (True, is_news)
        wakes.policy.clear()

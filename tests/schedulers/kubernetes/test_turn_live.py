"""Hints through the whole turn (`schedulers/reconcile/turn.py`) against a real API server: each ends as it should."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from real.kubernetes import RBAC
from real.kubernetes import Kubernetes as Cluster
from real.programs import wait_for

from schedulers.kubernetes.actuator import Kubernetes
from schedulers.lifecycle.operator_actions import withdraw
from schedulers.policy.settings import Policy
from schedulers.reconcile.actuator import SchedulerAwayError
from schedulers.reconcile.turn import ActuatorTurnResult, TurnContext, run_actuator
from store.database.connections import writing
from store.hints.holds import holds_of

from ..cluster import NOW, hint
from ..receivers import put, state_of
from .live_orders import acting, agent, hold_of
from .workload import await_running, budget, create, pod, running

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("kubernetes")]


class Server:
    """One server's turns over one cluster, at moments of the test's choice."""

    def __init__(self, engine: sa.Engine, actuator: Kubernetes) -> None:
        self.engine, self.actuator, self.now = engine, actuator, NOW

    def turn(self, seconds: float = 0.0) -> ActuatorTurnResult:
        """One turn."""
        self.now += timedelta(seconds=seconds)
        names = (self.actuator.name,)
        means = TurnContext(self.engine, self.actuator, names, lambda: Policy(mode="act"), lambda: self.now)
        return run_actuator(means, lambda: True)

    def states(self, node: str) -> tuple[str, ...]:
        """The hint's state and that of its placement."""
        with self.engine.connect() as connection:
            found = holds_of(connection, [f"h-{node}"]).get(f"h-{node}", [])
        return state_of(self.engine, f"h-{node}"), *(placement.state for placement in found)

    def until(self, node: str, *states: str) -> None:
        """Turns, until the hint and its placement are in these states."""

        def there() -> bool:
            self.turn(seconds=301.0)
            return self.states(node) == states

        wait_for(f"{node} is {states}", there)

    def end(self, node: str) -> None:
        """A person withdraws the hint."""
        with writing(self.engine).begin() as connection:
            withdraw(connection, f"h-{node}", self.now, "alice")


@pytest.fixture
def server(kubernetes_cluster: Cluster, engine: sa.Engine, tmp_path: Path) -> Iterator[Server]:
    """A server with the least rights."""
    with agent(kubernetes_cluster, tmp_path) as actuator:
        yield Server(engine, actuator)


@pytest.fixture
def node(kubernetes_cluster: Cluster) -> Iterator[str]:
    """A fresh node."""
    with kubernetes_cluster.nodes(1) as (name,):
        yield name


def asked(server: Server, node: str, action: Any = "cordon", until: datetime | None = None) -> None:
    """An approved hint."""
    put(server.engine, replace(hint(node, action, "approved"), valid_until=until or NOW + timedelta(days=9)))


@pytest.mark.parametrize("action", ["watch", "avoid", "cordon", "drain"])
def test_a_hint_is_confirmed_in_one_turn_and_released_in_one(
    kubernetes_cluster: Cluster, server: Server, node: str, action: str
) -> None:
    """Read back both times."""
    asked(server, node, action)
    server.turn()
    assert server.states(node) == ("confirmed", "confirmed")
    assert hold_of(server.actuator, node).hint == f"h-{node}"
    server.end(node)
    server.turn()
    assert server.states(node) == ("withdrawn", "released")
    assert hold_of(server.actuator, node).action is None
    assert not kubernetes_cluster.node(node)["spec"].get("unschedulable")


def test_a_person_who_uncordons_has_the_last_word(kubernetes_cluster: Cluster, server: Server, node: str) -> None:
    """The hint is withdrawn, nothing is ordered again, and what is left of ours goes."""
    asked(server, node)
    server.turn()
    kubernetes_cluster.kubectl("uncordon", node)
    server.until(node, "withdrawn", "released")
    spec = kubernetes_cluster.node(node)["spec"]
    assert not spec.get("unschedulable")
    assert not [taint for taint in spec.get("taints", []) if "foreshock" in taint["key"]]
    assert server.turn(seconds=301.0).reports == ()


def test_a_person_s_cordon_meets_the_hint_s_aim(kubernetes_cluster: Cluster, server: Server, node: str) -> None:
    """It is foreign, and stays when the hint has ended."""
    kubernetes_cluster.kubectl("cordon", node)
    asked(server, node)
    server.turn()
    assert server.states(node)[1] == "foreign"
    server.end(node)
    server.turn()
    assert kubernetes_cluster.node(node)["spec"]["unschedulable"] is True
    assert "foreshock" not in str(kubernetes_cluster.node(node)["metadata"].get("annotations"))


def test_an_outage_delays_and_loses_nothing(kubernetes_cluster: Cluster, server: Server, node: str) -> None:
    """What was asked before and during it is there after it."""
    server.turn()
    kubernetes_cluster.stop_api()
    asked(server, node)
    for _ in range(2):
        with pytest.raises(SchedulerAwayError):
            server.turn(seconds=301.0)
    kubernetes_cluster.start_api()
    server.until(node, "confirmed", "confirmed")
    assert hold_of(server.actuator, node).action == "cordon"


def test_what_a_dead_server_wrote_its_successor_finds(
    kubernetes_cluster: Cluster, server: Server, node: str, tmp_path: Path
) -> None:
    """The order went out and nobody wrote down that it did: it is read back, and not given twice."""
    asked(server, node)
    with acting(tmp_path / "foreshock.conf") as dead:
        before = Server(server.engine, dead)
        carry_out = dead.carry_out

        def dying(orders: Any) -> Any:
            carry_out(orders)
            raise KeyboardInterrupt

        dead.carry_out = dying  # type: ignore[method-assign]
        with pytest.raises(KeyboardInterrupt):
            before.turn()
    version = kubernetes_cluster.node(node)["metadata"]["annotations"]["foreshock.dev/timestamp"]
    assert server.turn().reports == ()
    assert server.states(node) == ("confirmed", "confirmed")
    assert kubernetes_cluster.node(node)["metadata"]["annotations"]["foreshock.dev/timestamp"] == version


def test_a_drain_is_confirmed_when_its_pods_have_gone(
    kubernetes_cluster: Cluster, engine: sa.Engine, tmp_path: Path, node: str
) -> None:
    """A disruption budget delays that, turn after turn, and withdraws nothing."""
    kubernetes_cluster.kubectl("apply", "-f", str(RBAC.with_name("rbac-evict.yaml")))
    labels = {"app": "late"}
    create(kubernetes_cluster, pod("late-0", node, labels), pod("gone-0", node), budget("late", labels, 1))
    await_running(kubernetes_cluster, node, 2)
    path = "/apis/policy/v1beta1/namespaces/default/poddisruptionbudgets/late"
    wait_for("the budget is counted", lambda: kubernetes_cluster.get(path)["status"].get("currentHealthy") == 1)
    with agent(kubernetes_cluster, tmp_path, evict=True) as actuator:
        server = Server(engine, actuator)
        asked(server, node, "drain")

        def alone() -> bool:
            server.turn(seconds=301.0)
            return running(kubernetes_cluster, node) == {"late-0"}

        wait_for("the other pod is evicted", alone)
        server.turn(seconds=301.0)
        assert server.states(node)[0] in ("approved", "sent")
        assert hold_of(actuator, node).action == "cordon"
        kubernetes_cluster.delete(path)
        server.until(node, "confirmed", "confirmed")
        assert running(kubernetes_cluster, node) == set()

"""What the tests against a real Slurm share: orders, and what came of them."""

from datetime import UTC, datetime, timedelta

from real.programs import wait_for
from real.slurm import Slurm as Cluster

from schedulers.reconcile.actuator import Hold, Order
from schedulers.slurm.actuator import Slurm
from schedulers.slurm.commands import SlurmSettings
from store.records.hint import HintAction

UNTIL = datetime.now(UTC).replace(microsecond=0) + timedelta(hours=6)


def actuator(cluster: Cluster, **settings: object) -> Slurm:
    """Ours, for this cluster."""
    return Slurm(SlurmSettings(conf=str(cluster.folder / "slurm.conf"), **settings))  # type: ignore[arg-type]


def order(node: str, action: HintAction, hint: str = "h-1", reason: str = "foreshock: Xid 79 on GPU 3") -> Order:
    """One order."""
    return Order(node, hint, action, reason, UNTIL)


def ask(ours: Slurm, *orders: Order) -> list[tuple[str, str]]:
    """What came of orders."""
    return [(report.subject, report.result) for report in ours.carry_out(orders)]


def hold(ours: Slurm, node: str) -> Hold:
    """What a node is told to be held for."""
    return {hold.node: hold for hold in ours.observe()}[node]


def clean(cluster: Cluster, nodes: list[str]) -> None:
    """Take everything off a cluster: jobs, reservations, drains, comments, weights."""
    cluster.run("scancel", "--user=root")
    for line in cluster.run("scontrol", "-o", "show", "reservation").splitlines():
        if line.startswith("ReservationName="):
            cluster.run("scontrol", "delete", f"reservation={line.split()[0].split('=')[1]}")
    for node in nodes:
        cluster.run("scontrol", "update", f"nodename={node}", "comment=", "extra=", "weight=1")
        if set(cluster.state(node).split("+")) & {"DRAIN", "FAIL", "DOWN"}:
            cluster.run("scontrol", "update", f"nodename={node}", "state=resume")
    wait_for("every node is idle", lambda: all(cluster.state(node) == "IDLE" for node in nodes))

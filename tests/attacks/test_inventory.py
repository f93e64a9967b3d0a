"""Who says which nodes there are: invented nodes lift nothing, spend nothing, and are held by nobody."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient

from api.app import create_app
from api.server.settings import ApiSettings, Intervals, RequestLimits
from diagnosis.incidents.intake import fold_everything
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.settings import Budgets, Control, Policy
from store.database.connections import writing
from store.events.append import append_nodes
from store.hints.hint_log import read_hints, save_hint
from store.records.hint import Hint
from store.records.node import Node

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLICY = Policy(mode="act", budgets=Budgets(nodes=8, percent_of_nodes=10.0, per_hour=1), control=Control(percent=0.0))
_OFF = Intervals(score_s=0.0, policy_s=0.0, dispatch_s=0.0, ledgers_s=0.0, lemons_s=0.0, models_s=0.0)
SETTINGS = ApiSettings(policy=POLICY, intervals=_OFF, limits=RequestLimits(requests_per_s=0.0, bytes_per_s=0.0))
PREFIX = "/api/v1"


class Site:
    """Forty nodes of a nodes.csv, with a server whose clock stands still unless somebody moves it."""

    def __init__(self, engine: sa.Engine, nodes: int = 40) -> None:
        self.engine = engine
        self.now = NOW
        self.nodes = [f"n{i:02}" for i in range(nodes)]
        with writing(engine).begin() as connection:
            append_nodes(connection, [Node(name, gpus=8) for name in self.nodes])
        self.client = TestClient(create_app(SETTINGS, engine, lambda: self.now))

    def post(self, path: str, records: list[dict[str, Any]]) -> dict[str, Any]:
        """Send records; they are taken or named."""
        answer = self.client.post(f"{PREFIX}/{path}", json=records)
        assert answer.status_code < 300, answer.text
        found: dict[str, Any] = answer.json()
        return found

    def beat(self, nodes: list[str]) -> None:
        """A heartbeat of each; the server writes them each second."""
        time = self.now.isoformat()
        beat = {"time": time, "started": time, "version": "1", "boot": "b", "interval_s": 60, "sources": []}
        beat |= {"spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 1}}
        beat |= {"lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0}, "rejected": 0}
        for first in range(0, len(nodes), 5_000):
            self.post("heartbeats", [beat | {"node": node} for node in nodes[first : first + 5_000]])
        self.client.app.state.foreshock.heartbeats.write(self.engine)  # type: ignore[attr-defined]  # an ASGI app

    def fault(self, node: str) -> dict[str, Any]:
        """A double-bit error: a fatal fault of its hardware."""
        fault = {"kind": "xid", "code": 48, "severity": "fatal", "cause": "hardware", "action": "drain_node"}
        event = {**fault, "source": "kernel", "time": self.now.isoformat(), "node": node, "message": "DBE"}
        return self.post("events", [event | {"device": {"type": "gpu", "pci": "0000:0f:00.0"}}])

    def decide(self) -> dict[str, Hint]:
        """The policy's turn; the open hint of each node."""
        fold_everything(self.engine)
        run_policy(self.engine, POLICY, self.now)
        with self.engine.connect() as connection:
            return {hint.node: hint for hint in read_hints(connection)}

    def get(self, path: str) -> Any:
        """An answer."""
        answer = self.client.get(f"{PREFIX}/{path}")
        assert answer.status_code == 200, answer.text
        return answer.json()


@pytest.fixture
def site(any_engine: sa.Engine) -> Iterator[Site]:
    """On both databases."""
    found = Site(any_engine)
    yield found
    found.client.close()


def test_twenty_thousand_invented_heartbeats_lift_nothing(site: Site) -> None:
    """They fall silent, and were two of three nodes with a sidecar: nothing was held any more for want of a quorum."""
    site.beat([f"made-up-{i}" for i in range(20_000)])
    assert site.get("budget")["nodes"] == 40
    assert site.get("budget")["most"] == 4
    site.now += timedelta(hours=1)
    site.beat(site.nodes)
    site.fault("n07")
    hints = site.decide()
    assert {node: (hint.action, hint.state) for node, hint in hints.items()} == {"n07": ("drain", "approved")}
    cluster = site.get("cluster")
    assert cluster["nodes"] == 40
    assert cluster["states"]["unknown"] == 20_000


def test_a_ghost_is_not_held_and_spends_no_budget(site: Site) -> None:
    """The host's own name `vm`, in a journal, was drained in place of the node, and the hour's budget was gone."""
    site.fault("vm")
    assert site.decide() == {}
    site.now += timedelta(minutes=4)
    site.fault("n07")
    hints = site.decide()
    assert {node: (hint.action, hint.state) for node, hint in hints.items()} == {"n07": ("drain", "approved")}
    budget = site.get("budget")
    assert (budget["held"], budget["held_within_hour"]) == (1, 1)
    (ghost,) = site.get("nodes?state=unknown")["items"]
    assert (ghost["node"], ghost["state"], ghost["known_by"], ghost["hint"]) == ("vm", "unknown", None, None)
    assert site.get("nodes/n07")["known_by"] == "archive"


def test_a_ghost_is_in_no_placement(site: Site) -> None:
    """Neither to avoid nor to prefer."""
    site.fault("vm")
    site.beat(["made-up"])
    site.decide()
    for which in ("avoid", "prefer"):
        text = site.client.get(f"{PREFIX}/placement", params={"format": "hostlist", "list": which}).text
        assert "vm" not in text
        assert "made-up" not in text
    assert site.get("placement?nodes=n01,vm")["unknown"] == ["vm"]


@pytest.mark.parametrize(
    "name", ["-rf", "--all", "ALL", "all", "DEFAULT", "a,b", "n[00-39]", "a b", "../x", "$(id)", "n01\n"]
)
def test_what_a_scheduler_could_read_otherwise_is_no_node(site: Site, name: str) -> None:
    """Refused by every entry, named and counted; before, the list of nodes to avoid began with -rf,ALL."""
    assert "node" in site.fault(name)["rejected"][0]["detail"]
    time = site.now.isoformat()
    rollup = {"node": name, "time": time, "samples": 1, "gpus_seen": 8}
    outage = {"node": name, "start": time, "end": None, "state": "DOWN", "reason": "x", "user": "root"}
    alert = {"status": "firing", "labels": {"alertname": "Hot", "node": name}, "annotations": {}, "startsAt": time}
    assert site.post("telemetry", [rollup])["rejected"]
    assert site.post("outages", [outage])["rejected"]
    assert site.client.post(f"{PREFIX}/alerts", json={"version": "4", "alerts": [alert]}).json()["rejected"]
    line = {"date": 1740801906.789, "host": name, "log": "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x"}
    assert site.post("logs", [line])["accepted"] == 0
    counted = site.client.get("/metrics").text
    for resource in ("events", "telemetry", "outages", "alerts"):
        assert f'foreshock_records_rejected_total{{resource="{resource}"}} 1.0' in counted
    text = site.client.get(f"{PREFIX}/placement", params={"format": "hostlist"}).text
    assert text == "\n"
    assert site.get("cluster")["states"]["unknown"] == 0


def test_names_of_one_node_are_one_node(site: Site) -> None:
    """The FQDN of a node, in another's mouth, made a second node that was held besides."""
    site.fault("n07.cluster.example.org")
    site.beat(["n07.cluster.example.org."])
    assert set(site.decide()) == {"n07"}
    assert site.get("cluster")["states"]["unknown"] == 0
    (sidecar,) = site.get("sidecars")["items"]
    assert sidecar["node"] == "n07"


def test_without_an_inventory_nothing_is_held_without_a_person(any_engine: sa.Engine) -> None:
    """Every node that speaks counts, for the product is to be of use; each request waits for a yes."""
    site = Site(any_engine, nodes=0)
    site.fault("n07")
    hints = site.decide()
    assert {node: (hint.action, hint.state) for node, hint in hints.items()} == {"n07": ("drain", "proposed")}
    assert site.get("nodes")["items"][0]["state"] == "faulty"
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("n07")])
    assert site.decide()["n07"].state == "approved"


def test_a_hint_on_a_node_that_was_never_named_is_no_hold(site: Site) -> None:
    """One of before stays until its time is over, costs nothing and is shown as what it is."""
    with writing(site.engine).begin() as connection:
        hint = Hint("h", "vm", "drain", "approved", "foreshock: x", "foreshock", NOW, NOW + timedelta(days=1))
        save_hint(connection, hint, NOW, {})
    site.beat(["vm"])
    budget = site.get("budget")
    assert (budget["held"], budget["held_within_hour"]) == (0, 0)
    assert site.get("nodes/vm")["state"] == "unknown"

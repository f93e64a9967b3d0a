"""A local source speaks of this host, whatever name stands in its lines; what speaks of many nodes says so."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.agent.supervisor import SourceSpec, hosts_of, of_node
from collectors.collector import CollectorTurn, SourceSettings
from store.records.event import Event
from store.records.telemetry import Rollup

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def said(node: str | None, source: str = "kernel", ident: str | None = "1") -> Event:
    """An Xid 48 of a node."""
    return Event(NOW, node, source, "xid", 48, message="DBE", id=ident)


@pytest.mark.parametrize(
    ("spec", "hosts"),
    [
        *((spec, "one") for spec in ("kmsg", "journal", "journal:/var/log/journal", "infiniband", "nvml")),
        *((spec, "one") for spec in ("file:/var/log/kern.log:kernel", "exec:gpud:gpud scan")),
        *((f"scrape:http://{host}:9400/metrics", "one") for host in ("127.0.0.1", "localhost", "[::1]", "127.9.9.9")),
        *((f"scrape:http://{host}:9400/metrics", "many") for host in ("gpu-001", "10.0.0.7", "127.example.org.evil")),
        ("prometheus:http://127.0.0.1:9090", "many"),
        ("redfish:/etc/foreshock/bmc.list", "many"),
        ("syslog:127.0.0.1:5140", "one"),
        ("syslog:0.0.0.0:6514#cert=a&key=b&clients=c", "many"),
    ],
)
def test_a_local_source_is_of_one_host(spec: str, hosts: str) -> None:
    """An exporter on the loopback, too; a Prometheus speaks of its targets wherever it runs."""
    assert hosts_of(spec) == hosts


def test_the_configuration_wins() -> None:
    """A central syslog is a file that says of many hosts."""
    common = SourceSettings(node="log-host")
    assert SourceSpec("file:/var/log/central.log:kernel").settings(common).hosts == "one"
    assert SourceSpec("file:/var/log/central.log:kernel", hosts="many").settings(common).hosts == "many"


def test_the_host_s_own_name_is_not_a_second_node() -> None:
    """A journal's lines bear the name `vm` on the node gpu-017."""
    (event,) = of_node(CollectorTurn(events=(said("vm"),)), "gpu-017").events
    assert (event.node, event.code) == ("gpu-017", 48)


def test_what_bears_the_node_s_name_stays_as_it_is() -> None:
    """With its id."""
    turn = CollectorTurn(events=(said("gpu-017"), said(None)))
    assert of_node(turn, "gpu-017").events == turn.events


@pytest.mark.parametrize("source", ["opensm", "switch", "sacctmgr", "sinfo", "kubernetes", "nvsentinel", "training"])
def test_what_speaks_of_others_on_purpose_goes_on_to(source: str) -> None:
    """The fabric's ports, a scheduler's nodes, a run's ranks."""
    turn = CollectorTurn(events=(said("gpu-002", source),))
    assert of_node(turn, "gpu-001") == turn


@given(st.lists(st.sampled_from(["vm", "gpu-017", "gpu-002", "localhost", "x.y"]), max_size=8))
def test_no_roll_up_of_a_local_exporter_is_another_node_s(nodes: list[str]) -> None:
    """DCGM's exporter calls itself by its pod."""
    turn = CollectorTurn(rollups=tuple(Rollup(node, NOW, 1, 8) for node in nodes))
    assert {each.node for each in of_node(turn, "gpu-017").rollups} <= {"gpu-017"}

"""A port that goes down again and again is told; one that was shut, rebooted or lost with others is not."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.links.port_flaps import CHRONIC, note_flappers, port_losses
from store.events.append import append_events
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

NOW = datetime(2026, 5, 4, 12, tzinfo=UTC)
NIC, PORT = Place("nic", "gpu-017/mlx5_3"), Place("port", "leaf04/12")


def down(minutes: float, nic: str = "mlx5_3", node: str = "gpu-017", kind: str = "port_removed") -> Event:
    """A port of a node is gone, so many minutes before now."""
    device = Device(type="port", uuid=f"0x{hash((node, nic)) % 2**60:016x}")
    event = Event(NOW - timedelta(minutes=minutes), node, "opensm", kind, device=device, attributes={"hca": nic})
    return with_kind_meaning(replace(event, id=f"{node}{nic}{minutes}{kind}"))


def score(events: list[Event], graph: DeviceGraph | None = None, place: Place = NIC) -> float:
    """How many losses a place has that count."""
    ordered = sorted(events, key=lambda event: event.time or NOW)
    found = port_losses(ordered, graph or DeviceGraph()).get(place)
    return found.score(NOW) if found else 0.0


def test_a_port_that_went_six_times_in_an_hour_flaps_and_one_that_went_twice_does_not() -> None:
    """Each counts nearly one."""
    assert score([down(10 * n) for n in range(6)]) > CHRONIC
    assert score([down(10 * n) for n in range(2)]) < 2.01


def test_losses_of_days_ago_are_forgotten() -> None:
    """Six losses two days ago count less than one of now."""
    assert score([down(2880 + n * 10) for n in range(6)]) < 1


def test_both_ends_of_a_cable_that_tell_one_loss_count_once() -> None:
    """The switch names its port, the manager the adapter."""
    graph = DeviceGraph()
    graph.add(NIC)
    graph.hang(PORT, Place("switch", "leaf04"))
    graph.join(PORT, NIC)
    told = Event(
        NOW, None, "switch", "link_down", device=Device(type="port", port=12), attributes={"switch": "leaf04"}, id="x"
    )
    assert score([with_kind_meaning(told, "fabric"), down(0)], graph) == 1


def test_a_port_that_is_shut_on_purpose_does_not_flap() -> None:
    """An event of the manager says so beside each loss."""
    shut = [replace(down(10 * n, kind="port_disabled"), severity="info") for n in range(6)]
    assert score([down(10 * n) for n in range(6)] + shut) == 0


def test_a_node_that_is_booted_again_and_again_has_no_flapping_ports() -> None:
    """Its link goes with it, and the boot is told minutes later."""
    boots = [
        Event(NOW - timedelta(minutes=60 * n - 4), "gpu-017", "kubernetes", "node_reboot", id=f"b{n}") for n in range(6)
    ]
    assert score([down(60 * n) for n in range(6)] + boots) == 0


def test_ports_that_go_together_are_a_matter_of_what_they_share() -> None:
    """Eight rails of a host at one moment, six times: no cable of it flaps."""
    assert score([down(30 * n, f"mlx5_{rail}") for n in range(6) for rail in range(8)]) == 0


def test_two_switches_that_tell_at_one_moment_count_for_the_cable_between_them() -> None:
    """No line names the cable; every second time it is up again."""
    graph = DeviceGraph()
    leaf, spine = Place("switch", "leaf04"), Place("switch", "spine01")
    graph.hang(Place("port", "leaf04/33"), leaf)
    graph.hang(Place("port", "spine01/4"), spine)
    graph.join(Place("port", "leaf04/33"), Place("port", "spine01/4"))
    events = [
        with_kind_meaning(
            Event(
                NOW - timedelta(minutes=10 * n, microseconds=place),
                None,
                "opensm",
                "link_state_change",
                device=Device(type="switch"),
                attributes={"switch": name},
                id=f"{name}{n}",
            ),
            "trap",
        )
        for n in range(12)
        for place, name in enumerate(("leaf04", "spine01"))
    ]
    assert 5 < score(events, graph, Place("port", "leaf04/33")) <= 6


def test_a_flapper_is_told_once_a_day_and_names_its_node(any_engine: sa.Engine) -> None:
    """As an event that becomes an incident."""
    with any_engine.begin() as connection:
        append_events(connection, [down(10 * n + 1) for n in range(6)], received=NOW)
    assert note_flappers(any_engine, NOW) == 1
    assert note_flappers(any_engine, NOW + timedelta(minutes=10)) == 0
    with any_engine.connect() as connection:
        row = connection.execute(sa.text("select node, message from events where kind = 'port_flapping'")).one()
    assert row.node == "gpu-017"
    assert "gpu-017/mlx5_3 went down 6 times" in row.message


def test_a_look_over_many_losses_ends_where_its_caller_wants_to_stop(any_engine: sa.Engine) -> None:
    """Asked every some hundred events; the next look begins anew."""
    with any_engine.begin() as connection:
        append_events(connection, [down(2 * n + 1) for n in range(600)], received=NOW)
    assert note_flappers(any_engine, NOW, lambda: False) == 0
    assert note_flappers(any_engine, NOW, lambda: True) == 1

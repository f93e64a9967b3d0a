"""Notices of switches that name no link become links: by who else spoke, and by what vanished."""

import itertools
from datetime import UTC, datetime, timedelta

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.symptom import Symptom
from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning

T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)
_numbers = itertools.count()


def fabric() -> DeviceGraph:
    """Two leafs on two spines; each leaf serves two hosts."""
    graph = DeviceGraph()
    for leaf in (1, 2):
        for host in (1, 2):
            nic = Place("nic", f"gpu-{leaf}{host}/mlx5_0")
            graph.add(nic, [f"0x00000000000000{leaf}{host}"])
            graph.hang(nic, Place("node", f"gpu-{leaf}{host}"))
            join(graph, Place("port", f"leaf0{leaf}/{host}"), nic)
        for spine in (1, 2):
            join(graph, Place("port", f"leaf0{leaf}/3{spine}"), Place("port", f"spine0{spine}/{leaf}"))
    for name, guid in (("leaf01", 161), ("leaf02", 162), ("spine01", 177), ("spine02", 178)):
        graph.add(Place("switch", name), [f"0x{guid:016x}"])
    return graph


def join(graph: DeviceGraph, end: Place, other: Place) -> None:
    """A cable; its ports are of their switches."""
    for port in (end, other):
        if port.kind == "port":
            graph.hang(port, Place("switch", port.name.partition("/")[0]))
    graph.join(end, other)


def told(second: float, kind: str, device: Device, variant: str = "", **attributes: Attribute) -> Event:
    """An event of the manager's log, so many seconds after noon."""
    node = attributes.pop("node", None)
    time, name, ident = T0 + timedelta(seconds=second), None if node is None else str(node), f"e{next(_numbers)}"
    return with_kind_meaning(Event(time, name, "opensm", kind, device=device, attributes=attributes, id=ident), variant)


def notice(second: float, switch: str) -> Event:
    """Trap 128."""
    return told(second, "link_state_change", Device(type="switch"), "trap", switch=switch)


def gone(second: float, host: str) -> Event:
    """A host's port is removed."""
    return told(second, "port_removed", Device(type="port"), node=host, hca="mlx5_0")


def back(second: float, host: str) -> Event:
    """A host's port is found."""
    return told(second, "port_discovered", Device(type="port"), node=host, hca="mlx5_0")


def seen(events: list[Event], at: float = 60) -> list[Symptom]:
    """The symptoms that stand, so many seconds after noon; the same in whatever order the events come."""
    found = []
    for order in (events, events[::-1]):
        fold = SymptomFold(fabric())
        fold.take(order)
        now = T0 + timedelta(seconds=at)
        found.append([one for one in fold.symptoms(now) if one.cured is None])
    assert [(one.kind, one.place, one.first) for one in found[0]] == [
        (one.kind, one.place, one.first) for one in found[1]
    ]
    return found[0]


def names(events: list[Event], at: float = 60) -> list[tuple[str, str]]:
    """Kinds and places of what stands."""
    return [(one.kind, one.place.name) for one in seen(events, at)]


def test_a_port_that_vanishes_is_what_its_switch_gave_notice_of() -> None:
    """One symptom, of the adapter."""
    assert names([notice(0, "leaf01"), gone(0.3, "gpu-11")]) == [("link_down", "gpu-11/mlx5_0")]


def test_two_switches_at_one_moment_share_the_cable_that_went() -> None:
    """The cable is named by its first end."""
    assert names([notice(0, "leaf01"), notice(0.001, "spine02")]) == [("link_down", "leaf01/32")]


def test_the_second_notice_of_both_says_that_the_cable_is_up_again() -> None:
    """And the third that it is down anew."""
    once = [notice(0, "leaf01"), notice(0.001, "spine02")]
    again = [notice(20, "spine02"), notice(20.001, "leaf01")]
    third = [notice(40, "spine02"), notice(40.001, "leaf01")]
    assert names(once + again) == []
    assert names(once + again + third) == [("link_down", "leaf01/32")]
    assert seen(once + again + third)[0].relapses == 1


def test_a_single_notice_is_of_one_of_the_switch_s_links_and_both_ends_tell_its_return() -> None:
    """The far switch's word took the way that was lost."""
    alone = [notice(0, "spine01")]
    assert names(alone) == [("link_down", "spine01")]
    assert names([*alone, notice(20, "spine01"), notice(20.001, "leaf02")]) == []


def test_whoever_looks_later_which_port_is_down_names_the_cable_of_a_single_notice() -> None:
    """Minutes after it, as `iblinkinfo --diff` or the next topology tells; and its return is both ends' again."""
    looked = told(90, "link_down", Device(type="port", port=2), "fabric", switch="spine01")
    lost = [notice(0, "spine01"), looked]
    assert [(one.kind, one.place.name, one.first) for one in seen(lost, 100)] == [("link_down", "leaf02/31", T0)]
    assert names([*lost, notice(120, "spine01"), notice(120.001, "leaf02")], 130) == []


def test_the_manager_s_list_of_links_names_the_cable_of_a_single_notice_and_knows_when_it_is_back() -> None:
    """It is written after the sweep that the notice began: it may be read when all is well again, and never alone."""
    spine = Device(type="port", uuid=f"0x{177:016x}", port=2)
    down, up = (told(second, f"link_{word}", spine, "fabric") for second, word in ((0.2, "down"), (20.2, "up")))
    lost, back = [notice(0, "spine01"), down], [notice(20, "spine01"), notice(20.001, "leaf02")]
    (found,) = seen(lost)
    assert (found.kind, found.place.name, found.first) == ("link_down", "leaf02/31", T0)
    # A verdict that rested on the notice is taken in by the one of the cable.
    assert set(found.events) == {one.id for one in lost}
    (later,) = seen([notice(0, "spine01"), told(5, "link_down", spine, "fabric")])
    assert len(later.events) == 2
    assert names([*lost, *back]) == names([*lost, *back, up]) == names([down, up]) == []
    # Both ends are heard, and the link is up again before the list lacks it.
    both = [notice(0, "spine01"), notice(0.001, "leaf02"), notice(0.1, "spine01"), notice(0.101, "leaf02")]
    assert names([*both, down]) == [("link_down", "leaf02/31")]
    assert names([*both, down, told(0.4, "link_up", spine, "fabric")]) == []


def test_several_ports_that_one_slow_sweep_finds_gone_are_what_their_switch_told_long_before() -> None:
    """A rack loses its power over half a minute; one port alone is put down to a notice of the last seconds."""
    told_of = [notice(0, "leaf01"), notice(20, "leaf01")]
    lost = [gone(40, "gpu-11"), gone(40.001, "gpu-12")]
    assert names([*told_of, *lost]) == [("link_down", "gpu-11/mlx5_0"), ("link_down", "gpu-12/mlx5_0")]
    assert ("link_down", "leaf01") in names([notice(0, "leaf01"), gone(40, "gpu-11")])


def test_a_switch_that_vanishes_takes_the_notices_of_its_neighbours_with_it() -> None:
    """And all is over once it is found."""
    spine = Device(type="switch", uuid=f"0x{178:016x}")
    lost = [notice(0, "leaf01"), notice(0.001, "leaf02"), told(0.4, "port_removed", spine, switch="spine02")]
    assert names(lost) == [("switch_gone", "spine02")]
    found = [notice(20, "leaf01"), notice(20.001, "leaf02"), told(20.5, "port_discovered", spine)]
    assert names(lost + found) == []


def test_a_switch_that_is_found_again_has_the_cable_back_on_which_a_request_to_it_was_lost() -> None:
    """It went while the manager swept, and was back a moment later."""
    spine = Device(type="switch", uuid=f"0x{178:016x}")
    unanswered = told(0.002, "smp_timeout", Device(type="node"), manager="0x0000000000000011", path="0,1,32")
    lost = [notice(0, "leaf01"), notice(0.001, "leaf02"), unanswered]
    lost.append(told(0.4, "port_removed", spine, switch="spine02"))
    assert ("switch_gone", "spine02") in names(lost)
    found = [notice(2, "leaf01"), notice(2.001, "leaf02"), told(2.5, "port_discovered", spine)]
    assert names(lost + found) == []


def test_a_request_that_no_port_answers_names_the_cable_and_one_notice_its_return() -> None:
    """The route from the manager's own adapter ends at the port."""
    manager = "0x0000000000000011"
    lost = [
        told(0, "smp_timeout", Device(type="node"), manager=manager, path="0,1,31,2"),
        told(0.1, "smp_timeout", Device(type="node"), manager=manager, path="0,1,32,2,31"),
    ]
    assert names(lost) == [("link_down", "leaf02/31")]
    assert names([*lost, notice(20, "spine01")]) == []
    assert names([*lost, notice(20, "spine01"), notice(20.001, "leaf02")]) == []


def test_of_two_adapters_with_one_guid_the_one_at_the_wrong_port_is_meant_until_the_subnet_is_up() -> None:
    """The graph knows at which port the GUID belongs."""
    owner, first, second = Device(type="hca", uuid="0x0000000000000011"), f"0x{161:016x}/1", f"0x{162:016x}/1"
    twice = told(0, "sm_error", owner, error="0D01", end_1=first, end_2=second)
    assert names([twice]) == [("guid_twice", "gpu-21/mlx5_0")]
    assert names([twice, told(5, "subnet_up", Device(type="node"))]) == []


def test_a_host_that_returns_cures_what_its_loss_was_and_nothing_else() -> None:
    """The other host of the leaf is still away."""
    lost = [notice(0, "leaf01"), gone(0.3, "gpu-11"), notice(5, "leaf01"), gone(5.3, "gpu-12")]
    assert names([*lost, notice(9, "leaf01"), back(9.4, "gpu-11")]) == [("link_down", "gpu-12/mlx5_0")]


def test_what_is_not_yet_told_is_not_yet_known() -> None:
    """As of a moment between the notice and the sweep the switch alone is known."""
    assert names([notice(0, "leaf01"), gone(3, "gpu-11")], at=1) == [("link_down", "leaf01")]


def test_a_storm_of_notices_is_bounded_and_leaves_the_last_state() -> None:
    """Twenty thousand notices in an hour: what is old is settled, the newest loss stands."""
    storm = [notice(second / 10, name) for second in range(10_000) for name in ("leaf01", "spine02")]
    fold = SymptomFold(fabric())
    fold.take([*storm, notice(2000, "leaf02"), notice(2000.001, "spine01")])
    standing = [one.place.name for one in fold.symptoms() if one.cured is None and one.kind == "link_down"]
    assert "leaf02/31" in standing


def test_what_is_lost_behind_a_lost_way_is_not_down_itself() -> None:
    """A cable goes while the manager sweeps: all requests beyond it time out, and its switch's neighbours' too."""
    manager = "0x0000000000000011"

    def lost(*paths: str) -> list[Event]:
        events = [told(0.01 * n, "smp_timeout", Device(), manager=manager, path=path) for n, path in enumerate(paths)]
        return [notice(0, "spine01"), *events]

    assert names(lost("0,1,31,2", "0,1,31,2,1", "0,1,31,2,32,1")) == [("link_down", "leaf02/31")]
    assert names(lost("0,1,31,2,1", "0,1,31,2,2", "0,1,31,2,32")) == [("link_down", "leaf02/31")]
    # One host of the leaf alone is that host's cable.
    assert names(lost("0,1,31,2,1")) == [("link_down", "gpu-21/mlx5_0"), ("link_down", "spine01")]


def test_a_host_whose_requests_were_lost_is_well_once_it_is_found() -> None:
    """Its port was never taken out of the fabric."""
    shut = told(0, "smp_timeout", Device(), manager="0x0000000000000011", path="0,1,31,2,1")
    assert names([shut]) == [("link_down", "gpu-21/mlx5_0")]
    assert names([shut, notice(20, "leaf02"), back(20.4, "gpu-21")]) == []

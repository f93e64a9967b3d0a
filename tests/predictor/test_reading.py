"""From the tables to arrays: what is taken, what is passed over, how it is cut."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day, node, outage, put, rollup, sbe, xid

from predictor.history.arrays import (
    FAR_FUTURE_MS,
    FAR_PAST_MS,
    HOUR_MS,
    TELEMETRY_COLUMNS,
    from_ms,
    to_ms,
)
from predictor.history.families import FAMILIES
from predictor.history.store_reader import (
    data_span,
    lit_hours,
    read_fleet,
    read_history,
    read_outage_log,
    read_precursors,
    read_rollups,
    read_telemetry,
)
from store.database.connections import writing
from store.records.event import Device, Event
from store.tables import schema


def test_roll_ups_are_read_as_they_stand(any_engine: sa.Engine) -> None:
    """On either database: what is unknown, no number of a float32, or stands under an odd name; those of GPUs alone."""
    odd = 'rack 7 "a"\\,\n{b}'
    rows = [
        rollup("a", 1.0),
        replace(rollup("a", 1 + 1 / 24), gpu_temp_mean_c=None, power_max_w=1e300, gpu_util_mean=1 / 3),
        replace(rollup(odd, 1.0), power_mean_w=-1e300, samples=3),
        replace(rollup("b", 1.0), samples=0, gpus_seen=0),
        rollup("a", 2.0),
    ]
    put(any_engine, [node("a"), node("b"), node(odd)], rollups=rows)
    names: dict[str, int] = {"a": 0}
    with any_engine.connect() as connection:
        first = to_ms(day(1)) // HOUR_MS
        found = read_rollups(connection, names, first, first + 2)
        alone = read_rollups(connection, names, first, first + 2, [odd])
    assert names == {"a": 0, odd: 1}
    told = {
        (of, time_ms): dict(zip(TELEMETRY_COLUMNS, values, strict=True))
        for of, time_ms, values in zip(found.node.tolist(), found.time_ms.tolist(), found.values.tolist(), strict=True)
    }
    ends = [to_ms(day(1)) + hours * HOUR_MS for hours in (1, 2)]
    assert sorted(told) == [(0, ends[0]), (0, ends[1]), (1, ends[0])]
    later, other = told[0, ends[1]], told[1, ends[0]]
    assert np.isnan(later["gpu_temp_mean_c"])
    assert (later["power_max_w"], later["gpu_util_mean"]) == (np.inf, np.float32(1 / 3))
    assert (other["power_mean_w"], other["samples"]) == (-np.inf, 3)
    assert (alone.node.tolist(), alone.time_ms.tolist()) == ([1], [ends[0]])


def precursors(engine: sa.Engine, first_d: float = 0, last_d: float = 100):  # type: ignore[no-untyped-def]
    """The precursor events of a window."""
    with engine.connect() as connection:
        fleet = read_fleet(connection)
        return read_precursors(connection, fleet, (to_ms(day(first_d)), to_ms(day(last_d))))


def test_the_fleet_is_by_name_with_groups_and_unknowns(engine: sa.Engine) -> None:
    """Equal leaves have equal numbers; unknown ones -1; unknown times lie far away."""
    put(
        engine,
        [node("b", leaf="x"), node("a", leaf="x", rack=None, in_service_since=None), node("c", leaf="y", gpus=None)],
    )
    put(engine, [node("d", leaf=None, in_service_until=day(9))])
    with engine.connect() as connection:
        fleet = read_fleet(connection)
    assert fleet.names == ("a", "b", "c", "d")
    assert fleet.leaf[0] == fleet.leaf[1] != fleet.leaf[2]
    assert fleet.leaf[3] == fleet.rack[0] == -1
    assert np.isnan(fleet.gpus).tolist() == [False, False, True, False]
    assert fleet.since_ms[0] == FAR_PAST_MS
    assert fleet.until_ms.tolist() == [FAR_FUTURE_MS] * 3 + [to_ms(day(9))]
    assert fleet.index["c"] == 2


def test_only_precursors_of_known_nodes_are_read(engine: sa.Engine) -> None:
    """Jobs, training lines, links that come up, users' chatter: none of a node's health."""
    device = Device("port", uuid="0x1", port=3)
    events = [
        xid("a", 1, 79),
        Event(day(2), None, "opensm", "link_down", severity="error", cause="fabric", device=device),
        Event(day(3), "a", "opensm", "link_up", cause="fabric", device=device),
        Event(day(4), "a", "training", "training_error", severity="error", cause="hardware"),
        Event(day(5), "a", "kernel", "note", severity="info"),
        Event(day(6), "a", "dcgm", "gpu_returned", severity="error", cause="hardware"),
        Event(day(7), "a", "opensm", "link_down", severity="warning", cause="fabric", device=device),
    ]
    put(engine, [node("a")], events=events)
    found = precursors(engine)
    assert [FAMILIES[i].name for i in found.family] == ["hardware_xid", "link_flap"]
    assert found.serious.tolist() == [True, False]
    assert len(found.ids) == 2


def test_a_window_is_half_open(engine: sa.Engine) -> None:
    """The first moment counts, the last does not."""
    put(engine, [node("a")], events=[xid("a", 1, 79), xid("a", 2, 79), xid("a", 3, 79)])
    assert precursors(engine, 1, 3).time_ms.tolist() == [to_ms(day(1)), to_ms(day(2))]
    assert len(precursors(engine, 4, 5).node) == 0


def test_counts_weigh_and_devices_are_named(engine: sa.Engine) -> None:
    """`attributes.count` where there is one, else 1."""
    port = Event(day(3), "a", "opensm", "link_down", severity="error", device=Device("port", port=7))
    nobody = Event(day(4), "a", "kernel", "mce", severity="error", cause="host")
    put(engine, [node("a")], events=[sbe("a", 1, 3, 250), xid("a", 2, 79), port, nobody])
    found = precursors(engine)
    assert found.weight.tolist() == [250, 1, 1, 1]
    assert [found.devices[i] for i in found.device] == ["GPU 3", "GPU 0000:0f:00.0", "port 7", ""]


def test_a_count_that_is_no_count_weighs_as_one(any_engine: sa.Engine) -> None:
    """Whatever a sender wrote for it, on either database."""
    counts = [7, 2.5, 0, -1, True, None, "9", "", [3], {"a": 3}, 10**18, 1e40, 1e300, "9" * 99]
    events = [replace(sbe("a", 1 + at / 24), attributes={"count": count}) for at, count in enumerate(counts)]
    put(any_engine, [node("a")], events=[*events, replace(sbe("a", 3), attributes={})])
    assert precursors(any_engine).weight.tolist() == [7, 2.5, 0, *([1] * 7), 1e18, 1, 1, 1, 1]


@pytest.mark.parametrize(
    ("device", "name"),
    [
        (Device("nvswitch", index=2), "NVSwitch 2"),
        (Device("hca", uuid="0xab"), "HCA 0xab"),
        (Device("gpu"), ""),
        (Device("gpu", pci="0000:0f:00.0", index=4), "GPU 4"),
        (Device("disk", uuid="nvme0"), "disk nvme0"),
    ],
)
def test_devices_are_called_what_operators_call_them(engine: sa.Engine, device: Device, name: str) -> None:
    """By their number where they have one."""
    event = Event(day(1), "a", "kernel", "fault", severity="error", cause="hardware", device=device)
    put(engine, [node("a")], events=[event])
    assert precursors(engine).devices == (name,)


def test_two_disks_are_two_devices(engine: sa.Engine) -> None:
    """Told apart by name alone, and called by it."""
    disks = [disk(name, 1 + n) for n, name in enumerate(("nvme0", "nvme1", "nvme0"))]
    put(engine, [node("a")], events=disks)
    found = precursors(engine)
    assert [found.devices[i] for i in found.device] == ["disk nvme0", "disk nvme1", "disk nvme0"]


def disk(name: str, at: float) -> Event:
    """A fault of a disk that only its name tells from another."""
    named = {"name": name}
    return Event(
        day(at),
        "a",
        "kernel",
        "nvme_reset",
        severity="error",
        cause="hardware",
        device=Device("disk"),
        attributes=named,
    )


@pytest.mark.parametrize(
    ("source", "after_s", "events"),
    [("gpud", 30, 1), ("gpud", 60, 1), ("gpud", 60.001, 2), ("kernel", 1, 2), ("alertmanager", 900, 1)],
)
def test_what_another_detector_repeats_within_a_minute_counts_once(
    engine: sa.Engine, source: str, after_s: float, events: int
) -> None:
    """The kernel's own second line counts; a site's alerts never do: they may rest on our own scores."""
    first = xid("a", 1, 79)
    assert first.time is not None
    again = replace(first, id="again", source=source, time=first.time + timedelta(seconds=after_s))
    put(engine, [node("a")], events=[first, again])
    assert len(precursors(engine).node) == events


def test_repeats_of_one_node_or_family_say_nothing_of_another(engine: sa.Engine) -> None:
    """The same moment, another node, and another fault of the same node."""
    first = xid("a", 1, 79)
    others = [
        replace(first, id="other node", node="b", source="gpud"),
        replace(first, id="other fault", code=63, source="gpud"),
    ]
    put(engine, [node("a"), node("b")], events=[first, *others])
    assert len(precursors(engine).node) == 3


def test_an_outage_that_ends_later_is_open(engine: sa.Engine) -> None:
    """Ends at or after the moment are hidden, later outages absent; an end before its start is cut to no length."""
    outages = [outage("a", 1, 24), outage("a", 5, 24 * 30), outage("b", 6, None), outage("b", 9, -5), outage("a", 12)]
    put(engine, [node("a"), node("b")], outages=[*outages, outage("stranger", 3)])
    with engine.connect() as connection:
        fleet = read_fleet(connection)
        log = read_outage_log(connection, fleet, to_ms(day(10)))
        whole = read_outage_log(connection, fleet)
    assert log.start_ms.tolist() == [to_ms(day(d)) for d in (1, 5, 6, 9)]
    assert log.end_ms.tolist() == [to_ms(day(2)), FAR_FUTURE_MS, FAR_FUTURE_MS, to_ms(day(9))]
    assert len(whole.node) == 5
    assert whole.end_ms[1] == to_ms(day(35))


def test_a_driver_change_is_a_planned_outage_for_it(engine: sa.Engine) -> None:
    """An unplanned one with cause driver is a failure."""
    outages = [
        outage("a", 1, planned=True, cause="driver"),
        outage("a", 2, cause="driver"),
        outage("a", 3, planned=True),
    ]
    put(engine, [node("a")], outages=outages)
    with engine.connect() as connection:
        log = read_outage_log(connection, read_fleet(connection))
    assert log.driver.tolist() == [True, False, False]
    assert log.planned.tolist() == [True, False, True]
    assert log.only(log.planned).start_ms.tolist() == [to_ms(day(1)), to_ms(day(3))]


def test_telemetry_is_known_when_its_hour_has_ended(engine: sa.Engine) -> None:
    """One entry a node and hour, by node and time; gaps stay gaps; strangers are passed over."""
    put(
        engine,
        [node("a"), node("b")],
        rollups=[rollup("b", 1, 40), *(rollup("a", 1 + h / 24, 50 + h) for h in (3, 0, 1))],
    )
    with writing(engine).begin() as connection:
        connection.execute(schema.nodes.delete().where(schema.nodes.c.node == "b"))
    first = to_ms(day(1)) // HOUR_MS
    with engine.connect() as connection:
        found = read_telemetry(connection, read_fleet(connection), first, first + 3)
        nothing = read_telemetry(connection, read_fleet(connection), first, first - 5)
    assert found.time_ms.tolist() == [to_ms(day(1 + h / 24)) for h in (1, 2)]
    assert found.column("gpu_temp_mean_c").tolist() == [50, 51]
    assert found.node.tolist() == [0, 0]
    assert nothing.values.shape == (0, len(TELEMETRY_COLUMNS))


def test_an_hour_that_is_dark_for_all_is_not_lit() -> None:
    """Half of the best hour of the week up to then is enough; a fleet that grows later changes nothing."""
    ends = [HOUR_MS * hour for hour, reporters in ((1, 4), (2, 2), (3, 1), (4, 4), (500, 1)) for _ in range(reporters)]
    assert (lit_hours(np.array(ends)) // HOUR_MS).tolist() == [1, 2, 4, 500]
    assert lit_hours(np.array(ends[:6])).tolist() == [HOUR_MS, 2 * HOUR_MS]
    assert len(lit_hours(np.empty(0, dtype=np.int64))) == 0


def test_a_history_reads_nothing_at_or_after_its_last_moment(engine: sa.Engine) -> None:
    """Whatever the table: events, outages and hours of the future are not in it."""
    events = [xid("a", d, 79) for d in (1, 9.99, 10, 11)]
    put(engine, [node("a")], events, [outage("a", 9), outage("a", 10)], [rollup("a", 9.5), rollup("a", 10)])
    with engine.connect() as connection:
        history = read_history(connection, day(8), day(10))
    assert history.precursors.time_ms.max() < to_ms(day(10))
    assert history.outages.start_ms.tolist() == [to_ms(day(9))]
    assert history.telemetry.time_ms.tolist() == [to_ms(day(9.5)) + HOUR_MS]
    assert history.start_ms == to_ms(day(1))


def test_the_span_covers_every_table(engine: sa.Engine) -> None:
    """A roll-up speaks of its whole hour; an outage of its end."""
    put(engine, [node("a")], rollups=[rollup("a", 5)])
    with engine.connect() as connection:
        assert data_span(connection) == (day(5), day(5) + timedelta(hours=1))
    put(engine, outages=[outage("a", 4, None), outage("a", 6, 24)], events=[xid("a", 5.5, 79)])
    with engine.connect() as connection:
        assert data_span(connection) == (day(4), day(7))


def test_milliseconds_round_down() -> None:
    """A moment within a millisecond belongs to its beginning, so that nothing of it counts as past."""
    assert to_ms(day(1) + timedelta(microseconds=999)) == to_ms(day(1))
    assert from_ms(to_ms(day(3.5))) == day(3.5)

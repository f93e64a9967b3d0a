"""What the watch says of eleven real outages, against what a person found in them."""

from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import cache

import pytest
import sqlalchemy as sa
from real.tapes import Facts, facts, samples

from collectors.telemetry.device_watch import DeviceWatch
from diagnosis.incidents.incident import coalesce
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.event_pages import read_incidents
from store.records.event import Event

FACTS = {one.tape: one for one in facts()}


@cache
def events(tape: str) -> list[Event]:
    """Of a whole tape."""
    watch = DeviceWatch("tape")
    return watch.follow(samples(tape)) + watch.finish()


def of_kind(tape: str, *kinds: str) -> list[Event]:
    """A tape's events of some kinds, by time."""
    return sorted((one for one in events(tape) if one.kind in kinds), key=lambda one: (one.time, one.device.index or 0))


@pytest.mark.parametrize("known", FACTS.values(), ids=lambda known: known.tape)
def test_an_xid_is_told_at_the_first_sample_that_shows_it(known: Facts) -> None:
    """With the GPUs that show it then."""
    rows = samples(known.tape)
    for code, first in known.first_xid.items():
        found = [one for one in of_kind(known.tape, "xid", "xid_hint") if one.code == code]
        gpus = sorted(one.gpu for one in rows if one.time == first and one.values.get("xid_last") == code)
        assert [one.device.index for one in found if one.time == first] == gpus
        assert min(one.time for one in found if one.time) == first
    codes = {one.code for one in of_kind(known.tape, "xid", "xid_hint")}
    assert codes == known.first_xid.keys()


@pytest.mark.parametrize("known", FACTS.values(), ids=lambda known: known.tape)
def test_xid_79_is_fatal_and_nothing_else_is(known: Facts) -> None:
    """A tape without it has no fatal event."""
    fatal = [one for one in events(known.tape) if one.severity == "fatal"]
    assert {one.code for one in fatal} == {79} & known.first_xid.keys()
    assert all((one.kind, one.cause, one.action) == ("xid", "hardware", "reboot_node") for one in fatal)


@pytest.mark.parametrize("known", FACTS.values(), ids=lambda known: known.tape)
def test_gpus_that_vanish_are_told_at_the_first_sample_without_them(known: Facts) -> None:
    """All four of them; with what else fell silent."""
    found = of_kind(known.tape, "gpu_missing")
    if known.first_fewer is None:
        assert found == []
        return
    assert [one.device.index for one in found if one.time == known.first_fewer] == [0, 1, 2, 3]
    assert found[0].time == known.first_fewer
    silent = of_kind(known.tape, "node_silent", "exporter_down")
    assert silent[0].time == known.first_fewer


@pytest.mark.parametrize("known", FACTS.values(), ids=lambda known: known.tape)
def test_each_reboot_is_told_once_and_nothing_else_is_one(known: Facts) -> None:
    """By the boot time, at the first sample that shows it."""
    assert [one.time for one in of_kind(known.tape, "node_reboot")] == known.reboots


def test_a_boot_that_is_dated_before_the_fault_it_ends_says_by_whose_clock() -> None:
    """This site's samples bear local time, an hour ahead of the boot times."""
    last = of_kind("ggpu142_2025-03-19_gpu-problem", "node_reboot")[-1]
    assert last.message == (
        "The node was booted (at 2025-03-21 08:37:58 by its own clock, which is not that of the telemetry); "
        "it ends the fault of Xid 79 that stood since 2025-03-21T09:00:00+00:00."
    )


def test_a_silent_node_whose_power_is_off_is_told_as_that() -> None:
    """Six days after its GPUs fell off the bus."""
    [silent] = of_kind("ggpu142_2025-02-17_gpus-fallen-off-bus", "node_silent")
    assert (silent.attributes["power"], silent.severity) == ("off", "warning")


def test_a_gpu_that_vanishes_after_its_xid_says_so() -> None:
    """It is the same fault, six days on."""
    tape = "ggpu142_2025-02-17_gpus-fallen-off-bus"
    found = of_kind(tape, "gpu_missing")
    assert [one.attributes["follows"] for one in found] == ["xid:79"] * 4
    assert {one.attributes["since"] for one in found} == {FACTS[tape].first_xid[79].isoformat()}


def signs(known: Facts) -> list[datetime]:
    """What a tape's facts know, by time."""
    fewer = [known.first_fewer] if known.first_fewer else []
    return sorted([*known.first_xid.values(), *known.reboots, *fewer])


def test_quiet_days_are_quiet() -> None:
    """The days before the first sign of each tape: nothing that makes an incident, less than one event in two days."""
    days, found = 0.0, Counter[str]()
    for known in FACTS.values():
        until = signs(known)[0] - timedelta(hours=1)
        start = min(one.time for one in samples(known.tape))
        days += max(0.0, (until - start) / timedelta(days=1))
        quiet = [one for one in events(known.tape) if one.time and one.time < until]
        assert [one for one in quiet if one.severity != "info"] == []
        found.update(one.kind for one in quiet)
    assert days > 40
    assert found.total() / days < 0.5


STORY = "ggpu142_2025-03-19_gpu-problem"


@pytest.mark.parametrize("known", FACTS.values(), ids=lambda known: known.tape)
def test_each_fault_is_one_incident(known: Facts) -> None:
    """All of its GPUs in one, and the silence days after with it; a reboot ends it."""
    tape = [one for one in coalesce(events(known.tape)) if one.severity in ("error", "fatal")]
    first_shows = {one.time for one in of_kind(known.tape, "xid")}
    assert [(one.start, one.kind, one.code, one.count >= 4) for one in tape] == [
        (moment, "xid", 79, True) for moment in sorted(first_shows)
    ]
    for one in tape:
        assert (one.device.type, one.device.index) == ("gpu", 0)
        assert "GPUs 0, 1, 2, 3" in one.message


def test_a_reboot_ends_the_fault_that_stood() -> None:
    """Its incident is information then; one that ends nothing warns."""
    reboots = [one for one in coalesce(events(STORY)) if one.kind == "node_reboot"]
    assert [one.severity for one in reboots] == ["info", "info", "warning", "info"]
    assert [one.attributes.get("caused_by") for one in of_kind(STORY, "node_reboot")] == [
        *("xid:79", "xid:79"),
        None,
        "xid:79",
    ]


def every_event() -> list[Event]:
    """Of all tapes, as loaded together: the same moment of one node stands in several."""
    return list({one.id: one for known in FACTS.values() for one in events(known.tape)}.values())


def test_a_maintenance_of_several_nodes_is_one_incident() -> None:
    """2025-03-21 09:40: four nodes boot within ten minutes; none of it is a fault of their hardware."""
    day = [one for one in coalesce(every_event()) if one.start.date().isoformat() == "2025-03-21"]
    [boot] = [one for one in day if one.kind == "nodes_rebooted"]
    assert (boot.node, len(boot.nodes), boot.severity, boot.cause) == (None, 4, "info", "host")
    assert "planned maintenance" in boot.message
    [silence] = [one for one in day if one.kind == "nodes_silent"]
    assert len(silence.nodes) == 4
    grave = [one for one in day if one.severity in ("error", "fatal")]
    assert {one.node for one in grave}.isdisjoint({"node_df3724dfcace", "node_62a6cb9d8856", "node_d4119f476626"}), (
        "nodes that only booted"
    )
    assert {(one.kind, one.code) for one in grave} == {("xid", 79)}


def test_the_stored_incidents_are_the_same_in_any_order(any_engine: sa.Engine) -> None:
    """Tape by tape, the last one first, or all at once."""
    stored: set[str | None] = set()
    for known in sorted(FACTS.values(), key=lambda known: known.tape, reverse=True):
        new = {one.id: one for one in events(known.tape) if one.id not in stored}
        stored |= new.keys()
        with writing(any_engine).begin() as connection:
            update_incidents(connection, new.values())
    with any_engine.begin() as connection:
        found = read_incidents(connection, datetime(2025, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC))
    assert {(one.start, one.kind, one.node, one.count) for one in found} == {
        (one.start, one.kind, one.node, one.count) for one in coalesce(every_event())
    }

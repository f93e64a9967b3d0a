"""What the watch says of eleven real outages, against what a person found in them."""

from collections import Counter
from datetime import timedelta
from functools import cache

import pytest
from real.tapes import Facts, facts, samples

from collectors.telemetry.device_watch import DeviceWatch
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


def test_quiet_days_are_quiet() -> None:
    """Days before the first sign of each tape: fewer than one event in a node-day, none of them grave."""
    days = 0.0
    found: Counter[str] = Counter()
    for known in FACTS.values():
        signs = [*known.first_xid.values(), *known.reboots, *([known.first_fewer] if known.first_fewer else [])]
        start = min(one.time for one in samples(known.tape))
        quiet = [one for one in events(known.tape) if one.time and one.time < min(signs) - timedelta(hours=1)]
        days += max(0.0, (min(signs) - timedelta(hours=1) - start) / timedelta(days=1))
        found.update(one.kind for one in quiet if one.severity != "info")
    assert days > 40
    assert set(found) <= {"oom_kill"}
    assert found.total() / days < 0.1

"""The kernel's ring."""

import ctypes
import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience

from collectors.collector import SourceError, SourceSettings
from collectors.sources import kmsg
from collectors.sources.kmsg import ClockReading, KmsgCollector, RingState, record_of
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017")
# One ring for all of them: one fills it.
pytestmark = pytest.mark.xdist_group("kmsg")
_SYSLOG_ACTION_SIZE_BUFFER = 10


def writable() -> bool:
    """Whether this test may write kernel records."""
    try:
        os.close(os.open("/dev/kmsg", os.O_WRONLY))
        os.close(os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


needs_kmsg = pytest.mark.skipif(not writable(), reason="/dev/kmsg may not be written and read by this user")


def write(text: str) -> None:
    """One record; a descriptor each, or the kernel drops all but ten in five seconds."""
    descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


@pytest.fixture
def marker() -> str:
    """Other programs write kernel records too: ours bear this."""
    return f"t{uuid.uuid4().hex[:10]}"


@pytest.fixture
def collector() -> Iterator[KmsgCollector]:
    """One, closed in the end."""
    collector = KmsgCollector("", SETTINGS)
    yield collector
    collector.close()


def ours(collector: KmsgCollector, marker: str, count: int) -> tuple[list[Event], Any]:
    """The marked events, once there are so many, and the last position."""
    found: list[Event] = []
    position = None
    deadline = time.monotonic() + patience(10)
    while len(found) < count and time.monotonic() < deadline:
        collected = collector.collect(0.1)
        position = collected.position or position
        found += [event for event in collected.events if event.attributes.get("process") == marker]
    return found, position


def xid(marker: str, pid: int) -> str:
    """A record that is one event."""
    return f"<3>NVRM: Xid (PCI:0000:0f:00): 79, pid={pid}, name={marker}, GPU has fallen off the bus.\n"


def test_a_record_is_its_number_and_first_line() -> None:
    """The ` KEY=value` lines are left out; the number is the second field of the header."""
    raw = b"6,339,5140900,-;NET: Registered protocol family 10\n SUBSYSTEM=net\n DEVICE=n1\n"
    record = record_of(raw)
    assert (record.seq, record.stamp_us) == (339, 5140900)
    assert record.at(1740801906789000) == "6,339,1740801906789000,-;NET: Registered protocol family 10"
    assert record_of(b"6,339,5140900,-,caller=T1;x;y,z\n").at(7) == "6,339,7,-,caller=T1;x;y,z"


@pytest.mark.parametrize("raw", [b"", b"no header\n", b"6,x,1,-;text\n", b"6,1;text\n", b"6,1,?,-;a,b"])
def test_what_is_no_record_is_refused(raw: bytes) -> None:
    """With the beginning of it, where there is one."""
    with pytest.raises(ValueError, match=r"no kernel record|invalid literal"):
        record_of(raw)


def test_lost_records_are_counted_by_their_numbers() -> None:
    """The first record ever seen is no gap: what was before it is not known."""
    state = RingState("boot")
    assert state.lost_before(345) == 0
    assert state.position() is None
    state.last = 345
    assert state.lost_before(346) == 0
    assert state.lost_before(350) == 4
    assert state.lost_before(10) == 0


def test_a_position_counts_for_its_own_boot_alone() -> None:
    """After a reboot the ring begins anew."""
    state = RingState("boot-a", last=7, flushed_line=8)
    now = ClockReading(10**15, 10**9)
    again = RingState.restored("boot-a", state.position(), now)
    assert (again.last, again.flushed_line, again.skip_to) == (7, 8, 7)
    for other in (RingState.restored("boot-b", state.position(), now), RingState.restored("boot-a", None, now)):
        assert (other.last, other.skip_to, other.position()) == (None, None, None)


def test_a_position_of_an_older_version_is_understood() -> None:
    """It held no clock."""
    again = RingState.restored("a", {"boot": "a", "seq": 7, "flushed_line": 8}, ClockReading(10**15, 10**9))
    assert again.clock.moment_us(8, 5) == 10**15 - 10**9 + 5


def test_kmsg_takes_no_argument() -> None:
    """A path is meant for `file:`."""
    with pytest.raises(SourceError, match="file:/dev/kmsg"):
        KmsgCollector("/dev/kmsg", SETTINGS)


def test_a_missing_device_names_the_remedy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a container."""
    monkeypatch.setattr(kmsg, "_DEVICE", tmp_path / "kmsg")
    with pytest.raises(SourceError, match="--source journal"):
        KmsgCollector("", SETTINGS).open(None)


def test_a_refused_device_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Root may read it, so the refusal is made here."""

    def refuse(*_arguments: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(SourceError, match="CAP_SYSLOG"):
        KmsgCollector("", SETTINGS).open(None)


@needs_kmsg
def test_records_of_before_and_after_the_start_are_events(collector: KmsgCollector, marker: str) -> None:
    """With this boot's clock and the node's name."""
    write(xid(marker, 1))
    collector.open(None)
    write(xid(marker, 2))
    found, position = ours(collector, marker, 2)
    assert [event.attributes["pid"] for event in found] == [1, 2]
    assert {event.node for event in found} == {"gpu-017"}
    assert all(event.time is not None and abs(event.time.timestamp() - time.time()) < 60 for event in found)
    assert found[0].line == position["seq"] or found[1].line is not None


@needs_kmsg
def test_a_restart_goes_on_where_it_was_and_ids_stay(collector: KmsgCollector, marker: str) -> None:
    """With the position nothing comes twice; without it the same ids come."""
    write(xid(marker, 1))
    collector.open(None)
    first, position = ours(collector, marker, 1)
    collector.close()
    write(xid(marker, 2))
    collector.open(position)
    second, _ = ours(collector, marker, 1)
    assert [event.attributes["pid"] for event in second] == [2]
    collector.close()
    collector.open(None)
    both, _ = ours(collector, marker, 2)
    assert [event.id for event in both] == [event.id for event in first + second]


@needs_kmsg
def test_records_missing_after_a_restart_are_a_gap_event(collector: KmsgCollector, marker: str) -> None:
    """As after a restart long ago: records after the saved one are missing from the ring's beginning."""
    collector.open(None)
    collector.collect(0.1)
    state = collector._state
    assert state.last is not None
    state.last -= 5
    write(xid(marker, 1))
    gaps, lost, _lines = gathered(collector, marker)
    assert gaps[0].attributes["lost"] == lost == 5


def gathered(collector: KmsgCollector, marker: str) -> tuple[list[Event], int, int]:
    """The gaps up to the marked event, how many records they lost, and how many were read."""
    gaps: list[Event] = []
    lost = lines = 0
    deadline = time.monotonic() + patience(10)
    while time.monotonic() < deadline:
        collected = collector.collect(0.1)
        gaps += [event for event in collected.events if event.kind == "collector_gap"]
        lost, lines = lost + collected.lost, lines + collected.lines
        if any(event.attributes.get("process") == marker for event in collected.events):
            break
    return gaps, lost, lines


@pytest.mark.integration
@needs_kmsg
def test_a_ring_that_ran_over_while_nobody_read_tells_its_exact_loss(collector: KmsgCollector, marker: str) -> None:
    """For real: twice what the ring holds is written while the collector is paused, and then a fault."""
    ring_bytes = ctypes.CDLL(None).klogctl(_SYSLOG_ACTION_SIZE_BUFFER, None, 0)
    if not 0 < ring_bytes <= 8 * 2**20:
        pytest.skip(f"the kernel's ring has {ring_bytes} bytes: too many to fill here")
    record = f"<7>foreshock test {marker} " + "x" * 900 + "\n"
    written = 2 * ring_bytes // len(record)
    collector.open(None)
    while collector.collect(0.05).lines:
        pass
    before = collector._state.last
    for _ in range(written):
        write(record)
    write(xid(marker, 1))
    gaps, lost, lines = gathered(collector, marker)
    after = collector._state.last
    assert before is not None
    assert after is not None
    assert lost >= written - ring_bytes // 900, "a ring of so many bytes holds no more records than that"
    assert sum(int(gap.attributes["lost"] or 0) for gap in gaps) == lost
    assert lost + lines == after - before, "every number is either read or told as lost"
    assert {gap.severity for gap in gaps} == {"warning"}


@needs_kmsg
def test_after_a_reboot_it_is_said_that_the_end_of_the_last_boot_is_unknown(
    collector: KmsgCollector, marker: str
) -> None:
    """How many records that were nobody can know; this boot's ring is read from its start."""
    write(xid(marker, 1))
    collector.open({"boot": "0000-other", "seq": 4711, "flushed_line": 4712})
    collected = collector.collect(0.1)
    first = collected.events[0]
    assert (first.kind, first.severity, first.attributes["last"]) == ("collector_gap", "info", 4711)
    assert "lost" not in first.attributes
    assert collected.position is not None
    assert collected.position["boot"] != "0000-other"
    assert any(e.attributes.get("process") == marker for e in collected.events) or ours(collector, marker, 1)[0]


@needs_kmsg
def test_a_ring_that_stands_before_the_position_is_read_anew(collector: KmsgCollector, marker: str) -> None:
    """The same boot and lower numbers: a machine that came back from a snapshot. Nothing new is taken for old."""
    collector.open(None)
    collector.collect(0.1)
    position = dict(collector._state.position() or {})
    collector.close()
    write(xid(marker, 1))
    collector.open(position | {"seq": position["seq"] + 10**9})
    collected = collector.collect(0.1)
    found = [event for event in collected.events if event.attributes.get("process") == marker]
    assert collected.events[0].kind == "collector_gap"
    assert len(found or ours(collector, marker, 1)[0]) == 1


@needs_kmsg
def test_times_stay_over_restarts_and_a_stepped_clock_counts_for_new_records_alone(
    collector: KmsgCollector, marker: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event's id and time are its key: read again it is the same. A clock that was an hour off is not kept."""
    write(xid(marker, 1))
    collector.open(None)
    first, position = ours(collector, marker, 1)
    collector.close()
    before = {**position, "seq": 0, "flushed_line": 0}  # as it was before this record was read
    hour_us = 3_600_000_000
    real = ClockReading.now

    def an_hour_on() -> ClockReading:
        now = real()
        return ClockReading(now.wall_us + hour_us, now.monotonic_us)

    monkeypatch.setattr(ClockReading, "now", an_hour_on)
    collector.open(position)
    write(xid(marker, 2))
    second, stepped = ours(collector, marker, 1)
    collector.close()
    assert second[0].time is not None
    assert abs(second[0].time.timestamp() - time.time() - 3600) < 60
    collector.open({**before, "clock": stepped["clock"]})
    again, _ = ours(collector, marker, 2)
    assert [(event.id, event.time) for event in again] == [(event.id, event.time) for event in first + second]


@needs_kmsg
def test_a_quiet_ring_gives_nothing_in_time(collector: KmsgCollector, until: Callable[..., Any]) -> None:
    """A turn ends when its wait does."""
    collector.open(None)
    assert until(lambda: collector.collect(0.05).lines == 0)

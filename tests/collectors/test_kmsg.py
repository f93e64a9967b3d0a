"""The kernel's ring."""

import os
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors import kmsg
from collectors.collector import SourceError, SourceSettings
from collectors.kmsg import KmsgCollector, RingState, gap_event, record_of
from store.event import Event

SETTINGS = SourceSettings(node="gpu-017")


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
    deadline = time.monotonic() + 10
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
    assert record_of(raw) == (339, "6,339,5140900,-;NET: Registered protocol family 10")
    assert record_of(b"6,339,5140900,-,caller=T1;x;y,z\n")[0] == 339


@pytest.mark.parametrize("raw", [b"", b"no header\n", b"6,x,1,-;text\n", b"6,1;text\n"])
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
    again = RingState.restored("boot-a", state.position())
    assert (again.last, again.flushed_line, again.skip_to) == (7, 8, 7)
    assert RingState.restored("boot-b", state.position()) == RingState("boot-b")
    assert RingState.restored("boot-a", None) == RingState("boot-a")


def test_a_gap_is_an_event_of_its_own() -> None:
    """The same gap has the same id, whenever it was noticed."""
    first, second = gap_event("n1", "boot", 9, 3), gap_event("n1", "boot", 9, 3)
    assert (first.kind, first.attributes["lost"], first.severity) == ("collector_gap", 3, "warning")
    assert first.id == second.id != gap_event("n1", "boot", 10, 3).id


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
def test_an_overrun_ring_is_a_gap_event(collector: KmsgCollector, marker: str) -> None:
    """As after a restart long ago: records after the saved one are missing from the ring's beginning."""
    collector.open(None)
    collector.collect(0.1)
    state = collector._state
    assert state.last is not None
    state.last -= 5
    write(xid(marker, 1))
    deadline = time.monotonic() + 10
    gaps: list[Event] = []
    lost = 0
    while not gaps and time.monotonic() < deadline:
        collected = collector.collect(0.1)
        gaps += [event for event in collected.events if event.kind == "collector_gap"]
        lost += collected.lost
    assert gaps[0].attributes["lost"] == lost == 5


@needs_kmsg
def test_a_quiet_ring_gives_nothing_in_time(collector: KmsgCollector, until: Callable[..., Any]) -> None:
    """A turn ends when its wait does."""
    collector.open(None)
    assert until(lambda: collector.collect(0.05).lines == 0)

"""What a spool must give up, finds damaged or has no disk for: the rest goes on, every loss is counted and told."""

import subprocess
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from collectors.collector import CollectorTurn
from collectors.spool.queue import encode
from collectors.spool.segments import SegmentLog
from collectors.spool.spool import Spool
from collectors.spool.state import SpoolFullError, SpoolLosses
from store.records.event import Event, with_id
from store.records.telemetry import Rollup

TIME = datetime(2025, 3, 1, 4, tzinfo=UTC)
FILE, RING = "file:/x", "kmsg"
FullDisk = Callable[[int], AbstractContextManager[None]]


def turn(*numbers: int, severity: Any = "error", size: int = 300, position: int | None = None) -> CollectorTurn:
    """A turn's worth of events."""
    events = [Event(TIME, "n1", "test", "test", code=n, severity=severity, message="x" * size) for n in numbers]
    return CollectorTurn(
        events=tuple(map(with_id, events)), position={"at": numbers[-1] if position is None else position}
    )


def pending(spool: Spool, kind: str = "test") -> list[Any]:
    """What waits, of one kind."""
    found = orjson.loads(orjson.dumps(spool.pending("events", 10**6, 10**9).items))
    return [item for item in found if item["kind"] == kind]


def codes(spool: Spool) -> list[int]:
    """Which of the numbered events wait."""
    return [item["code"] for item in pending(spool)]


@pytest.fixture
def reopen(tmp_path: Path) -> Iterator[Callable[[], Spool]]:
    """Opens the spool of this test anew."""
    spools: list[Spool] = []

    def again(max_bytes: int = 10**6) -> Spool:
        if spools:
            spools.pop().close()
        spools.append(Spool(tmp_path, max_bytes, "n1"))
        return spools[-1]

    yield again
    spools.pop().close()


def segments(folder: Path) -> list[Path]:
    """The files of the events, oldest first."""
    return sorted((folder / "events").glob("*.seg"))


def flip(path: Path, place: int) -> None:
    """One bit of a file."""
    raw = bytearray(path.read_bytes())
    raw[place] ^= 4
    path.write_bytes(raw)


def test_a_flipped_bit_costs_its_record_and_is_told_as_an_event(reopen: Callable[..., Spool], tmp_path: Path) -> None:
    """The event bears the bytes, when, and why; it is durable, and told once."""
    spool = reopen()
    for number in range(5):
        spool.append(FILE, turn(number))
    [path] = segments(tmp_path)
    flip(path, path.stat().st_size // 2)
    spool = reopen()
    assert codes(spool) == [0, 1, 3, 4]
    spool.keep_up()
    [loss] = pending(reopen(), "spool_loss")
    assert (loss["source"], loss["node"], loss["attributes"]["reason"]) == ("sidecar", "n1", "damaged")
    assert loss["attributes"]["count"] > 300
    assert loss["attributes"]["first"] <= loss["attributes"]["last"]
    assert spool.lost()["events", "damaged"] == loss["attributes"]["count"]


def test_a_missing_segment_is_counted_and_the_others_are_shipped(reopen: Callable[..., Spool], tmp_path: Path) -> None:
    """Somebody took it away."""
    spool = reopen(16 * 4096)
    for number in range(60):
        spool.append(FILE, turn(number))
    third = segments(tmp_path)[2]
    third.unlink()
    spool = reopen(16 * 4096)
    found = codes(spool)
    assert found == sorted(found)
    assert 40 < len(found) < 60
    assert spool.lost()["events", "missing"] == 1


def test_a_segment_that_vanishes_under_a_running_sidecar_stops_nothing(
    reopen: Callable[..., Spool], tmp_path: Path
) -> None:
    """What it held is damage; what comes after is kept."""
    spool = reopen()
    spool.append(FILE, turn(1))
    segments(tmp_path)[0].unlink()
    spool.append(FILE, turn(2))
    assert codes(spool) == [2]
    assert spool.lost()["events", "damaged"] > 300
    assert codes(reopen()) == [2]


def test_records_that_make_no_sense_under_a_good_checksum_are_passed_over(
    reopen: Callable[..., Spool], tmp_path: Path
) -> None:
    """No JSON, another JSON, one bad line among good ones: counted in bytes, once."""
    log = SegmentLog(tmp_path / "events", 10**6, lambda: None)
    good = orjson.dumps({"kind": "test", "code": 1})
    for payload in (b"\x00\xff", b"[1]", b'{"positions": 5}', encode(1.0, {}, [good, b"{oh", b"[]"])):
        log.append([payload])
    spool = reopen()
    for _ in range(2):
        assert codes(spool) == [1]
    assert spool.damage_bytes() == 2 + 3 + 16 + 3 + 2
    spool.acknowledge("events", spool.pending("events", 10, 100).cursor)
    assert spool.backlog_bytes("events") == 0


def test_a_record_of_an_older_release_is_shipped(reopen: Callable[..., Spool], tmp_path: Path) -> None:
    """What waits when a sidecar is upgraded is not lost."""
    record = {"positions": {FILE: {"at": 7}}, "events": [{"kind": "test", "code": 3}]}
    SegmentLog(tmp_path / "events", 10**6, lambda: None).append([orjson.dumps(record)])
    spool = reopen()
    assert (codes(spool), spool.position(FILE)) == ([3], {"at": 7})


@pytest.mark.parametrize("digit", [b"1", b"7"])
def test_an_acknowledgement_that_was_changed_is_not_believed(
    reopen: Callable[..., Spool], tmp_path: Path, digit: bytes
) -> None:
    """One digit further would make unsent events look sent."""
    spool = reopen(16 * 4096)
    for number in range(60):
        spool.append(FILE, turn(number))
    spool.acknowledge("events", spool.pending("events", 1, 1).cursor)
    state = tmp_path / "acknowledged.json"
    spool.close()
    said = state.read_bytes()
    state.write_bytes(said.replace(b'"events":[1', b'"events":[' + (b"2" if digit == b"1" else digit)))
    assert codes(reopen(16 * 4096))[0] == 0


def test_a_log_that_is_gone_is_never_taken_for_sent(reopen: Callable[..., Spool], tmp_path: Path) -> None:
    """The files were removed while the acknowledgement stayed: new events do not come to lie before its place."""
    spool = reopen()
    spool.append(FILE, turn(*range(100)))
    spool.acknowledge("events", spool.pending("events", 1000, 10**6).cursor)
    spool.close()
    for path in segments(tmp_path):
        path.unlink()
    spool = reopen()
    spool.append(FILE, turn(200))
    assert codes(reopen()) == [200]


def test_the_ring_s_faults_push_out_information_and_a_file_waits(reopen: Callable[..., Spool]) -> None:
    """A ring overwrites what waits; a file does not. Faults are never given up."""
    spool = reopen(60_000)
    number = 0
    with pytest.raises(SpoolFullError):
        while True:
            spool.append(FILE, turn(number, severity="info" if number % 3 else "fatal"))
            number += 1
    faults = [each for each in range(number) if each % 3 == 0]
    with pytest.raises(SpoolFullError):
        spool.append(FILE, turn(1000))
    for more in range(30):
        spool.append(RING, turn(2000 + more))
    found = codes(spool)
    assert [code for code in found if code < 2000 and code % 3 == 0] == faults
    assert [code for code in found if code >= 2000] == list(range(2000, 2030))
    given_up = number - len([code for code in found if code < 2000])
    assert spool.lost()["events", "full"] == given_up > 0


def test_what_is_under_way_to_the_server_is_not_touched(reopen: Callable[..., Spool]) -> None:
    """Its place is acknowledged later: in a segment that was written anew it would mean other records."""
    spool = reopen(60_000)
    number = 0
    with pytest.raises(SpoolFullError):
        while True:
            spool.append(FILE, turn(number, severity="info" if number % 3 else "fatal"))
            number += 1
    batch = spool.pending("events", 2, 10**6)
    for more in range(20):
        spool.append(RING, turn(2000 + more))
    assert spool.lost()["events", "full"] > 0
    spool.acknowledge("events", batch.cursor)
    assert [code for code in codes(spool) if code < 2000 and code % 3 == 0] == list(range(3, number, 3))


def test_a_spool_full_of_faults_takes_no_more_of_them_and_passes_over_the_ring_s_information(
    reopen: Callable[..., Spool],
) -> None:
    """Nothing better to give up: the ring's faults wait there; its information is counted, its place noted."""
    spool = reopen(30_000)
    number = 0
    with pytest.raises(SpoolFullError):
        while True:
            spool.append(RING, turn(number))
            number += 1
    before = spool.lost()["events", "full"]
    for _ in range(3):
        with pytest.raises(SpoolFullError):
            spool.append(RING, turn(500, severity="fatal"))
    assert spool.lost()["events", "full"] == before
    spool.append(RING, turn(501, 502, severity="info"))
    assert spool.lost()["events", "full"] == before + 2
    assert spool.position(RING) == {"at": 502}
    assert codes(spool) == list(range(number))


def test_given_up_rollups_are_told_even_after_a_crash(reopen: Callable[..., Spool], tmp_path: Path) -> None:
    """The loss is saved with the acknowledgement that made the room."""
    spool = reopen(60_000)
    rollups = tuple(Rollup(node=f"n{i}", time=TIME, samples=1, gpus_seen=8) for i in range(100))
    for rollup in rollups:
        spool.append("scrape:x", CollectorTurn(rollups=(rollup,)))
    while not spool.lost()["telemetry", "full"]:
        spool.append(FILE, turn(1, size=2000))
    spool.keep_up()
    [loss] = pending(reopen(10**6), "spool_loss")
    assert (loss["attributes"]["queue"], loss["attributes"]["reason"]) == ("telemetry", "full")


def test_losses_of_a_minute_are_one_event() -> None:
    """Until it is told, and for a minute after, more of the same is added up."""
    losses = SpoolLosses()
    losses.add("telemetry", "full", 5)
    losses.add("telemetry", "full", 2)
    losses.add("events", "damaged", 0)
    [event] = losses.due("n1")
    assert event.attributes["count"] == 7
    assert losses.due("n1") == [event]
    losses.reported([event])
    losses.add("telemetry", "full", 1)
    assert losses.due("n1") == []
    assert [loss.count for loss in losses.open_losses()] == [1]
    assert losses.totals["telemetry", "full"] == 8


def test_a_full_disk_makes_the_source_wait_and_nothing_is_lost_or_doubled(
    reopen: Callable[..., Spool], full_disk: FullDisk
) -> None:
    """Every kind of write: events with roll-ups, positions, a new segment, the acknowledgement."""
    spool = reopen(10 * 16 * 4096)
    spool.append(FILE, turn(1))
    rollup = Rollup(node="n1", time=TIME, samples=1, gpus_seen=8)
    with full_disk(1500):
        for _ in range(3):
            with pytest.raises(OSError, match="too large"):
                spool.append(
                    FILE, CollectorTurn(events=turn(2, size=5000).events, rollups=(rollup,), position={"at": 2})
                )
        assert spool.position(FILE) == {"at": 1}
    with full_disk(10):
        spool.append("quiet", CollectorTurn(position={"at": 9}))
        with pytest.raises(OSError, match="too large"):
            spool.save_positions()
        batch = spool.pending("events", 10, 10**6)
        spool.acknowledge("events", batch.cursor)  # not saved, and said again later
        with pytest.raises(OSError, match="too large"):
            spool.keep_up()
    spool.append(FILE, turn(2, size=5000))
    spool.keep_up()
    spool = reopen(10 * 16 * 4096)
    assert codes(spool) == [2]
    assert spool.pending("telemetry", 10, 10**6).items == ()
    assert (spool.position(FILE), spool.position("quiet")) == ({"at": 2}, {"at": 9})
    assert spool.damage_bytes() == 0


def test_a_real_file_system_that_runs_full_makes_the_source_wait(tmp_path: Path) -> None:
    """Filled by others; once they free it the spool goes on, and what it shipped makes room by itself."""
    mount = tmp_path / "small"
    mount.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=400k", "none", str(mount)], capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no file system may be mounted here: {mounted.stderr.decode().strip()}")
    try:
        spool = Spool(mount / "spool", 10**7, "n1")
        number = 0
        with pytest.raises(OSError, match="No space"):
            while True:
                spool.append(FILE, turn(number, size=20_000))
                number += 1
        assert number > 5
        assert codes(spool) == list(range(number))
        spool.acknowledge("events", spool.pending("events", 1, 1).cursor)
        with pytest.raises(OSError, match="No space"):
            spool.append(FILE, turn(number, size=20_000))
        subprocess.run(["mount", "-o", "remount,size=2m", str(mount)], check=True)
        spool.append(FILE, turn(number, size=20_000))
        spool.close()
        spool = Spool(mount / "spool", 10**7, "n1")
        assert codes(spool) == list(range(1, number + 1))
        assert spool.damage_bytes() == 0
        spool.close()
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=True)


def test_with_an_interval_what_is_shipped_was_synced_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends do not wait for the disk; a request does, and so does the interval."""
    synced: list[int] = []
    monkeypatch.setattr("collectors.spool.segments.os.fsync", synced.append)
    spool = Spool(tmp_path, 10**6, "n1", fsync_interval_s=3600.0)
    spool.append(FILE, turn(1))
    begun = len(synced)  # the new file's name
    spool.append(FILE, turn(2))
    spool.keep_up()
    assert len(synced) == begun
    spool.pending("events", 10, 10**6)
    spool.pending("events", 10, 10**6)
    assert len(synced) == begun + 1
    spool.append(FILE, turn(3))
    spool.fsync_interval_s = 0.0
    spool.keep_up()
    assert len(synced) == begun + 2
    spool.append(FILE, turn(4))
    assert len(synced) == begun + 3
    spool.close()


def test_how_long_the_oldest_waits_outlives_a_restart(
    reopen: Callable[..., Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the wall clock; one that stepped back gives nothing negative."""
    spool = reopen()
    assert spool.oldest_s() == 0.0
    monkeypatch.setattr("collectors.spool.spool.time.time", lambda: 1000.0)
    spool.append(FILE, turn(1))
    spool = reopen()
    monkeypatch.setattr("collectors.spool.spool.time.time", lambda: 1060.0)
    assert spool.oldest_s() == 60.0
    monkeypatch.setattr("collectors.spool.spool.time.time", lambda: 10.0)
    assert spool.oldest_s() == 0.0

"""The sidecar's memory on disk."""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from collectors.collector import CollectorTurn
from collectors.spool.queue import Pending
from collectors.spool.spool import Spool
from collectors.spool.state import SpoolBusyError, SpoolFullError
from store.records.event import Event, with_id
from store.records.telemetry import Rollup

HOUR = datetime(2025, 3, 1, 4, tzinfo=UTC)
SPEC = "file:/var/log/kern.log"


Opened = Callable[..., Spool]


@pytest.fixture
def opened(tmp_path: Path) -> Iterator[Opened]:
    """Opens the spool of this test; one that is opened again finds what a killed process left."""
    spools: list[Spool] = []

    def again(max_bytes: int = 10**6) -> Spool:
        for spool in spools:
            spool._lock_file.close()  # killed: nothing was saved at the end
        spools.append(Spool(tmp_path, max_bytes))
        return spools[-1]

    yield again
    for spool in spools:
        spool._lock_file.close()


def event(i: int, size: int = 20) -> Event:
    """One of many."""
    return with_id(Event(time=HOUR, node="n1", source="test", kind="test", message=f"{i} " + "x" * size))


def collected(*numbers: int, place: int = 0, size: int = 20) -> CollectorTurn:
    """A turn's worth."""
    return CollectorTurn(events=tuple(event(i, size) for i in numbers), position={"place": place})


def items(pending: Pending) -> list[Any]:
    """What a request would say."""
    found: list[Any] = orjson.loads(orjson.dumps(pending.items))
    return found


def messages(spool: Spool, max_items: int = 1000) -> list[int]:
    """The numbers of what is pending."""
    return [
        int(item["message"].split()[0])
        for item in items(spool.pending("events", max_items, 10**6))
        if item["kind"] == "test"
    ]


def test_events_and_positions_outlive_a_process(opened: Opened) -> None:
    """Nothing acknowledged: everything is there again, and the position belongs to it."""
    spool = opened()
    spool.append(SPEC, collected(1, 2, place=10))
    spool.append("kmsg", collected(3, place=5))
    again = opened()
    assert messages(again) == [1, 2, 3]
    assert again.position(SPEC) == {"place": 10}
    assert again.position("kmsg") == {"place": 5}
    assert again.position("unknown") is None


def test_what_is_acknowledged_is_not_pending_after_a_restart(opened: Opened) -> None:
    """An older acknowledgement than the newest changes nothing."""
    spool = opened()
    spool.append(SPEC, collected(1))
    first = spool.pending("events", 10, 10**6)
    spool.append(SPEC, collected(2))
    second = spool.pending("events", 10, 10**6)
    spool.acknowledge("events", second.cursor)
    spool.acknowledge("events", first.cursor)
    spool.append(SPEC, collected(3))
    spool.close()
    assert messages(opened()) == [3]


def test_a_batch_keeps_to_its_limits_but_takes_one_record_at_least(opened: Opened) -> None:
    """A large turn is cut into records, so that requests stay small."""
    spool = opened(10**8)
    spool.append(SPEC, collected(*range(2500), place=1))
    batch = spool.pending("events", 1000, 10**6)
    assert len(batch.items) == 1000
    assert len(spool.pending("events", 1, 1).items) == 250
    seen = 0
    while (batch := spool.pending("events", 1000, 10**6)).items:
        seen += len(batch.items)
        spool.acknowledge("events", batch.cursor)
    assert seen == 2500


def test_long_messages_make_small_records(opened: Opened) -> None:
    """A record's bytes are bounded too."""
    spool = opened(10**8)
    spool.append(SPEC, collected(*range(40), size=60_000))
    assert len(spool.pending("events", 1000, 300_000).items) <= 5


def test_positions_outlive_the_segments_that_bore_them(opened: Opened, tmp_path: Path) -> None:
    """A source that said something long ago is not read again from its start."""
    spool = opened(16 * 4096)
    spool.append("quiet", collected(0, place=77))
    for i in range(150):
        spool.append(SPEC, collected(i, place=i, size=600))
        spool.acknowledge("events", spool.pending("events", 1000, 10**6).cursor)
    assert len(list((tmp_path / "events").glob("*.seg"))) <= 2
    again = opened(16 * 4096)
    assert again.position("quiet") == {"place": 77}
    assert again.position(SPEC) == {"place": 149}


def test_a_position_without_events_is_saved_when_told(opened: Opened) -> None:
    """It costs no disk write a line; losing it costs a second look. A source's first is saved at once."""
    spool = opened()
    for place in (0, 3):
        spool.append(SPEC, CollectorTurn(position={"place": place}))
    assert not spool.news.is_set()
    lost = opened()
    assert lost.position(SPEC) == {"place": 0}
    lost.append(SPEC, CollectorTurn(position={"place": 3}))
    lost.close()
    assert opened().position(SPEC) == {"place": 3}


def test_a_torn_record_takes_its_position_with_it(opened: Opened, tmp_path: Path) -> None:
    """So the source reads again what was lost."""
    spool = opened()
    spool.append(SPEC, collected(1, place=1))
    spool.append(SPEC, collected(2, place=2))
    segment = next((tmp_path / "events").glob("*.seg"))
    segment.write_bytes(segment.read_bytes()[:-3])
    again = opened()
    assert again.position(SPEC) == {"place": 1}
    assert messages(again) == [1]
    assert again.damage_bytes() > 0


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\x00\x00", b'{"events": [9, 9], "telemetry": [0, 0]}'])
def test_a_damaged_acknowledgement_sends_again_rather_than_loses(
    opened: Opened, tmp_path: Path, content: bytes
) -> None:
    """The server knows ids: twice is harmless, never is not."""
    spool = opened()
    spool.append(SPEC, collected(1))
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    spool.close()
    (tmp_path / "acknowledged.json").write_bytes(content)
    assert messages(opened()) == [1]


def test_what_the_server_took_is_noted_without_a_new_file(
    opened: Opened, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor is the disk waited for: each request would cost as much again. A restart sends none of it twice."""
    spool = opened()
    state = tmp_path / "acknowledged.json"
    spool.append(SPEC, collected(1))
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    before, synced = state.stat(), list[int]()
    spool.append(SPEC, collected(2))
    monkeypatch.setattr("collectors.spool.segments.os.fsync", synced.append)
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    assert (state.stat().st_ino, state.stat().st_size) == (before.st_ino, before.st_size)
    assert synced == []
    assert messages(opened()) == []


def test_a_note_of_another_size_is_written_anew(opened: Opened, tmp_path: Path) -> None:
    """As an older release left it, or one that tells of many losses."""
    spool = opened()
    spool.append(SPEC, collected(1))
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    state = tmp_path / "acknowledged.json"
    state.write_bytes(state.read_bytes().rstrip())
    spool.append(SPEC, collected(2))
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    assert messages(opened()) == []


def test_positions_alone_are_nothing_to_send_also_after_a_crash(opened: Opened) -> None:
    """They wait for nobody, whether or not that was noted."""
    spool = opened()
    spool.append(SPEC, collected(1, place=1))
    spool.acknowledge("events", spool.pending("events", 10, 10**6).cursor)
    spool.append(SPEC, CollectorTurn(position={"place": 2}))
    spool.save_positions()
    assert spool.backlog_bytes("events") == 0
    assert spool.oldest_s() == 0.0
    again = opened()
    assert again.position(SPEC) == {"place": 2}
    assert messages(again) == []
    again.acknowledge("events", again.pending("events", 10, 10**6).cursor)
    assert again.backlog_bytes("events") == 0


def test_a_full_spool_takes_no_event_and_loses_none(opened: Opened) -> None:
    """The source waits; once the server took something there is room."""
    spool = opened(20_000)
    taken = 0
    with pytest.raises(SpoolFullError, match="20000"):
        while taken < 1000:
            spool.append(SPEC, collected(taken, place=taken, size=300))
            taken += 1
    assert spool.position(SPEC) == {"place": taken - 1}
    assert 20 < taken < 100
    numbers = []
    while (batch := spool.pending("events", 10, 10**6)).items:
        numbers += [int(item["message"].split()[0]) for item in items(batch)]
        spool.acknowledge("events", batch.cursor)
    assert numbers == list(range(taken))
    spool.append(SPEC, collected(taken, place=taken))


def test_a_turn_larger_than_the_whole_spool_is_taken_when_it_is_empty(opened: Opened) -> None:
    """Or the source would wait for ever."""
    spool = opened(5_000)
    spool.append(SPEC, collected(*range(100), size=500))
    assert len(messages(spool)) > 0


def rollup(hour: int) -> Rollup:
    """One node's hour."""
    return Rollup(node=f"n{hour:05d}", time=HOUR, samples=8, gpus_seen=8, gpu_temp_mean_c=61.5)


def test_rollups_make_room_for_events_oldest_first_and_are_counted(opened: Opened) -> None:
    """No event is refused while there is a roll-up to drop."""
    spool = opened(60_000)
    for hour in range(120):
        spool.append("scrape:x", CollectorTurn(rollups=(rollup(hour),)))
    before = [item["node"] for item in items(spool.pending("telemetry", 1000, 10**6))]
    for i in range(50):
        spool.append(SPEC, collected(i, size=300))
    after = [item["node"] for item in items(spool.pending("telemetry", 1000, 10**6))]
    assert messages(spool) == list(range(50))
    assert after == before[-len(after) :]
    assert spool.lost()["telemetry", "full"] == len(before) - len(after) > 0


def test_rollups_that_find_no_room_are_dropped_and_counted(opened: Opened) -> None:
    """Events are not dropped for them."""
    spool = opened(5_000)
    spool.append(SPEC, collected(*range(100), size=300))
    spool.append("scrape:x", CollectorTurn(rollups=(rollup(1), rollup(2))))
    assert spool.lost()["telemetry", "full"] == 2
    assert spool.pending("telemetry", 10, 10**6).items == ()


def test_rollups_are_pending_as_the_server_takes_them(opened: Opened) -> None:
    """Every field, the hour as text, unknown as null."""
    spool = opened()
    spool.append("scrape:x", CollectorTurn(rollups=(rollup(1),)))
    [item] = items(spool.pending("telemetry", 10, 10**6))
    assert item["time"] == "2025-03-01T04:00:00.000000Z"
    assert (item["samples"], item["gpu_temp_mean_c"], item["power_mean_w"]) == (8, 61.5, None)
    assert spool.backlog_bytes("telemetry") > 0
    assert spool.backlog_bytes("events") == 0


def test_two_sidecars_cannot_share_a_spool(tmp_path: Path) -> None:
    """The second is told so; after the first has closed it may."""
    first = Spool(tmp_path, 10**6)
    with pytest.raises(SpoolBusyError, match="own --spool"):
        Spool(tmp_path, 10**6)
    first.close()
    Spool(tmp_path, 10**6).close()

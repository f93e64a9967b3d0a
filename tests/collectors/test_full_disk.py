"""A spool whose disk is full goes on when the server has taken what was there, whatever filled the disk."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson
import pytest

from collectors.collector import CollectorTurn
from collectors.spool.spool import Spool
from collectors.spool.state import Queue
from store.records.event import Event, with_id
from store.records.telemetry import Rollup

TIME = datetime(2025, 3, 1, 4, tzinfo=UTC)
SPEC = "file:/x"
Reopen = Callable[..., Spool]


class KilledError(BaseException):
    """What SIGKILL is for the code: nothing handles it."""


@pytest.fixture
def disk(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A small file system of its own."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    options = getattr(request, "param", "size=2m")
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "none", folder], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {done.stderr.decode().strip()}")
    yield folder
    subprocess.run(["umount", "-l", folder], check=True)


def turn(number: int, size: int = 20_000) -> CollectorTurn:
    """One event of about so many bytes, and the position after it."""
    event = with_id(Event(TIME, "n1", "test", "test", code=number, message="x" * size))
    return CollectorTurn(events=(event,), position={"at": number})


@pytest.fixture
def reopen(disk: Path) -> Iterator[Callable[..., Spool]]:
    """Opens the spool of this test; again, as after SIGKILL: nothing is saved at the end."""
    spools: list[Spool] = []

    def end() -> None:
        for each in spools:
            each._lock_file.close()
            for queue in each._queues.values():
                queue.log.close()  # an open file that was deleted still takes room

    def again(max_bytes: int = 10**8, name: str = "spool") -> Spool:
        end()
        spools.append(Spool(disk / name, max_bytes))
        return spools[-1]

    yield again
    end()


def fill(spool: Spool, number: int, size: int = 20_000) -> int:
    """Append from a number on until the disk is full; the next number."""
    with pytest.raises(OSError, match="No space"):
        for _ in range(10_000):
            spool.append(SPEC, turn(number, size))
            number += 1
    return number


def take(spool: Spool, queue: Queue = "events", most: int = 10**6) -> list[int]:
    """Be the server for a batch: the numbers that were taken."""
    pending = spool.pending(queue, most, 10**9)
    spool.acknowledge(queue, pending.cursor)
    return [item.get("code", -1) for item in orjson.loads(orjson.dumps(pending.items))]


@pytest.mark.parametrize("others", ["alone", "beside others"])
def test_a_segment_that_fills_the_disk_makes_room_when_it_was_taken(disk: Path, reopen: Reopen, others: str) -> None:
    """Four times, the sidecar killed on the full disk each time: each number is taken once, in order."""
    spool = reopen()
    if others != "alone":
        (disk / "others").write_bytes(bytes(1_800_000))
    taken: list[int] = []
    number = 0
    for _ in range(4):
        after = fill(spool, number, 10_000)
        assert after > number + 3
        number = after
        assert spool._queues["events"].log.segments[1:] == []
        spool = reopen()
        assert spool.position(SPEC) == {"at": number - 1}
        taken += take(spool)
    assert taken == list(range(number))
    spool.append(SPEC, turn(number))
    spool = reopen()
    assert (take(spool), spool.position(SPEC)) == ([number], {"at": number})
    assert (spool.damage_bytes(), spool.lost()) == (0, {})


def test_while_something_waits_in_it_the_segment_stays(reopen: Reopen) -> None:
    """Part of it was taken: the source waits on, and gets room with the last of it."""
    spool = reopen()
    number = fill(spool, 0)
    taken = take(spool, most=10)
    assert fill(spool, number) == number
    taken += take(spool)
    spool.append(SPEC, turn(number))
    spool = reopen()
    assert [*taken, *take(spool)] == list(range(number + 1))


def test_rollups_that_were_taken_make_room_for_events(reopen: Reopen) -> None:
    """Their newest segment needs no successor."""
    spool = reopen()
    many = {f"measure_{i}": (0.0, 0.0, 0.0, 0.0, 0) for i in range(400)}
    rollup = Rollup(node="n1", time=TIME, samples=1, gpus_seen=8, devices={"gpu:0": many})
    with pytest.raises(OSError, match="No space"):
        for _ in range(10_000):
            spool.append("nvml", CollectorTurn(rollups=(rollup,), position={"at": 0}))
    number = fill(spool, 0, 2000)
    while take(spool, "telemetry"):
        pass
    after = fill(spool, number)
    assert after > number + 10
    assert take(spool) == list(range(after))
    spool.append("nvml", CollectorTurn(rollups=(rollup,), position={"at": 1}))
    spool = reopen()
    assert take(spool, "telemetry") == [-1]
    assert (spool.position("nvml"), spool.position(SPEC)) == ({"at": 0}, {"at": after - 1})
    assert spool.lost() == {}


@pytest.mark.parametrize("disk", ["size=2m,nr_inodes=40"], indirect=True)
def test_a_disk_without_room_for_another_file_is_a_full_disk(disk: Path, reopen: Reopen) -> None:
    """There are bytes, but no inode for the next segment: the one that was taken is given for it."""
    spool = reopen(16 * 4096)
    spool.append(SPEC, turn(0, 500))
    with suppress(OSError):
        for i in range(100):
            (disk / f"other-{i}").touch()
    number = fill(spool, 1, 500)
    assert 4 < number < 16
    spool = reopen(16 * 4096)
    taken = take(spool)
    after = fill(spool, number, 500)
    assert after > number
    taken += take(spool)
    spool.append(SPEC, turn(after, 500))
    assert [*taken, *take(spool)] == list(range(after + 1))
    assert not spool.lost()


def kill_at(monkeypatch: pytest.MonkeyPatch, step: int) -> Callable[[], int]:
    """From the n-th change of the disk on nothing is done any more, and of that one a half where it is a write."""
    done = 0

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            nonlocal done
            done += 1
            if done == step and real is pwrite:
                pwrite(arguments[0], arguments[1][: len(arguments[1]) // 2], arguments[2])
            if done >= step:
                raise KilledError
            return real(*arguments, **options)

        return call

    pwrite = os.pwrite
    for where, name in [(os, "pwrite"), (os, "open"), (os, "fsync"), (os, "ftruncate"), (os, "posix_fallocate")]:
        monkeypatch.setattr(where, name, failing(getattr(where, name)))
    for name in ("unlink", "replace"):
        monkeypatch.setattr(Path, name, failing(getattr(Path, name)))
    return lambda: done


def test_a_kill_between_any_two_steps_of_making_room_loses_nothing(
    disk: Path, reopen: Reopen, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was taken may be sent again; the position is never behind what was durable, nor ahead of it."""
    (disk / "others").write_bytes(bytes(1_500_000))
    step, finished = 0, False
    while not finished:
        step += 1
        folder = disk / f"spool-{step}"
        spool = reopen(name=folder.name)
        number = fill(spool, 0)
        assert take(spool) == list(range(number))
        with monkeypatch.context() as patched:
            steps = kill_at(patched, step)
            try:
                spool.append(SPEC, turn(number))
                finished = True
            except KilledError:
                assert steps() >= step
        spool = reopen(name=folder.name)
        saved = spool.position(SPEC)
        assert saved in ({"at": number - 1}, {"at": number})
        appended = [number] if saved == {"at": number} else []
        assert take(spool) in (appended, [*range(number), *appended])
        spool.append(SPEC, turn(number + 1))
        assert take(spool) == [number + 1]
        assert spool.lost() == {}
        subprocess.run(["rm", "-r", folder], check=True)
    assert step > 10

"""The sidecar's sources of hangs: ranks' states, dumps, NCCL's RAS; other users' files and servers that lie."""

import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from foreshock_hook import rank_state
from foreshock_hook.hook import TrainingHook
from real.patience import patience

from collectors.collector import SourceError, SourceSettings
from collectors.files.owned_files import OwnedFolder
from collectors.sources import ncclras
from collectors.sources.flight import FlightCollector
from collectors.sources.ncclras import NcclrasCollector
from collectors.sources.ranks import RanksCollector
from collectors.telemetry import rank_states
from collectors.telemetry.rank_states import RankReading, RunOnNode, rank_reading
from collectors.trust import trust_of
from diagnosis.hangs.stuck_ranks import stuck_ranks

FIXTURES = Path(__file__).parents[2] / "fixtures"
SETTINGS = SourceSettings(node="gpu-001", interval_s=0.01, timeout_s=patience(20.0))


def test_the_hook_and_the_sidecar_mean_the_same_bytes() -> None:
    """They share no code: a node's trainer may be older."""
    for name in ("SIZE", "MAGIC", "VERSION", "BODY_AT", "RUN_AT", "RUN_BYTES", "GROUPS_AT"):
        assert getattr(rank_state, name) == getattr(rank_states, name)
    for name in ("HEAD", "BODY", "GROUP"):
        assert getattr(rank_state, name).format == getattr(rank_states, name).format


def test_a_rank_tells_its_step_its_groups_and_its_own_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ranks that write no lines share their state, too."""
    monkeypatch.setenv("WORLD_SIZE", "16")
    monkeypatch.setenv("LOCAL_RANK", "3")
    hook = TrainingHook("run-7", str(tmp_path / "lines"), rank=11)
    hook.share_state(str(tmp_path))
    with hook.collective("tp"):
        pass
    hook.step(41)
    with hook.collective("dp"):
        reading = rank_reading((tmp_path / "run-7.rank11").read_bytes())
    assert reading is not None
    assert (reading.run, reading.rank, reading.local_rank, reading.world) == ("run-7", 11, 3, 16)
    assert (reading.state, reading.step, reading.groups) == ("waiting", 41, {"tp": (1, 1), "dp": (1, 0)})
    with hook.saving(41):
        assert rank_reading((tmp_path / "run-7.rank11").read_bytes()).state == "paused"  # type: ignore[union-attr]
    hook.close()
    assert rank_reading((tmp_path / "run-7.rank11").read_bytes()).state == "ended"  # type: ignore[union-attr]


def test_nothing_of_it_reaches_the_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder that is not there, and a memory that goes away."""
    hook = TrainingHook("run-7", str(tmp_path / "lines"), rank=1)
    hook.share_state(str(tmp_path / "no" / "folder"))
    assert "training goes on" in capsys.readouterr().err
    hook.share_state(str(tmp_path / "fresh"))  # as /dev/shm is after a boot
    assert [path.name for path in (tmp_path / "fresh").iterdir()] == ["run-7.rank1"]
    hook.share_state(str(tmp_path))
    hook._shared._memory.close()
    with hook.collective():
        hook.step(1)


def test_more_groups_than_have_room_share_the_last_place(tmp_path: Path) -> None:
    """The file stays as it is."""
    state = rank_state.RankState(str(tmp_path), "r", 0)
    for number in range(200):
        state.enter(f"group-{number}")
        state.leave(f"group-{number}")
    reading = rank_reading(Path(state.path).read_bytes())
    assert reading is not None
    assert len(reading.groups) == rank_state.MOST_GROUPS
    assert Path(state.path).stat().st_size == rank_states.SIZE


@pytest.mark.parametrize(
    "data", [b"", b"x" * 1024, b"FSRS" + b"\xff" * 1020, b"FSRS" + struct.pack("<I", 1) + bytes(1016)]
)
def test_any_bytes_are_a_reading_or_none(data: bytes) -> None:
    """Nothing is raised."""
    reading = rank_reading(data, whole=False)
    assert reading is None or reading.rank == 0


def reading(rank: int, state: str, groups: dict[str, tuple[int, int]], *, step: int, runs: bool = True) -> RankReading:
    """A reading of a process."""
    return RankReading(
        "r", rank, rank, 4, state, 4711 + rank, 1, False, 0.0, step, 100.0 + step, 0.05 * step, groups, runs
    )


def test_who_waits_and_who_does_not_run_is_sent_once_and_taken_back() -> None:
    """Three of four wait; the fourth is stopped, and goes on."""
    node = RunOnNode("r", "gpu-001", stall_s=3.0)

    def look(at_s: float, step: int, stopped: bool) -> list[str]:
        groups = {"default": (step + 1, step)} if stopped else {"default": (step, step)}
        found = [reading(rank, "waiting" if stopped else "working", groups, step=step) for rank in range(3)]
        found.append(reading(3, "working", {"default": (step, step)}, step=step, runs=not stopped))
        events = node.look(found, datetime.fromtimestamp(1000 + at_s, UTC))
        sent.extend(event for event in events if event.kind == "collective_wait")
        return [event.kind for event in events]

    sent: list = []  # type: ignore[type-arg]
    for second in range(3):
        look(second, 10 + second, stopped=False)
    for second in range(3, 20):
        look(second, 12, stopped=True)
    assert len(sent) == 1
    (found,) = stuck_ranks(sent)
    assert (found.attributes["rank"], found.node, found.attributes["how"]) == (3, "gpu-001", "stopped")
    inside = [reading(rank, "waiting", {"default": (14, 13)}, step=13) for rank in range(3)]
    found_now = [*inside, reading(3, "working", {"default": (13, 13)}, step=13)]
    sent += [event for event in node.look(found_now, datetime.fromtimestamp(1021, UTC)) if "group" in event.attributes]
    assert len(sent) == 2
    assert stuck_ranks(sent) == []


def test_a_job_whose_ranks_are_all_killed_hangs_nobody() -> None:
    """Nobody waits: it ended."""
    node = RunOnNode("r", "gpu-001", stall_s=3.0)
    sent = []
    for second in range(40):
        runs = second < 3
        found = [reading(rank, "working", {"d": (9, 9)}, step=min(second, 3), runs=runs) for rank in range(4)]
        sent += node.look(found, datetime.fromtimestamp(1000 + second, UTC))
    assert stuck_ranks(sent) == []


def test_a_stopped_process_is_seen_and_a_file_is_not_believed(tmp_path: Path) -> None:
    """SIGSTOP of a real process that shares its state."""
    code = (
        f"import sys, time; sys.path.insert(0, {str(FIXTURES.parent / 'hook')!r})\n"
        "from foreshock_hook import TrainingHook\n"
        f"hook = TrainingHook('r', {str(tmp_path / 'l')!r}, rank=2); hook.share_state({str(tmp_path)!r})\n"
        "hook.step(1); print('on', flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        namespace = Path("/proc/self/ns/pid").stat().st_ino
        found = rank_reading((tmp_path / "r.rank2").read_bytes())
        assert found is not None
        assert rank_states.process_runs(found, os.geteuid(), namespace, time.time())
        assert not rank_states.process_runs(found, 54321, namespace, time.time())  # the number is another user's
        process.send_signal(19)
        deadline = time.monotonic() + 30
        while rank_states.process_runs(found, os.geteuid(), namespace, time.time()) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not rank_states.process_runs(found, os.geteuid(), namespace, time.time())
        process.kill()


def test_files_of_another_user_are_refused_where_every_user_may_write(tmp_path: Path) -> None:
    """Shared memory: the folder's owner's alone, or the user's that the SPEC names; links lead nowhere."""
    tmp_path.chmod(0o1777)
    for name, owner in (("r.rank0", 0), ("r.rank1", 54321)):
        (tmp_path / name).write_bytes(bytes(1024))
        os.chown(tmp_path / name, owner, owner)
    (tmp_path / "r.rank2").symlink_to("/etc/shadow")
    os.mkfifo(tmp_path / "r.rank3")
    os.chown(tmp_path, 0, 0)
    for user, names in ((None, {"r.rank0"}), ("54321", {"r.rank1"})):
        folder = OwnedFolder("ranks:x", tmp_path, user)
        assert {file.name for file in folder.files()} == names
        assert folder.refused == 1
    turn = RanksCollector(str(tmp_path), SETTINGS)
    turn.open(None)
    assert dict(turn.collect(1.0).refused) == {"writer": 1}
    with pytest.raises(SourceError, match="there is no user"):
        OwnedFolder("ranks:x", tmp_path, "nobody-of-that-name")


@pytest.mark.parametrize("spec", ["ranks:", "ranks:/tmp#x=1", "ranks:/tmp#stall_s=never", "flight:", "ncclras:nowhere"])
def test_a_wrong_spec_says_what_would_be_right(spec: str) -> None:
    """With the form."""
    from collectors.registry import make_collector

    with pytest.raises(SourceError, match=spec.partition(":")[0]):
        make_collector(spec, SETTINGS)


def test_their_word_is_a_jobs_word() -> None:
    """What a user's program writes or answers."""
    assert {trust_of(spec).trust for spec in ("ranks:/x", "flight:/x", "ncclras")} == {"user"}


def test_dumps_of_a_node_are_one_event_a_group(tmp_path: Path) -> None:
    """Read when they have stopped growing, and once; an attack is an error and runs nothing."""
    source = FlightCollector(f"{tmp_path}#run=llm", SETTINGS)
    source.open(None)
    for rank in (0, 1, 3):
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(
            (FIXTURES / "flight" / "dumps" / f"nccl_trace_rank_{rank}").read_bytes()
        )
    evil = pickle.dumps({"entries": [pytest.raises]})
    (tmp_path / "nccl_trace_rank_9").write_bytes(evil)
    turns = [source.collect(1.0) for _ in range(4)]
    events = [event for turn in turns for event in turn.events]
    assert sum(turn.errors for turn in turns) == 1
    assert sorted((event.attributes["group"], event.attributes["ranks"]) for event in events) == [
        ("0(default_pg)", "0-1,3"),
        ("1", "0-1"),
        ("2", "3"),
    ]
    assert len({event.id for event in events}) == 3


@contextmanager
def answering(*answers: bytes, hold: bool = False) -> Iterator[str]:
    """A server that answers each line that it gets with the next of these, and then closes."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        done = threading.Event()

        def serve() -> None:
            while not done.is_set():
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection, connection.makefile("rb") as lines:
                    try:
                        for answer in answers:
                            if not lines.readline():
                                break
                            connection.sendall(answer)
                        if hold:
                            while not done.wait(0.01):
                                connection.sendall(b"x" * 4096)
                    except OSError:
                        continue

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            done.set()
            server.shutdown(socket.SHUT_RDWR)
            thread.join(10)


HELLO = (b"SERVER PROTOCOL 2\n", b"OK\n")


@pytest.mark.parametrize("old", [False, True])
def test_rass_answer_is_read_in_json_and_as_text_where_it_is_older(old: bool) -> None:
    """2.28 knows JSON; before, the command is unknown."""
    word = b"ERROR: Unknown command SET FORMAT json\n" if old else b"OK\n"
    answer = (FIXTURES / "ncclras" / ("verbose.txt" if old else "answers.json")).read_bytes()
    with answering(*HELLO, word, answer) as address:
        source = NcclrasCollector(f"{address}#run=llm", SETTINGS)
        source.open(None)
        turn = source.collect(1.0)
    assert turn.errors == 0
    assert {event.run() for event in turn.events} == {"llm"}
    assert {event.attributes["stopped"] for event in turn.events if "stopped" in event.attributes} == {
        "29" if old else "6"
    }


@pytest.mark.parametrize(
    "answers", [(b"HTTP/1.1 400 Bad Request\n",), (b"SERVER PROTOCOL 2\n", b"NO\n"), (b"x" * 10_000,), (b"",)]
)
def test_whatever_else_listens_there_is_one_error(answers: tuple[bytes, ...]) -> None:
    """And no event."""
    with answering(*answers) as address:
        source = NcclrasCollector(address, SourceSettings(node="n", interval_s=0.5, timeout_s=0.5))
        source.open(None)
        turn = source.collect(1.0)
    assert (turn.errors, turn.events) == (1, ())


def test_an_answer_that_never_ends_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """By its time, and by its bytes."""
    for limit in (10**9, 50_000):
        monkeypatch.setattr(ncclras, "MOST_BYTES", limit)
        with answering(*HELLO, b"OK\n", b"{", hold=True) as address:
            source = NcclrasCollector(address, SourceSettings(node="n", timeout_s=0.5))
            source.open(None)
            turn = source.collect(1.0)
        assert (turn.errors, turn.events) == (1, ())


def test_where_nothing_listens_there_is_no_job() -> None:
    """No error: nodes are idle at times."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    source = NcclrasCollector(address, SETTINGS)
    source.open(None)
    assert source.collect(1.0).errors == 0

"""Who waits in a collective: a thousand ranks' lines are one event that names them all, and none is lost."""

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from parsers.training import collectives, error_report
from store.records.event import Event

TIMEOUT = (
    "[rank{0}]:[E1218 20:11:38.4264 ProcessGroupNCCL.cpp:629] [Rank {0}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum=99, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600080 milliseconds"
)
STATUS = (
    "[rank{0}]:[E1218 20:11:38.4849 ProcessGroupNCCL.cpp:2168] [PG ID 0 PG GUID 0(default_pg) Rank {0}]  failure "
    "detected by watchdog at work sequence id: 99 PG status: last enqueued work: {1}, last completed work: 98"
)


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r", node="gpu-001", year=2025)), lines))


def waits(*lines: str) -> list[dict[str, object]]:
    """What the lines tell of collectives, without the run."""
    events = [event for event in decode(*lines) if event.kind == "collective_wait"]
    return [{key: value for key, value in event.attributes.items() if key != "run"} for event in events]


def test_1023_ranks_that_time_out_are_one_event_that_shows_the_missing_one() -> None:
    """Folded, and nothing is lost."""
    lines = ["using world size: 1024, data-parallel size: 128"]
    lines += [form.format(rank, 101) for rank in range(1024) if rank != 512 for form in (TIMEOUT, STATUS)]
    events = decode(*lines)
    (error,) = [event for event in events if event.kind == "training_error"]
    (wait,) = [event for event in events if event.kind == "collective_wait"]
    assert (error.attributes["repeats"], error.attributes["ranks"]) == (1023, "0-511,513-1023")
    assert {key: wait.attributes[key] for key in ("group", "ranks", "reported", "missing", "world", "operation")} == {
        "group": "0(default_pg)",
        "ranks": "0-511,513-1023",
        "reported": 1023,
        "missing": "512",
        "world": 1024,
        "operation": "ALLREDUCE",
    }
    assert (wait.attributes["last_enqueued"], wait.attributes["last_completed"]) == (101, 98)


def test_ranks_that_have_entered_fewer_collectives_are_told_apart() -> None:
    """Rank 3 has entered none of those that the others wait in."""
    (wait,) = waits(*(STATUS.format(rank, 98 if rank == 3 else 101) for rank in range(8)))
    assert wait["last_enqueued"] == "98:3;101:0-2,4-7"


@pytest.mark.parametrize(
    ("prefix", "group"),
    [
        (
            "[PG 0 (default_pg) Rank 5] Exception (either an error or timeout) detected by watchdog at work: 7,",
            "0(default_pg)",
        ),
        ("[PG ID 3 PG GUID 17(mp_group) Rank 1] Timeout at NCCL work: 7,", "17(mp_group)"),
        ("[PG 1 Rank 1] Timeout at NCCL work: 7,", "1"),
        ("[Rank 5] Timeout at NCCL work: 7,", ""),
    ],
)
def test_the_forms_of_every_release_name_their_group(prefix: str, group: str) -> None:
    """PyTorch 2.2 to 2.9; the rank is the one before the line, since a group counts its own."""
    (wait,) = waits(f"[rank5]:{prefix} last enqueued NCCL work: 9, last completed NCCL work: 6.")
    assert (wait["group"], wait["ranks"], wait["last_enqueued"], wait["last_completed"]) == (group, "5", 9, 6)


def test_gloos_errors_bear_no_number_and_are_kept() -> None:
    """Ranks whose receive timed out, and those whose neighbour went away then."""
    place = "[rank{}]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/"
    pair = place + "pair.cc:534] Connection closed by peer [10.0.0.4]:3"
    slow = place + "unbound_buffer.cc:81] Timed out waiting 30000ms for recv operation to complete"
    (wait,) = waits(slow.format(0), pair.format(1), slow.format(3))
    assert (wait["group"], wait["ranks"], wait["waiting"]) == ("", "0-1,3", "0-1,3")


def test_an_error_of_many_ranks_names_them() -> None:
    """Whatever the error is."""
    (error,) = decode(*(f"[rank{rank}]: RuntimeError: CUDA error: out of memory" for rank in (1, 2, 3, 9)))
    assert error.attributes["ranks"] == "1-3,9"


def test_nothing_is_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups and ranks beyond are counted."""
    monkeypatch.setattr(collectives, "MOST_GROUPS", 2)
    monkeypatch.setattr(collectives, "MOST_RANKS", 3)
    monkeypatch.setattr(error_report, "MAX_RANKS", 2)
    lines = [STATUS.format(rank, 101).replace("GUID 0(default_pg)", f"GUID {rank % 4}(x)") for rank in range(9)]
    found = waits(*lines)
    assert [wait["ranks"] for wait in found] == ["0,4", "1"]
    assert sum(int(str(wait.get("ranks_left_out", 0))) for wait in found) == 4 + 2  # of groups, of ranks

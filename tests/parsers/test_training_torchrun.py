"""torchrun: workers that failed, restarts, the box of the first failure."""

from datetime import UTC, datetime

import pytest

from parsers.formats.training import TrainingParser
from parsers.text.parser import Context, parse
from parsers.training.launchers import MAX_BOX
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(TrainingParser(Context(run="r", year=2025)), lines))


@pytest.mark.parametrize(
    "line",
    [
        "E0621 21:36:52.942000 2319283 torch/distributed/elastic/multiprocessing/api.py:986] {}",
        "[2025-06-21 21:36:52,942] torch.distributed.elastic.multiprocessing.api: [ERROR] {}",
    ],
)
def test_a_worker_that_failed_is_told_with_its_code(line: str) -> None:
    """In both forms of PyTorch's log, with the time."""
    (event,) = decode(line.format("failed (exitcode: -9) local_rank: 3 (pid: 2319309) of binary: /usr/bin/python"))
    assert dict(event.attributes) == {
        "run": "r",
        "error": "process_exit",
        "exitcode": -9,
        "local_rank": 3,
        "pid": 2319309,
    }
    assert event.time == datetime(2025, 6, 21, 21, 36, 52, 942_000, tzinfo=UTC)


def test_the_oldest_form_of_a_failed_worker_is_told() -> None:
    """PyTorch 1."""
    line = (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 8) of binary: p"
    )
    assert [event.attributes["exitcode"] for event in decode(line)] == [1]


def test_each_restart_is_told_once_however_many_agents_say_so() -> None:
    """By how many are left; new nodes are no failure."""
    line = "INFO [default] Worker group FAILED. {}/3 attempts left; will restart worker group"
    joined = "[default] Detected 2 new nodes from group_rank=0; will restart worker group"
    events = decode(line.format(3), line.format(3), line.format(2), joined)
    assert [(e.kind, e.severity, e.attributes.get("restarts_left")) for e in events] == [
        ("training_restart", "warning", 3),
        ("training_restart", "warning", 2),
        ("training_restart", "info", None),
    ]


BOX_TEXT = """Failures:
[1]:
  time      : 2026-01-15_05:44:29
  host      : gpu-018
  rank      : 9 (local_rank: 1)
  exitcode  : -15 (pid: 6175)
  error_file: <N/A>
  traceback : Signal 15 (SIGTERM) received by PID 6175
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-01-15_05:44:28
  host      : gpu-017
  rank      : 3 (local_rank: 3)
  exitcode  : -9 (pid: 6174)
  error_file: <N/A>
  traceback : Signal 9 (SIGKILL) received by PID 6174
============================================================"""
BOX = BOX_TEXT.splitlines()


@pytest.mark.parametrize("prefix", ["", "[rank3]: ", "12: ", "gpu-001: "])
def test_the_box_of_the_first_failure_names_its_host(prefix: str) -> None:
    """The other failures follow from it and are left out."""
    (event,) = decode(*(prefix + line for line in BOX))
    assert (event.node, event.time) == ("gpu-017", datetime(2026, 1, 15, 5, 44, 28, tzinfo=UTC))
    assert event.message == "rank 3 failed first: Signal 9 (SIGKILL) received by PID 6174"
    told = {name: event.attributes[name] for name in ("error", "rank", "local_rank", "exitcode", "pid")}
    assert told == {"error": "worker_failed", "rank": 3, "local_rank": 3, "exitcode": -9, "pid": 6174}


def test_a_box_that_is_cut_tells_nothing_and_holds_nothing() -> None:
    """It is closed after as many lines as a box has."""
    cut = BOX[9:13]
    assert decode(*cut, *["x"] * MAX_BOX, BOX[16]) == []


def test_a_box_without_a_signal_tells_the_exit_code() -> None:
    """Its last line only says how to get a traceback."""
    box = [
        line.replace("Signal 9 (SIGKILL) received by PID 6174", "To enable traceback see: https://x") for line in BOX
    ]
    assert [event.message for event in decode(*box)] == ["rank 3 failed first: exit code -9"]

"""What launchers and collectors put before a line."""

import pytest

from parsers.text.parser import MAX_LINE
from parsers.training.launchers import ProgramLine, program_line

ITERATION = "iteration        1/     100 |"


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", ProgramLine(ITERATION)),
        ("vm-07-14: ", ProgramLine(ITERATION, node="vm-07-14")),
        (" 12: ", ProgramLine(ITERATION, rank=12)),
        ("[rank3]: ", ProgramLine(ITERATION, rank=3, job_rank=3)),
        ("[rank3]:", ProgramLine(ITERATION, rank=3, job_rank=3)),
        ("[default7]:", ProgramLine(ITERATION, local_rank=7)),
        ("[host0]:", ProgramLine(ITERATION, local_rank=0)),
        ("[1,3]<stdout>:", ProgramLine(ITERATION, rank=3)),
        ("[prterun-gpu-001-12@1,3]<stderr>: ", ProgramLine(ITERATION, rank=3)),
        ("trainer/0 [default0]:", ProgramLine(ITERATION, local_rank=0)),
        ("(WorkerDict pid=3490362) [rank1]:", ProgramLine(ITERATION, rank=1, job_rank=1)),
        ("(worker1, rank=1, pid=27522, ip=10.0.0.4) [rank4]: ", ProgramLine(ITERATION, rank=4, job_rank=4)),
        ("(head, rank=0, pid=27522) ", ProgramLine(ITERATION)),
        ("(WorkerDict pid=3490362, ip=10.0.0.7) ", ProgramLine(ITERATION)),
        ("[pod/train-worker-0/pytorch] ", ProgramLine(ITERATION)),
        ("trainer-1  | ", ProgramLine(ITERATION)),
        ("gpu-017: 12: ", ProgramLine(ITERATION, node="gpu-017", rank=12)),
        ("2025-03-01T04:05:06.123456789Z stdout F ", ProgramLine(ITERATION, time="2025-03-01T04:05:06.123456789Z")),
        ("2025-03-01T04:05:06.123Z ", ProgramLine(ITERATION, time="2025-03-01T04:05:06.123Z")),
        ("[2025-11-20T14:55:23+08:00] ", ProgramLine(ITERATION, time="2025-11-20T14:55:23+08:00")),
        ("[2025-03-01 04:05:06] ", ProgramLine(ITERATION, time="2025-03-01 04:05:06")),
        ("[2025-03-01 04:05:06.250000] ", ProgramLine(ITERATION, time="2025-03-01 04:05:06.250000")),
        ("[NeMo I 2025-04-11 14:48:45 nemo_logging:393] ", ProgramLine(ITERATION, time="2025-04-11 14:48:45")),
        ("[NeMo I 2025-04-11 14:48:45 log:393 rank:0] ", ProgramLine(ITERATION, time="2025-04-11 14:48:45")),
        ("[INFO|trainer.py:1884] 2021-05-25 06:53:45,424 >> ", ProgramLine(ITERATION, time="2021-05-25 06:53:45,424")),
        ("\x1b[32m2025-06-04 08:51:58,557 - \x1b[0m", ProgramLine(ITERATION, time="2025-06-04 08:51:58,557")),
        (
            "12: [rank12]:[titan] 2025-06-04 08:51:58,557 - ",
            ProgramLine(ITERATION, rank=12, job_rank=12, time="2025-06-04 08:51:58,557"),
        ),
    ],
)
def test_a_prefix_is_taken_off_and_told(prefix: str, expected: ProgramLine) -> None:
    """Several may stand before one line."""
    assert program_line(prefix + ITERATION) == expected


def test_the_programs_own_time_goes_before_the_collectors() -> None:
    """The collector's may be late."""
    line = program_line(f"2025-03-01T04:05:09Z [2025-03-01 04:05:06] {ITERATION}")
    assert line == ProgramLine(ITERATION, time="2025-03-01 04:05:06")


@pytest.mark.parametrize(
    "text",
    [
        "Root Cause (first observed failure):",
        "RuntimeError: CUDA error: out of memory",
        "10:20:30 something",
        "{'loss': 2.1, 'epoch': 0.1}",
        "srun: error: gpu-017: task 5: Killed",
        "slurmstepd: error: *** JOB 18 ON r6i4n3 CANCELLED AT 2021-05-24T09:50:34 ***",
        "    save-checkpoint ....: (1.0, 2.0)",
        "steps: 5 loss: 12.8 iter time (s): 145.2",
    ],
)
def test_a_line_without_a_prefix_stays_whole(text: str) -> None:
    """Words with a colon are no host."""
    assert program_line(text).text == text


@pytest.mark.parametrize("letter", ["a", "a1", "1", " ", "[", "[a", "(pid=1", "a.", "|", "2025-", "\x1b["])
def test_a_long_line_ends_at_once(letter: str) -> None:
    """No prefix pattern backtracks over a whole line."""
    assert program_line(letter * (MAX_LINE // len(letter))) is not None

"""Each source alone, and beside others, through an archive into a ledger: compared with what is known to the ms."""

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from cli.commands.ingest import ingest_archive
from goodput.reading.ledgers import read_ledgers
from goodput.reading.records import is_run, run_names

FIXTURES = Path(__file__).parents[2] / "fixtures"
SACCT = "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode\n"


def write(root: Path, **parts: str) -> Path:
    """An archive of these files; `__` stands for a slash in their names, `_dot_` for a dot."""
    for name, text in parts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def fixture(name: str) -> str:
    """A fixture's text."""
    return (FIXTURES / name).read_text(encoding="utf-8")


def ledger(engine: sa.Engine, archive: Path, run: str | None = None) -> dict[str, Any]:
    """What `foreshock goodput --json` prints of the one run of an archive, without buckets that are empty."""
    ingest_archive(engine, archive)
    with engine.begin() as connection:
        (found,) = read_ledgers(connection, run)
    told = found.to_json()
    assert sum(round(1000 * value) for value in told["buckets"].values()) == round(1000 * told["wall_s"])
    return {**told, "buckets": {name: value for name, value in told["buckets"].items() if value}}


def iso(seconds: float) -> str:
    """A time of the log, seconds after four o'clock."""
    whole = int(seconds)
    return f"2025-03-01T{4 + whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def megatron(*lines: tuple[float, int]) -> str:
    """A log of Megatron-LM: (time, iteration), ten iterations of 3 s a line."""
    return "".join(
        f" [{iso(second).replace('T', ' ')}] iteration {number:8d}/    1000 | elapsed time per iteration (ms): 3000.0 |"
        " lm loss: 7.6E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
        for second, number in lines
    )


def test_spans_alone(tmp_path: Path, engine: sa.Engine) -> None:
    """A start, a load, waits within and between iterations, a save that stalls and one that goes on, an evaluation."""
    told = ledger(engine, write(tmp_path, training__any_dot_json="\n".join(fixture("otel/spans.json").split("\n")[:3])))
    assert (told["run"], told["wall_s"]) == ("any", 26.0)
    assert told["buckets"] == {
        "startup": 9.0,
        "checkpoint_load": 3.0,
        "productive": 7.5,
        "data_stall": 1.5,
        "checkpoint_save": 3.5,
        "evaluation": 1.5,
    }


def test_googles_entries_alone(tmp_path: Path, engine: sa.Engine) -> None:
    """Device start and preparation are start-up, less the restore; saves count for what they stalled."""
    told = ledger(engine, write(tmp_path, training__llm_dot_json=fixture("mlgoodput/entries.json")))
    assert (told["run"], told["wall_s"]) == ("llm", 27.0)
    assert told["buckets"] == {
        "startup": 7.5,
        "checkpoint_load": 2.5,
        "productive": 12.0,
        "data_stall": 1.0,
        "checkpoint_save": 1.0,
        "evaluation": 3.0,
    }


def test_a_checkpoint_directory_and_jobs(tmp_path: Path, engine: sa.Engine) -> None:
    """Two saves were whole: what came after the second is lost, a third one kept nothing."""
    jobs = f"{SACCT}1|run-7|NODE_FAIL|{iso(0)}|{iso(60)}|{iso(1800)}|2|gpu-[1-2]|0:0\n"
    told = ledger(
        engine, write(tmp_path, jobs_dot_csv=jobs, **{"checkpoints/run-7.txt": fixture("checkpoints/megatron.txt")})
    )
    assert told["buckets"]["lost_work"] == pytest.approx(1800 - (15 * 60 + 7.75), abs=1e-6)
    assert told["buckets"]["checkpoint_save"] == 3.0
    assert told["buckets"]["waiting"] == 60.0
    assert [cut["cause"] for cut in told["interruptions"]] == ["host"]


@pytest.mark.parametrize("listed", [True, False], ids=["with the directory", "without"])
def test_a_save_that_no_line_tells_bounds_the_lost_work(tmp_path: Path, engine: sa.Engine, listed: bool) -> None:
    """The log prints no saves: the directory shows one after iteration 20, which the failure did not take back."""
    log = megatron((60, 10), (90, 20), (130, 30), (160, 40))
    jobs = f"{SACCT}1|run-7|FAILED|{iso(0)}|{iso(0)}|{iso(165)}|2|gpu-[1-2]|1:0\n"
    base = 1740801600  # four o'clock
    found = f"{base}.0 4096 d /c/run-7\n{base + 92}.0 90 f /c/run-7/iter_0000020/a.pt\n"
    found += (
        f"{base + 99}.0 90 f /c/run-7/iter_0000020/b.pt\n{base + 99}.5 2 f /c/run-7/latest_checkpointed_iteration.txt\n"
    )
    parts = {"training/run-7.log": log, "jobs.csv": jobs} | ({"checkpoints/run-7.txt": found} if listed else {})
    told = ledger(engine, write(tmp_path, **parts))["buckets"]
    if listed:  # kept at the last file's time, 99; the first line of a log is known to cover one iteration
        assert told == {"startup": 57.0, "productive": 33.0, "checkpoint_save": 9.0, "lost_work": 66.0}
    else:
        assert told == {"startup": 57.0, "lost_work": 98.0, "unknown": 10.0}


def cycle(number: int, start: float, end: float | None, nodes: str = "gpu-[1-2]") -> str:
    """A file of NVRx as it stands on disk."""
    told = {
        "job_id": "48213",
        "attempt_index": 0,
        "cycle_number": number,
        "cycle_start_time": f"{iso(start)}.000000Z",
        "cycle_end_time": "" if end is None else f"{iso(end)}.000000Z",
        "cycle_log_file": "",
        "active_nodes": nodes,
        "standby_nodes": "gpu-3",
        "generation": 0 if end is None else 1,
        "active_ranks": "0-15",
    }
    return json.dumps(told, indent=2)


CYCLES = {
    "nvrx/cycle_info.48213.0.0": cycle(0, 20, 165),
    "nvrx/cycle_info.48213.0.1": cycle(1, 185, 400, "gpu-[1,3]"),
    "nvrx/cycle_info.48213.0.1.tmp": "{",
}


def test_cycles_alone_are_attempts(tmp_path: Path, engine: sa.Engine) -> None:
    """Nobody knows what they worked, but when they were interrupted, and on which nodes they went on."""
    told = ledger(engine, write(tmp_path, **CYCLES))
    assert (told["run"], told["nodes"], told["wall_s"]) == ("48213", 2, 380.0)
    assert [cut["time"] for cut in told["interruptions"]] == [f"{iso(165)}.000000Z"]


def test_cycles_cut_the_job_that_they_belong_to(tmp_path: Path, engine: sa.Engine) -> None:
    """One job of Slurm's, two starts of its processes: the way back is start-up, for the nodes were never given up."""
    jobs = f"{SACCT}48213|run-7|COMPLETED|{iso(0)}|{iso(10)}|{iso(400)}|2|gpu-[1-3]|0:0\n"
    log = megatron((60, 10), (90, 20), (160, 30)) + megatron((250, 30), (280, 40), (400, 50))
    told = ledger(engine, write(tmp_path, **CYCLES, **{"jobs.csv": jobs, "training/run-7.log": log}))
    with engine.begin() as connection:
        assert run_names(connection) == ["run-7"]
        assert not is_run(connection, "48213")
    assert told["start"] == f"{iso(0)}.000000Z"
    assert told["buckets"]["waiting"] == 10.0
    assert [cut["time"] for cut in told["interruptions"]] == [f"{iso(165)}.000000Z"]
    # A log's first line is known to cover one iteration, a later one ten.
    assert told["buckets"]["startup"] == pytest.approx((60 - 3 - 10) + (250 - 30 - 165), abs=0.001)


def test_kubernetes_and_the_hook(tmp_path: Path, engine: sa.Engine) -> None:
    """Pods tell of waiting and of the lost node, the hook of the work."""
    stamp = "2025-03-01T{}.000000Z"

    def line(at: str, what: str, **told: Any) -> str:
        return json.dumps(
            {
                "foreshock_hook": 1,
                "time": stamp.format(at),
                "run": "llm-7b",
                "what": what,
                **told,
                "rank": 0,
                "node": "gpu-001",
            }
        )

    log = [
        line("04:11:40", "start"),
        line("04:20:00", "step", iteration=1, iterations=1),
        line("04:30:00", "step", iteration=11, iterations=10, elapsed_ms=60000.0, data_ms=6000.0),
        line("04:30:00", "save_begin", iteration=11),
        line("04:31:00", "save", iteration=11, duration_ms=60000.0),
        line("04:41:00", "step", iteration=21, iterations=10, elapsed_ms=60000.0),
        line("06:02:10", "start"),
        line("06:05:00", "load", iteration=11, duration_ms=30000.0),
        line("06:06:00", "step", iteration=12, iterations=1),
        line("07:59:00", "step", iteration=125, iterations=113, elapsed_ms=60000.0),
        line("08:00:01", "end"),
    ]
    archive = write(
        tmp_path, kubernetes__jobs_dot_json=fixture("kubernetes/job_watch.json"), training__x_dot_jsonl="\n".join(log)
    )
    told = ledger(engine, archive)
    assert (told["run"], told["nodes"], told["wall_s"]) == ("llm-7b", 2, 4 * 3600 + 1)
    assert told["buckets"]["waiting"] == 690.0 + 120.0
    assert told["buckets"]["checkpoint_save"] == 60.0
    assert told["buckets"]["checkpoint_load"] == 30.0
    assert told["buckets"]["data_stall"] == 60.0
    # From the save to the end of the first attempt, an hour and 29 minutes later, nothing was kept.
    assert told["buckets"]["lost_work"] == 89 * 60.0
    assert [(cut["time"], cut["cause"]) for cut in told["interruptions"]] == [(stamp.format("06:00:00"), "host")]


def test_a_job_that_runs_is_told_by_squeue_and_corrected_by_sacct(tmp_path: Path, engine: sa.Engine) -> None:
    """The end that squeue prints is a time limit; the books replace what was told meanwhile."""
    queue = "JOBID|NAME|STATE|SUBMIT_TIME|START_TIME|END_TIME|NODES|NODELIST\n"
    queue += f"7|run-7|RUNNING|{iso(0)}|{iso(30)}|{iso(7200)}|2|gpu-[1-2]\n"
    told = ledger(engine, write(tmp_path / "a", squeue_dot_txt=queue))
    assert (told["wall_s"], told["buckets"]) == (30.0, {"waiting": 30.0})
    jobs = f"{SACCT}7|run-7|COMPLETED|{iso(0)}|{iso(30)}|{iso(90)}|2|gpu-[1-2]|0:0\n"
    assert ledger(engine, write(tmp_path / "b", jobs_dot_csv=jobs))["wall_s"] == 90.0


def test_the_same_work_told_twice_counts_once(tmp_path: Path, engine: sa.Engine) -> None:
    """A log and a hook of one start: the hook tells the steps, the log the saves that no one asked the hook for."""
    log = megatron((60, 10), (90, 20))
    log += "  successfully saved checkpoint at iteration      20 to /c\n (min, max) time across ranks (ms):\n"
    log += "    save-checkpoint ................................: (9000.00, 9000.00)\n" + megatron((129, 30))
    steps = [
        json.dumps(
            {
                "foreshock_hook": 1,
                "time": f"{iso(at)}.{5 + 2 * rank}00000Z",
                "run": "run-7",
                "what": "step",
                "iteration": number,
                "iterations": 10,
                "elapsed_ms": 3000.0,
                "rank": rank,
                "node": "gpu-1",
            }
        )
        for rank in (0, 1)
        for at, number in ((60, 10), (90, 20), (129, 30))
    ]
    parts = {"training/run-7.jsonl": "\n".join(steps), "training/run-7.log": log}
    both = ledger(engine, write(tmp_path, **parts), "run-7")
    assert both["wall_s"] == 99.0
    assert both["buckets"] == {"productive": 90.0, "checkpoint_save": 9.0}


def test_what_other_ranks_write_by_the_hook_is_no_second_start(tmp_path: Path, engine: sa.Engine) -> None:
    """Two ranks on one real GPU, the second dies of an illegal access: one start, one save, the program's fault."""
    lines = fixture("hook/cuda_errors.log").splitlines()
    parts = {
        f"training/{name}.jsonl": "\n".join(line for line in lines if f'"{name}"' in line)
        for name in ("run-dist_gloo", "run-wild", "run-oom")
    }
    told = ledger(engine, write(tmp_path, **parts), "run-dist_gloo")
    [cut] = told["interruptions"]
    assert (cut["cause"], cut["culprit"]) == ("application", None)
    assert told["buckets"]["checkpoint_save"] == pytest.approx(0.113, abs=0.01)
    for run in ("run-wild", "run-oom"):
        [cut] = ledger(engine, write(tmp_path / run, **parts), run)["interruptions"]
        assert (cut["cause"], cut["culprit"]) == ("application", None)

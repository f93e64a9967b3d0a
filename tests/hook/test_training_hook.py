"""The training hook: what it writes, that nothing of it reaches the training, and a killed program's ledger."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from foreshock_hook import hook as module
from foreshock_hook.hook import TrainingHook, rank_of_process
from real.patience import patience

from cli.commands.ingest import ingest_archive
from goodput.reading.ledgers import read_ledgers

HOOK = Path(__file__).parents[2] / "hook"


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever started the tests says nothing of ranks."""
    for name in module.RANK_VARIABLES:
        monkeypatch.delenv(name, raising=False)


def told(path: Path, *keys: str) -> list[Any]:
    """What every line tells under these keys."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    return [tuple(line.get(key) for key in keys) if len(keys) > 1 else line.get(keys[0]) for line in lines]


def test_it_needs_nothing_but_python(tmp_path: Path) -> None:
    """The file alone, copied beside a training program, is enough: every import is the standard library's."""
    source = Path(module.__file__).read_text()
    assert "from __future__ import annotations" in source
    ast.parse(source, feature_version=(3, 7))
    imported = {
        (node.module if isinstance(node, ast.ImportFrom) else node.names[0].name) or ""
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    }
    assert {name.partition(".")[0] for name in imported} <= sys.stdlib_module_names
    code = f"import sys; sys.path.insert(0, {str(HOOK)!r}); import foreshock_hook.hook, foreshock_hook.callbacks"
    done = subprocess.run(
        [sys.executable, "-I", "-c", f"{code}; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    assert not {"orjson", "store", "parsers", "transformers", "lightning", "torch"} & set(done.stdout.split())


def test_steps_are_put_together_and_the_first_bears_no_length(tmp_path: Path) -> None:
    """A first step compiles; later ones are one line, whose length is the mean."""
    path = tmp_path / "t.jsonl"
    hook = TrainingHook("run-7", str(path), write_s=1000.0)
    for i in range(5, 10):
        hook.step(i)
    hook.flush()
    assert told(path, "what", "iteration", "iterations") == [("start", None, None), ("step", 5, 1), ("step", 9, 4)]
    first, rest = told(path, "elapsed_ms")[1:]
    assert first is None
    assert 0 <= rest < 1000


def test_steps_without_a_number_are_counted_from_what_was_loaded(tmp_path: Path) -> None:
    """So that a loop without a counter has one."""
    path = tmp_path / "t.jsonl"
    hook = TrainingHook("run-7", str(path), write_s=0.0)
    with hook.loading(100):
        pass
    hook.step()
    hook.step()
    assert told(path, "what", "iteration")[-2:] == [("step", 101), ("step", 102)]


def test_a_stall_is_no_part_of_a_step(tmp_path: Path) -> None:
    """A save of 50 ms between two steps: told by itself, the step after it begins behind it."""
    path = tmp_path / "t.jsonl"
    hook = TrainingHook("run-7", str(path), write_s=0.0)
    hook.step(1)
    with hook.saving(1):
        subprocess.run(["sleep", "0.05"], check=True)
    hook.step(2)
    hook.close()
    lines = {(line["what"], line.get("iteration")): line for line in map(json.loads, path.read_text().splitlines())}
    assert list(lines)[1:] == [("step", 1), ("save_begin", 1), ("save", 1), ("step", 2), ("end", None)]
    assert lines["save", 1]["duration_ms"] >= 50
    assert lines["step", 2]["elapsed_ms"] < lines["save", 1]["duration_ms"]


def test_a_wait_for_data_is_told_with_its_step(tmp_path: Path) -> None:
    """As a part of the step's length, a mean over those of the line."""
    path = tmp_path / "t.jsonl"
    hook = TrainingHook("run-7", str(path), write_s=1000.0)
    hook.step(1)
    for i in (2, 3):
        with hook.waiting_for_data():
            subprocess.run(["sleep", "0.02"], check=True)
        hook.step(i)
    hook.flush()
    last = json.loads(path.read_text().splitlines()[-1])
    assert last["iterations"] == 2
    assert 20 <= last["data_ms"] <= last["elapsed_ms"]


def test_a_save_in_the_background_is_told_when_it_is_safe(tmp_path: Path) -> None:
    """Another thread says so, perhaps; what it stalled goes with it."""
    path = tmp_path / "t.jsonl"
    hook = TrainingHook("run-7", str(path), write_s=0.0)
    hook.step(1)
    with hook.saving(1, background=True):
        pass
    hook.step(2)
    hook.saved(1)
    assert told(path, "what", "async")[2:] == [("save_begin", True), ("step", None), ("save", True)]
    assert told(path, "blocking_ms")[-1] >= 0


def test_a_save_that_fails_never_ends(tmp_path: Path) -> None:
    """The training's own error goes on its way."""
    path = tmp_path / "t.jsonl"
    with pytest.raises(OSError, match="full"), TrainingHook("run-7", str(path)) as hook:
        hook.step(1)
        with hook.saving(1):
            raise OSError("disk full")
    assert told(path, "what") == ["start", "step", "save_begin", "save_failed", "error"]
    assert told(path, "error", "message")[-1] == ("OSError", "disk full")


@pytest.mark.parametrize(
    ("variables", "rank"),
    [({}, 0), ({"RANK": "3"}, 3), ({"SLURM_PROCID": "2"}, 2), ({"RANK": "x", "PMIX_RANK": "1"}, 1), ({"RANK": "0"}, 0)],
)
def test_the_launcher_tells_the_rank(monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], rank: int) -> None:
    """Each launcher in its own variable."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert rank_of_process() == rank


def test_other_ranks_are_silent_unless_asked(tmp_path: Path) -> None:
    """And then write files of their own: lines of several writers on a shared file system would run into each other."""
    TrainingHook("run-7", str(tmp_path / "a"), rank=3).step(1)
    TrainingHook("run-7", str(tmp_path / "b"), rank=3, every_rank=True).step(1)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.rank3"]
    assert told(tmp_path / "b.rank3", "rank") == [3, 3]


def test_a_child_made_by_fork_is_silent(tmp_path: Path) -> None:
    """A data loader's worker inherits the hook, and must not tell its parent's steps again."""
    path = tmp_path / "t.jsonl"
    code = f"""
import os, sys
sys.path.insert(0, {str(HOOK)!r})
from foreshock_hook.hook import TrainingHook
hook = TrainingHook("r", {str(path)!r}, rank=0, write_s=1000.0)
hook.step(1); hook.step(2)
child = os.fork()
if child == 0:
    hook.step(99); hook.flush(); hook.close()
    sys.exit(0)
os.waitpid(child, 0)
hook.step(3)
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=patience(60))
    assert told(path, "what", "iteration") == [("start", None), ("step", 1), ("step", 3)]


def test_a_file_that_cannot_be_written_costs_nothing_but_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Said once, counted, tried again; the line that gets through tells how many did not."""
    monkeypatch.setattr(module, "_RETRY_S", 0.0)
    folder = tmp_path / "later"
    hook = TrainingHook("run-7", str(folder / "t.jsonl"), write_s=0.0)
    hook.step(1)
    assert hook.lost == 2
    assert "training goes on" in capfd.readouterr().err
    folder.mkdir()
    hook.step(2)
    assert told(folder / "t.jsonl", "iteration", "lost") == [(2, 2)]
    assert hook.lost == 0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="Linux has /dev/full")
def test_a_full_disk_never_reaches_the_training() -> None:
    """No write succeeds, no method raises."""
    hook = TrainingHook("run-7", "/dev/full", write_s=0.0)
    hook.step(1)
    with hook.saving(), hook.evaluating(), hook.waiting_for_data():
        hook.phase("compile")
    hook.saved()
    hook.close()
    assert hook.lost > 0


def test_odd_arguments_never_reach_the_training(tmp_path: Path) -> None:
    """A step of a type that JSON does not know, a rank that is none."""
    hook = TrainingHook("run-7", str(tmp_path / "t"), write_s=0.0)
    hook.step(object())  # type: ignore[arg-type]
    hook.step(float("nan"))  # type: ignore[arg-type]
    assert hook.lost == 1
    assert TrainingHook("r", str(tmp_path / "u"), rank="first").off  # type: ignore[arg-type]


PROGRAM = """
import json, os, sys, time
sys.path.insert(0, {root!r})
from foreshock_hook.hook import TrainingHook
# Time passes while it sleeps, and then alone: a machine that is busy takes none of it.
clock = [float(sys.argv[3])]
time.time = time.monotonic = lambda: clock[0]
def sleep(seconds): clock[0] += seconds
truth = []
def did(what, seconds):
    sleep(seconds)
    truth.append((what, seconds))
hook = TrainingHook("run-7", sys.argv[1], rank=0, write_s=0.1)
first = sys.argv[2] == "first"
did("startup", 0.05)
if not first:
    with hook.loading(20): did("checkpoint_load", 0.1)
for i in range(1 if first else 21, 41):
    began = time.monotonic()
    with hook.waiting_for_data(): did("data_stall", 0.004)
    did("productive", 0.016)
    hook.step(i)
    if i == 10:
        with hook.evaluating(): did("evaluation", 0.15)
    if i == 20:
        with hook.saving(): did("checkpoint_save", 0.2)
        truth.append(("kept", 0.0))
    if i == 30 and first:
        with hook.saving():
            sleep(0.05)
            print(json.dumps(truth), flush=True)
            os.kill(os.getpid(), 9)
print(json.dumps(truth), flush=True)
hook.close()
"""


def test_a_program_that_is_killed_in_a_save_is_accounted_to_the_millisecond(tmp_path: Path, engine: sa.Engine) -> None:
    """A real process, killed by SIGKILL while it saves, and started again: its own clock is the truth."""
    log = tmp_path / "archive" / "training" / "run-7.jsonl"
    log.parent.mkdir(parents=True)
    found: list[list[tuple[str, float]]] = []
    for start, ends, begins_s in (("first", -9, 1_740_801_600), ("second", 0, 1_740_801_660)):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(root=str(HOOK)), str(log), start, str(begins_s)],
            capture_output=True,
            text=True,
            timeout=patience(120),
            check=False,
            env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        )
        assert done.returncode == ends, done.stderr
        found.append(json.loads(done.stdout))
    ingest_archive(engine, tmp_path / "archive")
    with engine.begin() as connection:
        (ledger,) = read_ledgers(connection)
    buckets = {bucket: value / 1000 for bucket, value in ledger.buckets_ms.items()}
    kept = [what for what, _ in found[0]].index("kept")

    def truth(what: str, *parts: list[tuple[str, float]]) -> float:
        return sum(seconds for part in parts for name, seconds in part if name == what)

    # Each line and stall is rounded to a millisecond, and between two of them the program itself takes its time.
    slack = 0.001 * len(log.read_text().splitlines()) + 0.02
    for what in ("checkpoint_save", "checkpoint_load", "evaluation"):
        assert buckets[what] == pytest.approx(truth(what, *found), abs=0.005), what
    first_steps = sum(truth("data_stall", part[:4]) for part in found)  # of a first step nobody knows what it waited
    assert buckets["data_stall"] == pytest.approx(
        truth("data_stall", found[0][:kept], found[1]) - first_steps, abs=slack
    )
    assert buckets["productive"] == pytest.approx(truth("productive", found[0][:kept], found[1]), abs=slack + 0.02)
    lost = truth("productive", found[0][kept:]) + truth("data_stall", found[0][kept:])
    assert buckets["lost_work"] == pytest.approx(lost, abs=slack)
    assert len(ledger.interruptions) == 1
    assert sum(ledger.buckets_ms.values()) == ledger.wall_ms


def test_an_error_that_a_callback_and_the_block_see_is_told_once(tmp_path: Path) -> None:
    """Lightning's callback hears of it first; another error is another."""
    path = tmp_path / "run.jsonl"
    for _ in range(2):
        with pytest.raises(RuntimeError), TrainingHook("run-7", path, rank=0) as hook:
            error = RuntimeError("lost")
            hook.__exit__(RuntimeError, error, None)
            raise error
    assert told(path, "error").count("RuntimeError") == 2

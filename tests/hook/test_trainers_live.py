"""The hook in the trainers themselves, and their checkpoints on disk: whole ones, and those that a kill left."""

import json
import os
import pickle
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience
from real.programs import bound, wait_for
from real.torch_job import trainers_python

from collectors.collector import SourceSettings
from collectors.registry import make_collector
from store.records.event import Event

pytestmark = [pytest.mark.integration, pytest.mark.xdist_group("trainers")]

ROOT = Path(__file__).parents[2]
LONG_AGO = time.time() - 100_000


@contextmanager
def program(kind: str, folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A training program; whatever it started is gone at the end."""
    command = [trainers_python(), "-W", "ignore", str(ROOT / "tests/real/trainers.py"), kind, str(folder)]
    away = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "hook")}
    with subprocess.Popen(
        bound(command), env={**os.environ, **away}, cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    ) as process:  # fmt: skip
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["transformers", "lightning"])
def test_a_trainer_s_own_counts_are_the_hook_s(kind: str, tmp_path: Path) -> None:
    """Steps, evaluations, saves and the end, each once; and every save on disk is judged whole."""
    with program(kind, tmp_path) as process:
        output, errors = process.communicate(timeout=patience(120))
    assert process.returncode == 0, errors[-2000:]
    counted = json.loads(output.splitlines()[-1])
    lines = [json.loads(line) for line in (tmp_path / "run.jsonl").read_text().splitlines()]
    told = [line["what"] for line in lines]
    assert [line["iteration"] for line in lines if line["what"] == "step"] == list(range(1, counted["steps"] + 1))
    assert told.count("eval") == told.count("eval_begin") == counted["evaluations"] == 3
    assert [line["iteration"] for line in lines if line["what"] == "save"] == [4, 8, 12]
    assert (told[0], told[-1], len(counted["saves"])) == ("start", "end", 3)
    assert sorted(event.attributes["iteration"] for event in look(tmp_path / "saves")) == [4, 8, 12]
    assert {event.kind for event in look(tmp_path / "saves")} == {"checkpoint_save"}
    if kind == "lightning":  # and a second run of the program's failed
        failed = json.loads((tmp_path / "failed.jsonl").read_text().splitlines()[-1])
        assert (failed["what"], failed["error"], failed["message"]) == ("error", "ValueError", "no loss")


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The saves of a job of two ranks that was killed while the second one wrote its part of the third."""
    folder = tmp_path_factory.mktemp("plain")
    with program("plain", folder) as process:
        part = folder / "saves/step-12/__0_0.distcp"
        wait_for("one rank has written its part", lambda: part.exists() or process.poll() is not None, 120)
        assert process.poll() is None, process.stderr and process.stderr.read()[-2000:]
    return folder


def look(folder: Path) -> list[Event]:
    """What one look at a directory tells."""
    collector = make_collector(f"checkpoints:{folder}#run=plain", SourceSettings(node="n1"))
    collector.open(None)
    events = collector.collect(1.0).events
    collector.close()
    return list(events)


def copied(killed: Path, folder: Path) -> Path:
    """The saves again, written 37 minutes apart and long ago."""
    subprocess.run(["cp", "-r", str(killed / "saves"), str(folder)], check=True)
    for place, save in enumerate(("step-4", "step-8", "step-12")):
        for file in (folder / "saves" / save).iterdir():
            os.utime(file, (LONG_AGO + place * 37 * 60,) * 2)
    return folder / "saves"


def torn(events: list[Event]) -> str:
    """What is told of the torn save."""
    (event,) = (event for event in events if event.kind == "checkpoint_torn")
    assert (event.severity, event.run()) == ("warning", "plain")
    return event.message


def test_a_job_that_is_killed_in_a_save_leaves_it_torn_and_the_newest_whole_is_named(
    killed: Path, tmp_path: Path
) -> None:
    """Both ranks' earlier saves are whole; what the hook wrote tells that a save was begun."""
    events = look(copied(killed, tmp_path))
    whole = [event.attributes["iteration"] for event in events if event.kind == "checkpoint_save"]
    assert whole == [4, 8]
    assert torn(events) == "save 12 is torn: 1 of 3 files; newest whole: 8, 37 min older"
    told = [json.loads(line)["what"] for line in (killed / "run.jsonl").read_text().splitlines()]
    assert (told.count("save"), told[-1]) == (2, "save_begin")


class _Hostile:
    """What makes a folder where it is unpickled."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.mark),)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda save: (save / "__1_0.distcp").unlink(), "1 of 2 files"),
        (lambda save: os.truncate(save / "__1_0.distcp", 100), "1 of 2 files"),
        (lambda save: os.truncate(save / ".metadata", 100), "1 of 3 files cut short"),
        (lambda save: (save / ".metadata").unlink(), "2 of 3 files"),
    ],
    ids=["missing", "short", "metadata-short", "metadata-missing"],
)
def test_a_damaged_save_is_torn(killed: Path, tmp_path: Path, damage: Any, says: str) -> None:
    """Whatever of it is missing."""
    saves = copied(killed, tmp_path)
    subprocess.run(["rm", "-r", str(saves / "step-12")], check=True)
    damage(saves / "step-8")
    for file in (saves / "step-8").iterdir():
        os.utime(file, (LONG_AGO + 37 * 60,) * 2)
    assert torn(look(saves)) == f"save 8 is torn: {says}; newest whole: 4, 37 min older"


def test_a_hostile_checkpoint_runs_nothing_and_stalls_nothing(killed: Path, tmp_path: Path) -> None:
    """A pickle that calls, a pipe and a link in place of files; the other saves are judged as ever."""
    saves = copied(killed, tmp_path)
    mark = tmp_path / "was-here"
    (saves / "step-12/.metadata").write_bytes(pickle.dumps({"storage_data": _Hostile(mark)}))
    (saves / "step-8/.metadata").unlink()
    os.mkfifo(saves / "step-8/.metadata")
    os.mkfifo(saves / "latest")
    (saves / "step-16").mkdir()
    (saves / "step-16/model.safetensors").symlink_to("/dev/zero")
    found = {event.attributes["iteration"]: event.kind for event in look(saves)}
    assert not mark.exists()
    assert (found[4], found[8]) == ("checkpoint_save", "checkpoint_save_start")

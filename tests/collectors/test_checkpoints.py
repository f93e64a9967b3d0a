"""A checkpoint directory that a trainer is writing: what is told of each save, when, and at what cost."""

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import SourceError, SourceSettings
from collectors.registry import make_collector
from collectors.sources import checkpoints
from store.records.event import Event

SETTINGS = SourceSettings(node="n1", interval_s=0.001)
LONG_AGO = time.time() - 10_000


class Watcher:
    """A collector that is asked, and may be opened anew."""

    def __init__(self, spec: str) -> None:
        self.spec = spec
        self.position: Any = None

    def look(self) -> list[Event]:
        """One look of a collector that was just opened."""
        collector = make_collector(self.spec, SETTINGS)
        collector.open(self.position)
        collected = collector.collect(1.0)
        collector.close()
        self.position = collected.position
        return list(collected.events)

    def told(self) -> list[tuple[str, Any]]:
        """Kind and iteration of what is new."""
        return [(event.kind, event.attributes["iteration"]) for event in self.look()]


def put(path: Path, size: int = 100, at: float = LONG_AGO) -> None:
    """A file of a size and time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (at, at))


def test_a_save_is_told_begun_and_then_whole_once_each(tmp_path: Path) -> None:
    """Megatron's tracker says when; a restart of the sidecar repeats nothing."""
    watcher = Watcher(f"checkpoints:{tmp_path}/run-7")
    put(tmp_path / "run-7/iter_0000010/a.pt", at=LONG_AGO)
    put(tmp_path / "run-7/latest_checkpointed_iteration.txt")
    (tmp_path / "run-7/latest_checkpointed_iteration.txt").write_text("5")
    assert watcher.told() == [("checkpoint_save_start", 10), ("checkpoint_torn", 10)]
    put(tmp_path / "run-7/iter_0000010/b.pt", at=LONG_AGO + 7.5)
    assert watcher.told() == [("checkpoint_torn", 10)]  # of its new last file
    (tmp_path / "run-7/latest_checkpointed_iteration.txt").write_text("10")
    (event,) = watcher.look()
    assert event.kind == "checkpoint_save"
    assert event.attributes == {
        "run": "run-7",
        "iteration": 10,
        "bytes": 200,
        "files": 2,
        "path": "iter_0000010",
        "duration_ms": pytest.approx(7500.0, abs=0.01),
    }
    assert watcher.told() == []


def test_torchs_checkpoints_are_whole_with_their_metadata(tmp_path: Path) -> None:
    """Until then they have begun."""
    watcher = Watcher(f"checkpoints:{tmp_path}#run=llm")
    put(tmp_path / "step-10/__0_0.distcp")
    assert watcher.told() == [("checkpoint_save_start", 10), ("checkpoint_torn", 10)]
    put(tmp_path / "step-10/.metadata")
    (event,) = watcher.look()
    assert (event.kind, event.run()) == ("checkpoint_save", "llm")


def test_without_a_mark_a_save_is_whole_when_it_is_quiet_and_as_large_as_others(tmp_path: Path) -> None:
    """One that is small, or is being written now, is not called whole; nor is a lone one."""
    watcher = Watcher(f"checkpoints:{tmp_path}")
    put(tmp_path / "global_step10/a.pt", 100)
    assert watcher.told() == [("checkpoint_save_start", 10)]
    put(tmp_path / "global_step20/a.pt", 100)
    put(tmp_path / "global_step30/a.pt", 100, at=time.time())
    put(tmp_path / "global_step40/a.pt", 10)
    assert sorted(watcher.told()) == [
        ("checkpoint_save", 10),
        ("checkpoint_save", 20),
        ("checkpoint_save_start", 30),
        ("checkpoint_save_start", 40),
    ]


def test_runs_below_the_directory_are_told_apart(tmp_path: Path) -> None:
    """Each by its folder's name; what is called checkpoints bears none."""
    put(tmp_path / "llm-a/checkpoint-5/trainer_state.json")
    put(tmp_path / "llm-b/checkpoints/checkpoint-7/trainer_state.json")
    put(tmp_path / "x/y/z/checkpoint-9/trainer_state.json")
    found = Watcher(f"checkpoints:{tmp_path}").look()
    assert sorted((event.run(), event.attributes["iteration"]) for event in found) == [("llm-a", 5), ("llm-b", 7)]


def test_a_save_that_was_told_as_whole_is_not_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Until its folder changes: a save of the same name is written anew after a restart."""
    watcher = Watcher(f"checkpoints:{tmp_path}")
    put(tmp_path / "checkpoint-5/trainer_state.json")
    watcher.look()
    read: list[str] = []
    whole = checkpoints.CheckpointScan.read
    monkeypatch.setattr(
        checkpoints.CheckpointScan, "read", lambda self, place: (read.append(place), whole(self, place))[1]
    )
    assert watcher.look() == []
    assert read == []
    (tmp_path / "checkpoint-5/trainer_state.json").unlink()
    put(tmp_path / "checkpoint-5/trainer_state.json", at=LONG_AGO + 500)
    assert watcher.told() == [("checkpoint_save", 5)]


def test_the_cost_of_a_look_is_bounded_and_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The newest saves first; what was left out is counted."""
    monkeypatch.setattr(checkpoints, "MOST_FILES", 12)
    monkeypatch.setattr(checkpoints, "FILES_OF_ONE", 5)
    for step in (10, 20, 30):
        for part in range(8):
            put(tmp_path / f"checkpoint-{step}/{part}.pt")
    found = Watcher(f"checkpoints:{tmp_path}").look()
    skipped = {event.attributes["iteration"]: event.attributes.get("files_skipped") for event in found}
    assert skipped == {30: 3, 20: 3, 10: 6}
    assert "a look ended after" in caplog.text


def test_files_may_vanish_under_the_look(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A trainer deletes old saves while they are read."""
    put(tmp_path / "checkpoint-5/a.pt")
    monkeypatch.setattr(checkpoints.os, "lstat", lambda path: (_ for _ in ()).throw(FileNotFoundError(path)))
    assert Watcher(f"checkpoints:{tmp_path}").look() == []


@pytest.mark.parametrize("spec", ["checkpoints:", "checkpoints:/no/such/folder", "checkpoints:/tmp#name=1"])
def test_what_cannot_be_listed_is_said(spec: str) -> None:
    """With the remedy."""
    with pytest.raises(SourceError, match="checkpoints:"):
        make_collector(spec, SETTINGS).open(None)


def test_no_file_of_one_user_hides_the_saves_of_another(tmp_path: Path) -> None:
    """A thousand brackets, a name of a megabyte: each tells nothing, and the look goes on."""
    put(tmp_path / "theirs/checkpoint-3/model.safetensors.index.json")
    index = tmp_path / "theirs/checkpoint-3/model.safetensors.index.json"
    put(tmp_path / "ours/checkpoint-7/trainer_state.json")
    for text in (
        '{"weight_map":{"a":%s}}' % ("[" * 1000 + "]" * 1000),
        '{"weight_map":{"a":"%s"}}' % ("x" * 1_000_000),
    ):
        index.write_text(text)
        assert ("checkpoint_save", 7) in Watcher(f"checkpoints:{tmp_path}").told()


def test_a_folder_of_a_runs_name_takes_no_save_from_that_run(tmp_path: Path) -> None:
    """Two users have a folder of the name: whose is the run's, nobody knows. With `#run=` the operator has said it."""
    for user in ("a", "b"):
        put(tmp_path / user / "llm/step-10/__0_0.distcp")
    told = Watcher(f"checkpoints:{tmp_path}").told()
    assert told == [("checkpoint_save_start", 10)] * 2
    assert ("checkpoint_torn", 10) in Watcher(f"checkpoints:{tmp_path}/a/llm").told()


def test_a_save_that_a_look_may_not_open_is_told_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not as whole by its other marks: what was not opened may be what is cut short."""
    put(tmp_path / "a/checkpoint-9/model.safetensors", 5000)
    (tmp_path / "a/checkpoint-9/model.safetensors").write_bytes((4000).to_bytes(8, "little") + b"{" + b" " * 4500)
    put(tmp_path / "b/checkpoint-5/trainer_state.json")
    put(tmp_path / "b/checkpoint-5/model.safetensors", 4)
    monkeypatch.setattr(checkpoints, "MOST_READ", 1000)
    collector = make_collector(f"checkpoints:{tmp_path}", SETTINGS)
    collector.open(None)
    first, second = ([(e.kind, e.attributes["iteration"]) for e in collector.collect(1.0).events] for _ in range(2))
    assert ("checkpoint_save_start", 5) not in first and ("checkpoint_save", 5) not in first
    assert ("checkpoint_torn", 5) in second


def test_the_first_file_of_a_folder_is_no_whole_save(tmp_path: Path) -> None:
    """A trainer writes others after it; one file that is a save by itself is whole."""
    header = b'{"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}'
    for place in ("hf/checkpoint-5/model.safetensors", "one/step=5.safetensors"):
        put(tmp_path / place)
        (tmp_path / place).write_bytes(len(header).to_bytes(8, "little") + header + b"x")
    kinds = {event.attributes["path"]: event.kind for event in Watcher(f"checkpoints:{tmp_path}").look()}
    assert kinds == {"checkpoint-5": "checkpoint_save_start", "step=5.safetensors": "checkpoint_save"}


def test_a_link_is_no_save(tmp_path: Path) -> None:
    """It may lead to what its owner may not read."""
    put(tmp_path / "secret/checkpoint-7/trainer_state.json")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/checkpoint-7").symlink_to(tmp_path / "secret/checkpoint-7")
    assert Watcher(f"checkpoints:{tmp_path}/run").told() == []


def test_a_torn_save_is_told_once_whatever_restarts(tmp_path: Path) -> None:
    """Beside a whole one, whose number of files stands in its words."""
    watcher = Watcher(f"checkpoints:{tmp_path}#run=llm")
    for name in ("step-10/.metadata", "step-10/__0_0.distcp", "step-20/__0_0.distcp"):
        put(tmp_path / name, at=LONG_AGO + (1 if "20" in name else 0))
    assert ("checkpoint_torn", 20) in watcher.told()
    assert watcher.told() == []


def test_saves_that_name_many_files_keep_no_other_waiting(tmp_path: Path) -> None:
    """A save that names more than any has tells of itself alone; who was left over longest goes first."""
    for number in range(12):
        index = tmp_path / f"theirs/checkpoint-{900 + number}/model.safetensors.index.json"
        index.parent.mkdir(parents=True)
        names = {str(n): f"{n:05d}{'x' * 60}" for n in range(9_000)}
        index.write_text(json.dumps({"weight_map": names}))
    put(tmp_path / "ours/checkpoint-5/trainer_state.json")
    put(tmp_path / "ours/checkpoint-5/model.safetensors", 4)
    collector = make_collector(f"checkpoints:{tmp_path}", SETTINGS)
    collector.open(None)
    told = [(e.kind, e.attributes["iteration"]) for _ in range(4) for e in collector.collect(1.0).events]
    assert ("checkpoint_torn", 5) in told


def test_shards_and_their_index_are_whole_once_nobody_writes(tmp_path: Path) -> None:
    """A trainer writes the optimizer behind them."""
    folder = tmp_path / "llm/checkpoint-500"
    for moment, kind in ((time.time(), "checkpoint_save_start"), (LONG_AGO, "checkpoint_save")):
        put(folder / "a.safetensors", 0)
        header = b'{"t":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}}'
        (folder / "a.safetensors").write_bytes(len(header).to_bytes(8, "little") + header + b"x")
        (folder / "model.safetensors.index.json").write_text('{"weight_map":{"t":"a.safetensors"}}')
        for file in folder.iterdir():
            os.utime(file, (moment, moment))
        assert Watcher(f"checkpoints:{tmp_path}").told() == [(kind, 500)]


def test_where_names_run_out_no_save_is_told_as_torn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the same name that makes it doubtful may be among what was not listed."""
    put(tmp_path / "a/llm/step-10/__0_0.distcp")
    spec = f"checkpoints:{tmp_path}"
    assert ("checkpoint_torn", 10) in Watcher(spec).told()
    monkeypatch.setattr(checkpoints, "MOST_NAMES", 4)
    assert Watcher(spec).told() == [("checkpoint_save_start", 10)]

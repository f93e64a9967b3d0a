"""NVRx's cycle files as its launcher writes them: whole, without a line end, and again when the cycle ends."""

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import SourceError, SourceSettings
from collectors.registry import make_collector
from collectors.sources import nvrx
from store.records.event import Event

SETTINGS = SourceSettings(node="n1", interval_s=0.001)


def write(folder: Path, cycle: int, end: str = "") -> None:
    """As cycle_info_writer.py does: a temporary file in its place, and the link to the present cycle."""
    told = {
        "job_id": "48213",
        "attempt_index": 0,
        "cycle_number": cycle,
        "cycle_start_time": f"2025-03-01T04:0{cycle}:00.000000Z",
        "cycle_end_time": end,
        "active_nodes": "gpu-[1-2]",
        "standby_nodes": "",
        "generation": int(bool(end)),
    }
    path = folder / f"cycle_info.48213.0.{cycle}"
    temporary = path.with_name(f"{path.name}.tmp")
    temporary.write_text(json.dumps(told, indent=2))
    temporary.replace(path)
    link = folder / "cycle_info.48213.current"
    link.unlink(missing_ok=True)
    link.symlink_to(path.name)


def looks(spec: str, position: Any = None, turns: int = 3) -> tuple[list[Event], Any]:
    """What a collector gives that is opened anew."""
    collector = make_collector(spec, SETTINGS)
    collector.open(position)
    events: list[Event] = []
    for _ in range(turns):
        collected = collector.collect(1.0)
        events += collected.events
        position = collected.position or position
    collector.close()
    return events, position


def test_each_start_and_end_is_told_once(tmp_path: Path) -> None:
    """Over restarts of the sidecar too; the link to the present cycle is no cycle."""
    write(tmp_path, 0)
    events, position = looks(f"nvrx:{tmp_path}")
    assert [(event.kind, event.run()) for event in events] == [("cycle_start", "48213")]
    assert looks(f"nvrx:{tmp_path}", position)[0] == []
    write(tmp_path, 0, "2025-03-01T04:00:30.000000Z")
    write(tmp_path, 1)
    later, _ = looks(f"nvrx:{tmp_path}", position)
    assert [(event.kind, event.attributes["cycle"]) for event in later] == [
        ("cycle_start", 0),
        ("cycle_end", 0),
        ("cycle_start", 1),
    ]
    assert later[0].id == events[0].id


def test_the_run_may_be_named(tmp_path: Path) -> None:
    """NVRx knows the job's number alone."""
    write(tmp_path, 0)
    assert looks(f"nvrx:{tmp_path}#run=llm-70b")[0][0].run() == "llm-70b"


def test_a_file_that_is_cut_short_is_read_again(tmp_path: Path) -> None:
    """It may be on a file server that gives its parts one after another."""
    path = tmp_path / "cycle_info.48213.0.0"
    path.write_text('{"job_id": "48213", "cycle_number": 0,\n')
    events, position = looks(f"nvrx:{tmp_path}")
    assert events == []
    assert position == {"seen": {}}
    write(tmp_path, 0)
    assert len(looks(f"nvrx:{tmp_path}", position)[0]) == 1


def test_only_the_newest_of_many_files_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost of a look is bounded."""
    monkeypatch.setattr(nvrx, "MOST_FILES", 2)
    for cycle in range(5):
        write(tmp_path, cycle)
    assert len(looks(f"nvrx:{tmp_path}")[0]) == 2


@pytest.mark.parametrize("spec", ["nvrx:", "nvrx:/no/such/folder", "nvrx:/tmp#job=1"])
def test_what_cannot_be_read_is_said(spec: str) -> None:
    """With the remedy."""
    with pytest.raises(SourceError, match="nvrx:"):
        make_collector(spec, SETTINGS).open(None)

"""Following the journal, through a stand-in for journalctl: a script that prints what the real one would."""

import json
import os
import shutil
import stat
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from collectors.collector import Position, SourceError, SourceSettings
from collectors.journal import JournalCollector, command, cursor_of
from store.event import Event

SETTINGS = SourceSettings(node="gpu-017")


def entry(number: int) -> str:
    """One line of `journalctl -o json`."""
    fields = {
        "__CURSOR": f"s=abc;i={number:x}",
        "__REALTIME_TIMESTAMP": "1740801906789000",
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "gpu-017",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": f"NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, name=x, GPU has fallen off the bus.",
    }
    return json.dumps(fields)


@pytest.fixture
def journalctl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A journalctl whose body a test writes; its arguments go to `arguments`."""
    script = tmp_path / "journalctl"
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    return script


def say(script: Path, *lines: str, after: str = "exec sleep 60") -> None:
    """Print lines, then go on following."""
    (script.parent / "lines").write_text("".join(f"{line}\n" for line in lines))
    script.write_text(f'#!/bin/sh\necho "$@" >> {script.parent}/arguments\ncat {script.parent}/lines\n{after}\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)


@pytest.fixture
def collector() -> Iterator[JournalCollector]:
    """One, closed in the end."""
    collector = JournalCollector("", SETTINGS)
    yield collector
    collector.close()


def turns(collector: JournalCollector, count: int) -> tuple[list[Event], Position | None]:
    """The events of some turns and the last position."""
    events: list[Event] = []
    position = None
    deadline = time.monotonic() + 10
    while len(events) < count and time.monotonic() < deadline:
        collected = collector.collect(0.1)
        events += collected.events
        position = collected.position or position
    return events, position


def test_entries_are_events_and_the_cursor_is_the_position(journalctl: Path, collector: JournalCollector) -> None:
    """Equal entries at other cursors are other events; the next start goes on behind the last."""
    say(journalctl, entry(1), entry(2), "no json", entry(2).replace("i=2", "i=3"))
    collector.open(None)
    events, position = turns(collector, 3)
    assert [event.attributes["pid"] for event in events] == [1, 2, 2]
    assert len({event.id for event in events}) == 3
    assert position == {"cursor": "s=abc;i=3"}
    collector.close()
    collector.open(position)
    assert turns(collector, 1)[0][0].id == events[0].id
    asked = (journalctl.parent / "arguments").read_text().splitlines()
    assert "--lines all" in asked[0]
    assert "--after-cursor s=abc;i=3" in asked[1]


def test_a_journalctl_that_ends_is_a_failure_with_its_own_words(journalctl: Path, collector: JournalCollector) -> None:
    """The runner starts it again."""
    say(journalctl, after="echo 'No journal files were found.' >&2; exit 1")
    collector.open(None)
    with pytest.raises(SourceError, match="No journal files were found"):
        turns(collector, 1)


def test_without_journalctl_another_source_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Not every node has systemd."""
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match="--source kmsg"):
        JournalCollector("", SETTINGS).open(None)


def test_a_journal_of_another_directory_is_named() -> None:
    """A host's, mounted into a container: all boots of it, for this boot is not its own."""
    assert command("/host/journal", None)[5:7] == ["--directory", "/host/journal"]
    assert "--boot" in command("", None)
    assert JournalCollector("/host/journal", SETTINGS).spec == "journal:/host/journal"


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"__CURSOR": 5}', b'{"__CURSOR"'])
def test_a_line_without_a_cursor_moves_nothing(raw: bytes) -> None:
    """Cut short, or something else."""
    assert cursor_of(raw) is None


def test_the_real_journalctl_takes_what_it_is_given(tmp_path: Path) -> None:
    """It ends with a complaint about an empty folder, not about an option."""
    if shutil.which("journalctl") is None:
        pytest.skip("journalctl is not installed")
    arguments: list[Any] = [word for word in command(str(tmp_path), None) if word != "--follow"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=20, check=False)
    assert "unrecognized" not in done.stderr
    assert "invalid" not in done.stderr.lower()

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
from real.patience import patience

from collectors.collector import Position, SourceError, SourceSettings
from collectors.sources.journal import JournalCollector, command, cursor_of, is_after
from store.records.event import Event

SETTINGS = SourceSettings(node="gpu-017")


LOST = "NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, name=x, GPU has fallen off the bus."
# More of it may come, so that it is held back.
AER = "pcieport 0000:00:{number:02x}.0: AER: Uncorrected (Fatal) error received: id=0008"


def entry(number: int, message: str = LOST) -> str:
    """One line of `journalctl -o json`."""
    fields = {
        "__CURSOR": f"s=abc;i={number:x}",
        "__REALTIME_TIMESTAMP": "1740801906789000",
        "_TRANSPORT": "kernel",
        "_HOSTNAME": "gpu-017",
        "SYSLOG_IDENTIFIER": "kernel",
        "MESSAGE": message.format(number=number),
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
    deadline = time.monotonic() + patience(10)
    while len(events) < count and time.monotonic() < deadline:
        collected = collector.collect(0.1)
        events += collected.events
        position = collected.position or position
    return events, position


def test_entries_are_events_and_the_cursor_is_the_position(journalctl: Path, collector: JournalCollector) -> None:
    """Equal entries at other cursors are other events; the next start goes on at the last one and tells it no more."""
    say(journalctl, entry(1), entry(2), "no json", entry(2).replace("i=2", "i=3"))
    collector.open(None)
    events, _ = turns(collector, 3)
    assert [event.attributes["pid"] for event in events] == [1, 2, 2]
    assert len({event.id for event in events}) == 3
    position = quiet(collector)
    assert position == {"cursor": "s=abc;i=3"}
    collector.close()
    say(journalctl, entry(3), entry(4))
    collector.open(position)
    assert [event.attributes["pid"] for event in turns(collector, 1)[0]] == [4]
    asked = (journalctl.parent / "arguments").read_text().splitlines()
    assert "--boot" in asked[0]
    assert "--merge --cursor s=abc;i=3" in asked[1]
    assert "--boot" not in asked[1], "what the last boot still wrote is read too"


def quiet(collector: JournalCollector) -> Position | None:
    """The position after the parser was asked for what it held back."""
    collector.collect(0.2)
    return collector.collect(0.2).position


def test_what_the_parser_held_back_at_a_crash_is_shown_to_it_again(
    journalctl: Path, collector: JournalCollector
) -> None:
    """The position names the first entry that matters to it; all up to the last one are decoded in silence."""
    say(journalctl, entry(1), entry(2, AER), entry(3))
    collector.open(None)
    collected = collector.collect(10)
    assert collected.lines == 3
    position = collected.position
    assert position == {"cursor": "s=abc;i=3", "held": "s=abc;i=2"}
    collector.close()
    say(journalctl, entry(2, AER), entry(3), entry(4))
    collector.open(position)
    events, _position = turns(collector, 2)
    assert [event.kind for event in events] == ["xid", "pcie_aer"]
    assert [event.attributes.get("pid") for event in events] == [4, None]
    assert "--cursor s=abc;i=2" in (journalctl.parent / "arguments").read_text().splitlines()[1]


def test_entries_that_were_vacuumed_away_unread_are_a_gap(journalctl: Path, collector: JournalCollector) -> None:
    """journalctl goes on with the next one that is left; what is there is read."""
    say(journalctl, entry(7))
    collector.open({"cursor": "s=abc;i=3"})
    events, position = turns(collector, 2)
    assert [(event.kind, event.attributes.get("pid")) for event in events] == [("collector_gap", None), ("xid", 7)]
    assert position is not None
    assert position["cursor"] == "s=abc;i=7"


def test_a_cursor_that_journalctl_refuses_is_a_gap_and_the_oldest_entry_is_next(
    journalctl: Path, collector: JournalCollector
) -> None:
    """Without it the source would be opened again in vain for ever."""
    say(
        journalctl,
        entry(9),
        after='case "$*" in *--cursor*) echo "Failed to seek to cursor" >&2; exit 1;; esac; exec sleep 60',
    )
    (journalctl.parent / "lines").write_text("")
    collector.open({"cursor": "nonsense"})
    deadline = time.monotonic() + patience(10)
    found: list[Event] = []
    while not found and time.monotonic() < deadline:
        found += collector.collect(0.1).events
    assert [event.kind for event in found] == ["collector_gap"]
    (journalctl.parent / "lines").write_text(entry(9) + "\n")
    collector.close()
    collector.open(None)
    assert [event.attributes["pid"] for event in turns(collector, 1)[0]] == [9]


def test_a_user_who_may_not_read_it_is_told_the_group(journalctl: Path, collector: JournalCollector) -> None:
    """In journalctl's own words."""
    say(journalctl, after="echo 'No journal files were opened due to insufficient permissions.' >&2; exit 1")
    collector.open(None)
    with pytest.raises(SourceError, match="systemd-journal"):
        turns(collector, 1)


def test_cursors_are_ordered_by_number_within_a_journal_and_by_time_beyond() -> None:
    """A journal that was begun anew counts from one again."""
    assert is_after("s=a;i=10;t=1", "s=a;i=f;t=2")
    assert not is_after("s=a;i=f;t=2", "s=a;i=10;t=1")
    assert is_after("s=b;i=1;t=20", "s=a;i=ff;t=1f")
    assert not is_after("s=b;i=ff;t=1f", "s=a;i=1;t=20")
    assert is_after("s=b;i=zz", "s=a"), "what cannot be told is new: better twice than not at all"


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
    assert " --directory /host/journal" in " ".join(command("/host/journal", None))
    assert "--boot" not in command("/host/journal", None)
    assert "--boot" in command("", None)
    assert JournalCollector("/host/journal", SETTINGS).spec == "journal:/host/journal"


def test_daemons_are_asked_for_by_what_journald_knows_of_them() -> None:
    """Root's by their user, others by their unit, systemd by its number: never by a name alone."""
    words = command("", None)
    groups = " ".join(words[words.index("_TRANSPORT=kernel") :]).split(" + ")
    assert groups[1:] == [
        "_UID=0 SYSLOG_IDENTIFIER=nv-fabricmanager SYSLOG_IDENTIFIER=smartd",
        "_SYSTEMD_UNIT=nvidia-persistenced.service SYSLOG_IDENTIFIER=nvidia-persistenced",
        "_SYSTEMD_UNIT=systemd-oomd.service SYSLOG_IDENTIFIER=systemd-oomd",
        "_PID=1 SYSLOG_IDENTIFIER=systemd",
    ]


@pytest.mark.parametrize("raw", [b"", b"{}", b"[]", b'{"__CURSOR": 5}', b'{"__CURSOR"'])
def test_a_line_without_a_cursor_moves_nothing(raw: bytes) -> None:
    """Cut short, or something else."""
    assert cursor_of(raw) is None


def test_the_real_journalctl_takes_what_it_is_given(tmp_path: Path) -> None:
    """It ends with a complaint about an empty folder, not about an option."""
    if shutil.which("journalctl") is None:
        pytest.skip("journalctl is not installed")
    arguments: list[Any] = [word for word in command(str(tmp_path), None) if word != "--follow"]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=patience(20), check=False)
    assert "unrecognized" not in done.stderr
    assert "invalid" not in done.stderr.lower()

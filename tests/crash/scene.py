"""What the crash tests share: a node's feeds, the sidecar's words for them, and the end of every test."""

import os
import secrets
from pathlib import Path

import pytest
from crash.feeds import KMSG, Feed, KernelLog, KernelRing, TrainingLog
from crash.proof import Rows, differences, wait_until_all_is_stored, wait_until_counted
from real.fleet import Fleet

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "6"))
SEED = int(os.environ.get("CRASH_SEED") or secrets.randbelow(10**6))
NODE = "gpu-017"
LONG = pytest.mark.skipif(ROUNDS < 20, reason="in the long form alone, as with CRASH_ROUNDS=200")


def feeds_in(folder: Path) -> list[Feed]:
    """A kernel log, a training log and, where it may be written, the kernel's ring."""
    run = f"run{secrets.token_hex(4)}"
    found: list[Feed] = [KernelLog(folder / "kern.log", "filefeed"), TrainingLog(folder / f"{run}.log")]
    if os.access(KMSG, os.R_OK | os.W_OK):
        # The ring keeps what other runs wrote: the name tells ours.
        found.append(KernelRing(f"ring{secrets.token_hex(4)}"))
    return found


def sources_of(feeds: list[Feed]) -> list[str]:
    """The sidecar's words for the feeds."""
    specs = [f"file:{feed.path}:kernel" for feed in feeds if isinstance(feed, KernelLog)]
    specs += [f"file:{feed.path}:training" for feed in feeds if isinstance(feed, TrainingLog)]
    specs += ["kmsg" for feed in feeds if isinstance(feed, KernelRing)]
    return [word for spec in specs for word in ("--source", spec)]


def settle(programs: Fleet, feeds: list[Feed], rows: Rows) -> None:
    """Wait for the rest and hold the store against what was written."""
    wait_until_all_is_stored(rows, feeds, programs.revive)
    left = wait_until_counted(rows)
    wrong = [*differences(rows, feeds), *([left] if left else [])]
    assert not wrong, "\n".join([f"seed {SEED}, logs in {programs.folder}", *wrong, programs.tail()])

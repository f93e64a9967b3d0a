"""What the crash tests share: a node's feeds, the sidecar's words for them, and the end of every test.

CRASH_TABLE=rounds.jsonl writes what each test played and found: `tests/crash/table.py` makes one table of it.
"""

import json
import os
import secrets
from pathlib import Path

import pytest
from crash.feeds import KMSG, Feed, KernelLog, KernelRing, TrainingLog
from crash.proof import Rows, differences, totals, wait_until_all_is_stored, wait_until_counted
from real.fleet import Fleet

ROUNDS = int(os.environ.get("CRASH_ROUNDS", "4"))
SEED = int(os.environ.get("CRASH_SEED") or secrets.randbelow(10**6))
NODE = "gpu-017"
TABLE = os.environ.get("CRASH_TABLE")
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


def note(what: str, rounds: int, written: int, missing: int, doubled: int) -> None:
    """A row of the table: so many rounds of a misfortune, and what became of the lines."""
    if TABLE:
        row = {"what": what, "rounds": rounds, "written": written, "missing": missing, "doubled": doubled}
        with Path(TABLE).open("a", encoding="utf-8") as file:
            file.write(json.dumps({**row, "seed": SEED}) + "\n")


def settle(programs: Fleet, feeds: list[Feed], rows: Rows, what: str, rounds: int) -> None:
    """Wait for the rest and hold the store against what was written.

    Args:
        what: the misfortune that was played, for the table.
        rounds: how often.
    """
    wait_until_all_is_stored(rows, feeds, programs.revive)
    left = wait_until_counted(rows)
    missing, doubled = totals(rows, feeds)
    note(what, rounds, sum(len(feed.written) for feed in feeds), missing, doubled)
    wrong = [*differences(rows, feeds), *([left] if left else [])]
    assert not wrong, "\n".join([f"seed {SEED}, logs in {programs.folder}", *wrong, programs.tail()])

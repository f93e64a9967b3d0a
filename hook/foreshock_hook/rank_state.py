"""What a rank does at this moment, in a small file that the sidecar reads: its step, its collectives, its own work.

The file is memory that the rank shares: a change costs about a microsecond, no system call and no thread, and a process
that is stopped or killed leaves what it did last. One file a rank, `DIR/RUN.rank5`, 1 KiB, best on /dev/shm.
`thread=True` adds a thread that stamps it once a second: for a sidecar that cannot see the process (another PID
namespace). Nothing here raises into the training.
"""

from __future__ import annotations  # trainers run on older Pythons than Foreshock

import mmap
import os
import re
import struct
import threading
import time
from contextlib import suppress

SIZE = 1024
MAGIC = b"FSRS"
VERSION = 1
# magic, version, changes; pid, PID namespace, rank, local rank, world; state, flags
HEAD = struct.Struct("<4sIQ iQiii B B 2x")
# stamp, step, end of the last step, own work, waited: nanoseconds but for the step
BODY = struct.Struct("<Qqqqq")
BODY_AT = 64
RUN_AT, RUN_BYTES = 128, 64
# name, collectives entered, collectives left
GROUP = struct.Struct("<48sqq")
GROUPS_AT = 192
MOST_GROUPS = (SIZE - GROUPS_AT) // GROUP.size
STARTING, WORKING, WAITING, PAUSED, ENDED = range(5)
_CHANGES_AT = 8
_CHANGES = struct.Struct("<Q")
_STATE_AT = HEAD.size - 4
_NAME = re.compile(r"[^\w.-]")


def _number(*names: str) -> int:
    for name in names:
        text = os.environ.get(name, "")
        if text.isascii() and text.isdigit() and len(text) < 9:
            return int(text)
    return -1


class RankState:
    """One rank's file. Its methods belong to the thread that trains."""

    def __init__(self, folder: str, run: str, rank: int, thread: bool = False) -> None:
        """Begin a file anew; one of a former start goes.

        Raises:
            OSError: it cannot be written.
        """
        self.path = os.path.join(folder, f"{_NAME.sub('_', run)[:100]}.rank{rank}")  # noqa: PTH118 - Python 3.7, no import
        fresh = f"{self.path}.{os.getpid()}.new"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
        with suppress(OSError):
            os.mkdir(folder, 0o755)  # noqa: PTH102 - as above; /dev/shm is empty after each boot
        with suppress(OSError):
            os.unlink(fresh)  # noqa: PTH108 - as above
        file = os.open(fresh, flags, 0o644)
        try:
            os.ftruncate(file, SIZE)
            self._memory = mmap.mmap(file, SIZE)
        finally:
            os.close(file)
        self._changes = 0
        self._groups: dict[str, int] = {}
        self._counts: list[list[int]] = []
        self._state, self._own_ns, self._waited_ns = STARTING, 0, 0
        self._since_ns = time.monotonic_ns()
        self._step, self._step_ns = -1, 0
        self.off = False
        try:
            namespace = os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116 - as above
        except OSError:
            namespace = 0
        local = _number("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK")
        world = _number("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
        HEAD.pack_into(
            self._memory, 0, MAGIC, VERSION, 0, os.getpid(), namespace, rank, local, world, STARTING, int(thread)
        )
        name = run.encode("utf-8", "replace")[:RUN_BYTES]
        self._memory[RUN_AT : RUN_AT + len(name)] = name
        self._write()
        os.replace(fresh, self.path)  # noqa: PTH105 - as above
        if thread:
            threading.Thread(target=self._stamps, name="foreshock-rank-state", daemon=True).start()

    def step(self, iteration: int | None) -> None:
        """An iteration is done."""
        self._turn(WORKING)
        self._step, self._step_ns = self._step + 1 if iteration is None else int(iteration), time.time_ns()
        self._write()

    def enter(self, group: str) -> None:
        """The rank enters a collective."""
        self._turn(WAITING)
        self._count(group)[1] += 1
        self._write(group)

    def leave(self, group: str) -> None:
        """The collective is done."""
        self._turn(WORKING)
        own = self._count(group)
        own[2] = own[1]
        self._write(group)

    def pause(self) -> None:
        """What begins is no work that others wait for at once: a save, a load, an evaluation."""
        self._turn(PAUSED)
        self._write()

    def go_on(self) -> None:
        """Work goes on."""
        self._turn(WORKING)
        self._write()

    def end(self) -> None:
        """The rank ends as planned."""
        self._turn(ENDED)
        self._write()
        self.off = True

    def _turn(self, state: int) -> None:
        """Account for the time since the last turn."""
        now_ns = time.monotonic_ns()
        passed = now_ns - self._since_ns
        if self._state == WAITING:
            self._waited_ns += passed
        elif self._state == WORKING:
            self._own_ns += passed
        self._state, self._since_ns = state, now_ns

    def _count(self, group: str) -> list[int]:
        """A group's place and counts; the last place is shared by those that have none of their own."""
        place = self._groups.get(group)
        if place is None:
            place = min(len(self._counts), MOST_GROUPS - 1)
            if place == len(self._counts):
                self._counts.append([place, 0, 0])
            if len(self._groups) < 4096:
                self._groups[group] = place
        return self._counts[place]

    def _write(self, group: str | None = None) -> None:
        """One change: a reader sees an odd number of changes while it is being made."""
        memory = self._memory
        self._changes += 1
        _CHANGES.pack_into(memory, _CHANGES_AT, self._changes)
        memory[_STATE_AT] = self._state
        BODY.pack_into(memory, BODY_AT, time.time_ns(), self._step, self._step_ns, self._own_ns, self._waited_ns)
        if group is not None:
            place, entered, left = self._counts[self._groups.get(group, MOST_GROUPS - 1)]
            GROUP.pack_into(
                memory, GROUPS_AT + place * GROUP.size, group.encode("utf-8", "replace")[:48], entered, left
            )
        self._changes += 1
        _CHANGES.pack_into(memory, _CHANGES_AT, self._changes)

    def _stamps(self) -> None:
        """Say once a second that the process runs: eight bytes, which need no lock."""
        with suppress(Exception):
            while not self.off:
                _CHANGES.pack_into(self._memory, BODY_AT, time.time_ns())
                time.sleep(1.0)

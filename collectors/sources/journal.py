"""`journal`: follows systemd's journal through `journalctl`, for nodes where /dev/kmsg may not be opened.

Lines of the kernel and of daemons that speak of disks, GPUs and services (Fabric Manager, smartd ...) of this boot,
from the oldest that was not read before; after a reboot those that the last boot still wrote too, where the journal is
kept on disk. Each record's own fields tell who wrote it: what a user logs under another's name gives nothing
(`parsers/trust.py`).
The journal's own cursor is the position: where its entry was vacuumed away meanwhile, an event says so, and what is
left is read.
`journal:DIR` reads the journal files of another directory (a host's, mounted into a container).
"""

import os
import subprocess
import time
from collections import deque
from datetime import UTC, datetime
from pathlib import Path

import orjson

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake
from collectors.decoder import Decoder, gap
from collectors.files.tail import LineSplitter
from parsers.registry import make_parser
from parsers.text.parser import Context, clean
from parsers.text.prefix import FABRIC_MANAGER_TAG
from store.records.event import Event

_CHUNK = 256 * 1024
_QUIET_S = 0.05
# Entries that the parser may hold back, shown to it again after a restart.
_MOST_HELD = 500
_SAID_BYTES = 4000
# Root's daemons, whose lines speak of faults, those of users of their own, and what systemd itself says of units; the
# parser checks each record's user, program and unit besides.
_DAEMONS = (
    ("_UID=0", *(f"SYSLOG_IDENTIFIER={tag}" for tag in (FABRIC_MANAGER_TAG, "smartd"))),
    *((f"_SYSTEMD_UNIT={tag}.service", f"SYSLOG_IDENTIFIER={tag}") for tag in ("nvidia-persistenced", "systemd-oomd")),
    ("_PID=1", "SYSLOG_IDENTIFIER=systemd"),
)
_MACHINE_ID = Path("/etc/machine-id")
_DENIED = "may not read the journal: add the sidecar's user to the group systemd-journal"


class JournalCollector:
    """A running `journalctl --follow`."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        self._directory = rest
        self.spec = f"journal:{rest}" if rest else "journal"
        self._settings = settings
        self.wake = Wake()
        self._process: subprocess.Popen[bytes] | None = None
        self._cursor: str | None = None
        self._held: deque[str] = deque(maxlen=_MOST_HELD)  # cursors since the parser was last flushed
        self._awaited: str | None = None  # after a restart: the newest entry that was decoded before
        self._seen: list[tuple[int, str]] = []
        self._gaps: list[Event] = []

    def open(self, position: Position | None) -> None:
        """Start journalctl behind the saved cursor.

        Raises:
            SourceError: there is no journalctl here.
        """
        self._cursor = self._awaited = position["cursor"] if position else None
        begin = position.get("held", self._cursor) if position else None
        self._flushed = begin == self._cursor  # nothing was held back after the newest entry
        self._held.clear()
        self._seen, self._gaps = [], []
        self._said = b""
        self._lines = LineSplitter()
        self._place = self._cursor or ""
        now = datetime.now(UTC)
        context = Context(node=self._settings.node, until=now, zone=self._settings.zone, trust="kernel")
        self._decoder: Decoder = Decoder(
            make_parser("kernel", context, self._settings.rules), lambda _line: f"journal:{self._place}"
        )
        self._heard = time.monotonic()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a fixed program, no shell
                command(self._directory, begin), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except FileNotFoundError as error:
            raise SourceError("there is no journalctl here: use --source kmsg or file:PATH") from error

    def collect(self, wait_s: float) -> CollectorTurn:
        """Entries that were written, within at most `wait_s`.

        Raises:
            SourceError: journalctl ended; the message is its own.
        """
        process = self._process
        if process is None or process.stdout is None or process.stderr is None:
            raise SourceError("the journal is not open")
        quiet_s = min(_QUIET_S, wait_s) if self._decoder.holding else wait_s
        ready = self.wake.wait(quiet_s, process.stdout.fileno(), process.stderr.fileno())
        lines = 0
        if process.stderr.fileno() in ready and (said := os.read(process.stderr.fileno(), _CHUNK)):
            self._said = (self._said + said)[-_SAID_BYTES:]
        if process.stdout.fileno() in ready:
            data = os.read(process.stdout.fileno(), _CHUNK)
            if not data:
                self._ended(process)
            lines = self._feed(data)
        elif self._decoder.holding:
            self._decoder.flush()
            self._held.clear()
        gaps, self._gaps = self._gaps, []
        events = (*gaps, *self._decoder.take())
        return CollectorTurn(
            events,
            position=self._position(),
            lines=lines,
            errors=self._decoder.take_errors(),
            refused=self._decoder.take_refused(),
        )

    def _position(self) -> Position | None:
        if self._cursor is None or self._awaited is not None:
            return None
        return {"cursor": self._cursor, "held": self._held[0]} if self._held else {"cursor": self._cursor}

    def close(self) -> None:
        """End journalctl."""
        process, self._process = self._process, None
        if process is not None:
            process.terminate()
            process.communicate()

    def _feed(self, data: bytes) -> int:
        lines = self._lines.feed(data)
        for number, raw in lines:
            cursor = cursor_of(raw)
            if self._awaited is not None and cursor is not None and not self._is_new(cursor, number, clean(raw)):
                continue
            if cursor is not None:
                self._cursor = self._place = cursor
                self._held.append(cursor)
            self._decoder.feed(clean(raw), number)
            if not self._decoder.holding:
                self._held.clear()
        return len(lines)

    def _is_new(self, cursor: str, number: int, text: str) -> bool:
        """After a restart: whether an entry comes after those that were decoded before; those are gathered."""
        awaited = str(self._awaited)
        if cursor != awaited and not is_after(cursor, awaited):
            self._seen.append((number, text))
            return False
        found = cursor == awaited
        if found:
            self._seen.append((number, text))
        else:
            self._gaps.append(self._lost(awaited))
        last = self._seen[-1][0] if self._seen else 0
        self._decoder.rehearse(self._seen, last if self._flushed else 0)
        self._awaited, self._seen = None, []
        return not found

    def _lost(self, cursor: str) -> Event:
        message = "The journal no longer holds the entry that was read last: how many went with it unread is unknown."
        return gap(self._settings.node, datetime.now(UTC), f"journal:{cursor}:lost", message, {"origin": "journal"})

    def _ended(self, process: subprocess.Popen[bytes]) -> None:
        """journalctl is gone. Where it does not know the cursor, the journal is read from its oldest entry.

        Raises:
            SourceError: it ended for any other reason.
        """
        _, said = process.communicate()
        words = clean((self._said + said).strip().split(b"\n")[-1])[:300] or f"exit {process.returncode}"
        if self._awaited is not None and "cursor" in words:
            lost = self._lost(self._awaited)
            self.close()
            self.open(None)
            self._gaps.append(lost)
        elif "permission" in words.lower():
            raise SourceError(f"{_DENIED} ({words})")
        else:
            raise SourceError(f"journalctl ended: {words}")


def command(directory: str, cursor: str | None) -> list[str]:
    """The journalctl to run: from an entry on, itself included, or from the oldest of this boot."""
    place = ["--directory", directory] if directory else [] if cursor else ["--boot"]
    # --follow shows one boot alone, whatever --boot says: only --merge shows what an older one wrote behind the cursor.
    begin = ["--merge", "--cursor", cursor] if cursor else []
    options = ["--follow", "--lines", "all", "--output", "json", "--quiet"]
    own = [] if directory or not cursor else machine()  # --merge shows what other machines sent here, too
    daemons = [word for group in _DAEMONS for word in ("+", *group, *own)]
    return ["journalctl", *options, *place, *begin, "_TRANSPORT=kernel", *own, *daemons]


def machine() -> list[str]:
    """What the entries of this machine match."""
    try:
        return [f"_MACHINE_ID={_MACHINE_ID.read_text(encoding='ascii').strip()}"]
    except OSError:
        return []


def cursor_of(raw: bytes) -> str | None:
    """The cursor of one entry of `-o json`; None where the line is broken."""
    try:
        cursor = orjson.loads(raw)["__CURSOR"]
    except (ValueError, KeyError, TypeError):
        return None
    return cursor if isinstance(cursor, str) else None


def is_after(cursor: str, other: str) -> bool:
    """Whether a cursor is of a later entry: by the number within one journal, else by the time."""
    mine, theirs = (dict(part.partition("=")[::2] for part in text.split(";")) for text in (cursor, other))
    key = "i" if mine.get("s") == theirs.get("s") else "t"
    try:
        return int(mine[key], 16) > int(theirs[key], 16)
    except (KeyError, ValueError):
        return True

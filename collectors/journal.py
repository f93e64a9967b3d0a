"""`journal`: follows systemd's journal through `journalctl`, for nodes where /dev/kmsg may not be opened.

Kernel lines of this boot, from the oldest that was not read before; the journal's own cursor is the position.
`journal:DIR` reads the journal files of another directory (a host's, mounted into a container).
"""

import os
import select
import subprocess
import time
from datetime import UTC, datetime

import orjson

from collectors.collector import Collected, Position, SourceError, SourceSettings
from collectors.decoder import Decoder
from collectors.tail import LineSplitter
from parsers.parser import Context, clean
from parsers.ruled import make_parser

_CHUNK = 256 * 1024
_QUIET_S = 0.05


class JournalCollector:
    """A running `journalctl --follow`."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        self._directory = rest
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None
        self._cursor: str | None = None

    @property
    def spec(self) -> str:
        """What names it."""
        return f"journal:{self._directory}" if self._directory else "journal"

    def open(self, position: Position | None) -> None:
        """Start journalctl behind the saved cursor.

        Raises:
            SourceError: there is no journalctl here.
        """
        self._cursor = position["cursor"] if position else None
        self._lines = LineSplitter()
        self._place = self._cursor or ""
        context = Context(node=self._settings.node, until=datetime.now(UTC), zone=self._settings.zone)
        self._decoder: Decoder = Decoder(
            make_parser("kernel", context, self._settings.rules), lambda _line: f"journal:{self._place}"
        )
        self._heard = time.monotonic()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - a fixed program, no shell
                command(self._directory, self._cursor), stdout=subprocess.PIPE, stderr=subprocess.PIPE
            )
        except FileNotFoundError as error:
            raise SourceError("there is no journalctl here: use --source kmsg or file:PATH") from error

    def collect(self, wait_s: float) -> Collected:
        """Entries that were written, within at most `wait_s`.

        Raises:
            SourceError: journalctl ended; the message is its own.
        """
        process = self._process
        if process is None or process.stdout is None:
            raise SourceError("the journal is not open")
        quiet_s = _QUIET_S if self._decoder.holding else wait_s
        ready, _, _ = select.select([process.stdout], [], [], quiet_s)
        lines = 0
        if ready:
            data = os.read(process.stdout.fileno(), _CHUNK)
            if not data:
                raise SourceError(f"journalctl ended: {self._complaint(process)}")
            lines = self._feed(data)
        elif self._decoder.holding:
            self._decoder.flush()
        position = None if self._cursor is None else {"cursor": self._cursor}
        return Collected(
            events=self._decoder.take(), lines=lines, errors=self._decoder.take_errors(), position=position
        )

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
            if cursor is not None:
                self._cursor = self._place = cursor
            self._decoder.feed(clean(raw), number)
        return len(lines)

    @staticmethod
    def _complaint(process: subprocess.Popen[bytes]) -> str:
        _, said = process.communicate()
        return clean(said.strip().split(b"\n")[-1])[:300] or f"exit {process.returncode}"


def command(directory: str, cursor: str | None) -> list[str]:
    """The journalctl to run."""
    place = ["--directory", directory] if directory else ["--boot"]
    begin = ["--after-cursor", cursor] if cursor else ["--lines", "all"]
    return ["journalctl", "--follow", "--output", "json", "--quiet", *place, *begin, "_TRANSPORT=kernel"]


def cursor_of(raw: bytes) -> str | None:
    """The cursor of one entry of `-o json`; None where the line is broken."""
    try:
        cursor = orjson.loads(raw)["__CURSOR"]
    except (ValueError, KeyError, TypeError):
        return None
    return cursor if isinstance(cursor, str) else None

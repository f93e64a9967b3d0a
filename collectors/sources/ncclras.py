"""`ncclras[:HOST:PORT][#run=NAME]`: asks NCCL's RAS on this node every 30 s where the ranks of its job stand.

    ncclras                          127.0.0.1:28028, as NCCL listens (NCCL_RAS_ADDR)

The protocol is the client's of NVIDIA/nccl: `CLIENT PROTOCOL 2`, `TIMEOUT`, `SET FORMAT json` (since 2.28; an older one
says so, and is read as text), `VERBOSE STATUS`, and then all that comes until the end. Any program may answer at that
port: time and bytes are bounded, and the answer is a job's word. Where nothing listens no job runs: that is no event.
"""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.decoder import number
from parsers.registry import make_parser
from parsers.text.parser import MAX_LINE, Context, ParseError, Parser, parse
from store.records.event import Event

_ADDRESS = ("127.0.0.1", 28028)
_INTERVAL_S = 30.0
# For one answer; RAS waits 5 s for others by itself.
_TIMEOUT_S = 15.0
_ASK_S = 5
MOST_BYTES = 64 * 1024 * 1024
_MOST_WORD = 4096
_PROTOCOL = "2"


class NcclrasCollector:
    """One address."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is HOST:PORT or nothing, with options behind `#`.

        Raises:
            SourceError: no address, or an unknown option.
        """
        self.spec = f"ncclras:{rest}" if rest else "ncclras"
        address, options = split_options(self.spec, rest, ("run",))
        host, _colon, port = address.rpartition(":")
        if address and (not host or not port.isdecimal() or not 0 < int(port) < 65536):
            raise SourceError(f"{self.spec}: is no address: write ncclras:HOST:PORT, as in ncclras:127.0.0.1:28028")
        self._address = (host.strip("[]"), int(port)) if address else _ADDRESS
        self._run = options.get("run", [None])[-1]
        self._node = settings.node
        self._interval_s = settings.interval_s or _INTERVAL_S
        self._timeout_s = settings.timeout_s or min(_TIMEOUT_S, self._interval_s)
        self.wake = Wake()
        self._due = 0.0
        self._parser = self._make_parser()

    def open(self, _position: Position | None) -> None:
        """The first question is at once."""
        self._due = time.monotonic()
        self._parser = self._make_parser()

    def collect(self, wait_s: float) -> CollectorTurn:
        """One question, when it is due within `wait_s`."""
        if not self.wake.wait_until(self._due, wait_s):
            return CollectorTurn()
        now = datetime.now(UTC)
        try:
            text = self._answer()
        except ConnectionRefusedError:
            self._parser = self._make_parser()  # the next job's counts begin anew
            return CollectorTurn()
        except (OSError, ParseError):
            return CollectorTurn(errors=1)
        finally:
            self._due = time.monotonic() + self._interval_s
        broken: list[ParseError] = []
        lines = [line[:MAX_LINE] for line in text.split(b"\n")]
        found = [
            replace(event, time=now) for event in parse(self._parser, lines, lambda _line, error: broken.append(error))
        ]
        events = tuple(self._numbered(found, now))
        return CollectorTurn(events, lines=len(lines), errors=len(broken))

    def close(self) -> None:
        """Nothing is held open between questions."""

    def _make_parser(self) -> Parser:
        return make_parser("ncclras", Context(node=self._node, run=self._run, trust="user"))

    def _numbered(self, events: list[Event], now: datetime) -> Iterator[Event]:
        for place, event in enumerate(events):
            yield number(event, f"{self.spec}:{place}:{now.isoformat()}")

    def _answer(self) -> bytes:
        """All that is answered.

        Raises:
            OSError: nobody answers in time.
            ParseError: the answer is none of RAS's.
        """
        end_s = time.monotonic() + self._timeout_s
        with socket.create_connection(self._address, timeout=self._timeout_s) as connection:
            self._say(connection, f"CLIENT PROTOCOL {_PROTOCOL}", "SERVER PROTOCOL ", end_s)
            self._say(connection, f"TIMEOUT {_ASK_S}", "OK", end_s)
            with suppress(ParseError):  # before 2.28
                self._say(connection, "SET FORMAT json", "OK", end_s)
            connection.sendall(b"VERBOSE STATUS\n")
            parts, size = [], 0
            while chunk := self._receive(connection, end_s):
                parts.append(chunk)
                size += len(chunk)
                if size > MOST_BYTES:
                    raise ParseError(f"the answer is longer than {MOST_BYTES} bytes")
        return b"".join(parts)

    def _say(self, connection: socket.socket, text: str, expected: str, end_s: float) -> None:
        connection.sendall(text.encode() + b"\n")
        word = b""
        while not word.endswith(b"\n"):
            chunk = self._receive(connection, end_s)
            word += chunk
            if not chunk or len(word) > _MOST_WORD:
                raise ParseError("the connection ended, or what answers is not NCCL's RAS")
        if not word.decode("utf-8", "replace").upper().startswith(expected):
            raise ParseError(f"the answer to {text!r} is {word[:80]!r}: is this NCCL's RAS?")

    def _receive(self, connection: socket.socket, end_s: float) -> bytes:
        rest_s = end_s - time.monotonic()
        if rest_s <= 0 or self.wake.is_set:
            raise TimeoutError("the answer does not end")
        connection.settimeout(rest_s)
        return connection.recv(256 * 1024)

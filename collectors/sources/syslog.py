"""`syslog:HOST:PORT`: takes what rsyslog, syslog-ng and others send by TCP, in RFC 5424 or 3164.

    syslog:127.0.0.1:5140                                     without TLS: this machine alone is heard
    syslog:0.0.0.0:6514#cert=server.pem&key=server.key&clients=site-ca.pem    TLS; each sender has a certificate, too
    syslog:0.0.0.0:6514#cert=...&key=...&clients=...&relay=loghost.example.org    that sender speaks of every host

A line says which host it is of, and whoever reaches a port may say so. Therefore without TLS only this machine is
heard, and of its users root, system daemons and the sidecar's own (`trust:` says otherwise). With TLS a sender speaks
of the one host that its certificate names (the first DNS name of `subjectAltName`, else the common name), unless it is
a relay. Messages end at a line feed or bear their length before them (RFC 6587).
Syslog over TCP has no receipts: what is under way when either side ends is lost.
"""

import ipaddress
import logging
import os
import re
import resource
import socket
import ssl
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, Position, SourceError, SourceSettings, Wake, split_options
from collectors.decoder import Decoder, number
from collectors.trust import FIRST_USER, trust_of
from parsers.registry import PARSERS, make_parser
from parsers.text.parser import MAX_LINE, Context, clean
from store.records.event import Event
from wire.access.address import is_loopback

# At once, as far as the process may have descriptors; some are left to the other sources.
MOST_SENDERS = 4096
_OTHERS_DESCRIPTORS = 256
# Of one sender in one turn: the others come to their right.
_CHUNK, _MOST_CHUNKS = 64 * 1024, 16
_HANDSHAKE_S = 10.0
_QUIET_S = 0.05
_COMPLAINT_S = 60.0
_TLS = ("cert", "key", "clients")
_LENGTH = re.compile(rb"(\d{1,7}) (?=<)")
_MAYBE_LENGTH = re.compile(rb"\d{0,7} ?")
_ESTABLISHED = "01"
_END = re.compile(rb"[\n\x00]")
_LOG = logging.getLogger("foreshock.sidecar")


class Frames:
    """Bytes of a stream to messages: by their length where they bear one (RFC 6587), else up to a line feed or NUL.

    Of a message over MAX_LINE bytes the begin is given, and the rest passed over.
    """

    def __init__(self) -> None:
        self._rest = bytearray()
        self._looked = 0  # bytes of the rest that hold no end
        self._skip = 0  # bytes to come of a message whose begin was given
        self._is_cut = False  # the same of one that ends at a line feed
        self.cut = 0  # messages that were too long

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole now."""
        self._rest += data
        while (found := self._next()) is not None:
            if found:
                yield found

    def _next(self) -> bytes | None:
        """The next message, empty for what is passed over; None until more comes."""
        if self._skip:
            gone = min(self._skip, len(self._rest))
            self._skip -= gone
            return self._cut(gone, b"") if gone else None
        if not self._is_cut:
            if known := _LENGTH.match(self._rest):
                return self._counted(int(known[1]), known.end())
            if _MAYBE_LENGTH.fullmatch(self._rest):
                return None
        return self._ended()

    def _counted(self, length: int, begin: int) -> bytes | None:
        end = begin + min(length, MAX_LINE)
        if len(self._rest) < end:
            return None
        if length > MAX_LINE:
            self.cut += 1
            self._skip = length - MAX_LINE
        return self._cut(end, bytes(self._rest[begin:end]))

    def _ended(self) -> bytes | None:
        end = _END.search(self._rest, self._looked)
        if end is not None:
            message = b"" if self._is_cut else bytes(self._rest[: min(end.start(), MAX_LINE)])
            self.cut += len(message) < end.start() and not self._is_cut
            self._is_cut = False
            return self._cut(end.end(), message)
        self._looked = len(self._rest)
        if len(self._rest) <= MAX_LINE:
            return None
        message = b"" if self._is_cut else bytes(self._rest[:MAX_LINE])
        self.cut += not self._is_cut
        self._is_cut = True
        return self._cut(len(self._rest), message)

    def _cut(self, count: int, message: bytes) -> bytes:
        del self._rest[:count]
        self._looked = 0
        return message


@dataclass(slots=True)
class _Sender:
    """One connection. Until its handshake is over nobody knows whose it is."""

    socket: socket.socket
    node: str | None  # of what it says; None: of whatever host it names
    decoder: Decoder
    frames: Frames = field(default_factory=Frames)
    until: float | None = None  # when the handshake must be over; None: it is
    number: int = 0
    heard: float = 0.0


class SyslogCollector:
    """A port that syslog daemons send to."""

    def __init__(self, rest: str, settings: SourceSettings) -> None:
        """`rest` is HOST:PORT and options.

        Raises:
            SourceError: no address, an unknown format, or an address that strangers reach without TLS.
        """
        self.spec = f"syslog:{rest}"
        address, options = split_options(self.spec, rest, (*_TLS, "relay"))
        host, colon, port = address.rpartition(":")
        if not (colon and host and port.isascii() and port.isdigit() and int(port) < 65536):
            raise SourceError(f"{self.spec}: write syslog:HOST:PORT, as syslog:127.0.0.1:5140")
        self._address = host.strip("[]"), int(port)
        self._files = {name: Path(options[name][-1]) for name in _TLS if name in options}
        self._relays = frozenset(options.get("relay", ()))
        if not self._files and not is_loopback(host):
            raise SourceError(
                f"{self.spec}: without TLS anybody who reaches {host} could speak of every host: use 127.0.0.1, "
                "or add #cert=FILE&key=FILE&clients=FILE"
            )
        if self._files and len(self._files) < len(_TLS):
            raise SourceError(f"{self.spec}: TLS takes cert, key and clients (whose certificates senders must have)")
        self._format = settings.format or "kernel"
        if self._format not in PARSERS or PARSERS[self._format].shape != "log":
            raise SourceError(f"{self.spec}: {self._format!r} is no format of a log's lines")
        self._settings = settings
        self._trust = trust_of(self.spec, settings.trust).trust
        self.wake = Wake()
        self._listener: socket.socket | None = None
        self._most = MOST_SENDERS
        self._tls: ssl.SSLContext | None = None
        self._read_at: tuple[int, ...] = ()
        self._senders: dict[int, _Sender] = {}
        self._events: list[Event] = []
        self._errors, self._refused = 0, Counter[str]()
        self._complained = -_COMPLAINT_S

    @property
    def port(self) -> int:
        """Where it listens: 0 takes any free port."""
        return 0 if self._listener is None else int(self._listener.getsockname()[1])

    def open(self, _position: Position | None) -> None:
        """Listen. There is no place in a stream to go on from.

        Raises:
            SourceError: the port is taken, or a certificate cannot be read.
        """
        try:
            self._read_certificates()
            family = socket.AF_INET6 if ":" in self._address[0] else socket.AF_INET
            self._listener = socket.create_server(self._address, family=family, backlog=512)
        except OSError as error:  # of TLS, too
            raise SourceError(f"{self.spec}: {error}: use a free port, and files that may be read") from error
        self._listener.setblocking(False)
        soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        self._most = min(MOST_SENDERS, max(soft - _OTHERS_DESCRIPTORS, 16))

    def collect(self, wait_s: float) -> CollectorTurn:
        """What senders said within at most `wait_s`.

        Raises:
            SourceError: it is not open.
        """
        if self._listener is None:
            raise SourceError(f"{self.spec} is not open")
        is_holding = any(sender.decoder.holding for sender in self._senders.values())
        ready = self.wake.wait(min(wait_s, _QUIET_S) if is_holding else wait_s, self._listener.fileno(), *self._senders)
        lines = 0
        for descriptor in ready:
            if descriptor == self._listener.fileno():
                self._accept(self._listener)
            elif (sender := self._senders.get(descriptor)) is not None:
                lines += self._hear(descriptor, sender)
        self._end_what_is_quiet()
        turn = CollectorTurn(tuple(self._events), lines=lines, errors=self._errors, refused=dict(self._refused))
        self._events, self._errors, self._refused = [], 0, Counter()
        return turn

    def close(self) -> None:
        """Let go of the port and of all senders."""
        for sender in self._senders.values():
            sender.socket.close()
        self._senders.clear()
        if self._listener is not None:
            self._listener.close()
            self._listener = None

    def _read_certificates(self) -> None:
        """Anew where a file has changed: certificates are renewed while this runs."""
        if not self._files:
            return
        changed = tuple(self._files[name].stat().st_mtime_ns for name in _TLS)
        if changed == self._read_at:
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self._files["cert"], self._files["key"])
        context.load_verify_locations(self._files["clients"])
        self._tls, self._read_at = context, changed

    def _accept(self, listener: socket.socket) -> None:
        try:
            connection, _peer = listener.accept()
        except OSError:  # it went again, or descriptors are all used
            return
        if len(self._senders) >= self._most:
            # Who has not shown a certificate yet goes first: a stranger keeps no place from a node of the site's.
            unknown = next((place for place, sender in self._senders.items() if sender.until is not None), None)
            self._complain("more than %d senders at once: one was sent away", self._most)
            if unknown is None:
                connection.close()
                return
            self._drop(unknown)
        connection.setblocking(False)
        if not self._files and self._settings.trust is None and not is_daemon(connection):
            self._refused["writer"] += 1
            self._complain("a user's program was refused: say `trust:` where users may send")
            connection.close()
            return
        node = None if self._settings.hosts == "many" else self._settings.node
        if self._files:
            try:
                self._read_certificates()
            except OSError as error:
                _LOG.warning("%s: %s: the certificates read before stay", self.spec, error)
            if self._tls is None:
                return
            connection = self._tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        until = time.monotonic() + _HANDSHAKE_S if self._files else None
        self._senders[connection.fileno()] = _Sender(connection, node, self._decoder(node), until=until)

    def _complain(self, text: str, *about: object) -> None:
        """Once a minute: whoever reaches the port could fill the log. The counters count each."""
        now = time.monotonic()
        if now - self._complained >= _COMPLAINT_S:
            self._complained = now
            _LOG.warning(f"%s: {text}", self.spec, *about)

    def _decoder(self, node: str | None) -> Decoder:
        context = Context(node=node, until=datetime.now(UTC), zone=self._settings.zone, trust=self._trust)
        return Decoder(make_parser(self._format, context, self._settings.rules), lambda _line: "")

    def _hear(self, descriptor: int, sender: _Sender) -> int:
        """The lines that a sender has for us; it goes where it ended or broke off."""
        lines = 0
        try:
            if sender.until is not None:
                self._shake_hands(sender)
            for _ in range(_MOST_CHUNKS):
                data = sender.socket.recv(_CHUNK)
                if not data:
                    raise ConnectionResetError
                lines += self._decode(sender, data)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except OSError as error:
            if isinstance(error, ssl.SSLError) and sender.until is not None:
                self._refused["writer"] += 1
                self._complain("a sender was refused: %s", error.reason or error)
            self._drop(descriptor)
        return lines

    def _shake_hands(self, sender: _Sender) -> None:
        """Finish the handshake: then a sender's certificate says of which host it speaks."""
        connection = sender.socket
        if not isinstance(connection, ssl.SSLSocket):
            return
        connection.do_handshake()
        sender.until = None
        name = certified_name(connection.getpeercert() or {})
        if self._settings.hosts == "many" and name not in self._relays:
            sender.node = name or self._settings.node
            sender.decoder = self._decoder(sender.node)

    def _decode(self, sender: _Sender, data: bytes) -> int:
        before, sender.heard = sender.number, time.monotonic()
        for message in sender.frames.feed(data):
            sender.number += 1
            # What a program logged in several lines stays one: the second may be made to look like the kernel's.
            sender.decoder.feed(clean(message.rstrip(b"\r").replace(b"\n", b" ")), sender.number)
        self._errors += sender.frames.cut
        sender.frames.cut = 0
        self._take(sender)
        return sender.number - before

    def _take(self, sender: _Sender) -> None:
        for event in sender.decoder.take():
            self._events.append(event if sender.node is None else _of(event, sender.node))
        self._errors += sender.decoder.take_errors()
        self._refused.update(sender.decoder.take_refused())

    def _end_what_is_quiet(self) -> None:
        """Nothing more belongs to what a parser holds back of a sender that pauses; a handshake has its time."""
        now = time.monotonic()
        for sender in self._senders.values():
            if sender.decoder.holding and now - sender.heard >= _QUIET_S:
                sender.decoder.flush()
                self._take(sender)
        late = [place for place, sender in self._senders.items() if sender.until is not None and sender.until < now]
        for descriptor in late:
            self._drop(descriptor)

    def _drop(self, descriptor: int) -> None:
        sender = self._senders.pop(descriptor)
        sender.decoder.flush()
        self._take(sender)
        with suppress(OSError):
            sender.socket.close()


def is_daemon(connection: socket.socket) -> bool:
    """Whether the other end of a connection on this machine is held by root, a system user or the sidecar's own.

    The kernel's table names each socket's user, but root for one that nobody holds any more: that end is no daemon's.
    """
    peer, own = (_as_in_table(address) for address in (connection.getpeername(), connection.getsockname()))
    table = Path("/proc/net/tcp6" if connection.family == socket.AF_INET6 else "/proc/net/tcp")
    try:
        rows = [row.split() for row in table.read_text(encoding="ascii").splitlines()[1:]]
    except OSError:
        return False
    users = [int(row[7]) for row in rows if row[1:4] == [peer, own, _ESTABLISHED] and row[9] != "0"]
    return bool(users) and (users[0] < FIRST_USER or users[0] == os.geteuid())


def _as_in_table(address: tuple[Any, ...]) -> str:
    """`0100007F:1414` for ("127.0.0.1", 5140): words as the machine keeps them."""
    packed = ipaddress.ip_address(str(address[0]).partition("%")[0]).packed
    words = (int.from_bytes(packed[at : at + 4], sys.byteorder) for at in range(0, len(packed), 4))
    return f"{''.join(f'{word:08X}' for word in words)}:{address[1]:04X}"


def _of(event: Event, node: str) -> Event:
    """The event as of the host that its sender is."""
    return event if event.node == node else number(replace(event, node=node), "")


def certified_name(certificate: Mapping[str, Any]) -> str | None:
    """The host that a certificate is of, as `ssl.SSLSocket.getpeercert` tells it."""
    for kind, name in certificate.get("subjectAltName", ()):
        if kind == "DNS":
            return str(name)
    for part in certificate.get("subject", ()):
        for key, value in part:
            if key == "commonName":
                return str(value)
    return None

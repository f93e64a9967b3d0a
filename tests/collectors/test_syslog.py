"""A port for syslog daemons: real ones that send to it, what is cut anywhere, and who may speak of which host."""

import signal
import socket
import ssl
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from real.certificates import Authority
from real.patience import patience
from real.programs import need, stop, wait_for

from collectors.collector import SourceError, SourceSettings
from collectors.sources import syslog
from collectors.sources.syslog import Frames, SyslogCollector
from parsers.text.parser import MAX_LINE
from store.records.event import Event

FAULT = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=python, GPU has fallen off the bus."
# A local socket of rsyslog, and what it sends on.
CONFIGURATION = """
module(load="imuxsock" SysSock.Use="off")
input(type="imuxsock" Socket="{folder}/log" UseSysTimeStamp="off" IgnoreTimestamp="off")
global(localHostname="gpu-017" workDirectory="{folder}" {tls})
*.* action(type="omfwd" target="localhost" port="{port}" protocol="tcp" {options})
"""


def line(host: str, ident: int = 0) -> bytes:
    """A kernel's line in RFC 5424."""
    return f"<2>1 2025-03-01T04:05:{ident:02}.789000+00:00 {host} kernel - - - {FAULT}".encode()


@contextmanager
def listening(spec: str, hosts: str = "one") -> Iterator[SyslogCollector]:
    """The source, open."""
    source = SyslogCollector(spec, SourceSettings(node="loghost", hosts=hosts))
    source.open(None)
    try:
        yield source
    finally:
        source.close()


def heard(source: SyslogCollector, enough: Callable[[list[Event]], bool]) -> list[Event]:
    """Its events, until there are enough."""
    events: list[Event] = []

    def look() -> bool:
        events.extend(source.collect(0.1).events)
        return enough(events)

    wait_for("events of syslog", look)
    return events + list(source.collect(0.1).events)


@contextmanager
def rsyslog(folder: Path, port: int, options: str, tls: str = "") -> Iterator[socket.socket]:
    """A real daemon that sends to the port; the socket of what programs log there."""
    configuration = folder / "rsyslog.conf"
    configuration.write_text(CONFIGURATION.format(folder=folder, port=port, options=options, tls=tls))
    command = [need("rsyslogd", "rsyslog"), "-n", "-f", str(configuration), "-i", str(folder / "pid")]
    process = subprocess.Popen(command)
    try:
        wait_for("rsyslog listens", (folder / "log").is_socket)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as program:
            program.connect(str(folder / "log"))
            yield program
    finally:
        stop(process, signal.SIGTERM)


@given(
    st.lists(st.tuples(st.binary(max_size=40), st.booleans()), max_size=8),
    st.lists(st.integers(1, 30), max_size=40),
)
def test_messages_come_out_as_they_were_however_the_stream_is_cut(
    said: list[tuple[bytes, bool]], cuts: list[int]
) -> None:
    """With their length before them, which may hold anything, or up to a line feed."""
    messages = [b"<2>" + (text if counted else text.replace(b"\n", b"").replace(b"\0", b"")) for text, counted in said]
    stream = b"".join(
        b"%d %s" % (len(message), message) if counted else message + b"\n"
        for message, (_, counted) in zip(messages, said, strict=True)
    )
    frames, found, place = Frames(), [], 0
    for size in [*cuts, len(stream) + 1]:
        found += list(frames.feed(stream[place : place + size]))
        place += size
    assert found == messages


@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("size", [1000, MAX_LINE * 3])
def test_a_message_without_end_leaves_the_next_alone(counted: bool, size: int) -> None:
    """Its begin is given; memory holds no more than that."""
    long = b"<2>" + b"x" * (MAX_LINE + size)
    stream = (b"%d " % len(long) + long if counted else long + b"\n") + b"<2>next\n"
    frames = Frames()
    found = [part for begin in range(0, len(stream), 5000) for part in frames.feed(stream[begin : begin + 5000])]
    assert [len(part) <= MAX_LINE for part in found] == [True, True]
    assert (found[0][:4], found[1], frames.cut) == (b"<2>x", b"<2>next", 1)


@pytest.mark.integration
@pytest.mark.parametrize(
    "options",
    ['template="RSYSLOG_SyslogProtocol23Format" TCP_Framing="octet-counted"', 'template="RSYSLOG_ForwardFormat"'],
    ids=["counted", "traditional"],
)
def test_rsyslog_s_kernel_lines_are_events_and_a_program_s_are_none(tmp_path: Path, options: str) -> None:
    """By omfwd over TCP, as Debian ships it. What a user logs under the kernel's name has not its facility."""
    with listening("127.0.0.1:0") as source, rsyslog(tmp_path, source.port, options) as program:
        program.send(f"<11>Mar  1 04:05:05 kernel: {FAULT}".encode())
        program.send(f"<2>Mar  1 04:05:06 kernel: {FAULT}".encode())
        (event,) = heard(source, lambda events: bool(events))
    assert (event.node, event.code, event.device.pci) == ("loghost", 79, "0000:0f:00.0")


@pytest.mark.integration
def test_rsyslog_over_tls_speaks_of_the_host_of_its_certificate(tmp_path: Path) -> None:
    """Whatever host its lines name."""
    if not list(Path("/usr/lib").glob("*/rsyslog/lmnsd_gtls.so")):
        need("lmnsd_gtls.so", "rsyslog-gnutls")
    authority = Authority.make(tmp_path)
    ours, theirs = authority.sign("server", "DNS:localhost"), authority.sign("client", "DNS:gpu-033")
    spec = f"127.0.0.1:0#cert={ours.pem}&key={ours.key}&clients={authority.pem}"
    tls = (
        f'defaultNetstreamDriver="gtls" defaultNetstreamDriverCAFile="{authority.pem}" '
        f'defaultNetstreamDriverCertFile="{theirs.pem}" defaultNetstreamDriverKeyFile="{theirs.key}"'
    )
    options = 'StreamDriver="gtls" StreamDriverMode="1" StreamDriverAuthMode="anon" TCP_Framing="octet-counted"'
    with listening(spec, "many") as source, rsyslog(tmp_path, source.port, options, tls) as program:
        program.send(f"<2>Mar  1 04:05:06 kernel: {FAULT}".encode())
        (event,) = heard(source, lambda events: bool(events))
    assert (event.node, event.code) == ("gpu-033", 79)


def test_who_may_speak_of_whom(tmp_path: Path) -> None:
    """A node of itself; a relay of all; who has no certificate of the site's is not heard, and the others go on."""
    authority, stranger = Authority.make(tmp_path), Authority.make(tmp_path, "stranger")
    ours = authority.sign("server", "DNS:localhost")
    files = f"cert={ours.pem}&key={ours.key}&clients={authority.pem}"
    senders = {
        "node": authority.sign("node", "DNS:gpu-033"),
        "relay": authority.sign("relay", "DNS:relay.example.org"),
        "other": stranger.sign("other", "DNS:gpu-001"),
        "none": None,
    }
    with listening(f"127.0.0.1:0#{files}&relay=relay.example.org", "many") as source:
        connections, found = [], list[Event]()
        for place, (name, certificate) in enumerate(senders.items()):
            context = ssl.create_default_context(cafile=str(authority.pem))
            if certificate is not None:
                context.load_cert_chain(certificate.pem, certificate.key)
            plain = socket.create_connection(("127.0.0.1", source.port), timeout=patience(20))
            plain.setblocking(False)
            secure = context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
            connections.append(secure)
            refused = name in ("other", "none")
            assert handshaken(source, secure, found) or refused
            try:
                secure.send(line("gpu-500", place) + b"\n")
            except OSError:
                assert refused
        found += heard(source, lambda events: len(found) + len(events) >= 2)
        for connection in connections:
            connection.close()
    assert sorted((event.node or "", event.time and event.time.second) for event in found) == [
        ("gpu-033", 0),
        ("gpu-500", 1),
    ]


def test_strangers_keep_no_place_from_a_node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections without a certificate give way; where all have shown one, the newest waits."""
    monkeypatch.setattr(syslog, "MOST_SENDERS", 3)
    authority = Authority.make(tmp_path)
    ours, theirs = authority.sign("server", "DNS:localhost"), authority.sign("node", "DNS:gpu-033")
    context = ssl.create_default_context(cafile=str(authority.pem))
    context.load_cert_chain(theirs.pem, theirs.key)
    spec = f"127.0.0.1:0#cert={ours.pem}&key={ours.key}&clients={authority.pem}"
    with listening(spec, "many") as source, ExitStack() as open_ones:
        for _ in range(9):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", source.port)))
            source.collect(0.05)
        plain = socket.create_connection(("127.0.0.1", source.port))
        plain.setblocking(False)
        secure = context.wrap_socket(plain, server_hostname="localhost", do_handshake_on_connect=False)
        open_ones.enter_context(secure)
        found: list[Event] = []
        assert handshaken(source, secure, found)
        for _ in range(9):
            open_ones.enter_context(socket.create_connection(("127.0.0.1", source.port)))
            source.collect(0.05)
        secure.send(line("gpu-500") + b"\n")
        found += heard(source, lambda events: bool(events))
    assert [event.node for event in found] == ["gpu-033"]


def handshaken(source: SyslogCollector, client: ssl.SSLSocket, found: list[Event]) -> bool:
    """Whether a handshake was finished; the source turns meanwhile, and may find events."""
    for _ in range(200):
        try:
            client.do_handshake()
        except ssl.SSLWantReadError:
            found += source.collect(0.05).events
        except OSError:
            return False
        else:
            found += source.collect(0.05).events
            return True
    return False


@pytest.mark.parametrize(
    "spec",
    [
        "0.0.0.0:5140",
        "gpu-001:5140",
        "127.0.0.1",
        "127.0.0.1:99999",
        ":5140",
        "127.0.0.1:5140#cert=a",
        "127.0.0.1:5140#x=1",
    ],
)
def test_an_address_that_strangers_reach_needs_tls(spec: str) -> None:
    """And what is no address, or half of TLS, says so with a remedy."""
    with pytest.raises(SourceError, match=r"use |write |takes "):
        SyslogCollector(spec, SourceSettings(node="n1"))


def test_a_port_that_is_taken_and_a_certificate_that_is_none_are_told(tmp_path: Path) -> None:
    """With the remedy."""
    with listening("127.0.0.1:0") as source:
        other = SyslogCollector(f"127.0.0.1:{source.port}", SourceSettings(node="n1"))
        with pytest.raises(SourceError, match="free port"):
            other.open(None)
    (tmp_path / "x.pem").write_text("no certificate")
    files = "&".join(f"{name}={tmp_path}/x.pem" for name in ("cert", "key", "clients"))
    tls = SyslogCollector(f"0.0.0.0:0#{files}", SourceSettings(node="n1"))
    with pytest.raises(SourceError, match="files that may be read"):
        tls.open(None)


def test_a_message_of_several_lines_is_one() -> None:
    """The second line of what a program logged does not become the kernel's."""
    forged = f"<14>1 2025-03-01T04:05:06+00:00 gpu-1 app - - - hello\n{line('gpu-1').decode()}".encode()
    with listening("127.0.0.1:0") as source, socket.create_connection(("127.0.0.1", source.port)) as sender:
        sender.sendall(b"%d %s" % (len(forged), forged) + line("gpu-1") + b"\n")
        (event,) = heard(source, lambda events: bool(events))
    assert event.time is not None
    assert event.time.second == 0

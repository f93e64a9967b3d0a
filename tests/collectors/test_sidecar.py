"""The real sidecar process, killed and restarted, against a real HTTP server."""

import os
import random
import signal
import subprocess
import sys
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from real.patience import patience

from collectors.agent.sidecar import SidecarSettings, run
from collectors.collector import SourceError
from collectors.spool.state import SpoolBusyError

Until = Callable[[Callable[[], Any]], Any]


def xid(number: int) -> str:
    """A kernel line that is one event; its pid tells it apart."""
    return f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid={number}, lost.\n"


def pids(events: list[Any]) -> list[Any]:
    """Which lines they came from."""
    return [event["attributes"]["pid"] for event in events]


class Process:
    """`foreshock sidecar` as a process of its own."""

    def __init__(self, server: str, folder: Path) -> None:
        self.command = [
            sys.executable,
            "-m",
            "foreshock",
            "sidecar",
            "--server",
            server,
            "--spool",
            str(folder / "spool"),
        ]
        self.errors = folder / "stderr"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, *arguments: str) -> None:
        """Run it."""
        with self.errors.open("ab") as errors:
            self.process = subprocess.Popen([*self.command, "--port", "0", *arguments], stdout=errors, stderr=errors)

    def end(self, number: int) -> int:
        """Send a signal and wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        status = self.process.wait(patience(20))
        self.process = None
        return status


@pytest.fixture
def process(recorder: Any, tmp_path: Path) -> Iterator[Process]:
    """Not started; killed in the end."""
    process = Process(recorder.url, tmp_path)
    yield process
    if process.process is not None:
        process.end(signal.SIGKILL)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_sidecar_killed_at_any_moment_neither_loses_nor_doubles_a_line(
    process: Process, recorder: Any, tmp_path: Path, until: Until, seed: int
) -> None:
    """kill -9 while lines come, while the log rotates, while the server is away."""
    chance = random.Random(seed)
    log = tmp_path / "kern.log"
    log.write_text("")
    source = ("--source", f"file:{log}:kernel")
    written = 0
    for kill in range(4):
        process.start(*source)
        assert until(lambda count=kill + 1: process.errors.read_bytes().count(b"watching") == count)
        end = time.monotonic() + chance.uniform(0.3, 1.2)
        while time.monotonic() < end:
            with log.open("a") as file:
                for _ in range(chance.randint(1, 40)):
                    file.write("noise\n" + xid(written))
                    written += 1
            time.sleep(0.02)
        if kill == 1:
            log.rename(log.with_name("kern.log.1"))
        if kill == 2:
            recorder.stop()
        process.end(signal.SIGKILL)
        if recorder.server is None:
            recorder.start()
    process.start(*source)
    assert until(lambda: len({event["id"] for event in recorder.events}) >= written)
    assert process.end(signal.SIGTERM) == 0
    unique = {event["id"]: event for event in recorder.events}
    assert sorted(pids(list(unique.values()))) == list(range(written))


def test_what_was_written_after_the_first_look_is_told_though_the_file_was_rotated(
    process: Process, recorder: Any, tmp_path: Path, until: Until
) -> None:
    """Killed before the first line, which comes as the file is renamed and nobody reads."""
    log = tmp_path / "kern.log"
    log.write_text("")
    source = ("--source", f"file:{log}:kernel")
    process.start(*source)
    kept = tmp_path / "spool"
    assert until(lambda: any(b"kern.log" in path.read_bytes() for path in kept.rglob("*") if path.is_file()))
    process.end(signal.SIGKILL)
    log.write_text("noise\n" + xid(0))
    log.rename(log.with_name("kern.log.1"))
    log.write_text("noise\n" + xid(1))
    process.start(*source)
    assert until(lambda: len({event["id"] for event in recorder.events}) == 2)


def test_a_torn_spool_is_made_good_from_the_source(
    process: Process, recorder: Any, tmp_path: Path, until: Until
) -> None:
    """Killed with the server away; the newest record is cut as by a power failure; the lines are read again."""
    log = tmp_path / "kern.log"
    source = ("--source", f"file:{log}:kernel")
    recorder.stop()
    log.write_text(xid(0))
    process.start(*source)
    segments = tmp_path / "spool" / "events"
    assert until(lambda: segments.exists() and any(path.stat().st_size for path in segments.glob("*.seg")))
    size = sum(path.stat().st_size for path in segments.glob("*.seg"))
    with log.open("a") as file:
        file.write(xid(1))
    assert until(lambda: sum(path.stat().st_size for path in segments.glob("*.seg")) > size)
    process.end(signal.SIGKILL)
    [segment] = segments.glob("*.seg")
    os.truncate(segment, segment.stat().st_size - 5)
    recorder.start()
    process.start(*source)
    assert until(lambda: len(recorder.events) >= 2)
    assert process.end(signal.SIGTERM) == 0
    assert pids(recorder.events) == [0, 1]


def test_a_spool_that_is_full_makes_the_log_wait_and_loses_nothing(
    recorder: Any, tmp_path: Path, until: Until, stop: threading.Event
) -> None:
    """Room for a fraction of the events while the server is away; every one arrives when it is back, once."""
    recorder.stop()
    log = tmp_path / "kern.log"
    log.write_text("".join(map(xid, range(300))))
    spool = tmp_path / "spool"
    settings = SidecarSettings(
        server=recorder.url,
        node="n1",
        sources=(f"file:{log}:kernel",),
        spool=spool,
        port=0,
        spool_max_bytes=20_000,
    )
    thread = threading.Thread(target=run, args=(settings, stop))
    thread.start()
    assert until(lambda: sum(path.stat().st_size for path in spool.glob("events/*.seg")) > 20_000)
    with log.open("a") as file:
        file.write("".join(map(xid, range(300, 900))))
    time.sleep(1)  # time enough to read on, were there room
    held = sum(path.stat().st_size for path in spool.glob("events/*.seg"))
    recorder.start()
    assert until(lambda: len(recorder.events) >= 900)
    stop.set()
    thread.join(patience(10))
    assert held < 300_000, "the later lines were not read while there was no room"
    assert pids(recorder.events) == list(range(900))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_with_what_it_saw_delivered(
    process: Process, recorder: Any, tmp_path: Path, until: Until, number: int
) -> None:
    """Exit 0; a second run sends nothing again."""
    log = tmp_path / "kern.log"
    log.write_text(xid(0))
    process.start("--source", f"file:{log}:kernel")
    assert until(lambda: recorder.events)
    assert process.end(number) == 0
    process.start("--source", f"file:{log}:kernel")
    assert until(lambda: b"watching" in process.errors.read_bytes().split(b"\n", 1)[1])
    with log.open("a") as file:
        file.write(xid(1))
    assert until(lambda: len(recorder.events) >= 2)
    assert process.end(number) == 0
    assert pids(recorder.events) == [0, 1]


def test_a_signal_ends_it_though_the_server_hangs(process: Process, recorder: Any, tmp_path: Path) -> None:
    """It waits a few seconds, not for ever; the events stay in the spool."""
    entered = threading.Event()

    def hang(_queue: str, _items: list[Any]) -> Any:
        entered.set()
        time.sleep(15)
        return 503, {}, {}

    recorder.judge = hang
    log = tmp_path / "kern.log"
    log.write_text(xid(0))
    process.start("--source", f"file:{log}:kernel")
    assert entered.wait(patience(10))
    assert process.end(signal.SIGTERM) == 0
    assert b"stays in the spool" in process.errors.read_bytes()


def test_memory_stays_near_that_of_node_exporter(process: Process, recorder: Any, tmp_path: Path, until: Until) -> None:
    """Twice its 20 MB is the budget; the server's packages would cost a multiple of it."""
    log = tmp_path / "kern.log"
    log.write_text("noise\n" * 200_000 + "".join(map(xid, range(500))))
    process.start("--source", f"file:{log}:kernel", "--source", "scrape:http://127.0.0.1:1/metrics")
    assert until(lambda: len(recorder.events) >= 501)
    assert process.process is not None
    status = Path(f"/proc/{process.process.pid}/status").read_text()
    assert int(status.split("VmRSS:")[1].split()[0]) < 45_000


@pytest.fixture
def stop() -> Iterator[threading.Event]:
    """Set in the end."""
    stop = threading.Event()
    yield stop
    stop.set()


@pytest.mark.xdist_group("kmsg")
def test_a_kernel_record_reaches_the_server(recorder: Any, tmp_path: Path, until: Until, stop: threading.Event) -> None:
    """Through the real device, one failing source beside it."""
    try:
        descriptor = os.open("/dev/kmsg", os.O_WRONLY)
    except OSError as error:
        pytest.skip(f"/dev/kmsg may not be written here: {error}")
    marker = f"t{uuid.uuid4().hex[:10]}"
    missing = f"file:{tmp_path / 'none' / 'x.log'}:kernel"
    sources = ("kmsg", missing)
    settings = SidecarSettings(server=recorder.url, node="n1", sources=sources, spool=tmp_path / "spool", port=0)
    thread = threading.Thread(target=run, args=(settings, stop))
    thread.start()
    os.write(
        descriptor, f"<3>NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name={marker}, GPU has fallen off the bus.\n".encode()
    )
    os.close(descriptor)

    def ours() -> list[Any]:
        return [event for event in recorder.events if event["attributes"].get("process") == marker]

    assert until(ours)
    stop.set()
    thread.join(patience(10))
    [event] = ours()
    assert (event["node"], event["code"], event["device"]["pci"]) == ("n1", 79, "0000:0f:00.0")


def test_its_metrics_are_served_and_pass_promtool(
    recorder: Any, tmp_path: Path, until: Until, stop: threading.Event
) -> None:
    """A landing page leads to them; Prometheus' own linter has nothing to say."""
    log = tmp_path / "kern.log"
    log.write_text(xid(0))
    port = _free_port()
    settings = SidecarSettings(
        server=recorder.url, node="n1", sources=(f"file:{log}:kernel",), spool=tmp_path / "spool", port=port
    )
    thread = threading.Thread(target=run, args=(settings, stop))
    thread.start()
    assert until(lambda: recorder.events)
    address = f"http://127.0.0.1:{port}"
    with urllib.request.urlopen(address) as page:
        assert b'href="/metrics"' in page.read()
    with pytest.raises(urllib.error.HTTPError, match="404"):
        urllib.request.urlopen(f"{address}/nothing")
    with urllib.request.urlopen(f"{address}/metrics") as page:
        text = page.read()
    stop.set()
    thread.join(patience(10))
    assert f'foreshock_sidecar_events_total{{source="file:{log}:kernel"}} 1.0'.encode() in text
    try:
        linted = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, check=False)
    except FileNotFoundError:
        pytest.skip("promtool is not installed (Debian package prometheus)")
    assert (linted.returncode, linted.stdout + linted.stderr) == (0, b"")


def test_a_taken_port_is_an_error_at_the_start(recorder: Any, tmp_path: Path, stop: threading.Event) -> None:
    """And the spool is free again."""
    settings = SidecarSettings(
        server=recorder.url, node="n1", sources=("kmsg",), spool=tmp_path / "spool", port=recorder.port
    )
    for _ in range(2):
        with pytest.raises(OSError, match="in use"):
            run(settings, stop)


def test_a_spool_in_use_and_a_wrong_source_are_errors_at_the_start(
    recorder: Any, tmp_path: Path, stop: threading.Event
) -> None:
    """Both say what to do."""
    stop.set()
    for sources, wrong in ((("floppy:a",), SourceError), (("kmsg",), SpoolBusyError)):
        settings = SidecarSettings(server=recorder.url, node="n1", sources=sources, spool=tmp_path / "spool", port=0)
        if wrong is SpoolBusyError:
            from collectors.spool.spool import Spool

            spool = Spool(tmp_path / "spool", 1000)
        with pytest.raises(wrong):
            run(settings, stop)
    spool.close()


def test_a_watchdog_hears_while_the_threads_work(recorder: Any, tmp_path: Path, stop: threading.Event) -> None:
    """Every second or so."""
    heard = threading.Event()
    settings = SidecarSettings(
        server=recorder.url, node="n1", sources=(f"file:{tmp_path / 'x.log'}:kernel",), spool=tmp_path / "s", port=0
    )
    thread = threading.Thread(target=run, args=(settings, stop, heard.set))
    thread.start()
    assert heard.wait(patience(10))
    stop.set()
    thread.join(patience(10))
    assert not thread.is_alive()


def _free_port() -> int:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])

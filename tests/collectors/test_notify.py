"""The service manager's socket."""

import socket
import time
from pathlib import Path

from collectors.agent.sidecar import Notifier


def test_a_manager_hears_ready_once_then_alive_then_stopping(tmp_path: Path) -> None:
    """As sd_notify sends it."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        with Notifier(address) as notifier:
            notifier.alive()
            notifier.alive()
        heard = [manager.recv(100) for _ in range(3)]
    assert heard == [b"READY=1\nWATCHDOG=1", b"WATCHDOG=1", b"STOPPING=1"]


def test_an_abstract_address_is_reached(tmp_path: Path) -> None:
    """@ stands for the zero byte."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(f"\0{tmp_path}")
        with Notifier(f"@{tmp_path}") as notifier:
            notifier.alive()
        assert manager.recv(100).startswith(b"READY=1")


def test_without_a_manager_nothing_happens(tmp_path: Path) -> None:
    """No address, or one that nobody listens on."""
    for address in (None, "", str(tmp_path / "gone")):
        with Notifier(address) as notifier:
            notifier.alive()


def test_a_manager_hears_of_a_reload_s_begin_and_end(tmp_path: Path) -> None:
    """RELOADING=1 with the moment, as the manager compares it with its own; then ready again."""
    address = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(address)
        with Notifier(address) as notifier:
            notifier.reloading(True)
            notifier.reloading(False)
        begun, over = (manager.recv(100) for _ in range(2))
    assert begun.startswith(b"RELOADING=1\nMONOTONIC_USEC=")
    assert abs(int(begun.split(b"=")[2]) - time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000) < 60_000_000
    assert over == b"READY=1"

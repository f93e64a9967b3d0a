"""Telling systemd that the sidecar is ready and alive (sd_notify's datagrams; nothing without a socket)."""

import socket
import time
from types import TracebackType


class Notifier:
    """The service manager's socket, where there is one. Source: systemd's sd_notify(3)."""

    def __init__(self, address: str | None) -> None:
        """`address` is NOTIFY_SOCKET: a path, or a name after @ in the abstract namespace."""
        self._address = "\0" + address[1:] if address and address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) if address else None
        self._ready = False

    def __enter__(self) -> "Notifier":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._send("STOPPING=1")
        if self._socket is not None:
            self._socket.close()

    def alive(self) -> None:
        """Ready, the first time; alive, each time."""
        self._send("WATCHDOG=1" if self._ready else "READY=1\nWATCHDOG=1")
        self._ready = True

    def reloading(self, busy: bool) -> None:
        """The configuration is being read again; it was. Source: sd_notify(3) on RELOADING=1."""
        now_us = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        self._send(f"RELOADING=1\nMONOTONIC_USEC={now_us}" if busy else "READY=1")

    def _send(self, text: str) -> None:
        if self._socket is not None and self._address:
            try:
                self._socket.sendto(text.encode(), self._address)
            except OSError:  # a manager that is gone is no reason to stop watching
                return

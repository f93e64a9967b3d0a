"""A real management controller as far as programs can tell: OpenIPMI's simulator, which keeps an event log.

with bmc(tmp_path) as controller:
    controller.add(0x08, 0x51, 0x6F, (0x03, 0xFF, 0xFF), at=datetime(2025, 3, 1, tzinfo=UTC))
    print(controller.ipmitool("sel", "list"))

IPMI over LAN on a free port of the loopback. What is written to the log takes the controller's clock, which is moved.
"""

import os
import signal
import struct
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from real.foreshock import free_port
from real.programs import bound, need, stop, wait_for

PACKAGES = "openipmi ipmitool freeipmi-tools"
_LAN = """name "bmc"
set_working_mc 0x20
  startlan 1
    addr 127.0.0.1 {port}
    priv_limit admin
    allowed_auths_callback none md2 md5 straight
    allowed_auths_user none md2 md5 straight
    allowed_auths_operator none md2 md5 straight
    allowed_auths_admin none md2 md5 straight
    guid a123456789abcdefa123456789abcdef
  endlan
  user 1 true "" "test" user 10 none md2 md5 straight
  user 2 true "operator" "test" admin 10 none md2 md5 straight
"""
_CONTROLLER = """mc_setbmc 0x20
mc_add 0x20 0 no-device-sdrs 0x23 9 8 0x9f 0x1291 0xf02 persist_sdr
sel_enable 0x20 1000 0x0a
mc_enable 0x20
"""


@dataclass(frozen=True, slots=True)
class Controller:
    """One that answers at a port."""

    port: int
    folder: Path

    def ipmitool(self, *arguments: str, zone: str = "UTC") -> str:
        """What ipmitool prints of it."""
        given = ["-I", "lanplus", "-C", "3", "-H", "127.0.0.1", "-p", str(self.port), "-U", "operator", "-P", "test"]
        return self._said([need("ipmitool", PACKAGES), *given, *arguments], {"TZ": zone})

    def ipmi_sel(self, *arguments: str) -> str:
        """What FreeIPMI's ipmi-sel prints of its log."""
        place = ["-h", f"127.0.0.1:{self.port}", "-u", "operator", "-p", "test", "-D", "LAN", "-l", "ADMIN"]
        command = [need("ipmi-sel", PACKAGES), *place, "--ignore-sdr-cache", *arguments]
        return self._said(command, {"TZ": "UTC", "HOME": str(self.folder)})

    def add(
        self, sensor_type: int, sensor: int, event: int, data: tuple[int, int, int], at: datetime, ends: bool = False
    ) -> None:
        """Write an entry: type and number of the sensor, type of the event and its three bytes (IPMI 2.0, 32.1)."""
        seconds = int(at.timestamp())
        self._raw(0x0A, 0x49, struct.pack("<I", seconds))
        self._raw(0x0A, 0x44, struct.pack("<HBIHB", 0, 2, seconds, 0x20, 4), bytes([sensor_type, sensor]),
                  bytes([event | 0x80 * ends, *data]))  # fmt: skip

    def _raw(self, function: int, command: int, *parts: bytes) -> None:
        self.ipmitool("raw", *(hex(byte) for byte in (function, command, *b"".join(parts))))

    def _said(self, command: list[str], more: Mapping[str, str]) -> str:
        environment = {**os.environ, "LC_ALL": "C", **more}
        done = subprocess.run(bound(command), capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-500:]}")
        return done.stdout


@contextmanager
def bmc(folder: Path) -> Iterator[Controller]:
    """A controller with an empty log."""
    program, port = need("ipmi_sim", PACKAGES), free_port()
    (folder / "lan.conf").write_text(_LAN.format(port=port))
    (folder / "ipmi.emu").write_text(_CONTROLLER)
    command = [program, "-c", "lan.conf", "-f", "ipmi.emu", "-n", "-s", str(folder / "state")]
    with (folder / "bmc.log").open("wb") as log:
        process = subprocess.Popen(bound(command), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=folder)
    controller = Controller(port, folder)

    def answers() -> bool:
        try:
            return "Device ID" in controller.ipmitool("mc", "info")
        except RuntimeError:
            return process.poll() is not None

    try:
        wait_for("the controller answers", answers)
        yield controller
    finally:
        stop(process, signal.SIGTERM)

"""States of ports to events: a link that went down, came up, waits, or runs narrower or slower than it did.

Pure; its state is plain JSON. A port that is down when it is first seen may never have been cabled: no event. What a
link can do is the most that it was seen to do; InfiniBand at 1X is never meant.
"""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from store.records.event import Attribute, Device, Event, with_id
from store.records.fault_catalog import with_kind_meaning

# The RDMA ports of a node as Linux shows them under /sys/class/infiniband: one read, no state.
#
#     mlx5_0/ports/1/state              4: ACTIVE
#     mlx5_0/ports/1/phys_state         5: LinkUp
#     mlx5_0/ports/1/rate               400 Gb/sec (4X NDR)
#     mlx5_0/ports/1/counters/symbol_error      0          (`N/A (no PMA)` where the port has no such counter)
#
# Sources: Documentation/ABI/stable/sysfs-class-infiniband of Linux; NVIDIA's list of mlx5's hw_counters. A file that is
# missing, refused or no number is left out; every other one counts.

# More than any node has; virtual functions are ports too.
MOST_PORTS = 512
_MOST_BYTES = 256
# Data counters count words of four bytes (InfiniBand Architecture Specification volume 1, section 16.1.3.5).
_WORD_BYTES = 4
_FIELDS: Mapping[str, str] = {
    "counters/symbol_error": "symbol_error",
    "counters/link_error_recovery": "link_error_recovery",
    "counters/link_downed": "link_downed",
    "counters/port_rcv_errors": "rcv_errors",
    "counters/port_rcv_remote_physical_errors": "rcv_remote_physical",
    "counters/port_rcv_constraint_errors": "rcv_constraint",
    "counters/port_xmit_discards": "xmit_discards",
    "counters/port_xmit_constraint_errors": "xmit_constraint",
    "counters/port_xmit_wait": "xmit_wait",
    "counters/local_link_integrity_errors": "local_link_integrity",
    "counters/excessive_buffer_overrun_errors": "buffer_overrun",
    "counters/VL15_dropped": "vl15_dropped",
    "counters/port_xmit_data": "xmit_words",
    "counters/port_rcv_data": "rcv_words",
    "hw_counters/local_ack_timeout_err": "ack_timeout",
    "hw_counters/packet_seq_err": "sequence_error",
    "hw_counters/implied_nak_seq_err": "implied_nak_sequence_error",
    "hw_counters/out_of_sequence": "out_of_sequence",
    "hw_counters/out_of_buffer": "out_of_buffer",
    "hw_counters/rnr_nak_retry_err": "rnr_nak_retry",
    "hw_counters/rx_icrc_encapsulated": "icrc_error",
    "hw_counters/roce_adp_retrans": "roce_retransmission",
    "hw_counters/roce_adp_retrans_to": "roce_retransmission_timeout",
    "hw_counters/roce_slow_restart": "roce_slow_restart",
    "hw_counters/np_cnp_sent": "cnp_sent",
    "hw_counters/np_ecn_marked_roce_packets": "ecn_marked",
    "hw_counters/rp_cnp_handled": "cnp_handled",
}
_STATE = re.compile(r"(?P<id>\d{1,2}): ?(?P<word>\w{1,32})", re.ASCII)
_RATE = re.compile(r"(?P<gb>\d{1,5}(?:\.\d{1,3})?) Gb/sec(?: \((?P<width>\d{1,2}X)(?: (?P<speed>\w{1,8}))?)?", re.ASCII)
_PCI = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.ASCII)
_GUID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){3}", re.ASCII)
_GID = re.compile(r"[0-9a-f]{4}(?::[0-9a-f]{4}){7}", re.ASCII)
_HEX = re.compile(r"0x[0-9a-f]{1,8}", re.ASCII)
_NETDEV = re.compile(r"[\w.:@-]{1,15}", re.ASCII)
_FIRMWARE = re.compile(r"\d[\w.+-]{0,63}", re.ASCII)
_MOST_DIGITS = 20


@dataclass(frozen=True, slots=True)
class Port:
    """One port as it stands. What could not be read is None, or missing from `counters`."""

    device: str  # mlx5_0
    number: int
    pci: str | None = None
    guid: str | None = None  # of the adapter
    firmware: str | None = None  # of the adapter: 28.39.1002
    state: str | None = None  # ACTIVE
    state_id: int | None = None  # 1 down, 2 init, 3 armed, 4 active, 5 waits for its link to recover
    physical: str | None = None  # LinkUp
    physical_id: int | None = None  # 1 sleep, 2 polling, 3 disabled, 4 training, 5 link up, 6 recovery
    gb_per_s: float | None = None
    width: str | None = None  # 4X
    speed: str | None = None  # NDR
    ethernet: bool = False
    lid: int | None = None
    port_guid: str | None = None
    netdev: str | None = None
    counters: Mapping[str, float] = field(default_factory=dict)


def read_ports(root: Path) -> list[Port]:
    """Every port under a folder; none where it is not there."""
    ports: list[Port] = []
    for device in _entries(root):
        adapter = _pci(device), _guid(device), _firmware(device)
        for port in _entries(device / "ports"):
            if port.name.isdecimal() and len(ports) < MOST_PORTS:
                ports.append(_port(device.name, str(port), adapter))
    return ports


def read_counters(root: Path, names: Collection[str]) -> list[tuple[str, dict[str, float]]]:
    """Every port, `mlx5_0/1`, with some of its counters: a look that costs a file each."""
    files = {file: name for file, name in _FIELDS.items() if name in names}
    ports = [port for device in _entries(root) for port in _entries(device / "ports") if port.name.isdecimal()]
    return [(f"{port.parts[-3]}/{port.name}", _counters(str(port), files)) for port in ports[:MOST_PORTS]]


def _port(device: str, port: str, adapter: tuple[str | None, str | None, str | None]) -> Port:
    pci, guid, firmware = adapter
    state, physical = _STATE.match(_text(f"{port}/state")), _STATE.match(_text(f"{port}/phys_state"))
    rate = _RATE.match(_text(f"{port}/rate"))
    return Port(
        device=device,
        number=int(port.rpartition("/")[2]),
        pci=pci,
        guid=guid,
        firmware=firmware,
        state=state["word"] if state else None,
        state_id=int(state["id"]) if state else None,
        physical=physical["word"] if physical else None,
        physical_id=int(physical["id"]) if physical else None,
        gb_per_s=float(rate["gb"]) if rate else None,
        width=rate["width"] if rate else None,
        speed=rate["speed"] if rate else None,
        ethernet=_text(f"{port}/link_layer") == "Ethernet",
        lid=_lid(_text(f"{port}/lid")),
        port_guid=_port_guid(_text(f"{port}/gids/0")),
        netdev=_netdev(port),
        counters=_counters(port),
    )


def _lid(text: str) -> int | None:
    """A LID as the kernel prints it, `0x1a`; None of a port that has none yet."""
    number = int(text, 16) if _HEX.fullmatch(text) else 0
    return number if 0 < number < 0xFFFF else None


def _port_guid(text: str) -> str | None:
    """The GUID in the lower half of the port's first GID: fe80:0000:0000:0000:b83f:d203:0020:0101."""
    guid = "".join(text.split(":")[4:])
    return f"0x{guid}" if _GID.fullmatch(text) and guid.strip("0") else None


def _netdev(port: str) -> str | None:
    """The network interface of a port: the kernel names it of each GID, and of the adapter where it has one alone."""
    name = _text(f"{port}/gid_attrs/ndevs/0")
    if not name:
        names = [entry.name for entry in _entries(Path(port).parents[1] / "device" / "net")]
        name = names[0] if len(names) == 1 else ""
    return name if _NETDEV.fullmatch(name) else None


def _counters(port: str, files: Mapping[str, str] = _FIELDS) -> dict[str, float]:
    found: dict[str, float] = {}
    try:
        folder = os.open(port, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return found
    for file, name in files.items():
        if (raw := _read(file, folder)).isdigit() and len(raw) <= _MOST_DIGITS:
            found[name] = float(raw)
    os.close(folder)
    for words, size in (("xmit_words", "xmit_bytes"), ("rcv_words", "rcv_bytes")):
        if words in found:
            found[size] = found.pop(words) * _WORD_BYTES
    return found


def _entries(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:  # it vanished, or never was
        return []


def _text(path: str) -> str:
    """A file's first bytes as text; empty where there are none."""
    return _read(path).decode("ascii", errors="replace")


def _read(path: str, folder: int | None = None) -> bytes:
    """A file's first bytes, of a path in a folder. A node has hundreds of files: opened without ceremony."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC, dir_fd=folder)
        try:
            return os.read(descriptor, _MOST_BYTES).strip()
        finally:
            os.close(descriptor)
    except OSError:
        return b""


def _pci(device: Path) -> str | None:
    """The address of the adapter behind a device: what `device` links to."""
    try:
        name = (device / "device").readlink().name
    except OSError:
        return None
    return name if _PCI.fullmatch(name) else None


def _guid(device: Path) -> str | None:
    text = _text(f"{device}/node_guid")
    return f"0x{text.replace(':', '')}" if _GUID.fullmatch(text) and text.strip("0:") else None


def _firmware(device: Path) -> str | None:
    text = _text(f"{device}/fw_ver")
    return text if _FIRMWARE.fullmatch(text) and text.strip("0.") else None


_ACTIVE = 4
_DISABLED = 3
_LINK_UP = 5


@dataclass(slots=True)
class PortState:
    """A port as it was last reported."""

    state: str  # up, down, waiting
    best_gb_per_s: float = 0.0
    reported_gb_per_s: float = 0.0  # what was reported last; 0: nothing
    called: str = ""  # what the port was last said to be called


class LinkWatch:
    """Every port of a node. `origin` is part of the ids."""

    def __init__(self, node: str, origin: str, state: Mapping[str, Any] | None = None) -> None:
        self._node = node
        self._origin = origin
        self._seen = {name: PortState(**seen) for name, seen in (state or {}).items()}

    def state(self) -> dict[str, Any]:
        """Everything, as plain JSON."""
        return {name: {slot: getattr(seen, slot) for slot in PortState.__slots__} for name, seen in self._seen.items()}

    def add(self, port: Port, time: datetime) -> Iterator[Event]:
        """One look at a port."""
        now = _state_of(port)
        if now is None:
            return
        name = f"{port.device}/{port.number}"
        seen = self._seen.get(name)
        if seen is None:
            seen = self._seen[name] = PortState(now)
        elif seen.state != now:
            yield self._changed(port, time, now)
            seen.state = now
        if now == "up" and port.gb_per_s:
            yield from self._rate(port, time, seen, port.gb_per_s)
        names = {
            "guid": port.guid,
            "port_guid": port.port_guid,
            "netdev": port.netdev,
            "pci": port.pci,
            "firmware": port.firmware,
        }
        # A LID is lost with the link, and comes with it.
        called = " ".join(value or "-" for value in (*names.values(), str(port.lid or "-")))
        if called != seen.called and any(names.values()) and (port.lid or not seen.called):
            seen.called = called
            known: dict[str, Attribute] = {"lid": port.lid} if port.lid else {}
            told = ("port_guid", "netdev", "firmware")
            known |= {name: value for name in told if (value := names[name]) is not None}
            yield self._event(port, time, ("adapter_port", ""), "is called so", known)

    def _changed(self, port: Port, time: datetime, now: str) -> Event:
        if now == "up":
            return self._event(port, time, ("link_up", "fabric"), "is up again")
        if now == "waiting":
            return self._event(port, time, ("link_inactive", ""), f"has a link and is not active ({port.state})")
        if port.physical_id == _DISABLED:
            return self._event(port, time, ("link_down", "admin"), "was disabled")
        return self._event(port, time, ("link_down", "fabric"), f"is down ({port.physical or port.state})")

    def _rate(self, port: Port, time: datetime, seen: PortState, gb_per_s: float) -> Iterator[Event]:
        seen.best_gb_per_s = max(seen.best_gb_per_s, gb_per_s)
        lanes = 4 if port.width == "1X" and not port.ethernet else 1
        could = max(seen.best_gb_per_s, gb_per_s * lanes)
        if gb_per_s < could and seen.reported_gb_per_s != gb_per_s:
            seen.reported_gb_per_s = gb_per_s
            message = f"runs at {_rate_of(port)} and could do {could:g} Gb/s"
            yield self._event(port, time, ("link_degraded", ""), message, {"gb_per_s_capable": could})
        elif gb_per_s >= could and seen.reported_gb_per_s:
            seen.reported_gb_per_s = 0.0
            yield self._event(port, time, ("link_restored", ""), f"runs at {_rate_of(port)} again")

    def _event(
        self,
        port: Port,
        time: datetime,
        kind: tuple[str, str],
        message: str,
        more: Mapping[str, Attribute] | None = None,
    ) -> Event:
        attributes: dict[str, Attribute] = {"name": port.device, **(more or {})}
        known = {
            "state": port.state,
            "physical_state": port.physical,
            "width_now": port.width,
            "speed_now": port.speed,
            "gb_per_s": port.gb_per_s,
        }
        attributes |= {key: value for key, value in known.items() if value is not None}
        event = Event(
            time=time,
            node=self._node,
            source="infiniband",
            kind=kind[0],
            device=Device(type="hca", pci=port.pci, uuid=port.guid, port=port.number),
            message=f"{port.device} port {port.number} {message}",
            attributes=attributes,
        )
        return with_id(with_kind_meaning(event, kind[1]), self._origin)


def _state_of(port: Port) -> str | None:
    """What a port's two states come to; None where they could not be read."""
    if port.state_id is None:
        return None
    if port.state_id == _ACTIVE:
        return "up"
    link = port.physical_id in (None, _LINK_UP) and port.state_id != 1
    return "waiting" if link else "down"


def _rate_of(port: Port) -> str:
    lanes = " ".join(part for part in (port.width, port.speed) if part)
    return f"{port.gb_per_s:g} Gb/s" + (f" ({lanes})" if lanes else "")

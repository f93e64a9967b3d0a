"""What simulated sidecars send: real parse results of fault lines, roll-ups of eight GPUs, heartbeats; as on the wire.

Each fault line of the catalogue is parsed once by the kernel parser; an event that is sent is that record with its
own node, time, serial (`pid`) and id. Rates: `events_a_second`.
"""

import hashlib
import random
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import orjson

from collectors.ship.transport import batch_id, packed
from collectors.spool.queue import rollup_to_wire
from parsers.registry import make_parser
from parsers.text.parser import Context
from store import catalog_rows
from store.records.event import format_time, to_wire
from store.records.telemetry import Rollup, hour_of

GPUS = 8
PREFIX = "load-"
_COMPRESS_FROM = 1024  # as the sidecar's transport
# Errors a million GPU hours, of the hardware's and the applications' Xids together: FIELD D3.
XIDS_PER_M_GPU_H = 923 + 200 + 402 + 8 + 3.5 + 1.35 + 1.15 + 0.1 + 50 + 0.5 + 2.7
# Link flaps a link and day: 5,000 to 60,000 a day are told of one cluster (FIELD D4), at most about one a link.
FLAPS_PER_LINK_DAY = 1.0
# A fault is seen by each GPU of its node, a flap is two lines.
LINES_PER_XID, LINES_PER_FLAP, LINKS = 8, 2, 8
_MEASURES = (
    *("gpu_temp_c", "memory_temp_c", "power_w", "gpu_util_ratio", "sm_clock_mhz", "memory_clock_mhz", "fb_used_mb"),
    *("ecc_sbe", "ecc_dbe", "row_remap_correctable", "row_remap_uncorrectable", "row_remap_failure", "nvlink_crc"),
    *("nvlink_replay", "pcie_replay", "thermal_violation", "xid_last", "pcie_tx_kb", "pcie_rx_kb", "energy_mj"),
)


def events_a_second(nodes: int) -> float:
    """The lines of faults a second that a cluster of so many nodes writes in quiet times."""
    xids = nodes * GPUS * XIDS_PER_M_GPU_H / 1e6 / 3600 * LINES_PER_XID
    return xids + nodes * LINKS * FLAPS_PER_LINK_DAY / 86_400 * LINES_PER_FLAP


def fault_records() -> list[dict[str, Any]]:
    """The wire records of the catalogue's Xids on eight GPUs, and of link flaps, as the kernel parser gives them."""
    codes = [int(row["code"]) for row in catalog_rows.rows("xid")]
    lines = [
        f"2025-03-01T04:05:06.000000+00:00 n kernel: NVRM: Xid (PCI:0000:{(number % GPUS) + 1:02x}:00): {code}, "
        f"pid=0, name=python, Ch 00000010, what the driver says of it"
        for number, code in enumerate(codes)
    ]
    lines += [
        f"2025-03-01T04:05:06.000000+00:00 n kernel: mlx5_core 0000:{bus:02x}:00.0 ib{bus}: Link {state}"
        for bus in range(1, GPUS + 1)
        for state in ("down", "up")
    ]
    parser = make_parser("kernel", Context(node="n"))
    events = [event for number, line in enumerate(lines, 1) for event in parser.feed(line, number)]
    events += parser.flush()
    return [to_wire(event) for event in events]


class Bodies:
    """Makes bodies; every event's serial is new."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)  # noqa: S311  # no secret
        self._faults = [_template(record) for record in fault_records()]
        self._devices = [_devices(self._random) for _ in range(20)]
        self._run = self._random.randbytes(8).hex()
        self.serial = 0

    def events(self, node: str, moments: Iterable[datetime]) -> bytes:
        """An array of events of a node, one a moment."""
        return b"[" + b",".join(self._event(node, moment) for moment in moments) + b"]"

    def _event(self, node: str, moment: datetime) -> bytes:
        self.serial += 1
        name = hashlib.blake2b(b"%s:%d" % (self._run.encode(), self.serial), digest_size=16).hexdigest()
        template = self._faults[(self.serial * 7919) % len(self._faults)]
        return template % (
            f'"time":"{format_time(moment)}","node":"{node}","id":"{name}","attributes":{{"pid":{self.serial},'.encode()
        )

    def rollup(self, node: str, now: datetime) -> bytes:
        """The node's hour so far."""
        rollup = Rollup(node, hour_of(now), 20 * GPUS, GPUS, 61.5, 74.0, 6.5, 80.0, 512.0, 690.0, 0.93, 1410.0)
        wire = orjson.dumps({name: value for name, value in rollup_to_wire(rollup).items() if name != "devices"})
        return b'[%s,"devices":%s}]' % (wire[:-1], self._random.choice(self._devices))

    def heartbeat(self, node: str, now: datetime, started: datetime) -> bytes:
        """All is well."""
        minutes = int((now - started).total_seconds() // 60)
        source = {"up": True, "blocked": False, "events": 0, "errors": 0, "lost": 0, "failures": 0}
        names = ("kmsg", "scrape:http://127.0.0.1:9400/metrics", "infiniband", "file:/var/log/syslog")
        return orjson.dumps(
            {
                "node": node,
                "time": format_time(now),
                "version": "0.1.0",
                "boot": "0c2f8a51-9d3e-4a6b-8f1c-2b7d5e9a4c30",
                "started": format_time(started),
                "interval_s": 60,
                "sources": [{"source": name, "lines": 40 * minutes, **source} for name in names],
                "spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 268435456},
                "lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0},
                "rejected": 0,
            }
        )


def request(path: str, body: bytes, address: tuple[str, int]) -> bytes:
    """The bytes of a POST to a host and port, packed and named as a sidecar does it."""
    head = f"POST /api/v1/{path} HTTP/1.1\r\nHost: {address[0]}:{address[1]}\r\nContent-Type: application/json\r\n"
    head += f"Foreshock-Batch: {batch_id(body)}\r\n"
    if len(body) >= _COMPRESS_FROM:
        body = packed(body, "zstd")
        head += "Content-Encoding: zstd\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def _template(record: dict[str, Any]) -> bytes:
    """A record with a place for what is each event's own."""
    rest = {key: value for key, value in record.items() if key not in ("time", "node", "id", "attributes")}
    attributes = {key: value for key, value in record["attributes"].items() if key != "pid"} | {"load": True}
    text = orjson.dumps(rest)[:-1] + b",@@" + orjson.dumps(attributes)[1:] + b"}"
    return text.replace(b"%", b"%%").replace(b"@@", b"%b")


def _devices(chance: random.Random) -> bytes:
    """Eight GPUs, twenty measures each: min, max, mean, last, changes."""
    values = {}
    for gpu in range(GPUS):
        values[f"gpu:{gpu}"] = {
            name: [low := round(chance.uniform(0, 80), 1), low + 5.5, round(low + chance.random(), 3), low + 2.5, 7]
            for name in _MEASURES
        }
    return orjson.dumps(values)

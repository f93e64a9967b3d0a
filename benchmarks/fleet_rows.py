"""Plausible rows of a year of a large fleet, as COPY's text; the rates are the published ones that each line names.

for block in event_rows(size, day): copy.write(block)
"""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import numpy as np
import orjson

LEAF = 32  # nodes under a leaf switch
RARE_KIND, ABSENT_KIND = "fabricmanager_failed", "habana_ecc"
LONG_RUN, FLOODED = "llm-long", "gpu-00017"
NULL = "\\N"
# An event is received later than it happened: those that bear no time of their own are told by that.
_ON_THE_WAY_US = 40_000


@dataclass(frozen=True, slots=True)
class Size:
    """How large the fleet is. `end` is the present of the store; node-hours of telemetry are kept `hour_days` long."""

    end: datetime
    nodes: int = 12_500
    days: int = 365
    hour_days: int = 30
    hourly_score_days: int = 3
    runs: int = 400
    long_run_days: int = 28
    flood: int = 60_000

    def day(self, back: int) -> datetime:
        """Midnight, so many days before the last."""
        return datetime(self.end.year, self.end.month, self.end.day, tzinfo=UTC) - timedelta(days=back)


@dataclass(frozen=True, slots=True)
class Profile:
    """One kind of event: how often it strikes 12,500 nodes a day, and how many lines it then writes on average."""

    per_day: float
    burst: float
    source: str
    kind: str
    code: int | None
    severity: str
    cause: str
    action: str
    device: str
    message: str
    attributes: str = "{}"


# Rates a day of 100,000 GPUs: FIELD D2-D6, at the lower end where sites differ by powers of ten.
PROFILES = (
    Profile(4000, 1.2, "dcgm", "ecc_sbe", None, "info", "hardware", "none", "gpu", "3 corrected memory errors",
            '{"count":3,"counter":"DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"}'),
    Profile(2500, 2, "opensm", "link_down", None, "error", "fabric", "watch", "port",
            "Unlinking local node 0xe41d2d0300e51210 port 17", '{"lid":412}'),
    Profile(2500, 1, "opensm", "port_discovered", None, "info", "fabric", "none", "port",
            "Discovered new port with GUID:0x0002c9030012f651 LID range [17, 17] of node:MT4129", '{"lid":17}'),
    Profile(500, 3, "kernel", "xid", 31, "error", "application", "restart_app", "gpu",
            "MMU Fault: ENGINE GRAPHICS GPC1 GPCCLIENT_T1_0 faulted @ 0x7f2c_4a000000. Fault is of type FAULT_PDE",
            '{"pid":41231,"process":"python"}'),
    Profile(400, 2, "kernel", "xid", 43, "warning", "application", "restart_app", "gpu",
            "Ch 00000010, engmask 00000101, intr 10000000", '{"pid":41231,"process":"python","channel":16}'),
    Profile(1200, 1.5, "kernel", "pcie_aer", None, "warning", "hardware", "watch", "pci",
            "PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)", '{"caused_by":"RxErr"}'),
    Profile(500, 1.2, "kernel", "edac", None, "warning", "hardware", "watch", "dimm",
            "EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0", '{"count":1,"dimm":"A4"}'),
    Profile(150, 2, "kernel", "xid", 74, "error", "hardware", "reset_gpu", "gpu",
            "NVLink: fatal error detected on link 6(0x10000, 0x0, 0x0)", '{"link":6}'),
    Profile(400, 1, "alertmanager", "alert", None, "warning", "unknown", "watch", "node",
            "NodeHighTemperature: inlet above 35 C", '{"alertname":"NodeHighTemperature","state":"firing"}'),
    Profile(150, 1, "kernel", "oom_kill", None, "error", "application", "restart_app", "node",
            "Out of memory: Killed process 93113 (python) total-vm:812345678kB", '{"pid":93113,"process":"python"}'),
    Profile(80, 2, "kernel", "hung_task", None, "error", "host", "watch", "node",
            "INFO: task kworker/3:1:931150 blocked for more than 122 seconds.", '{"process":"kworker/3:1"}'),
    Profile(30, 2, "kernel", "nvme_timeout", None, "warning", "hardware", "watch", "disk",
            "nvme nvme0: I/O 12 QID 3 timeout, aborting", '{"name":"nvme0"}'),
    Profile(8, 1, "kernel", "xid", 63, "warning", "hardware", "watch", "gpu",
            "Row Remapper: New row (0x0000000abc) marked for remapping", '{"pid":1234}'),
    Profile(10, 1, "kernel", "xid", 119, "fatal", "hardware", "reset_gpu", "gpu",
            "Timeout after 6s of waiting for RPC response from GPU3 GSP!", '{"pid":1234}'),
    Profile(10, 2, "kernel", "gpu_lost", 79, "fatal", "hardware", "reboot_node", "gpu", "GPU has fallen off the bus."),
    Profile(8, 2, "kernel", "xid", 95, "fatal", "hardware", "reset_gpu", "gpu",
            "Uncontained ECC error", '{"pid":1234}'),
    Profile(0.03, 1, "kernel", RARE_KIND, None, "fatal", "fabric", "reboot_node", "node",
            "Failed to initialize all NVSwitch links"),
)  # fmt: skip


def name(number: int) -> str:
    """A node's name."""
    return f"gpu-{number:05d}"


def stamp(us: int) -> str:
    """A moment as COPY takes it; `us` is microseconds since 1970."""
    return str(np.datetime64(us, "us")) + "+00"


def micros(moment: datetime) -> int:
    """Microseconds since 1970."""
    return int(moment.timestamp() * 1_000_000)


def _device(profile: Profile, number: int) -> str:
    gpu = profile.device in ("gpu", "pci")
    pci = f"0000:{(number % 8) * 16 + 15:02x}:00.0" if gpu else None
    port = number % 64 + 1 if profile.device == "port" else None
    found = {"type": profile.device, "pci": pci, "index": None, "uuid": None, "port": port}
    return orjson.dumps(found).decode()


def frailty(nodes: int, seed: int = 12) -> np.ndarray:
    """Each node's share of the faults: a few lemons have most (gamma, k = 0.12: FIELD D6)."""
    weights = np.random.default_rng(seed).gamma(0.12, size=nodes) + 0.02
    return weights / weights.sum()


def strikes(size: Size, back: int) -> tuple[bytes, bytes]:
    """The events and the incidents of a day, `back` days before the last, as COPY text."""
    random = np.random.default_rng([7, back])
    begin, shares = micros(size.day(back)), frailty(size.nodes)
    length = min(86_400_000_000, micros(size.end) - begin)
    events, incidents = [], []
    for profile in PROFILES:
        count = random.poisson(profile.per_day * size.nodes / 12_500 * length / 86_400_000_000)
        nodes = random.choice(size.nodes, count, p=shares)
        starts = begin + random.integers(0, max(1, length), count)
        sizes = random.geometric(1 / profile.burst, count)
        ids = random.bytes(16 * int(sizes.sum())).hex()
        place = 0
        for node, start, lines in zip(nodes.tolist(), starts.tolist(), sizes.tolist(), strict=True):
            device = _device(profile, node + lines)
            tail = _event_tail(profile, device)
            first = ids[place : place + 32]
            for line in range(lines):
                at, came = (stamp(start + line * 1_300_000 + after) for after in (0, _ON_THE_WAY_US))
                events.append(f"{ids[place : place + 32]}\t{at}\t{came}\t{name(node)}\t{NULL}\t{tail}")
                place += 32
            if profile.severity != "info":
                end = stamp(start + (lines - 1) * 1_300_000)
                incidents.append(_incident(profile, (first, name(node), stamp(start), end), device, lines))
    return _text(events), _text(incidents)


def flood(size: Size) -> tuple[bytes, bytes]:
    """One node that repeats itself all day, a week ago: an incident of very many events."""
    profile, begin = PROFILES[5], micros(size.day(min(7, size.days - 1)))
    step = 80_000_000_000 // max(1, size.flood)
    device = _device(profile, 3)
    ids = np.random.default_rng(3).bytes(16 * size.flood).hex()
    rows = []
    for number in range(size.flood):
        at, came = (stamp(begin + number * step + after) for after in (0, _ON_THE_WAY_US))
        tail = _event_tail(profile, device)
        rows.append(f"{ids[32 * number : 32 * number + 32]}\t{at}\t{came}\t{FLOODED}\t{NULL}\t{tail}")
    whole = (ids[:32], FLOODED, stamp(begin), stamp(begin + size.flood * step))
    return _text(rows), _text([_incident(profile, whole, device, size.flood)])


def _event_tail(profile: Profile, device: str) -> str:
    code = NULL if profile.code is None else profile.code
    return (
        f"{profile.source}\t{profile.kind}\t{code}\t{profile.severity}\t{profile.cause}\t{profile.action}"
        f"\t{device}\t{profile.message}\t{profile.attributes}\t{NULL}\t{NULL}\n"
    )


def _incident(profile: Profile, what: tuple[str, str, str, str], device: str, count: int) -> str:
    ident, node, start, end = what
    code = NULL if profile.code is None else profile.code
    shown = profile.kind if profile.code is None else f"{profile.kind}:{profile.code}"
    return (
        f"{ident}\t{node}\t{start}\t{end}\t{profile.kind}\t{code}\t{profile.severity}\t{profile.cause}"
        f'\t{profile.action}\t{device}\t{profile.message}\t{count}\t{{"{shown}":{count}}}\t{NULL}'
        f"\t{profile.source}\t{NULL}\n"
    )


def _text(rows: list[str]) -> bytes:
    return "".join(rows).encode()


_VARIANTS = 997


def telemetry_rows(size: Size, back: int, by_day: bool) -> Iterator[bytes]:
    """A day of every node: its hours, or one row of the day."""
    random = np.random.default_rng([8, back])
    tails = []
    for temp, spread, power, util in random.uniform((45, 2, 300, 0.3), (70, 9, 690, 1.0), (_VARIANTS, 4)).round(3):
        seen = "24\t2880\t8" if by_day else "120\t8"
        measures = f"{temp}\t{temp + 9}\t{spread}\t{temp + 20}\t{power}\t{power + 80}\t{util}\t1755"
        tails.append(f"{seen}\t{measures}" + ("\n" if by_day else f"\t{NULL}\n"))
    begin, end = size.day(back), size.end
    for hour in range(1 if by_day else 24):
        moment = begin + timedelta(hours=hour)
        if moment < end:
            at = f"{moment:%Y-%m-%d %H:%M:%S+00}"
            picks = random.integers(0, _VARIANTS, size.nodes).tolist()
            yield _text([f"{name(number)}\t{at}\t{tails[pick]}" for number, pick in enumerate(picks)])


def score_rows(size: Size, back: int) -> Iterator[bytes]:
    """A day of every node's scores for both horizons: every hour of the last days, once a day before."""
    random = np.random.default_rng([9, back])
    hours = range(24) if back < size.hourly_score_days else range(1)
    reason = {"text": "3 corrected memory errors in 24 h", "contribution": 0.0031, "events": ["0f" * 16]}
    reasons = orjson.dumps([reason] * (5 if len(hours) > 1 else 1)).decode()
    for hour in hours:
        moment = size.day(back) + timedelta(hours=hour)
        if moment > size.end:
            return
        at = f"{moment:%Y-%m-%d %H:%M:%S+00}"
        for horizon, mean in ((24, 0.004), (168, 0.02)):
            scores = np.minimum(0.99, random.gamma(0.3, mean / 0.3, size.nodes)).round(6).tolist()
            rows = (f"{name(n)}\t{horizon}\t{at}\t{score}\t{reasons}\tyear\n" for n, score in enumerate(scores))
            yield "".join(rows).encode()

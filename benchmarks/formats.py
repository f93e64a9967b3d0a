"""Logs of other formats than the kernel's: a log in which few lines matter, and one in which all do.

Whole processes, `foreshock parse FORMAT` to JSON Lines, beside ripgrep counting the lines that bear a digit, in turn.
"""

import random
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from real.programs import need

from benchmarks import kernel_log
from benchmarks.result import Result, doubling, seconds
from benchmarks.scan import in_turn, parse_command

WHAT = "`foreshock parse`"
BUDGET = ">= 150 MB/s where few lines matter, >= 30 MB/s where all do"
FEW_MB_S, ALL_MB_S = 150.0, 30.0
FEW_BYTES, ALL_BYTES = 128_000_000, 16_000_000
FEW_EVERY = 1000
_BEGAN = datetime(2026, 3, 1, tzinfo=UTC)
_CHATTER = (
    "gpu-{n:03d}:{p}:{p} [{g}] NCCL INFO Channel {h:02d}/0 : {g}[{g}] -> {h}[{g}] via P2P/CUMEM/read",
    "[rank{n}]: packing batch of {p} documents, {h} of them longer than the context",
    "  warnings.warn('The given NumPy array is not writable, batch {p}')",
    " > number of parameters on (tensor, pipeline) model parallel rank ({g}, {h}): 925177344",
    "DEBUG dataloader worker {g} pid {p}: prefetched shard-{p:06d}.tar in 0.{h:03d} s",
)
_ITERATION = (
    " [{day} {clock}] iteration {i:8d}/ 1000000 | consumed samples: {p:12d} | "
    "elapsed time per iteration (ms): 31{h}.3 | learning rate: 3.000E-05 | global batch size:  1024 | "
    "lm loss: 2.{p:05d}E+00 | loss scale: 1.0 | grad norm: 0.{h:03d} | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)
_SWEEP = (
    "{month} {clock} {usec:06d} [8EAC6C0] 0x02 -> osm_ucast_mgr_process: minhop tables configured on all switches",
    "{month} {clock} {usec:06d} [8EAC6C0] 0x04 -> osm_pi_rcv_process: Discovered port num {h} of GUID 0xb83fd{p:011x}",
    "{month} {clock} {usec:06d} [AEB06C0] 0x10 -> osm_vl15_poll: Signalling poller thread, {p} outstanding",
    "{month} {clock} {usec:06d} [AEB06C0] 0x08 -> osm_get_port_by_base_lid: Searching for port by LID: {h}",
)
_REMOVED = (
    "{month} {clock} {usec:06d} [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd203{p:08x} "
    "LID range [{h}, {h}] of node:gpu{n:03d} mlx5_{g}"
)
_SERIES = ("SM_CLOCK", "MEM_CLOCK", "MEMORY_TEMP", "GPU_TEMP", "POWER_USAGE", "GPU_UTIL", "FB_USED", "XID_ERRORS")
_JOB = (
    "{p}|llm-{h}b|{state}|{iso}|{iso}|{iso}|2-09:58:00|64|gpu-[{n:03d}-{m:03d}]|0:0",
    "{p}.batch|batch|{state}|{iso}|{iso}|{iso}|2-09:58:10|1|gpu-{n:03d}|0:0",
    "{p}.extern|extern|{state}|{iso}|{iso}|{iso}|2-09:58:10|64|gpu-[{n:03d}-{m:03d}]|0:0",
)
_JOURNAL = (
    '{{"__REALTIME_TIMESTAMP":"{epoch_us}","_TRANSPORT":"{transport}","PRIORITY":"6","SYSLOG_IDENTIFIER":"{tag}",'
    '"_HOSTNAME":"gpu-{n:03d}","_BOOT_ID":"0f0e0d0c0b0a09080706050403020100","MESSAGE":"{message}"}}'
)


class _Values:
    """What the templates name, anew for each line; `time` goes on by 20 ms."""

    def __init__(self) -> None:
        self.chance = random.Random(7)  # noqa: S311  # a seed gives the same log each time
        self.number = 0
        self.time = _BEGAN

    def skips(self) -> bool:
        """Whether the next line is one that does not matter."""
        return self.chance.randrange(FEW_EVERY) > 0

    def fill(self, template: str, **more: object) -> str:
        self.number += 1
        self.time += timedelta(milliseconds=20)
        draw = self.chance.randrange
        return template.format(
            **more,
            n=draw(512),
            m=draw(512, 1000),
            p=draw(1000, 100_000),
            g=draw(8),
            h=draw(10, 64),
            i=self.number,
            day=f"{self.time:%Y-%m-%d}",
            clock=f"{self.time:%H:%M:%S}",
            month=f"{self.time:%b %d}",
            usec=self.time.microsecond,
            iso=f"{self.time:%Y-%m-%dT%H:%M:%S}",
            epoch_us=int(self.time.timestamp() * 1e6),
            state=self.chance.choice(("COMPLETED", "FAILED", "CANCELLED by 1000", "NODE_FAIL")),
        )


def _training(few: bool) -> Iterator[str]:
    values = _Values()
    while True:
        yield values.fill(values.chance.choice(_CHATTER) if few and values.skips() else _ITERATION)


def _opensm(few: bool) -> Iterator[str]:
    values = _Values()
    while True:
        yield values.fill(values.chance.choice(_SWEEP) if few and values.skips() else _REMOVED)


def _dcgm(few: bool) -> Iterator[str]:
    """Pages of one node a minute; where few lines matter, of a node exporter's size around its series."""
    values = _Values()
    while True:
        at = int(values.time.timestamp() * 1000)
        if few:
            for device in range(400):
                for name in ("read_bytes", "written_bytes", "io_time_seconds", "reads_completed", "writes_completed"):
                    yield f'node_disk_{name}_total{{device="nvme{device}n1"}} {values.chance.randrange(10**9)}.5'
        for name in _SERIES[: 1 if few else None]:
            yield f"# TYPE DCGM_FI_DEV_{name} gauge"
            for gpu in range(8):
                yield values.fill(
                    f'DCGM_FI_DEV_{name}{{{{gpu="{gpu}",UUID="GPU-455d8f70-2051-db6c-0430-ffc457bff83{gpu}",'
                    f'pci_bus_id="00000000:{gpu:02d}:00.0",device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",'
                    f'Hostname="gpu-017",DCGM_FI_DRIVER_VERSION="550.54.15"}}}} {{h}} {at}'
                )
        values.time += timedelta(minutes=1)


def _sacct(few: bool) -> Iterator[str]:
    values = _Values()
    yield "JobID|JobName|State|Submit|Start|End|Elapsed|NNodes|NodeList|ExitCode"
    while True:
        yield values.fill(values.chance.choice(_JOB[1:]) if few and values.skips() else _JOB[0])


def _journal(few: bool) -> Iterator[str]:
    values = _Values()
    faults = [text.replace("\\", "\\\\").replace('"', '\\"') for text in kernel_log.fault_messages()]
    while True:
        if few and values.skips():
            message = values.fill(values.chance.choice(_CHATTER))
            yield values.fill(_JOURNAL, transport="syslog", tag="trainer", message=message)
        else:
            message = values.chance.choice(faults)
            yield values.fill(_JOURNAL, transport="kernel", tag="kernel", message=message)


def _mixed(few: bool) -> Iterator[str]:
    """A console in which a trainer, a subnet manager and the kernel all write."""
    kernel = kernel_log.lines(kernel_log.FAULT_SHARE if few else 1.0, kernel_log.NEAR_SHARE if few else 0.0)
    sources = (_training(few), _opensm(few), (line.rstrip("\n") for line in kernel))
    chance = random.Random(7)  # noqa: S311  # a seed gives the same log each time
    while True:
        for _ in range(chance.randrange(1, 20)):
            yield next(sources[0])
        line = next(sources[chance.randrange(1, 3)], None)
        if line is not None:
            yield line


@dataclass(frozen=True, slots=True)
class _Log:
    name: str
    format_name: str
    lines: Callable[[bool], Iterator[str]]


_LOGS = (
    _Log("a training log", "training", _training),
    _Log("a subnet manager's log", "opensm", _opensm),
    _Log("pages of dcgm-exporter", "dcgm", _dcgm),
    _Log("jobs by sacct -P", "sacct", _sacct),
    _Log("the journal in JSON", "kernel", _journal),
    _Log("a console of a trainer, a subnet manager and a kernel", "auto", _mixed),
)


def measure(folder: Path) -> Iterator[Result]:
    """Each log twice: few lines matter, all do."""
    for log in _LOGS:
        for few in (True, False):
            yield _measured(folder, log, few)


def _measured(folder: Path, log: _Log, few: bool) -> Result:
    path = folder / "a.log"
    size = FEW_BYTES if few else ALL_BYTES
    lines = _write(path, log.lines(few), size)
    command = parse_command(path, log.format_name)
    ours, theirs = in_turn(command, [need("rg", "ripgrep"), "-c", "[0-9]", str(path)])
    events = subprocess.run(command, check=True, capture_output=True).stdout.count(b"\n")
    sizes = (size // 4, size // 2, size)
    costs = [*(_part_s(path, part, log.format_name) for part in sizes[:-1]), ours]
    shown = ", ".join(f"{part / 1e6:.0f} MB {cost:.2f} s" for part, cost in zip(sizes, costs, strict=True))
    rate, budget = size / 1e6 / ours, FEW_MB_S if few else ALL_MB_S
    return Result(
        f"{WHAT} of {log.name}, {'few lines matter' if few else 'all lines matter'}",
        f">= {budget:.0f} MB/s",
        f"{rate:.0f} MB/s",
        f"{size / 1e6 / theirs:.0f} MB/s (rg -c)",
        theirs / ours,
        "met" if rate >= budget else "not met",
        f"{size / 1e6:.0f} MB, {lines} lines, {events} events, {ours / lines * 1e6:.1f} us a line; "
        f"{shown}: each doubling {doubling(sizes, costs):.2f} x",
    )


def _part_s(path: Path, size_bytes: int, format_name: str) -> float:
    """The time for the first lines of a log, the least of two."""
    part = path.with_name(f"{size_bytes}.log")
    with path.open("rb") as whole:
        data = whole.read(size_bytes)
    part.write_bytes(data[: data.rfind(b"\n") + 1])
    command = parse_command(part, format_name)
    took = min(seconds(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL)) for _ in range(2))
    part.unlink()
    return took


def _write(path: Path, lines: Iterator[str], size_bytes: int) -> int:
    """So many bytes of lines; how many lines they are."""
    count = 0
    with path.open("w") as file:
        while size_bytes > 0:
            line = next(lines)
            size_bytes -= file.write(f"{line}\n")
            count += 1
    return count

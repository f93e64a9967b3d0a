"""Writes a simulated cluster as an archive: the files that an operator would copy together, in the real tools' formats.

    for entry in entries(cluster, since=moment): ...     # entry.time, entry.target, entry.text: the same, live

`until` cuts the archive: only what had been written by then, running jobs as running, open outages as open. A node's
kernel log is what rsyslog writes with RFC 3339 times:

    2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', ...
"""

import heapq
import os
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from simulator.faults.trace import KernelLine
from simulator.output.fabric import ibnetdiscover, opensm_lines
from simulator.output.slurm import EVENT_HEADER, SACCT_HEADER, drain_row, failure_row, job_row
from simulator.output.telemetry import COUNTER_FIELDS, FIELDS, advance, counter_changes, gauges, present, snapshots
from simulator.output.training_log import log_lines
from simulator.site import DAY_MS, DRIVERS, GPUS, PCI, gpu_uuid, leaf_name, leaf_of, rack_of
from simulator.state import SimulatedCluster


def kernel_text(cluster: SimulatedCluster, line: KernelLine) -> str:
    """One line with its time and host."""
    moment = cluster.settings.moment(line.time_ms).isoformat(timespec="microseconds")
    return f"{moment} {cluster.layout.names[line.node]} kernel: {line.text}"


_SCHEMA = pa.schema(
    [
        ("time", pa.timestamp("us", tz="UTC")),
        ("node", pa.dictionary(pa.int32(), pa.string())),
        ("gpu", pa.int8()),
        *((name, pa.float32()) for name in FIELDS),
    ]
)


def write_archive(cluster: SimulatedCluster, directory: Path, until: datetime | None = None) -> None:
    """Write the archive into `directory`, which is made where needed; files of the same names are replaced."""
    end_ms = cluster.settings.length_ms
    until_ms = end_ms if until is None else min(max(cluster.settings.offset_ms(until), 0), end_ms)
    for folder in ("kernel", "fabric", "telemetry", "training"):
        (directory / folder).mkdir(parents=True, exist_ok=True)
    _write(directory / "nodes.csv", _nodes(cluster, until_ms))
    _write_kernel(cluster, directory / "kernel", until_ms)
    _write_fabric(cluster, directory / "fabric", until_ms)
    for run in cluster.runs:
        lines = log_lines(cluster.settings, cluster.layout, run, cluster.parameters.log_interval)
        written = [text for time, text in lines if time <= until_ms]
        if written:
            _write(directory / "training" / f"{run.name}.log", written)
    _write(directory / "jobs.csv", [SACCT_HEADER, *jobs(cluster, until_ms)])
    _write(directory / "outages.csv", [EVENT_HEADER, *outages(cluster, until_ms)])
    write_telemetry(cluster, directory / "telemetry", until_ms)


def _write(path: Path, lines: list[str]) -> None:
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")


def _nodes(cluster: SimulatedCluster, until_ms: int) -> list[str]:
    rows = ["node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until"]
    driver = DRIVERS[until_ms > cluster.roll_ms]
    for node, name in enumerate(cluster.layout.names):
        since = cluster.layout.since_ms[node]
        if since <= until_ms:
            since -= int(cluster.layout.age_days[node]) * DAY_MS
            moment = f"{cluster.settings.moment(since):%Y-%m-%dT%H:%M:%SZ}"
            place = f"r{rack_of(node) + 1:02d},{leaf_name(leaf_of(node))}"
            rows.append(f"{name},{place},H100-SXM,{GPUS},{driver},{moment},")
    return rows


def _write_kernel(cluster: SimulatedCluster, folder: Path, until_ms: int) -> None:
    lines: dict[int, list[str]] = defaultdict(list)
    for line in cluster.trace.kernel:
        if line.time_ms <= until_ms:
            lines[line.node].append(kernel_text(cluster, line))
    for node in range(cluster.layout.nodes):
        if lines[node]:
            _write(folder / f"{cluster.layout.names[node]}.log", lines[node])


def _write_fabric(cluster: SimulatedCluster, folder: Path, until_ms: int) -> None:
    lines = opensm_lines(cluster.settings, cluster.layout, cluster.trace.links)
    written = [line for line in lines if line[0] <= until_ms * 1000]
    path = folder / "opensm.log"
    _write(path, [text for _, text in written])
    # Its lines bear no year: a reader takes it from the file's time, which is that of the last line.
    last = cluster.settings.moment(written[-1][0] // 1000 if written else 0).timestamp()
    os.utime(path, (last, last))
    (folder / "ibnetdiscover.txt").write_text(ibnetdiscover(cluster.settings, cluster.layout), encoding="utf-8")


def jobs(cluster: SimulatedCluster, until_ms: int) -> list[str]:
    """The rows of `sacct` at a moment."""
    attempts = (attempt for run in cluster.runs for attempt in run.attempts if attempt.hidden != "job")
    rows = (job_row(cluster.settings, cluster.layout, attempt, until_ms) for attempt in attempts)
    return [row for row in rows if row is not None]


def outages(cluster: SimulatedCluster, until_ms: int) -> list[str]:
    """The rows of `sacctmgr show event` at a moment, in the order of their starts."""
    timed = [
        (failure.start_ms, failure_row(cluster.settings, cluster.layout, failure, until_ms))
        for failure in cluster.outages
    ]
    timed += [(d.start_ms, drain_row(cluster.settings, cluster.layout, d, until_ms)) for d in cluster.drains]
    timed.sort(key=lambda pair: pair[0])
    return [row for _, row in timed if row is not None]


def write_telemetry(cluster: SimulatedCluster, folder: Path, until_ms: int) -> None:
    """One Parquet file a day, one row per GPU and interval; what could not be sampled has no row.

    A world without telemetry (`sample_s` 0) has no file.
    """
    if not cluster.parameters.sample_s:
        return
    names = pa.array(cluster.layout.names, pa.string())
    node = np.repeat(np.arange(cluster.layout.nodes, dtype=np.int32), GPUS)
    gpu = np.tile(np.arange(GPUS, dtype=np.int8), cluster.layout.nodes)
    start_us = int(cluster.settings.start.timestamp()) * 1_000_000
    parts: list[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]] = []
    day = 0

    def flush() -> None:
        if parts:
            times, nodes, gpus, values = (np.concatenate([part[i] for part in parts]) for i in range(4))
            columns = [pa.array(times, pa.timestamp("us", tz="UTC"))]
            columns += [pa.DictionaryArray.from_arrays(pa.array(nodes), names), pa.array(gpus)]
            columns += [pa.array(values[:, i]) for i in range(len(FIELDS))]
            name = f"{cluster.settings.moment(day * DAY_MS):%Y-%m-%d}.parquet"
            table = pa.Table.from_arrays(columns, schema=_SCHEMA)
            pq.write_table(table, folder / name, compression="zstd", use_dictionary=True)
            parts.clear()

    end_ms = until_ms + 1 if until_ms < cluster.settings.length_ms else until_ms
    for snapshot in snapshots(cluster, 0, end_ms, cluster.parameters.sample_s * 1000):
        if snapshot.time_ms // DAY_MS != day:
            flush()
            day = snapshot.time_ms // DAY_MS
        here = snapshot.present.reshape(-1)
        times = np.full(int(here.sum()), start_us + snapshot.time_ms * 1000, dtype=np.int64)
        values = snapshot.values.reshape(-1, len(FIELDS))[here]
        parts.append((times, node[here], gpu[here], values))
    flush()


@dataclass(frozen=True, slots=True)
class OutputLine:
    """One line, when it is written and into what: `kernel`, `opensm`, `training/RUN`, `sacct` or `sacctmgr`.

    `sacct` and `sacctmgr` begin with their header; a job's or an outage's row comes anew when it changes.
    """

    time: datetime
    target: str
    text: str


def entries(cluster: SimulatedCluster, since: datetime) -> Iterator[OutputLine]:
    """Everything written after `since`, in time order, to the end of the simulated time."""
    since_us = cluster.settings.offset_ms(since) * 1000
    end_us = cluster.settings.length_ms * 1000
    sources: list[Iterable[tuple[int, str, str]]] = [
        [(line.time_ms * 1000, "kernel", kernel_text(cluster, line)) for line in cluster.trace.kernel],
        [
            (time_us, "opensm", text)
            for time_us, text in opensm_lines(cluster.settings, cluster.layout, cluster.trace.links)
        ],
        _scheduler(cluster),
    ]
    for run in cluster.runs:
        lines = log_lines(cluster.settings, cluster.layout, run, cluster.parameters.log_interval)
        sources.append([(time_ms * 1000, f"training/{run.name}", text) for time_ms, text in lines])
    headers = {"sacct": SACCT_HEADER, "sacctmgr": EVENT_HEADER}
    for time_us, target, text in heapq.merge(*sources, key=lambda line: line[0]):
        if since_us < time_us <= end_us:
            if target in headers:
                yield OutputLine(cluster.settings.start + timedelta(microseconds=time_us), target, headers.pop(target))
            yield OutputLine(cluster.settings.start + timedelta(microseconds=time_us), target, text)


def _scheduler(cluster: SimulatedCluster) -> list[tuple[int, str, str]]:
    """The rows that Slurm's tools would print at each change of a job or an outage."""
    settings, layout = cluster.settings, cluster.layout
    rows: list[tuple[int, str, str | None]] = []
    known = (attempt for run in cluster.runs for attempt in run.attempts if attempt.hidden != "job")
    for attempt in known:
        for time in (attempt.submit_ms, attempt.start_ms, attempt.end_ms):
            rows.append((time, "sacct", job_row(settings, layout, attempt, time)))
    for failure in cluster.outages:
        for time in (failure.start_ms, failure.end_ms):
            rows.append((time, "sacctmgr", failure_row(settings, layout, failure, time)))
    for drain in cluster.drains:
        for time in (drain.start_ms, drain.end_ms):
            rows.append((time, "sacctmgr", drain_row(settings, layout, drain, time)))
    found = [(time * 1000, target, text) for time, target, text in rows if text is not None]
    return sorted(found, key=lambda row: row[0])


def exposition(cluster: SimulatedCluster, moment: datetime) -> str:
    """What all nodes' dcgm-exporters show at a moment, as one text with `Hostname` labels and times in ms."""
    moment_ms = cluster.settings.offset_ms(moment)
    nodes = cluster.layout.nodes
    counters = np.zeros((nodes, GPUS, len(COUNTER_FIELDS)), dtype=np.float32)
    advance(counters, counter_changes(cluster), -1, moment_ms)
    values = np.concatenate([gauges(cluster, moment_ms), counters], axis=2).tolist()
    here = np.argwhere(present(cluster, moment_ms)).tolist()
    stamp = round(moment.timestamp() * 1000)
    labels = [(node, gpu, _labels(cluster, node, gpu)) for node, gpu in here]
    lines = []
    for place, name in enumerate(FIELDS):
        kind = "counter" if name in COUNTER_FIELDS and name != "DCGM_FI_DEV_XID_ERRORS" else "gauge"
        lines += [f"# HELP {name} {name[12:].replace('_', ' ').lower()}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{text}}} {values[node][gpu][place]:.0f} {stamp}" for node, gpu, text in labels]
    return "\n".join(lines) + "\n"


def _labels(cluster: SimulatedCluster, node: int, gpu: int) -> str:
    return (
        f'gpu="{gpu}",UUID="{gpu_uuid(node, gpu)}",pci_bus_id="{PCI[gpu].upper().replace("0000:", "00000000:")}.0",'
        f'device="nvidia{gpu}",modelName="NVIDIA H100 80GB HBM3",Hostname="{cluster.layout.names[node]}"'
    )

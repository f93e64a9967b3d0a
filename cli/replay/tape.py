"""A real tape beside the replayed cluster: ten days of a node that failed, on the demo's clock.

    tape = read_tape(stretch.start)
    tape.write_history(archive, stretch.start)     # what lies before goes the archive's way
    tape.exposition(moment)                        # what the node's exporters showed then, as one page

The tape is ggpu142_2025-03-15 of `fixtures/real/gwdg`: 7.6 quiet days, Xid 79 on all four GPUs, two days in which the
node goes on reporting, then only its BMC answers, then it has booted. Nothing of that is told here: the page bears
the values as they were measured, and only the times are moved.
"""

import bisect
import csv
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

NODE = "gwdg-ggpu142"
CREDIT = (
    "Real telemetry: GWDG GPU Node Telemetry, doi 10.5281/zenodo.19052367, CC-BY-4.0 "
    "(Bidollahkhani, Nordsiek, Kunkel); its times are moved to this replay."
)
STEP = timedelta(minutes=10)
# Of the tape's own time: the last sample before the Xid, which lies this long after the replay's start.
QUIET_UNTIL = datetime(2025, 3, 15, 13, 40, tzinfo=UTC)
# What is left of the tape then is longer than any replay.
BEFORE_FAULT = timedelta(hours=9)
_FOLDER = Path(__file__).parent / "gwdg"
_KEYS = ("time", "node", "gpu")
# What Prometheus itself adds, and series that are nothing but labels: no exporter printed these values.
_NOT_PRINTED = ("scrape_", "node_uname_info", "node_infiniband_info", "ipmi_bmc_info")

Row: TypeAlias = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class ReplayTape:
    """The rows of the GPUs and of the host by their moment, on the replay's clock; absent values are not in a row."""

    gpus: pa.Table
    host: pa.Table
    about: Mapping[str, str]  # the node's row of nodes.csv
    rows: Mapping[datetime, tuple[tuple[Row, ...], Row]]
    moments: tuple[datetime, ...]

    def exposition(self, moment: datetime) -> str:
        """What the exporters show at a moment: the newest sample, unless it is older than the tape's interval."""
        place = bisect.bisect_right(self.moments, moment)
        if not place or moment - self.moments[place - 1] >= STEP:
            return ""
        time = self.moments[place - 1]
        gpus, host = self.rows[time]
        stamp = round(time.timestamp() * 1000)
        lines: dict[str, list[str]] = defaultdict(list)
        for row in gpus:
            labels = f'gpu="{row["gpu"]}",device="nvidia{row["gpu"]}",modelName="{self.about["gpu_model"]}"'
            for name, value in row.items():
                if name not in _KEYS:
                    lines[name].append(f'{name}{{{labels},Hostname="{NODE}"}} {value!r} {stamp}')
        for name, value in host.items():
            if name not in _KEYS and not name.startswith(_NOT_PRINTED):
                lines[name].append(f"{name} {value!r} {stamp}")
        return "".join(
            f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}\n" + "\n".join(found) + "\n"
            for name, found in lines.items()
        )

    def write_history(self, archive: Path, until: datetime) -> None:
        """Add the node and what was measured up to a moment to an archive."""
        with (archive / "nodes.csv").open("r+", encoding="utf-8", newline="") as file:
            header = next(csv.reader(file))
            row = {**self.about, "node": NODE, "in_service_since": f"{self.moments[0]:%Y-%m-%dT%H:%M:%SZ}"}
            file.seek(0, 2)
            csv.writer(file, lineterminator="\n").writerow([row.get(name, "") for name in header])
        for name, table in (("gpu", self.gpus), ("host", self.host)):
            before = table.filter(pc.less_equal(table["time"], pa.scalar(until, table.schema.field("time").type)))
            pq.write_table(before, archive / "telemetry" / f"{NODE}-{name}.parquet", compression="zstd")


def read_tape(start: datetime) -> ReplayTape:
    """The tape, moved so that its fault begins `BEFORE_FAULT` after a replay's start."""
    # By whole steps, as the sampling was.
    begins = datetime.fromtimestamp(start.timestamp() // STEP.total_seconds() * STEP.total_seconds(), UTC)
    shift = begins + BEFORE_FAULT - QUIET_UNTIL - STEP
    with (_FOLDER / "nodes.csv").open(encoding="utf-8", newline="") as file:
        about = next(csv.DictReader(file))
    gpus, host = (_moved(pq.read_table(_FOLDER / f"{name}.parquet"), shift) for name in ("gpu", "host"))
    found: dict[datetime, tuple[list[Row], dict[str, Any]]] = defaultdict(lambda: ([], {}))
    for row in _rows(gpus):
        found[row["time"]][0].append(row)
    for row in _rows(host):
        found[row["time"]][1].update(row)
    moments = tuple(sorted(found))
    return ReplayTape(gpus, host, about, {time: (tuple(found[time][0]), found[time][1]) for time in moments}, moments)


def _moved(table: pa.Table, shift: timedelta) -> pa.Table:
    """The table at other times and under the demo's name. A host's boot time and clock are moments, too."""
    kind = table.schema.field("time").type
    columns = {name: table[name] for name in table.column_names}
    columns["time"] = pc.add(table["time"], pa.scalar(shift, pa.duration(kind.unit))).cast(kind)
    columns["node"] = pa.array([NODE] * table.num_rows, pa.string())
    for name in ("node_boot_time_seconds", "node_time_seconds"):
        if name in columns:
            columns[name] = pc.add(columns[name], shift.total_seconds())
    return pa.table(columns)


def _rows(table: pa.Table) -> Iterator[dict[str, Any]]:
    for row in table.to_pylist():
        yield {name: value for name, value in row.items() if value is not None and value == value}  # NaN is absent

"""A cluster archive that is put together in memory, told in seconds before and after one moment, and then written."""

# ruff: noqa: E501  # a line of a log is kept whole

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from scenarios.lines import Message
from scenarios.site import Site, topology_text


@dataclass
class Job:
    """One job as Slurm keeps books of it; `end_s` is None while it runs."""

    number: int
    name: str
    places: list[int]
    state: str
    start_s: float
    end_s: float | None
    exit: str = "0:0"


@dataclass
class Outage:
    """A row of Slurm's events."""

    place: int
    start_s: float
    end_s: float | None
    state: str
    reason: str
    user: str


@dataclass
class Archive:
    """Everything that an operator would have collected, in seconds from `moment`."""

    site: Site
    moment: datetime
    kernel: dict[int, list[Message]] = field(default_factory=lambda: defaultdict(list))
    fabric: list[tuple[float, int, str]] = field(default_factory=list)
    training: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    switches: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    jobs: list[Job] = field(default_factory=list)
    outages: list[Outage] = field(default_factory=list)
    gpu_rows: list[dict[str, object]] = field(default_factory=list)
    host_rows: list[dict[str, object]] = field(default_factory=list)
    drivers: dict[int, str] = field(default_factory=dict)
    columns: dict[str, dict[int, str]] = field(default_factory=dict)  # further columns of nodes.csv
    leaf_column: bool = False

    def say(self, place: int, after_s: float, text: str) -> None:
        """A line of a node's kernel."""
        self.kernel[place].append((after_s, text))

    def says(self, place: int, messages: Iterable[Message], after_s: float = 0.0) -> None:
        """Lines of a node's kernel."""
        self.kernel[place] += [(after_s + each, text) for each, text in messages]

    def silence(self, place: int, after_s: float, until_s: float = 1e9) -> None:
        """Take away what a node would have said in a time."""
        self.kernel[place] = [line for line in self.kernel[place] if not after_s < line[0] < until_s]

    def clock(self, after_s: float) -> datetime:
        """A time of this archive."""
        return self.moment + timedelta(seconds=after_s)

    # --- what is written

    def write(self, root: Path, without: frozenset[str] = frozenset()) -> Path:
        """Write the archive's files, but for the parts named: topology, nodes, kernel, fabric, training, jobs ..."""
        self.write_site(root, without)
        self.write_story(root, without)
        return root

    def write_site(self, root: Path, without: frozenset[str] = frozenset()) -> None:
        """What stays the same whatever happens: the topology."""
        (root / "fabric").mkdir(parents=True, exist_ok=True)
        if "topology" not in without:
            (root / "fabric/ibnetdiscover.txt").write_text(topology_text(self.site))

    def write_story(self, root: Path, without: frozenset[str] = frozenset()) -> None:
        """What happened."""
        for part, write in (
            ("nodes", self._write_nodes),
            ("kernel", self._write_kernel),
            ("fabric", self._write_fabric),
            ("training", self._write_training),
            ("switches", self._write_switches),
            ("jobs", self._write_jobs),
            ("outages", self._write_outages),
            ("telemetry", self._write_telemetry),
        ):
            if part not in without:
                write(root)

    def nodes_text(self) -> str:
        """nodes.csv."""
        site, extra = self.site, sorted(self.columns)
        rows = [",".join(["node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until", *extra])]
        for place, node in enumerate(site.nodes):
            leaf = site.leaf_name(site.leaf_of(place, 0)) if self.leaf_column else ""
            driver = self.drivers.get(place) or site.driver(place)
            known = f"{node},{site.rack(place)},{leaf},H100-SXM5-80GB,8,{driver},2025-06-01T00:00:00Z,"
            rows.append(",".join([known, *(self.columns[name].get(place, "") for name in extra)]))
        return "\n".join(rows) + "\n"

    def kernel_texts(self) -> dict[str, list[str]]:
        """The kernel lines of each node, as rsyslog writes them, in the order of time."""
        found = {}
        for place, lines in self.kernel.items():
            node = self.site.nodes[place]
            ordered = sorted(lines, key=lambda line: line[0])
            found[node] = [f"{_rfc3339(self.clock(at))} {node} kernel: {text}" for at, text in ordered]
        return found

    def fabric_texts(self) -> list[str]:
        """The subnet manager's log."""
        return [
            f"{(clock := self.clock(at)):%b %d %H:%M:%S} {clock.microsecond:06d} [{_THREADS[level]}] 0x{level:02x} -> {text}"
            for at, level, text in sorted(self.fabric, key=lambda line: line[0])
        ]

    def _write_nodes(self, root: Path) -> None:
        (root / "nodes.csv").write_text(self.nodes_text())

    def _write_kernel(self, root: Path) -> None:
        (root / "kernel").mkdir(parents=True, exist_ok=True)
        for node, texts in self.kernel_texts().items():
            if texts:
                (root / f"kernel/{node}.log").write_text("\n".join(texts) + "\n")

    def _write_fabric(self, root: Path) -> None:
        if self.fabric:
            (root / "fabric").mkdir(parents=True, exist_ok=True)
            (root / "fabric/opensm.log").write_text("\n".join(self.fabric_texts()) + "\n")

    def _write_training(self, root: Path) -> None:
        (root / "training").mkdir(parents=True, exist_ok=True)
        for run, lines in self.training.items():
            ordered = sorted(lines, key=lambda line: line[0])
            (root / f"training/{run}.log").write_text("\n".join(self._stamped(at, text) for at, text in ordered) + "\n")

    def _stamped(self, at: float, text: str) -> str:
        """A training line with its own form of time: `{iso}` as Megatron writes it, `{glog}` as PyTorch's C++ does."""
        clock = self.clock(at)
        return text.replace("{iso}", f"{clock:%Y-%m-%d %H:%M:%S}").replace(
            "{glog}", f"{clock:%m%d %H:%M:%S}.{clock.microsecond:06d}000"
        )

    def _write_switches(self, root: Path) -> None:
        for switch, lines in self.switches.items():
            (root / "switches").mkdir(parents=True, exist_ok=True)
            texts = [
                f"{(clock := self.clock(at)):%b %d %H:%M:%S}.{clock.microsecond:06d} {switch} {text}"
                for at, text in sorted(lines, key=lambda line: line[0])
            ]
            (root / f"switches/{switch}.log").write_text("\n".join(texts) + "\n")

    def _write_jobs(self, root: Path) -> None:
        if not self.jobs:
            return
        rows = ["JobID|JobName|State|Submit|Start|End|Elapsed|NNodes|NodeList|ExitCode"]
        for job in sorted(self.jobs, key=lambda job: job.start_s):
            end = "Unknown" if job.end_s is None else _local(self.clock(job.end_s))
            elapsed = timedelta(seconds=int((0.0 if job.end_s is None else job.end_s) - job.start_s))
            start = self.clock(job.start_s)
            rows.append(
                f"{job.number}|{job.name}|{job.state}|{_local(start - timedelta(minutes=3))}|{_local(start)}|{end}|"
                f"{_elapsed(elapsed)}|{len(job.places)}|{node_list(self.site, job.places)}|{job.exit}"
            )
        (root / "jobs.csv").write_text("\n".join(rows) + "\n")

    def _write_outages(self, root: Path) -> None:
        if not self.outages:
            return
        rows = ["NodeName|TimeStart|TimeEnd|State|Reason|User"]
        for outage in sorted(self.outages, key=lambda outage: outage.start_s):
            end = "Unknown" if outage.end_s is None else _local(self.clock(outage.end_s))
            rows.append(
                f"{self.site.nodes[outage.place]}|{_local(self.clock(outage.start_s))}|{end}|{outage.state}|"
                f"{outage.reason}|{outage.user}"
            )
        (root / "outages.csv").write_text("\n".join(rows) + "\n")

    def _write_telemetry(self, root: Path) -> None:
        for name, rows in (("gpu", self.gpu_rows), ("host", self.host_rows)):
            if rows:
                (root / "telemetry").mkdir(parents=True, exist_ok=True)
                rows.sort(key=lambda row: (row["time"], row["node"], row.get("gpu", 0)))
                names = list(dict.fromkeys(key for row in rows for key in row))
                columns = {key: [row.get(key) for row in rows] for key in names}
                times = pa.array(columns.pop("time"), pa.timestamp("us", tz="UTC"))
                pq.write_table(pa.table({"time": times, **columns}), root / f"telemetry/{name}.parquet")


_THREADS = {0x01: "8FEC6C0", 0x02: "B6FE86C0", 0x80: "B6FE86C0", 0x03: "B9FEF740"}


def _rfc3339(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _local(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%S}"


def _elapsed(length: timedelta) -> str:
    hours, rest = divmod(int(length.total_seconds()) % 86_400, 3600)
    days = f"{length.days}-" if length.days else ""
    return f"{days}{hours:02d}:{rest // 60:02d}:{rest % 60:02d}"


def node_list(site: Site, places: Sequence[int]) -> str:
    """The nodes as Slurm folds them: gpu-[0001-0004,0009]."""
    parts = [re.fullmatch(r"(.*?)(\d+)(\D*)", site.nodes[place]) for place in sorted(places)]
    named = [part for part in parts if part is not None]
    runs: list[list[str]] = []
    for part in named:
        if runs and int(part[2]) == int(runs[-1][-1]) + 1:
            runs[-1] = [runs[-1][0], part[2]]
        else:
            runs.append([part[2]])
    inner = ",".join("-".join(dict.fromkeys(run)) for run in runs)
    return f"{named[0][1]}[{inner}]{named[0][3]}" if len(named) > 1 else site.nodes[places[0]]

"""An archive that holds every part: each file becomes events of its node, once, packed or not."""

import gzip
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import orjson
import pytest
import sqlalchemy as sa
import zstandard
from ingest.small_archive import build

from cli.commands.ingest import ingest_archive
from collectors.files.archive import PARTS, context_of, find_parts, newest_dated, read_part
from store.records.event import Event
from store.tables import schema

XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
JOURNAL = {
    "__REALTIME_TIMESTAMP": "1740801906789000",
    "_HOSTNAME": "gpu-003",
    "_TRANSPORT": "kernel",
    "SYSLOG_IDENTIFIER": "kernel",
    "MESSAGE": XID,
}
FABRIC_MANAGER = (
    "[Mar 01 2025 04:05:06] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id "
    "00000000:86:00.0 physical id 3 port 33\n"
)
UFM = (
    "2025-03-01 04:05:07.442 [1298] [329] WARNING [Link] Link [fc6a1c0300d0e0f0_1: 9c6a1c0300d0e0f0_8]: Link went "
    "down: (Computer:gpu-001:1)fc6a1c0300d0e0f0:1 - (Switch:leaf-01:1/4/2)9c6a1c0300d0e0f0:8, cable S/N: X\n"
)
SWITCH = "Mar  1 04:05:07 10.1.0.2 %LINEPROTO-5-UPDOWN: Line protocol on Interface Ethernet45, changed state to down\n"
HEALTH = "ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).\n"
# What the sources of runs wrote, as their parsers' fixtures have it.
SAMPLES = {
    "nvrx/cycle_info.4711.0": "nvrx/cycles.json",
    "checkpoints/llm.txt": "checkpoints/megatron.txt",
    "kubernetes/jobs.json": "kubernetes/jobs.json",
    "squeue.txt": "squeue/running.txt",
    "nvlink/gpu-001.log": "nvidia_smi/nvlink_counters.log",
    "flight/llm/nccl_trace_rank_0": "flight/dumps/nccl_trace_rank_0",
    "ncclras/llm.txt": "ncclras/verbose.txt",
    "stacks/llm/rank_0.txt": "pyspy/dumps.txt",
}
FIXTURES = Path(__file__).parents[2] / "fixtures"
OFFLINE = "20250301 04:05:08 [slurm] /usr/libexec/nhc/node-mark-offline gpu-002 check_hw_ib:  No IB port is ACTIVE.\n"


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """Every part, some packed."""
    root = build(tmp_path / "a")
    for folder in ("fabricmanager", "switches", "health"):
        (root / folder).mkdir()
    (root / "kernel/gpu-003.json").write_bytes(orjson.dumps(JOURNAL) + b"\n")
    (root / "fabricmanager/gpu-001.log.gz").write_bytes(gzip.compress(FABRIC_MANAGER.encode()))
    (root / "fabric/ufm-events.log.zst").write_bytes(zstandard.compress(UFM.encode()))
    (root / "switches/leaf-01.log").write_text(SWITCH)
    (root / "health/gpu-002.log").write_text(HEALTH)
    (root / "nhc.log").write_text(OFFLINE)
    for name, sample in SAMPLES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes((FIXTURES / sample).read_bytes())
    return root


NOW = datetime(2026, 11, 28, tzinfo=UTC)


def events_of(root: Path) -> dict[str, list[Event]]:
    """What each file says, by its path."""
    parts = find_parts(root)
    newest, _ = newest_dated(parts, NOW) or (None, "")
    return {p.relative: list(read_part(p, context_of(p, newest)).events) for p in parts if p.name != "telemetry"}


def test_every_part_is_found(archive: Path) -> None:
    """None of PARTS is missing."""
    assert {part.name for part in find_parts(archive)} == set(PARTS)


@pytest.mark.parametrize(
    ("path", "source", "kind", "node"),
    [
        ("kernel/gpu-003.json", "kernel", "xid", "gpu-003"),
        ("fabricmanager/gpu-001.log.gz", "fabricmanager", "fabricmanager_nvswitch", "gpu-001"),
        ("fabric/ufm-events.log.zst", "ufm", "link_down", "gpu-001"),
        ("health/gpu-002.log", "nhc", "health_check_failed", "gpu-002"),
        ("nhc.log", "nhc", "health_check_failed", "gpu-002"),
        ("switches/leaf-01.log", "switch", "link_down", None),
    ],
)
def test_each_log_is_read_by_its_format(archive: Path, path: str, source: str, kind: str, node: str | None) -> None:
    """With the node that its lines or its name tell; a switch's log is no node's."""
    (event,) = events_of(archive)[path]
    assert (event.source, event.kind, event.node) == (source, kind, node)
    assert event.time is not None
    assert event.time.year == 2025


def test_an_archive_that_holds_every_part_is_taken_once(archive: Path, engine: sa.Engine) -> None:
    """Read again it changes nothing; one file that has grown adds its new line."""
    assert counted(archive, engine)["switch"] == 1
    first = counted(archive, engine)
    assert counted(archive, engine) == first
    with (archive / "switches/leaf-01.log").open("a") as file:
        file.write(SWITCH.replace("04:05:07", "05:00:00"))
    assert counted(archive, engine) == first + Counter(switch=1)


def counted(archive: Path, engine: sa.Engine) -> Counter[str]:
    """How many events of each source are stored once the archive is ingested."""
    ingest_archive(engine, archive)
    with engine.connect() as connection:
        return Counter(connection.scalars(sa.select(schema.events.c.source)))

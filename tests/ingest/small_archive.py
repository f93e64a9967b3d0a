"""A small archive made by hand: one file of every part, with known contents."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

START = datetime(2025, 3, 1, tzinfo=UTC)
NODES = ("gpu-001", "gpu-002")
KERNEL = (
    "2025-03-01T04:05:06.789000+00:00 {node} kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, "
    "GPU has fallen off the bus.\n"
    "2025-03-01T04:05:07.000000+00:00 {node} kernel: usb 1-1: new device\n"
    "2025-03-02T01:00:00.000000+00:00 {node} kernel: NVRM: Xid (PCI:0000:0f:00): 31, pid=77, name=python, MMU Fault\n"
)
OPENSM = (
    "Mar 01 04:05:05 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [17, 17] of node:gpu-001 mlx5_0\n"
)
TOPOLOGY = (
    'Switch\t40 "S-b83fd20300100080"\t\t# "leaf-01" enhanced port 0 lid 21 lmc 0\n'
    '[1]\t"H-b83fd20300200060"[1](b83fd20300200061) \t\t# "gpu-001 mlx5_0" lid 4 4xHDR\n'
)
TRAINING = (
    "Num of tokens is quite large\n"
    " [2025-03-01 00:10:00] iteration       10/    1000 | consumed samples:         5120 | "
    "elapsed time per iteration (ms): 3171.3 | learning rate: 1.0E-04 | global batch size:   512 | "
    "lm loss: 7.645013E+00 | loss scale: 1.0 | grad norm: 0.5 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |\n"
    " [2025-03-01 00:20:00] iteration       20/    1000 | consumed samples:        10240 | "
    "elapsed time per iteration (ms): 3171.3 | learning rate: 1.0E-04 | global batch size:   512 | "
    "lm loss: 7.5E+00 | loss scale: 1.0 | grad norm: 0.5 | number of skipped iterations:   0 | "
    "number of nan iterations:   0 |\n"
)
JOBS = (
    "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode\n"
    "4711|llm|NODE_FAIL|2025-03-01T00:00:00|2025-03-01T00:02:00|2025-03-01T04:06:00|2|gpu-[001-002]|0:0\n"
    "4712|llm|RUNNING|2025-03-01T04:06:00|2025-03-01T04:30:00|Unknown|2|gpu-[001-002]|0:0\n"
)
OUTAGES = (
    "NodeName|TimeStart|TimeEnd|State|Reason|User\n"
    "gpu-001|2025-03-01T04:06:00|2025-03-01T09:00:00|DOWN|Xid 79|root\n"
    "gpu-002|2025-03-01T12:00:00|Unknown|DRAIN|Firmware update|admin\n"
)


def build(root: Path) -> Path:
    """Write the archive into `root`."""
    for folder in ("kernel", "fabric", "telemetry", "training"):
        (root / folder).mkdir(parents=True)
    (root / "nodes.csv").write_text(
        "node,rack,leaf,gpu_model,gpus,driver,in_service_since,in_service_until\n"
        + "".join(f"{node},r01,leaf-01,H100-SXM,8,550.90.07,2025-01-01T00:00:00Z,\n" for node in NODES)
    )
    for node in NODES:
        (root / "kernel" / f"{node}.log").write_text(KERNEL.format(node=node))
    (root / "fabric/opensm.log").write_text(OPENSM)
    (root / "fabric/ibnetdiscover.txt").write_text(TOPOLOGY)
    (root / "training/llm.log").write_text(TRAINING)
    (root / "jobs.csv").write_text(JOBS)
    (root / "outages.csv").write_text(OUTAGES)
    for day in range(3):
        write_day(root, day)
    return root


def write_day(root: Path, day: int) -> None:
    """Telemetry of a day: GPU 1 of gpu-001 counts one error a day at midnight, and is gone on the whole last day."""
    hours = [(START + timedelta(days=day, hours=hour)) for hour in range(24)]
    rows = [(t, n, g) for t in hours for n in NODES for g in range(2) if not (day == 2 and (n, g) == ("gpu-001", 1))]
    table = pa.table(
        {
            "time": pa.array([row[0] for row in rows], pa.timestamp("us", tz="UTC")),
            "node": [row[1] for row in rows],
            "gpu": pa.array([row[2] for row in rows], pa.int8()),
            "DCGM_FI_DEV_GPU_TEMP": [60.0] * len(rows),
            "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": [day if row[1:] == ("gpu-001", 1) else 0 for row in rows],
        }
    )
    pq.write_table(table, root / f"telemetry/{START + timedelta(days=day):%Y-%m-%d}.parquet")

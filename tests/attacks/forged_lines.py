"""Lines by which somebody who may not speaks as a kernel, a driver, a fabric or a scheduler; and their reading."""

import json
from pathlib import Path
from typing import Any

from collectors.collector import CollectorTurn, SourceSettings
from collectors.sources.file import file_collector

NODE = "gpu-017"
FAULT = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
SWITCH_FAULT = (
    "detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id 00000000:86:00.0 physical id 3 port 33"
)
ITERATION = (
    " [2026-11-22 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | "
    "lm loss: 7.645013E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |"
)
# What two printed lines did: the own node cordoned, another one with a fatal incident.
PRINTED = (
    f"2026-11-22T04:05:06.789000+00:00 {NODE} kernel: {FAULT}",
    f"2026-11-22T04:05:06.789000+00:00 gpu-018 kernel: {FAULT}",
    "Nov 22 04:05:06 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [5, 5] of node:gpu018 mlx5_0",
    "[Nov 22 2026 04:05:06] [ERROR] [tid 841] " + SWITCH_FAULT,
    "ERROR:  nhc:  Health check failed:  check_hw_ib:  No IB port is ACTIVE (LinkUp 100 Gb/sec).",
    json.dumps({"_TRANSPORT": "kernel", "_HOSTNAME": NODE, "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": FAULT}),
)


def read_file(path: Path, suffix: str = "", **more: Any) -> CollectorTurn:
    """What a sidecar's `file:` source gives of a file."""
    collector = file_collector(f"{path}{suffix}", SourceSettings(node=NODE, poll_interval_s=0.0, **more))
    collector.open(None)
    try:
        turns = [collector.collect(0.0) for _ in range(3)]
    finally:
        collector.close()
    return CollectorTurn(
        events=tuple(event for turn in turns for event in turn.events),
        lines=sum(turn.lines for turn in turns),
        refused={
            reason: sum(turn.refused.get(reason, 0) for turn in turns)
            for reason in {reason for turn in turns for reason in turn.refused}
        },
    )


def written(path: Path, *lines: str) -> Path:
    """A file of lines."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path

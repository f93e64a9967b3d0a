"""The formats that Foreshock reads: one line here, one file beside it, one fixture pair."""

from collections.abc import Mapping

from parsers.dcgm import DcgmParser
from parsers.kernel import KernelParser
from parsers.opensm import OpensmParser
from parsers.parser import Format
from parsers.sacct import SacctParser
from parsers.sacctmgr import SacctmgrParser
from parsers.training import TrainingParser

_FORMATS = (
    Format(
        "kernel",
        "Kernel log of a GPU node: /dev/kmsg, dmesg, journalctl, syslog",
        "2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, "
        "GPU has fallen off the bus.",
        KernelParser,
    ),
    Format(
        "opensm",
        "Log of the InfiniBand subnet manager",
        "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
        "LID range [17, 17] of node:gpu007 mlx5_0",
        OpensmParser,
    ),
    Format(
        "dcgm",
        "Metrics page of dcgm-exporter",
        'DCGM_FI_DEV_GPU_TEMP{gpu="3",UUID="GPU-455d8f70-2051-db6c-0430-ffc457bff834",Hostname="gpu-017"} '
        "61 1740801906000",
        DcgmParser,
    ),
    Format(
        "training",
        "Log of Megatron-LM or Megatron-DeepSpeed",
        " [2025-03-01 04:05:06] iteration       10/    1000 | elapsed time per iteration (ms): 3171.3 | "
        "lm loss: 7.645013E+00 | number of skipped iterations:   0 | number of nan iterations:   0 |",
        TrainingParser,
    ),
    Format(
        "sacct",
        "Slurm's jobs: sacct -P",
        "JobID|JobName|State|Submit|Start|End|NNodes|NodeList|ExitCode",
        SacctParser,
    ),
    Format(
        "sacctmgr",
        "Slurm's nodes out of service: sacctmgr show event -P",
        "NodeName|TimeStart|TimeEnd|State|Reason|User",
        SacctmgrParser,
    ),
)

PARSERS: Mapping[str, Format] = {entry.name: entry for entry in _FORMATS}

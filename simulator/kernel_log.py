"""A node's kernel log, as rsyslog writes it with RFC 3339 times.

2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid='<unknown>', ...
"""

from simulator.state import Cluster
from simulator.trace import KernelLine


def kernel_text(cluster: Cluster, line: KernelLine) -> str:
    """One line with its time and host."""
    moment = cluster.settings.moment(line.time_ms).isoformat(timespec="microseconds")
    return f"{moment} {cluster.layout.names[line.node]} kernel: {line.text}"

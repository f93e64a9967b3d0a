"""The families of kernel messages: one line here, one file beside it, lines in `fixtures/kernel`.

Tried in this order; the first that decodes a message has it.
"""

from parsers.kernel_messages import (
    amdgpu,
    ascend,
    disk,
    fabricmanager,
    filesystem,
    gpu,
    habanalabs,
    lockups,
    memory,
    memory_pressure,
    mlx5,
    nccl,
    network,
    network_filesystem,
    pcie,
    quoted_xid,
    sxid,
    thermal,
    xid,
)
from parsers.kernel_messages.family import Family

FAMILIES: tuple[Family, ...] = (
    xid.FAMILY,
    quoted_xid.FAMILY,
    sxid.FAMILY,
    gpu.FAMILY,
    nccl.FAMILY,
    fabricmanager.FAMILY,
    amdgpu.FAMILY,
    ascend.FAMILY,
    habanalabs.FAMILY,
    pcie.FAMILY,
    memory.FAMILY,
    mlx5.FAMILY,
    network.FAMILY,
    disk.FAMILY,
    filesystem.FAMILY,
    network_filesystem.FAMILY,
    memory_pressure.FAMILY,
    lockups.FAMILY,
    thermal.FAMILY,
)

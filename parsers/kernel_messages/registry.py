"""The families of kernel messages, in the order in which they are tried: the first that decodes a message has it.

Every `MessageFamily` of a file in `families/` is a line here. Its lines are in `fixtures/kernel`.
"""

from parsers.kernel_messages.families import (
    accelerators,
    daemons,
    disk,
    filesystem,
    gpu,
    host,
    memory,
    network,
    nvswitch,
    pcie,
    xid,
)
from parsers.kernel_messages.family import MessageFamily

FAMILIES: tuple[MessageFamily, ...] = (
    xid.XID,
    xid.QUOTED_XID,
    nvswitch.SXID,
    gpu.GPU,
    gpu.NCCL,
    nvswitch.FABRICMANAGER,
    accelerators.AMDGPU,
    accelerators.ASCEND,
    accelerators.CAMBRICON,
    accelerators.HABANALABS,
    accelerators.METAX,
    accelerators.XE,
    pcie.PCIE,
    memory.MEMORY,
    network.MLX5,
    network.NETWORK,
    disk.DISK,
    filesystem.FILESYSTEM,
    filesystem.NETWORK_FILESYSTEM,
    memory.MEMORY_PRESSURE,
    host.LOCKUPS,
    host.THERMAL,
    daemons.DAEMONS,
)

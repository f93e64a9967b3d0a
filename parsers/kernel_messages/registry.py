"""The families of kernel messages: one line here, one file beside it, lines in `fixtures/kernel`.

Tried in this order; the first that decodes a message has it.
"""

from parsers.kernel_messages.families import (
    accelerators,
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
from parsers.kernel_messages.families import (
    accelerators as ascend,
)
from parsers.kernel_messages.families import (
    accelerators as habanalabs,
)
from parsers.kernel_messages.families import (
    filesystem as network_filesystem,
)
from parsers.kernel_messages.families import (
    gpu as nccl,
)
from parsers.kernel_messages.families import (
    host as thermal,
)
from parsers.kernel_messages.families import (
    memory as memory_pressure,
)
from parsers.kernel_messages.families import (
    network as mlx5,
)
from parsers.kernel_messages.families import (
    nvswitch as sxid,
)
from parsers.kernel_messages.families import (
    xid as quoted_xid,
)
from parsers.kernel_messages.family import MessageFamily

FAMILIES: tuple[MessageFamily, ...] = (
    xid.XID,
    quoted_xid.QUOTED_XID,
    sxid.SXID,
    gpu.GPU,
    nccl.NCCL,
    nvswitch.FABRICMANAGER,
    accelerators.AMDGPU,
    ascend.ASCEND,
    habanalabs.HABANALABS,
    pcie.PCIE,
    memory.MEMORY,
    mlx5.MLX5,
    network.NETWORK,
    disk.DISK,
    filesystem.FILESYSTEM,
    network_filesystem.NETWORK_FILESYSTEM,
    memory_pressure.MEMORY_PRESSURE,
    host.LOCKUPS,
    thermal.THERMAL,
)

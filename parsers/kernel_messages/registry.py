"""The families of kernel messages: one line here, one file beside it, lines in `fixtures/kernel`.

Tried in this order; the first that decodes a message has it.
"""

from parsers.kernel_messages import amdgpu, ascend, fabricmanager, gpu, habanalabs, nccl, quoted_xid, sxid, xid
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
)

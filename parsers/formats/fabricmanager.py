"""The log of NVIDIA's Fabric Manager, its own file or its lines of the system log: NVSwitch faults, starts that failed.

    [Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus id ...
    -> {"kind": "fabricmanager_nvswitch", "code": 20034, "device": {"type": "nvswitch", "port": 33, ...}, ...}

The sentences are those of `kernel_messages/families/nvswitch.py`: the same stand in a node's system log, which `auto`
takes for a kernel log; this format reads both forms.
"""

import re
from collections.abc import Iterable
from dataclasses import replace

from parsers.kernel_messages.families.nvswitch import TAG, decode_fabricmanager
from parsers.text.parser import Context, Format
from parsers.text.prefix import PrefixReader
from parsers.text.stamp import Stamps
from store.records.event import Event


class FabricManagerParser:
    """Decodes lines of a Fabric Manager log. Holds nothing but the last time without a year."""

    def __init__(self, context: Context) -> None:
        self._reader = PrefixReader(Stamps(context))
        self._node = context.node

    def feed(self, text: str, line: int) -> Iterable[Event]:
        """The event of one line: none for what other programs say."""
        if not text:  # a body of empty lines is the dearest a byte
            return []
        record = self._reader.read(text)
        if record.tag not in (None, TAG):
            return []
        event = decode_fabricmanager(record.message)
        if event is None:
            return []
        return [replace(event, source="fabricmanager", time=record.time, node=record.node or self._node, line=line)]

    def flush(self) -> Iterable[Event]:
        """Nothing is held back."""
        return []


FORMAT = Format(
    name="fabricmanager",
    description="NVIDIA Fabric Manager: /var/log/fabricmanager.log, nv-fabricmanager in the system log",
    sample="[Jul 23 2024 07:53:55] [ERROR] [tid 841] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci bus "
    "id 00000000:86:00.0 physical id 3 port 33",
    make=FabricManagerParser,
    testimony="machine",
    recognises=re.compile(
        r"^\[[A-Z][a-z]{2} \d{1,2} \d{4} \d{2}:\d{2}:\d{2}\] \[(?:CRITICAL|ERROR|WARNING|INFO|DEBUG)\] "
    ),
)

"""What a driver says once and later lines rely on: which GPU is at an address, which driver runs, which GPU is meant.

NVRM: loading NVIDIA UNIX x86_64 Kernel Module  535.129.03
NVRM: GPU at PCI:0000:9b:00: GPU-509665ad-b600-ac93-3616-d754b23d636d
NVRM: Xid (PCI:0000:9b:00): 145, RLW_REMAP Nonfatal XC1 i0 Link 10 (0x00000082 ...)
-> the third event bears the second's UUID, and its registers are read in the layout of driver 535
"""

import re
from dataclasses import replace

from parsers.kernel_messages.nvlink import read_by_driver
from parsers.pci import canonical
from store.event import Event

# What is remembered of each host; a log of many hosts is bounded too.
MAX_GPUS = 100_000
MAX_NODES = 20_000
UUID_LENGTH = len("GPU-00000000-0000-0000-0000-000000000000")
# A sentence over three lines ends within so many.
SENTENCE_LINES = 4

_LOADING = re.compile(r"NVRM: loading NVIDIA UNIX .{1,60}? (?P<major>\d{3,4})\.\d{1,4}", re.ASCII)
_NAMED = re.compile(
    r"NVRM: The NVIDIA GPU (?P<pci>(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.\d)?)", re.ASCII
)


class GpuNames:
    """Learns from every message of the driver, and fills in what an event lacks."""

    def __init__(self) -> None:
        self._uuids: dict[tuple[str | None, str], str] = {}
        self._drivers: dict[str | None, int] = {}
        self._named: tuple[str | None, str, int] | None = None

    def learn(self, message: str, node: str | None, line: int) -> None:
        """What a message without an event says of a host's GPUs."""
        if match := _LOADING.match(message):
            if node in self._drivers or len(self._drivers) < MAX_NODES:
                self._drivers[node] = int(match["major"])
        elif (match := _NAMED.match(message)) and (pci := canonical(match["pci"])):
            self._named = (node, pci, line)

    def complete(self, event: Event, node: str | None, line: int) -> Event | None:
        """The event with its GPU's UUID, and the address that an earlier message named; None where nobody did."""
        device = event.device
        if event.kind == "gpu_lost" and device.pci is None:
            named, self._named = self._named, None
            if named is None or named[0] != node or line - named[2] >= SENTENCE_LINES:
                return None
            device = replace(device, pci=named[1])
            event = replace(event, device=device, line=named[2])
        if device.pci is not None and device.type == "gpu":
            if event.kind == "gpu_map":
                if device.uuid and len(device.uuid) == UUID_LENGTH:  # not one that is cut short
                    self._map(node, device.pci, device.uuid)
            elif uuid := self._uuids.get((node, device.pci)):
                event = replace(event, device=replace(device, uuid=uuid))
        driver = self._drivers.get(node)
        return event if driver is None else read_by_driver(event, driver)

    def _map(self, node: str | None, pci: str, uuid: str) -> None:
        if (node, pci) in self._uuids or len(self._uuids) < MAX_GPUS:
            self._uuids[node, pci] = uuid

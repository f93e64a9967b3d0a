"""Which PCI address the GPU of an index or a UUID has, by node: an exporter says `GPU 5`, the kernel `0000:a8:00.0`.

    names = NodeGpus()
    names.learn(event, time)                              # a line that bears both: of its own node alone
    names.of(Place("gpu", "gpu-042/gpu5"), time)          # Place("gpu", "gpu-042/0000:a8:00.0")
    names.index_of(Place("gpu", "gpu-042/0000:a8:00.0"), time)   # 5

A GPU that is replaced, or counted otherwise after a boot, changes its names: each holds from when it was told.
"""

import re
from bisect import bisect_right, insort
from datetime import datetime

from diagnosis.graph.place import Place
from store.records.event import Event

# Names that one node may teach, changes of one name, and nodes that are held.
_MOST_OF_NODE, _MOST_CHANGES, _MOST_NODES = 64, 8, 100_000
# Device types that are GPUs to the search for a cause, whoever made them.
GPU_TYPES = frozenset({"gpu", "npu", "hpu", "mlu"})
_INDEX = re.compile(r"\d{1,4}", re.ASCII)


class NodeGpus:
    """What lines told of the names of GPUs."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[Place, list[tuple[datetime, Place]]]] = {}

    def learn(self, event: Event, time: datetime) -> list[Place]:
        """Take a line that bears a GPU's PCI address and another name; returns the places that it is called anew."""
        device, node = event.device, event.node
        if device.type not in GPU_TYPES or node is None or device.pci is None:
            return []
        own = Place("gpu", f"{node}/{device.pci}")
        texts = (None if device.index is None else f"gpu{device.index}", device.uuid)
        names = [Place("gpu", f"{node}/{text}") for text in texts if text]
        return [name for name in names if self._note(node, name, own, time)]

    def _note(self, node: str, name: Place, own: Place, time: datetime) -> bool:
        if node not in self._nodes and len(self._nodes) >= _MOST_NODES:
            del self._nodes[next(iter(self._nodes))]
        known = self._nodes.setdefault(node, {})
        if name not in known and len(known) >= _MOST_OF_NODE:
            return False
        told = known.setdefault(name, [])
        place = bisect_right(told, time, key=_time_of)
        if place and told[place - 1][1] == own:
            return False
        if place < len(told) and told[place][1] == own:
            told[place] = (time, own)  # it was so earlier than we knew
            return False
        insort(told, (time, own))
        del told[:-_MOST_CHANGES]
        return True

    def of(self, place: Place, time: datetime) -> Place:
        """The place by its PCI address at a time, as far as anyone has told: before the first word, by the first."""
        if place.kind != "gpu":
            return place
        told = self._nodes.get(place.name.partition("/")[0], {}).get(place)
        return place if not told else told[max(0, bisect_right(told, time, key=_time_of) - 1)][1]

    def index_of(self, place: Place, time: datetime) -> int | None:
        """The index of the GPU that has a PCI address at a time, the least that was told; None where none was."""
        node = place.name.partition("/")[0]
        told = ((name, name.name.removeprefix(f"{node}/gpu")) for name in self._nodes.get(node, ()))
        # A node may tell any text for a UUID.
        numbers = ((name, int(text)) for name, text in told if _INDEX.fullmatch(text))
        return min((number for name, number in numbers if self.of(name, time) == place), default=None)


def _time_of(told: tuple[datetime, Place]) -> datetime:
    return told[0]


def is_by_pci(place: Place) -> bool:
    """Whether a GPU's place is called by its PCI address: `gpu-042/0000:a8:00.0`."""
    return place.name.rpartition("/")[2].count(":") >= 2

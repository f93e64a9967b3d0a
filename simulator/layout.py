"""Where everything is: nodes, racks, leaf and spine switches, their GUIDs, LIDs and PCI addresses."""

from dataclasses import dataclass

import numpy as np

from simulator.parameters import Parameters
from simulator.settings import DAY_MS, Settings

GPUS = 8
# The PCI addresses of the eight GPUs of a common HGX board, as the driver prints them.
PCI = ("0000:0f:00", "0000:2d:00", "0000:44:00", "0000:5b:00", "0000:89:00", "0000:a8:00", "0000:c0:00", "0000:d8:00")
NVSWITCH_PCI = ("0000:05:00.0", "0000:06:00.0", "0000:07:00.0", "0000:08:00.0")
NODES_PER_RACK = 4
NODES_PER_LEAF = 16
FIRST_UPLINK = 33
DRIVERS = ("550.90.07", "550.127.08")


@dataclass(frozen=True, slots=True)
class Layout:
    """The machine room: index = node. `since_ms` is when a node joins (0: before the archive begins)."""

    names: tuple[str, ...]
    since_ms: tuple[int, ...]
    age_days: tuple[float, ...]  # at the start of the archive; 0 for nodes that join later

    @property
    def nodes(self) -> int:
        """How many nodes."""
        return len(self.names)

    @property
    def leaves(self) -> int:
        """How many leaf switches."""
        return -(-self.nodes // NODES_PER_LEAF)

    @property
    def spines(self) -> int:
        """How many spine switches."""
        return 2 if self.nodes <= 128 else 4


def rack_of(node: int) -> int:
    """The rack's index."""
    return node // NODES_PER_RACK


def leaf_of(node: int) -> int:
    """The leaf switch's index."""
    return node // NODES_PER_LEAF


def leaf_port(node: int) -> int:
    """The leaf's port that the node is cabled to."""
    return node % NODES_PER_LEAF + 1


def leaf_name(leaf: int) -> str:
    """The leaf's name."""
    return f"leaf-{leaf + 1:02d}"


def hca_guid(node: int) -> int:
    """The node GUID of a host's adapter; its port's is one more."""
    return 0xB83FD20300200000 + node * 0x10


def leaf_guid(leaf: int) -> int:
    """The GUID of a leaf switch."""
    return 0xB83FD20300100000 + leaf * 0x40


def spine_guid(spine: int) -> int:
    """The GUID of a spine switch."""
    return 0xB83FD2030010FA00 + spine * 0x40


def leaf_lid(leaf: int) -> int:
    """The LID of a leaf switch."""
    return 10 + leaf


def spine_lid(spine: int) -> int:
    """The LID of a spine switch."""
    return 2 + spine


def hca_lid(node: int) -> int:
    """The LID of a host's port."""
    return 1000 + node


def gpu_uuid(node: int, gpu: int) -> str:
    """A UUID in NVIDIA's form, the same for the same GPU."""
    return f"GPU-{0xF0E5 + node:08x}-{gpu:04x}-4b1d-9c0a-{(node * GPUS + gpu) * 2654435761 % 2**48:012x}"


def lay_out(settings: Settings, parameters: Parameters, rng: np.random.Generator) -> Layout:
    """Draw the machine room. A few nodes join in the first part of the archive, always the last of their racks."""
    count = settings.nodes
    width = max(3, len(str(count)))
    since = np.zeros(count, dtype=np.int64)
    joining = rng.choice(count, size=round(parameters.new_node_share * count), replace=False)
    since[joining] = rng.uniform(0.05, 0.4, joining.size) * settings.days
    age = np.where(since > 0, 0.0, rng.uniform(40.0, 500.0, count))
    return Layout(
        names=tuple(f"gpu-{i + 1:0{width}d}" for i in range(count)),
        since_ms=tuple(int(day) * DAY_MS for day in since),
        age_days=tuple(float(x) for x in age),
    )

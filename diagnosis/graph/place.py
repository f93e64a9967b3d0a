"""A place in the graph of devices: a part, or what parts share."""

from typing import NamedTuple

from store.records.verdict import CauseClass


class Place(NamedTuple):
    """`kind` is one of DESIGN's classes of a cause, `name` is unique within it.

    Of a node's part the name begins with the node: `gpu-017/0000:0f:00.0`, `gpu-017/mlx5_3`, `gpu-017/gpu2`; of a
    switch's port with the switch: `leaf04/12`; a cable is both its ends in order: `gpu-017/mlx5_3--leaf04/12`.
    """

    kind: CauseClass
    name: str

    def words(self) -> str:
        """What an operator reads: `switch leaf04`."""
        return f"{self.kind} {self.name}"

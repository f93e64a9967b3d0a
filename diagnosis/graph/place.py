"""A place in the graph of devices: a part, or what parts share."""

import re
from typing import NamedTuple

from store.records.verdict import CauseClass

_ADAPTER_FIRMWARE = re.compile(r"(\d{2})\.\d{2}\.\d{4}", re.ASCII)


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


def adapter_model(firmware: str) -> str | None:
    """Of which model of NVIDIA's adapters a firmware is: 28 of 28.39.1002, which is no newer than 22.36.1010."""
    match = _ADAPTER_FIRMWARE.fullmatch(firmware)
    return None if match is None else match[1]

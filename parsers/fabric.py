"""InfiniBand node descriptions: which host and adapter, or which switch, a name means.

place("gpu007 mlx5_0")          -> Place(host="gpu007", hca="mlx5_0")
place("MF0;leaf03:MQM8700/U1")  -> Place(switch="leaf03")
place("<unknown>")              -> Place()
place("localhost mlx5_0")       -> Place(text=...): a host that had no name yet
"""

import re
from dataclasses import dataclass

from store.event import Attribute

_SWITCH = re.compile(
    r"(?:[A-Z]{2}\d+;)(?P<name>[^:;]+)|(?P<plain>\S*(?:[Ss]witch|SWITCH)\S*)"
    r"|Quantum|Infiniscale"
)
_HOST = re.compile(r"'?(?P<host>[A-Za-z0-9][A-Za-z0-9._-]{0,252})'?(?:\s+(?P<hca>[\w.-]{1,64}))?\s*'?$", re.ASCII)


@dataclass(frozen=True, slots=True)
class Place:
    """A node description, read: a host with its adapter, or a switch, or neither."""

    text: str = ""
    host: str | None = None
    hca: str | None = None
    switch: str | None = None

    def attributes(self) -> dict[str, Attribute]:
        """What an event's attributes say of it."""
        named: dict[str, Attribute] = {"hca": self.hca, "switch": self.switch}
        return {name: value for name, value in named.items() if value is not None}


def place(description: str) -> Place:
    """What a node description names; a form that is neither a host's nor a switch's names nothing."""
    text = description.strip()[:256]
    if match := _SWITCH.match(text):
        return Place(text=text, switch=match["name"] or text)
    if (match := _HOST.match(text)) and match["host"] != "localhost":
        return Place(text=text, host=match["host"], hca=match["hca"])
    return Place(text="" if text == "<unknown>" else text)


def switch_place(description: str) -> Place:
    """What the description of a node that is known to be a switch names: `ISR9024 Voltaire` looks like a host's."""
    found = place(description)
    return found if found.switch or not found.text else Place(text=found.text, switch=found.text)

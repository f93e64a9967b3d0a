"""What a family of kernel messages is: one driver's or subsystem's ways of telling a fault."""

from collections.abc import Callable
from dataclasses import dataclass

from store.event import Event


@dataclass(frozen=True, slots=True)
class Family:
    """A registry entry.

    Attributes:
        name: the family's file.
        signs: every message of the family holds one of these, byte for byte. All the bytes of a log are searched
            for all the signs: one that common lines hold too costs speed. At least four ASCII characters.
        decode: a message without its prefix (time, host, tag) to its event, without time, node and line;
            None for a message that tells no fault.
        merge: where a fault is told by several messages: the held event of the first and the event of a later one,
            to the first enlarged by the later, or to None where they are two faults.
        heads: kinds that open such a record: they are held until their details have come. Empty: every kind of a
            family that merges.
        tags: programs other than the kernel whose lines are of the family.
    """

    name: str
    signs: tuple[str, ...]
    decode: Callable[[str], Event | None]
    merge: Callable[[Event, Event], Event | None] | None = None
    tags: frozenset[str] = frozenset()
    heads: frozenset[str] = frozenset()

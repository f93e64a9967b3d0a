"""Network systems of switches and their events: the switch is a device, a node is a host."""

from collections.abc import Callable
from dataclasses import dataclass

from store.records.event import Attribute, Device, Event
from store.records.fault_catalog import with_kind_meaning


@dataclass(frozen=True, slots=True)
class SwitchSystem:
    """A registry entry.

    Attributes:
        name: the system's file.
        decode: switch, the program that logged and its message to an event without time and line; None for a message
            that tells nothing.
        recognises: a pattern of lines that no other program writes.
    """

    name: str
    decode: Callable[[str | None, str, str], Event | None]
    recognises: str


def switch_event(
    switch: str | None,
    kind: str,
    variant: str = "",
    *,
    port: str | None = None,
    message: str = "",
    **more: Attribute,
) -> Event:
    """The event of a switch, or of one of its ports, judged by its kind.

    A port has no number that is the same everywhere: `uuid` is its switch and its name, so that no two are one device.
    """
    attributes: dict[str, Attribute] = {"switch": switch, "name": port, **more}
    device = (
        Device(type="port", uuid=f"{switch}/{port}" if switch else port) if port else Device(type="switch", uuid=switch)
    )
    event = Event(
        time=None,
        node=None,
        source="switch",
        kind=kind,
        device=device,
        message=message,
        attributes={name: value for name, value in attributes.items() if value is not None},
    )
    return with_kind_meaning(event, variant)

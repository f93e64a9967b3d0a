"""The network systems of switches."""

from registries import defined

from parsers import fabric
from parsers.fabric.switch_system import SwitchSystem
from parsers.formats.switch import SYSTEMS


def test_every_switch_system_is_registered_once() -> None:
    """A new system is a decoder and its place in SYSTEMS."""
    assert sorted(system.name for system in SYSTEMS) == sorted(found.name for found in defined(fabric, SwitchSystem))

"""The registry of network systems."""

from pathlib import Path

import parsers.switch_systems

from parsers.formats.switch import SYSTEMS

# Files of the folder that are no system.
PARTS = {"__init__", "head", "registry", "system"}


def test_every_file_of_the_folder_is_registered_or_a_part() -> None:
    """A new system is one file and one line."""
    files = {path.stem for path in Path(parsers.switch_systems.__file__).parent.glob("*.py")}
    assert files - PARTS == {system.name for system in SYSTEMS}

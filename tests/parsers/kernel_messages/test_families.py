"""The registry of kernel message families."""

from pathlib import Path

import pytest

from parsers import kernel_messages
from parsers.formats.kernel import SIGNS
from parsers.kernel_messages.family import MessageFamily
from parsers.kernel_messages.registry import FAMILIES

# Files of the folder that are no family of their own.
PARTS = {"__init__", "decoder", "family", "form", "gpu_names", "nvlink", "registry", "xid_fields"}


def test_every_file_is_a_family_or_a_part_of_one() -> None:
    """A new family is one file and one line."""
    files = {path.stem for path in Path(kernel_messages.__file__).parent.glob("*.py")}
    assert files - PARTS == {family.name for family in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_sign_is_worth_searching_for(family: MessageFamily) -> None:
    """Long enough to be rare, plain text, and known to the scan of whole buffers."""
    assert family.signs
    for sign in family.signs:
        assert len(sign) >= 4
        assert sign.isascii()
        assert sign in SIGNS

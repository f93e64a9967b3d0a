"""The registry of kernel message families."""

import pytest
from registries import defined, modules

from parsers.formats.kernel import SIGNS
from parsers.kernel_messages import families
from parsers.kernel_messages.family import MessageFamily
from parsers.kernel_messages.registry import FAMILIES


def test_the_registry_lists_every_family_of_the_folder_once() -> None:
    """A family that a file defines is a line of the registry; a file without a family is none of this folder."""
    found = defined(families, MessageFamily)
    assert sorted(family.name for family in FAMILIES) == sorted(family.name for family in found)
    assert len({family.name for family in FAMILIES}) == len(FAMILIES)
    for module in modules(families):
        assert any(isinstance(value, MessageFamily) for value in vars(module).values()), module.__name__


@pytest.mark.parametrize("family", FAMILIES, ids=lambda family: family.name)
def test_a_sign_is_worth_searching_for(family: MessageFamily) -> None:
    """Long enough to be rare, plain text, and known to the scan of whole buffers."""
    assert family.signs
    for sign in family.signs:
        assert len(sign) >= 4
        assert sign.isascii()
        assert sign in SIGNS

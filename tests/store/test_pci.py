"""PCI addresses."""

import pytest

from store.records.event import canonical_pci


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("PCI:0000:0F:00", "0000:0f:00.0"),
        ("0000:0f:00.0", "0000:0f:00.0"),
        ("00000000:86:00.1", "0000:86:00.1"),
        ("PCI:000D:00:00", "000d:00:00.0"),
        ("00010000:E1:00.0", "10000:e1:00.0"),
        ("0001:00", "0000:01:00.0"),
        ("3b:00.0", "0000:3b:00.0"),
        ("pci:0000:0F:00.0", "0000:0f:00.0"),
        ("Pci:0000:0F:00.0", "0000:0f:00.0"),
        (" PCI:0001:ab:cd ", "0001:ab:cd.0"),
    ],
)
def test_every_way_to_print_an_address_is_one(text: str, address: str) -> None:
    """Lower case, four digits of domain, a function."""
    assert canonical_pci(text) == address


@pytest.mark.parametrize("text", ["", "PCI:...", "invalid", "0f", "0000:0f:00.9", "0000:gg:00.0", "0000:0f:00.0.1"])
def test_what_is_no_address_gives_none(text: str) -> None:
    """Nothing is made up."""
    assert canonical_pci(text) is None

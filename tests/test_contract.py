"""The outside contract stays as it is written down: `fixtures/contract`, remade by `make contract`."""

import pytest
from contract import PAGES, pages


@pytest.mark.slow
def test_nothing_that_users_rely_on_changes_silently() -> None:
    """Commands, operations and their fields, metrics, configuration keys, the rows of a simulated cluster."""
    written = {path.name: path.read_text(encoding="utf-8") for path in PAGES.iterdir()}
    found = pages()
    assert found.keys() == written.keys()
    for name, text in found.items():
        assert text.splitlines() == written[name].splitlines(), f"{name}: `make contract` shows the difference"

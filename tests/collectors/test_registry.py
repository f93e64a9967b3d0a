"""Every kind of source."""

from pathlib import Path

import pytest

import collectors
from collectors.collector import SourceError, SourceSettings
from collectors.registry import SCHEMES, make_collector

SETTINGS = SourceSettings(node="n1")


def test_every_collector_in_the_folder_is_registered() -> None:
    """A class with `collect` and `spec` is a source: one file, one line in the registry."""
    folder = Path(collectors.__file__).parent
    sources = {path.stem for path in folder.glob("*.py") if "    def collect(self, wait_s: float)" in path.read_text()}
    assert {factory.__module__.split(".")[1] for factory in SCHEMES.values()} == sources - {"collector"}


@pytest.mark.parametrize(
    "spec",
    ["kmsg", "journal", "file:/var/log/kern.log", "file:/var/log/x:kernel", "scrape:http://127.0.0.1:9400/metrics"],
)
def test_a_collector_bears_the_spec_that_made_it(spec: str) -> None:
    """Positions are saved under it."""
    assert make_collector(spec, SETTINGS).spec == spec


@pytest.mark.parametrize("spec", ["", "floppy", "floppy:a", "/var/log/kern.log", "KMSG"])
def test_an_unknown_spec_names_the_known_ones(spec: str) -> None:
    """So that one sees what to write."""
    with pytest.raises(SourceError, match="use kmsg, journal, file:PATH"):
        make_collector(spec, SETTINGS)

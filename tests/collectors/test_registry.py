"""Every kind of source."""

import importlib
import subprocess
import sys

import pytest
from real.patience import patience
from registries import modules

from collectors import sources
from collectors.collector import SourceError, SourceSettings
from collectors.registry import SCHEMES, make_collector

SETTINGS = SourceSettings(node="n1")


def test_the_registry_and_the_folder_hold_the_same_sources() -> None:
    """A new source is one file in `sources/` and one line in the registry; nothing else is in that folder."""
    assert {module.__name__.rpartition(".")[2] for module in modules(sources)} == {
        scheme.module for scheme in SCHEMES.values()
    }


def test_every_scheme_names_a_class_that_is_there() -> None:
    """It is loaded by name, so nothing else would notice."""
    for name, scheme in SCHEMES.items():
        made = getattr(importlib.import_module(f"collectors.sources.{scheme.module}"), scheme.name)
        assert callable(made), name
        assert scheme.form.startswith(name)


def _loaded(code: str) -> set[str]:
    """The modules that a fresh interpreter has loaded after some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        timeout=patience(60),
    )
    return set(done.stdout.split())


def test_only_what_a_sidecar_reads_is_loaded() -> None:
    """A node's memory is small: the kernel log needs no HTTP client and no follower of files."""
    loaded = _loaded(
        "from collectors.collector import SourceSettings\n"
        "from collectors.registry import make_collector\nmake_collector('kmsg', SourceSettings(node='n'))"
    )
    assert "collectors.sources.kmsg" in loaded
    assert not loaded & {
        "collectors.files.follow",
        "collectors.sources.scrape",
        "collectors.sources.journal",
        "urllib.request",
    }


def test_a_sidecar_loads_nothing_that_servers_check_with() -> None:
    """Its heartbeat is a plain object, its catalogues are files: a library for either is a megabyte of each node."""
    loaded = _loaded("import collectors.agent.sidecar, parsers.formats.kernel")
    assert "collectors.ship.heartbeat" in loaded
    assert not loaded & {"msgspec", "importlib.resources"}


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
    with pytest.raises(SourceError, match=r"use kmsg, journal\[:DIR\], file:PATH"):
        make_collector(spec, SETTINGS)

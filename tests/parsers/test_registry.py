"""The registry of formats, and finding a log's format."""

from pathlib import Path

import pytest

import parsers
from parsers.registry import PARSERS, detect
from parsers.text.parser import Context, parse

# Files of the room that are no format of their own.
PARTS = {
    "site_patterns": "of a site's rules",
    "rules_file": "a site's rules",
    "rules": "a site's rules",
    "ruled": "of a site's rules",
    "re2_pattern": "of a site's rules",
    "__init__": "the room",
    "auto": "finds the format",
    "device_page": "of the exporters",
    "exporters": "of the exporters",
    "kept_metrics": "of the exporters",
    "exposition": "of the exporters",
    "ascend_agents": "of ascend",
    "ascend_cann": "of ascend",
    "fabric": "of opensm",
    "port_counters": "of ibqueryerrors and perfquery",
    "journal": "of kernel",
    "lines": "reads streams",
    "matcher": "searches blocks",
    "scan": "searches blocks",
    "signs": "what blocks are searched for",
    "node_table": "nodes.csv: nodes, not events",
    "parser": "what a parser is",
    "pci": "addresses",
    "prefix": "of kernel",
    "registry": "the registry itself",
    "stamp": "times",
    "table": "of sacct, sacctmgr and sinfo",
    "slurm_state": "of sinfo and scontrol",
    "launcher": "of training",
    "documents": "reads JSON",
    "json_fields": "reads JSON",
    "detectors": "of the formats that carry other detectors' reports",
    "kubernetes_nodes": "of kubernetes",
    "kubernetes_jobs": "of kubernetes",
    "kubernetes_attempts": "of kubernetes",
    "checkpoint_tree": "of checkpoints",
    "kubernetes_reports": "of kubernetes",
}


def test_every_file_of_the_room_is_registered_or_a_part_of_one_that_is() -> None:
    """A new format is one file and one line."""
    files = {path.stem for path in Path(parsers.__file__).parent.glob("*.py")}
    assert files - set(PARTS) == set(PARSERS)


@pytest.mark.parametrize("name", PARSERS)
def test_a_format_describes_itself_and_knows_its_sample(name: str) -> None:
    """Its sample decodes without error, and `auto` knows it."""
    entry = PARSERS[name]
    errors: list[str] = []
    events = list(parse(entry.make(Context(year=2025)), [entry.sample], lambda _n, error: errors.append(str(error))))
    assert entry.name == name
    assert entry.description
    assert errors == []
    assert len(events) == (0 if PARSERS[name].shape == "table" else 1)  # a header alone is no event
    assert detect([entry.sample]) == name


@pytest.mark.parametrize("name", PARSERS)
def test_an_empty_input_gives_nothing(name: str) -> None:
    """No line, blank lines."""
    for lines in ([], [""], ["", "  ", ""]):
        assert list(parse(PARSERS[name].make(Context()), lines)) == []

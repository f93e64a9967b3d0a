"""Every fixture pair: what a log decodes to, byte for byte.

To write the expectation of a new log: `foreshock parse FORMAT FILE --year 2026 --tz UTC --run fixture > NAME.jsonl`.
"""

import json
from pathlib import Path

import pytest

from parsers.registry import MIXED, PARSERS, detect
from parsers.text.parser import Context, ParseError, clean, parse
from store.records.event import to_wire

FIXTURES = Path(__file__).parents[2] / "fixtures"
CONTEXT = Context(year=2026, run="fixture")
LOGS = sorted(
    path
    for name in PARSERS
    for path in (FIXTURES / name).iterdir()
    if path.suffix in (".log", ".txt", ".json", ".prom") and not path.name.startswith("LICENSE")
)
# Logs in which lines of other formats stand.
SEVERAL = {"kernel/fabricmanager.log", "kernel/quoted_xid.log"}
# Lines that are broken on purpose.
BROKEN = {
    "kubernetes/raw.json": [2],
    "dlrover/text.log": [29],
    "hook/killed_in_a_save.log": [29],
    "otel/spans.json": [90],
    "checkpoints/others.txt": [17],
    "squeue/running.txt": [58, 59],
    "node_exporter/page.prom": [32],
    "cambricon/two_scrapes.prom": [81],
    "amd/page.prom": [73],
    "npu/two_scrapes.prom": [66, 67],
    "dcgm/mig_and_switches.prom": [19],
    "sacct/attempts.txt": [6, 7],
    "sinfo/reasons.txt": [9],
    "scontrol/nodes.txt": [97],
    "ufm/event.log": [17],
    "sacct/invalid_line.txt": [2],
    "sacctmgr/events.txt": [5, 6],
    "dcgm/present_names.txt": [8],
    "training/newer.log": [26],
}


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_fixture_decodes_to_what_stands_beside_it(log: Path) -> None:
    """Every event and every broken line, as written down."""
    broken: list[int] = []

    def on_error(line: int, _error: ParseError) -> None:
        broken.append(line)

    parser = PARSERS[log.parent.name].make(CONTEXT)
    lines = log.read_bytes().split(b"\n")
    found = [to_wire(event) for event in parse(parser, lines[:-1] if not lines[-1] else lines, on_error)]
    expected = [json.loads(line) for line in log.with_suffix(".jsonl").read_text().splitlines()]
    assert found == expected
    assert broken == BROKEN.get(f"{log.parent.name}/{log.name}", [])


@pytest.mark.parametrize("name", PARSERS)
def test_every_format_has_a_fixture_pair_with_its_origin(name: str) -> None:
    """A log, its expectation, and where it comes from."""
    folder = FIXTURES / name
    assert list(folder.glob("*.jsonl"))
    assert (folder / "ORIGIN.md").read_text()
    assert {path.stem for path in folder.glob("*.jsonl")} == {path.stem for path in LOGS if path.parent == folder}


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_fixture_tells_its_own_format(log: Path) -> None:
    """`auto` finds the format of each log that holds events."""
    if not log.with_suffix(".jsonl").read_text():
        return
    found = detect([clean(line) for line in log.read_bytes().split(b"\n")])
    assert found == (MIXED if f"{log.parent.name}/{log.name}" in SEVERAL else log.parent.name)

"""No event without a sign: the scan of whole buffers passes over every line that holds none."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from parsers.formats.kernel import SIGNS, KernelParser
from parsers.text.parser import Context, ParseError, clean, parse
from parsers.text.scan import LARGE_BYTES
from store.records.event import to_wire

ROOT = Path(__file__).parents[2]
LOGS = sorted(
    path
    for path in (ROOT / "fixtures" / "kernel").iterdir()
    if path.suffix in (".log", ".txt", ".json") and not path.name.startswith("LICENSE")
)


def ignore(_line: int, _error: ParseError) -> None:
    """A broken line is another test's."""


@pytest.mark.parametrize("log", LOGS, ids=lambda path: path.name)
def test_a_line_that_gives_an_event_holds_a_sign(log: Path) -> None:
    """Details as well as faults, in every form of every family."""
    for line in map(clean, log.read_bytes().split(b"\n")):
        if list(parse(KernelParser(Context(year=2026)), [line], ignore)):
            assert any(sign in line for sign in SIGNS), line


def test_the_command_finds_in_a_file_what_feeding_its_lines_gives(tmp_path: Path) -> None:
    """All fixtures in one file, so large that several processes search it, and small, so that one does."""
    quiet = b"Nov 20 22:31:54 vm kernel: usb 1-1: new high-speed USB device\n" * 300
    every = quiet.join(log.read_bytes() + b"\n" for log in LOGS)
    for content in (every, every * (LARGE_BYTES // len(every) + 1)):
        file = tmp_path / "kern.log"
        file.write_bytes(content)
        code = "from cli.main import main; main()"
        command = [sys.executable, "-c", code, "parse", "kernel", str(file), "--year", "2026", "--run", "r"]
        done = subprocess.run(command, capture_output=True, cwd=ROOT, env={**os.environ, "TZ": "UTC"})
        parser = KernelParser(Context(year=2026, run="r"))
        fed = [to_wire(event) for event in parse(parser, content.split(b"\n"), ignore)]
        assert [json.loads(line) for line in done.stdout.splitlines()] == fed

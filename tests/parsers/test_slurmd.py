"""Slurm's node daemon: GPUs whose files are not there, scripts that fail, its own end."""

from datetime import UTC, datetime

import pytest

from parsers.formats.slurmd import SlurmdParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

AT = "[2026-09-16T05:02:46.101] "
WHEN = datetime(2026, 9, 16, 5, 2, 46, 101000, tzinfo=UTC)
GONE = "fatal: can't stat gres.conf file /dev/nvidia0: No such file or directory"


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(SlurmdParser(Context(node="gpu-003", year=2026)), lines))


@pytest.mark.parametrize(
    ("prefix", "node", "time"),
    [
        (AT, "gpu-003", WHEN),
        ("slurmd: ", "gpu-003", None),
        ("Sep 16 05:02:46 gpu-004 slurmd[762]: slurmd: ", "gpu-004", WHEN.replace(microsecond=0)),
        ("Sep 16 05:02:46 gpu-004 slurmd[762]: ", "gpu-004", WHEN.replace(microsecond=0)),
    ],
)
def test_a_gpu_without_its_file_is_missing(prefix: str, node: str, time: datetime | None) -> None:
    """In its own file, what it prints and the system log."""
    [event] = decode(prefix + GONE)
    assert (event.kind, event.severity, event.device.type, event.node, event.time) == (
        "gpu_missing",
        "error",
        "gpu",
        node,
        time,
    )
    assert event.attributes["name"] == "/dev/nvidia0"
    assert detect([prefix + GONE]) == "slurmd"


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("error: [job 23] prolog failed status=1:0", "prolog"),
        ("error: [job 23] epilog failed status=0:9", "epilog"),
        ("error: Unable to register: Unable to contact slurm controller (connect failure)", "slurmctld"),
        ("fatal: systemd scope for slurmstepd could not be set.", "slurmd"),
        ("error: slurmd initialization failed", "slurmd"),
    ],
)
def test_what_keeps_jobs_off_the_node_is_a_fault_of_a_service(said: str, name: str) -> None:
    """Its name tells which."""
    [event] = decode(AT + said)
    assert (event.kind, event.severity, event.attributes["name"]) == ("node_service", "warning", name)


@pytest.mark.parametrize(
    "line",
    [
        f"{AT}error: Waiting for gres.conf file /dev/nvidia0",
        f"{AT}launch task StepId=23.0 request from UID:1001 GID:1001 HOST:10.0.0.1 PORT:63195",
        f"{AT}error: Node configuration differs from hardware: CPUs=2:4(hw)",
        f"Sep 16 05:02:46 gpu-004 app[762]: slurmd: {GONE}",
        f"Sep 16 05:02:46 gpu-004 slurmctld[762]: {GONE}",
    ],
)
def test_what_waits_and_what_others_say_tells_nothing(line: str) -> None:
    """A line of another program that quotes the daemon is not its word."""
    assert decode(line) == []

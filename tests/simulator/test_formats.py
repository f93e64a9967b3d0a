"""The texts, compared with lines that the real programs wrote."""

import re
from datetime import UTC, datetime

import numpy as np
import pytest

from parsers.registry import PARSERS
from parsers.text.parser import Context, parse
from simulator.faults.fault import CLASSES, NodeFailure
from simulator.faults.trace import LinkLoss, recovery_line, sxid_line, xid_line
from simulator.output.fabric import ibnetdiscover, opensm_lines
from simulator.output.training_log import log_lines
from simulator.simulation import SimulatedCluster
from simulator.site import SimulationSettings
from simulator.training.attempt import SimulatedAttempt, SimulatedRun, TrainingStep
from store.records.fault_catalog import xid

# As opensm 3.3.23 wrote them on a simulated fabric (time, thread and numbers replaced).
OPENSM_FORMS = (
    r"OpenSM 3\.3\.23",
    r"Entering (DISCOVERING|MASTER) state",
    r"log_trap_info: Received Generic Notice type:1 num:128 \(Link state change\) Producer:2 \(Switch\) "
    r"from LID:\d+ TID:0x0000000000000000",
    r"SM class trap 128: Directed Path Dump of \d hop path: Path = 0,1(,\d+,\d+)?",
    r'log_notice: Reporting Urgent Notice "Link state change" from switch LID \d+, GUID 0x[0-9a-f]{16}',
    r'log_notice: Reporting Informational Notice "GID (in|out of) service", GID:fe80::b83f:d203:20:[0-9a-f]+',
    r"drop_mgr_remove_port: Removed port with GUID:0x[0-9a-f]{16} LID range \[\d+, \d+\] of node:gpu-\d{3} mlx5_0",
    r"osm_ucast_mgr_process: minhop tables configured on all switches",
    r"state_mgr_report_new_ports: Discovered new port with GUID:0x[0-9a-f]{16} LID range \[\d+,\d+\] "
    r"of node: gpu-\d{3} mlx5_0",
    r"SUBNET UP",
)
OPENSM_LINE = re.compile(r"[A-Z][a-z]{2} \d\d \d\d:\d\d:\d\d \d{6} \[[0-9A-F]{7}\] 0x\d\d -> (.*)")


def test_every_opensm_line_is_of_a_real_form(small: SimulatedCluster) -> None:
    """Prefix and words."""
    forms = [re.compile(form) for form in OPENSM_FORMS]
    seen = set()
    for _, line in opensm_lines(small.settings, small.layout, small.trace.links):
        match = OPENSM_LINE.fullmatch(line)
        assert match, line
        form = next((form for form in forms if form.fullmatch(match[1])), None)
        assert form, line
        seen.add(form)
    assert len(seen) == len(forms)


def test_a_loss_is_told_by_the_port_that_was_removed(small: SimulatedCluster) -> None:
    """At its very moment; the trap that made the manager look comes just before, the return after."""
    loss = LinkLoss(3_600_000, 3_605_000, 6)
    lines = opensm_lines(small.settings, small.layout, [loss])
    times = {text.split("-> ")[1].split(":")[0]: time for time, text in lines if time > 2_000_000}
    assert times["drop_mgr_remove_port"] == 3_600_000_000
    assert times["state_mgr_report_new_ports"] > 3_605_000_000
    assert [time for time, _ in lines] == sorted(time for time, _ in lines)


def test_a_port_that_never_comes_back_is_never_discovered(small: SimulatedCluster) -> None:
    """The archive ends before."""
    loss = LinkLoss(3_600_000, small.settings.length_ms + 1, 6)
    assert not any("Discovered" in text for _, text in opensm_lines(small.settings, small.layout, [loss]))


def test_the_topology_has_the_real_forms(small: SimulatedCluster) -> None:
    """Switch blocks with their cables, then the hosts."""
    text = ibnetdiscover(small.settings, small.layout)
    assert re.search(
        r'^Switch\t40 "S-[0-9a-f]{16}"\t\t# "MF0;leaf-01:MQM9700/U1" enhanced port 0 lid \d+ lmc 0$', text, re.MULTILINE
    )
    assert re.search(
        r'^\[1\]\t"H-b83fd20300200000"\[1\]\(b83fd20300200001\) \t\t# "gpu-001 mlx5_0" lid 1000 4xNDR$',
        text,
        re.MULTILINE,
    )
    assert text.count("\nCa\t1 ") == small.layout.nodes


@pytest.mark.parametrize("code", [13, 31, 43, 45, 48, 63, 64, 74, 79, 92, 94, 95, 119])
def test_every_xid_line_decodes(code: int) -> None:
    """To its code and GPU, with the catalogue's meaning."""
    line = xid_line(0, 1, 3, code, np.random.default_rng(code))
    (event,) = parse(PARSERS["kernel"].make(Context()), [line.text])
    fault = xid(code)
    assert fault is not None
    assert (event.kind, event.code, event.device.pci) == ("xid", code, "0000:5b:00.0")
    assert (event.severity, event.cause) == (fault.severity, fault.cause)
    assert line.confounds == (fault.severity in ("error", "fatal") and fault.cause != "application")


@pytest.mark.parametrize("fatal", [True, False])
def test_switch_lines_decode(fatal: bool) -> None:
    """Fatal or not, as the line says."""
    line = sxid_line(0, 1, 6, fatal)
    (event,) = parse(PARSERS["kernel"].make(Context()), [line.text])
    assert (event.kind, event.device.type) == ("sxid", "nvswitch")
    assert (event.severity in ("error", "fatal")) == fatal == line.confounds


@pytest.mark.parametrize("action", [1, 2])
def test_recovery_lines_decode(action: int) -> None:
    """Xid 154."""
    (event,) = parse(PARSERS["kernel"].make(Context()), [recovery_line(0, 1, 0, action).text])
    assert event.code == 154
    assert event.attributes["recovery_to"] == f"0x{action}"


def broken_run(name: str, variant: int) -> SimulatedRun:
    """Two intervals, then a fault of a class."""
    fault = NodeFailure(0, 2, CLASSES[name], 1_150_000, 1_200_000, 0, "reboot", False, 1_150_000, variant, outage=False)
    steps = [TrainingStep("iteration", 160_000, 400_000, 50), TrainingStep("iteration", 560_000, 400_000, 100)]
    attempt = SimulatedAttempt(
        1001, "llm", 0, 60_000, (0, 1), 100_000, 0, None, steps, fault, 1_200_000, "FAILED", "1:0"
    )
    return SimulatedRun("llm", 0, 2_000_000, [attempt])


@pytest.mark.parametrize(
    ("name", "variant", "error"),
    [("software", 10, "RuntimeError"), ("software", 90, "ValueError"), ("storage", 10, "OSError")],
)
def test_an_error_of_the_program_bears_its_time(small: SimulatedCluster, name: str, variant: int, error: str) -> None:
    """So that the ledger knows when work stopped."""
    lines = log_lines(SimulationSettings(), small.layout, broken_run(name, variant), 50)
    events = list(parse(PARSERS["training"].make(Context(run="llm")), [text for _, text in lines]))
    told = [event for event in events if event.kind == "training_error"]
    assert told[0].attributes["error"] == error
    assert told[0].time == datetime(2025, 1, 1, 0, 19, 10, tzinfo=UTC)


def test_a_fault_of_the_machine_is_told_by_the_scheduler_alone(small: SimulatedCluster) -> None:
    """The program just stops printing."""
    lines = [text for _, text in log_lines(SimulationSettings(), small.layout, broken_run("off_bus", 10), 50)]
    assert lines[-1] == "slurmstepd: error: *** JOB 1001 ON gpu-001 CANCELLED AT 2025-01-01T00:20:00 ***"
    assert not any("Error" in line for line in lines)


def test_a_first_start_says_that_it_loads_nothing(small: SimulatedCluster) -> None:
    """Else the first line would cover an unknown number of iterations."""
    lines = [text for _, text in log_lines(SimulationSettings(), small.layout, broken_run("off_bus", 10), 50)]
    assert any("will not load any checkpoints" in line for line in lines)
    events = parse(PARSERS["training"].make(Context(run="llm")), lines)
    assert [event.attributes["iterations"] for event in events if event.kind == "iteration"] == [50, 50]

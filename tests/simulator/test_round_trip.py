"""What is written is read back by the project's own parsers, and equals the hidden state: for many seeds and sizes."""

from collections import Counter
from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from simulated import SIZES, cluster_of, events_of

from parsers.formats.ibnetdiscover import links
from parsers.pages import devices_of
from parsers.text.parser import Context
from simulator.output.archive import exposition, kernel_text
from simulator.output.fabric import ibnetdiscover, opensm_lines
from simulator.output.slurm import EVENT_HEADER, SACCT_HEADER, drain_row, failure_row, job_row
from simulator.output.telemetry import present
from simulator.output.training_log import log_lines
from simulator.simulation import simulate
from simulator.site import (
    DAY_MS,
    GPUS,
    HOUR_MS,
    PCI,
    SimulationSettings,
    gpu_uuid,
    hca_guid,
    leaf_guid,
    leaf_lid,
    leaf_name,
    leaf_of,
    leaf_port,
)
from store.records.event import format_time, parse_time
from store.records.hostlist import expand
from store.records.outage import outage_from_event

FEW = settings(max_examples=15)


@FEW
@given(SIZES)
def test_every_xid_comes_back_with_its_moment_node_gpu_and_code(size: tuple[int, int, int]) -> None:
    """And nothing but Xids and SXids comes back."""
    cluster = cluster_of(*size)
    lines = cluster.trace.kernel
    found = events_of("kernel", [kernel_text(cluster, line) for line in lines])
    expected = Counter(
        (cluster.settings.moment(k.time_ms), cluster.layout.names[k.node], f"{PCI[k.xid[0]]}.0", k.xid[1])
        for k in lines
        if k.xid
    )
    assert Counter((e.time, e.node, e.device.pci, e.code) for e in found if e.kind == "xid") == expected
    switches = [line for line in lines if "SXid" in line.text]
    told = [e for e in found if e.kind == "sxid"]
    assert [(e.time, e.node) for e in told] == [
        (cluster.settings.moment(s.time_ms), cluster.layout.names[s.node]) for s in switches
    ]
    assert all((e.severity == "fatal") == s.confounds for e, s in zip(told, switches, strict=True))
    assert {e.kind for e in found} <= {"xid", "sxid", "pids_limit"}  # the last is noise, for information


@FEW
@given(SIZES)
def test_lines_that_confound_are_those_that_a_decoder_takes_for_the_machine(size: tuple[int, int, int]) -> None:
    """The simulator's own mark agrees with the parser's verdict, line by line."""
    cluster = cluster_of(*size)
    for line in cluster.trace.kernel:
        events = events_of("kernel", [kernel_text(cluster, line)])
        if line.confounds:
            assert events, line.text
            assert events[0].severity in ("fatal", "error"), line.text
            assert events[0].cause in ("hardware", "driver", "fabric"), line.text


@FEW
@given(SIZES)
def test_every_loss_of_a_port_comes_back_with_its_guid_lid_and_host(size: tuple[int, int, int]) -> None:
    """Down and up, in the right order, at the right switch."""
    cluster = cluster_of(*size)
    end = cluster.settings.length_ms
    text = [line for _, line in opensm_lines(cluster.settings, cluster.layout, cluster.trace.links)]
    found = events_of("opensm", text, Context(year=2025))
    moment, names = cluster.settings.moment, cluster.layout.names
    downs = Counter((moment(x.down_ms), names[x.node], f"0x{hca_guid(x.node) + 1:016x}") for x in cluster.trace.links)
    removed = [e for e in found if e.kind == "port_removed"]
    assert Counter((e.time, e.node, e.device.uuid) for e in removed if e.node) == downs
    ups = Counter(names[x.node] for x in cluster.trace.links if x.up_ms < end)
    back = [e for e in found if e.kind == "port_discovered"]
    assert Counter(e.node for e in back) == ups
    leaves = {f"0x{leaf_guid(leaf):016x}": leaf_lid(leaf) for leaf in range(cluster.layout.leaves)}
    traps = [e for e in found if e.kind == "link_state_change"]
    assert traps or not cluster.trace.links
    for event in traps:  # of several hosts' at once some name the switch by its LID alone
        assert event.attributes["lid"] in leaves.values()
        assert event.device.uuid is None or leaves[event.device.uuid] == event.attributes["lid"]


@pytest.mark.parametrize("nodes", [8, 16, 17, 130])
def test_the_topology_has_each_cable_once_from_either_end(nodes: int) -> None:
    """A host on its leaf's port; every leaf on every spine."""
    cluster = cluster_of(nodes, 2, 1)
    layout = cluster.layout
    cables = list(links(ibnetdiscover(cluster.settings, layout).splitlines()))
    hosts = [cable for cable in cables if cable["peer_type"] == "hca"]
    assert {(c["switch"], c["port"], c["peer"]) for c in hosts} == {
        (leaf_name(leaf_of(n)), leaf_port(n), layout.names[n]) for n in range(nodes)
    }
    assert len(hosts) == nodes
    pairs = Counter(frozenset((str(c["switch"]), str(c["peer"]))) for c in cables if c["peer_type"] == "switch")
    assert len(pairs) == layout.leaves * layout.spines
    assert set(pairs.values()) == {2}


@FEW
@given(SIZES)
def test_job_rows_come_back_as_the_attempts(size: tuple[int, int, int]) -> None:
    """Every column that the parser reads, of the whole archive."""
    cluster = cluster_of(*size)
    attempts = [attempt for run in cluster.runs for attempt in run.attempts]
    rows = [job_row(cluster.settings, cluster.layout, a, cluster.settings.length_ms) for a in attempts]
    found = events_of("sacct", [SACCT_HEADER, *(row for row in rows if row)])
    assert len(found) == len(attempts)
    moment = cluster.settings.moment
    for event, attempt in zip(found, attempts, strict=True):
        told = event.attributes
        assert (told["job_id"], told["run"]) == (str(attempt.job_id), attempt.run)
        assert expand(str(told["node_list"])) == [cluster.layout.names[n] for n in attempt.nodes]
        for name, at in (("submit", attempt.submit_ms), ("start", attempt.start_ms), ("end", attempt.end_ms)):
            assert parse_time(str(told[name])) == moment(at)
        assert str(told["state"]) == attempt.state.split(" ")[0]
        assert told["exit_code"] == attempt.exit_code


@FEW
@given(SIZES)
def test_outage_rows_come_back_as_failures_and_drains(size: tuple[int, int, int]) -> None:
    """Start, end, node; planned or not, and of the right cause."""
    cluster = cluster_of(*size)
    far = cluster.settings.length_ms * 10
    rows = [failure_row(cluster.settings, cluster.layout, f, far) for f in cluster.outages]
    rows += [drain_row(cluster.settings, cluster.layout, d, far) for d in cluster.drains]
    found = [outage_from_event(e) for e in events_of("sacctmgr", [EVENT_HEADER, *(row for row in rows if row)])]
    moment, names = cluster.settings.moment, cluster.layout.names
    expected = [(names[f.node], moment(f.start_ms), moment(f.end_ms), False) for f in cluster.outages]
    expected += [(names[d.node], moment(d.start_ms), moment(d.end_ms), True) for d in cluster.drains]
    assert [(o.node, o.start, o.end, o.planned) for o in found] == expected
    for outage, failure in zip(found, cluster.outages, strict=False):
        assert outage.cause == ("hardware" if failure.kind.cause == "driver" else failure.kind.cause)


@FEW
@given(SIZES)
def test_a_training_log_comes_back_as_its_steps(size: tuple[int, int, int]) -> None:
    """Lengths, iterations and moments of iterations; saves that ended and saves that did not; loads; errors."""
    cluster = cluster_of(*size)
    for run in cluster.runs:
        text = [line for _, line in log_lines(cluster.settings, cluster.layout, run, cluster.parameters.log_interval)]
        found = events_of("training", text, Context(run=run.name))
        steps = [(s.kind, s) for attempt in run.attempts for s in attempt.steps]
        told = [e for e in found if e.kind == "iteration"]
        done = [s for kind, s in steps if kind == "iteration"]
        assert [(e.time, e.attributes["iteration"]) for e in told] == [
            (cluster.settings.moment(s.end_ms), s.iteration) for s in done
        ]
        assert {e.attributes["run"] for e in found} == {run.name}
        saves = [e for e in found if e.kind == "checkpoint_save"]
        assert [(e.attributes["iteration"], e.attributes["duration_ms"]) for e in saves] == [
            (s.iteration, s.length_ms) for kind, s in steps if kind == "save"
        ]
        begun = [e.attributes["iteration"] for e in found if e.kind == "checkpoint_save_start"]
        assert begun == [s.iteration for kind, s in steps if kind.startswith("save")]
        loads = [(e.attributes["iteration"], e.attributes["duration_ms"]) for e in found if e.kind == "checkpoint_load"]
        assert loads == [(a.loaded, a.load_ms) for a in run.attempts if a.loaded is not None]
        own = [a.fault for a in run.attempts if a.fault and a.fault.kind.name in ("software", "storage")]
        errors = {e.time for e in found if e.kind == "training_error" and e.time}
        assert {cluster.settings.moment(fault.fault_ms) for fault in own} <= errors


@FEW
@given(SIZES)
def test_the_exposition_comes_back_as_the_gpus_that_are_there(size: tuple[int, int, int]) -> None:
    """Node, index, UUID and PCI address of each, with the time of the moment asked for."""
    cluster = cluster_of(*size)
    at = cluster.settings.length_ms // 2 // HOUR_MS * HOUR_MS
    found = devices_of(exposition(cluster, cluster.settings.moment(at)), Context())
    names = {name: node for node, name in enumerate(cluster.layout.names)}
    here = {(names[sample.node], sample.gpu) for sample in found}
    there = present(cluster, at)
    assert here == {(n, g) for n in range(cluster.layout.nodes) for g in range(GPUS) if there[n, g]}
    for sample in found:
        assert sample.uuid == gpu_uuid(names[sample.node], sample.gpu)
        assert sample.time == cluster.settings.moment(at)


def test_a_fabric_log_over_the_new_year_keeps_its_years() -> None:
    """Its lines bear none: the reader counts back from the file's time."""
    cluster = simulate(SimulationSettings(8, 60, 3, datetime(2024, 12, 1, tzinfo=UTC)))
    lines = [line for _, line in opensm_lines(cluster.settings, cluster.layout, cluster.trace.links)]
    until = cluster.settings.moment(cluster.settings.length_ms)
    found = events_of("opensm", lines, Context(year=until.year, until=until))
    times = [e.time for e in found if e.kind == "port_removed" and e.node]
    assert {time.year for time in times if time} == {2024, 2025}
    assert Counter(times) == Counter(cluster.settings.moment(loss.down_ms) for loss in cluster.trace.links)


def test_times_of_the_truth_are_in_the_contracts_form() -> None:
    """Z, microseconds."""
    cluster = cluster_of(8, 2, 1)
    assert format_time(cluster.settings.moment(DAY_MS)) == "2025-01-02T00:00:00.000000Z"

"""Faults that others share or that no part tells of: what was got wrong on cases of strangers."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from fault_events import at, lost_port, program_error, xid

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import Scene, SceneJob
from diagnosis.causes.stop import Stoppage
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.hangs.placement import placements_of
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.meaning import NOTHING, meaning_of
from store.records.event import Device, Event
from store.records.job import Job
from store.records.outage import Outage
from store.records.verdict import Verdict

NODES = [f"gpu-{number:03d}" for number in range(1, 33)]
BUSES = ("1b", "3d", "4e", "5f", "9d", "ba", "cb", "db")


def graph(servers: Iterable[str] = ()) -> DeviceGraph:
    """Nodes of eight GPUs and four adapters; they share the file servers."""
    made = DeviceGraph()
    made.gpus = dict.fromkeys(NODES, 8)
    for name in NODES:
        for rail in range(4):
            made.hang(Place("nic", f"{name}/mlx5_{rail}"), Place("node", name))
        for server in servers:
            made.hang(Place("node", name), Place("storage", server))
    return made


def told(
    events: Iterable[Event], made: DeviceGraph | None = None, run: str | None = "llm", **scene: object
) -> list[Verdict]:
    """The causes of what is told of a stop at second 700 of a job on all nodes, the likeliest first."""
    fold = SymptomFold(made or graph())
    job = SceneJob("llm", "1", frozenset(NODES), at(-50_000), at(700), str(scene.pop("state", "FAILED")))
    fold.place_ranks(placements_of([Job("1", "llm", "FAILED", at(-50_000), at(-50_000), at(700), 32, "gpu-[001-032]")]))
    fold.take(replace(event, id=event.id or f"e{number}") for number, event in enumerate(events))
    stop = scene.pop("stop", Stoppage(run, at(90), at(700), frozenset(NODES) if run else None))
    jobs = (job, *scene.pop("jobs", ()))  # type: ignore[misc]
    return explain(Scene(now=at(705), symptoms=fold.symptoms(at(705)), graph=fold.graph, jobs=jobs, stop=stop, **scene))  # type: ignore[arg-type]


def likely(verdicts: list[Verdict], least: float = 0.5) -> list[tuple[str, str]]:
    """Class and name of whatever is more likely than not."""
    return [(one.cause_class, one.name) for one in verdicts if one.probability >= least]


def host(kind: str, seconds: float, node: str, text: str, cause: str = "host", **attributes: str) -> Event:
    """One line of a node's kernel."""
    return Event(at(seconds), node, "kernel", kind, severity="error", cause=cause, message=text, attributes=attributes)  # type: ignore[arg-type]


OOM = host("oom_kill", 95, "gpu-007", "oom-kill:constraint=CONSTRAINT_NONE,global_oom,task=python3,pid=48812")


def test_no_adapter_takes_a_nodes_memory() -> None:
    """The adapter corrected errors hours ago; now the node has no memory left. It was the program, or the node."""
    corrected = replace(
        host("pcie_aer", 0, "gpu-007", "PCIe Bus Error: severity=Corrected", "hardware"),
        severity="warning",
        device=Device("nic", pci="0000:4c:00.0"),
    )
    verdicts = told([*(replace(corrected, time=at(-14_400 * n)) for n in (1, 2)), OOM])
    assert verdicts[0].cause_class in ("application", "node")
    assert "nic" not in {one.cause_class for one in verdicts if one.probability >= 0.05}
    assert "drain_node" not in {one.action for one in verdicts}


def test_a_link_that_was_up_for_hours_is_no_part_of_what_its_node_shows_now() -> None:
    """One adapter's link was away for two seconds ten hours before: no reason to blame the node for the memory."""
    port = replace(lost_port(-36_000, "gpu-007"), device=Device("hca"), attributes={"hca": "mlx5_1"})
    flap = [port, replace(port, time=at(-35_998), kind="port_discovered", severity="info")]
    alone, flapped = told([OOM]), told([*flap, OOM])
    assert likely(alone) == likely(flapped) == [("application", "llm")]
    node = next(one for one in flapped if one.cause_class == "node")
    assert not any("lost a link" in one.text for one in node.evidence_for)


@pytest.mark.parametrize(("clients", "cause"), [(1, ("node", "gpu-003")), (30, ("storage", "10.0.0.7"))])
def test_one_client_of_many_lost_its_own_way_to_the_server(clients: int, cause: tuple[str, str]) -> None:
    """Where all lose the server it is the server."""
    complaints = [
        host(
            "fs_stall",
            91 + n / 9,
            f"gpu-{3 + n % 30:03d}",
            "Connection to OST0007 was lost",
            "storage",
            server="10.0.0.7",
        )
        for n in range(clients)
    ]
    assert likely(told(complaints, graph(["10.0.0.7"])))[:1] == [cause]


def fabric_of_node(gpus: int) -> list[Event]:
    """A fatal line of an NVSwitch of a baseboard, and Xid 74 of some of its GPUs."""
    sxid = Event(at(99), "gpu-009", "kernel", "sxid", 20034, "fatal", "hardware", "reset_gpu", message="LTSSM Fault Up")
    sxid = replace(sxid, device=Device("nvswitch", pci="0000:c3:00.0", port=30))
    broken = [
        replace(xid(74, 100 + n / 50, "gpu-009"), device=Device("gpu", pci=f"0000:{bus}:00.0"), id=f"x{n}")
        for n, bus in enumerate(BUSES[:gpus])
    ]
    said = program_error(
        103, "CUDA error: uncorrectable NVLink error detected during the execution", "CUDAError", "gpu-009"
    )
    return [sxid, *broken, replace(said, cause="hardware", device=Device("gpu", index=3))]


def test_an_nvswitch_whose_gpus_all_lose_links_is_to_blame_and_none_of_them() -> None:
    """Eight GPUs of one baseboard at once."""
    assert likely(told(fabric_of_node(8))) == [("nvswitch", "gpu-009/0000:c3:00.0")]


def test_an_nvswitch_that_one_gpu_alone_cannot_reach_is_not_surely_to_blame() -> None:
    """The link between the two has failed: either end, or what is between."""
    first = told(fabric_of_node(1))[0]
    assert first.node == "gpu-009"
    assert first.cause_class != "nvswitch" or first.probability < 0.9


def test_a_rank_that_meets_an_nvlink_error_tells_of_no_broken_gpu() -> None:
    """CUDA's words say which part: the NVLink."""
    assert meaning_of(fabric_of_node(0)[-1]).symptom == "nvlink_fault"


def down(
    node: str, start: float, end: float | None, state: str, reason: str, user: str, cause: str = "unknown"
) -> Outage:
    """A row of sacctmgr; planned where it says so."""
    planned = "maintenance" in reason or "scheduled" in reason
    return Outage(node, at(start), None if end is None else at(end), state, reason, user, planned=planned, cause=cause)  # type: ignore[arg-type]


FEWER = down(
    "gpu-005", 520, None, "DRAIN", "gres/gpu count reported lower than configured (7 < 8)", "slurm(64030)", "hardware"
)
REBOOT = down("gpu-005", 100, 515, "DRAIN", "scheduled reboot: kernel update", "root(0)")
INIT = replace(
    host("nvrm_init_failure", 450, "gpu-005", "GPU 0000:9d:00.0: RmInitAdapter failed! (0x22:0x56:884)", "hardware"),
    device=Device("gpu", pci="0000:9d:00.0"),
)


def test_a_node_that_registers_with_fewer_gpus_lost_one() -> None:
    """Slurm drained it by itself: nobody else says a word."""
    assert likely(told([], run=None, outages=(FEWER,))) == [("node", "gpu-005")]


def test_planned_work_excuses_no_gpu_that_is_still_missing_after_it() -> None:
    """The scheduler takes the node out again as soon as the work is over."""
    assert likely(told([INIT], run=None, outages=(REBOOT, FEWER))) == [("gpu", "gpu-005/0000:9d:00.0")]
    assert "gpu" not in {kind for kind, _ in likely(told([INIT], run=None, outages=(REBOOT,)), 0.05)}


def test_a_job_that_was_cancelled_as_its_nodes_went_into_maintenance_ended_by_that() -> None:
    """No program failed, and no part."""
    works = tuple(down(node, 670, 6000, "DRAIN", "maintenance: driver upgrade", "root(0)") for node in NODES[:16])
    said = replace(program_error(699, "JOB 1 CANCELLED DUE TO PREEMPTION", "preempted"), severity="warning")
    verdicts = told([said], state="CANCELLED by 0", outages=works)
    assert likely(verdicts) == [("planned", "maintenance: driver upgrade")]
    assert (verdicts[0].jobs, verdicts[0].action) == (("llm",), "none")
    assert verdicts[0].reason.startswith("llm was ended as 16 nodes were taken out of service")


@pytest.mark.parametrize(
    ("state", "reason", "cause"),
    [("FAILED", "maintenance: driver upgrade", "unknown"), ("CANCELLED by 0", "Xid 79 on GPU 2", "hardware")],
)
def test_what_failed_before_the_work_or_was_its_reason_is_not_excused_by_it(
    state: str, reason: str, cause: str
) -> None:
    """The job failed by itself; or a person drained the node because of the GPU."""
    work = down("gpu-004", 670, None, "DRAIN", reason, "ann(1001)", cause)
    verdicts = told([xid(79, 95, "gpu-004")], state=state, outages=(work,))
    assert [one for one in verdicts if one.cause_class == "planned" and one.probability >= 0.5] == []


@pytest.mark.parametrize("error", ["cancelled", "preempted", "time_limit", "stopped", "KeyboardInterrupt"])
def test_a_job_that_somebody_ended_tells_of_no_error(error: str) -> None:
    """It is what the launcher or Slurm writes of it."""
    assert meaning_of(program_error(100, "CANCELLED", error)) == NOTHING


def users_fault(nodes: int) -> tuple[list[Event], list[SceneJob]]:
    """Xid 31 of one GPU under the jobs of six users, an hour after each other."""
    faults, jobs = [], []
    for number in range(6):
        seconds = -20_000 + 3000 * number
        faults.append(xid(31, seconds, "gpu-020", f"u{number}"))
        members = frozenset(["gpu-020", *(f"other-{number}{n}" for n in range(nodes - 1))])
        jobs.append(SceneJob(f"user-{number}", str(90 + number), members, at(seconds - 900), at(seconds + 4), "FAILED"))
    return faults, jobs


def test_a_gpu_on_which_the_programs_of_many_fail_is_to_blame() -> None:
    """Each of six jobs had three nodes, and it was always this GPU: tests are asked for, and not to start again."""
    faults, jobs = users_fault(3)
    verdicts = told(faults, jobs=jobs, run=None)
    assert likely(verdicts) == [("gpu", "gpu-020/0000:0f:00.0")]
    assert verdicts[0].action == "run_diagnostics"


def test_a_node_on_which_people_try_their_programs_is_not_to_blame() -> None:
    """Six jobs of one node each, as on a node for debugging: nothing tells the GPU from the programs."""
    faults, jobs = users_fault(1)
    assert "gpu" not in {kind for kind, _ in likely(told(faults, jobs=jobs, run=None), 0.3)}


def wait(seconds: float, ranks: str, entered: int, operation: str) -> Event:
    """What ranks say of the collective that they wait in."""
    told_of: dict[str, str | int] = {"run": "llm", "group": "0(default_pg)", "ranks": ranks, "world": 256}
    told_of |= {"last_enqueued": entered, "last_completed": 511, "operation": operation}
    return Event(at(seconds), None, "training", "collective_wait", attributes=told_of)


def test_the_watchdogs_and_the_recorders_name_of_one_collective_are_one() -> None:
    """`ALLREDUCE` is `all_reduce`: rank 77 is missing. Its node is tried, and not drained."""
    waits = [
        wait(600, "0-76,78-255", 512, "all_reduce"),
        wait(600, "77", 511, "all_reduce"),
        wait(601, "0,8,50", 512, "ALLREDUCE"),
    ]
    verdicts = told(waits)
    assert (verdicts[0].cause_class, verdicts[0].node, verdicts[0].action) == ("gpu", "gpu-010", "run_diagnostics")


@pytest.mark.parametrize("state", ["CANCELLED by 1001", "TIMEOUT"])
def test_of_a_job_that_was_ended_while_it_worked_nobody_is_to_blame(state: str) -> None:
    """Its last step was seconds before: the scheduler's word is told, and nothing is asked for."""
    stop = Stoppage("llm", at(690), at(700), frozenset(NODES))
    first = told([], state=state, stop=stop)[0]
    assert (first.cause_class, first.action) == ("unknown", "none")
    assert f"the scheduler says that it was ended, and not that it failed ({state})" in first.reason


def test_a_job_that_said_nothing_for_long_before_its_time_was_up_is_looked_into() -> None:
    """It may have hung, though nobody complains."""
    stop = Stoppage("llm", at(90), at(700), frozenset(NODES))
    assert {one.action for one in told([], state="TIMEOUT", stop=stop)} == {"run_diagnostics"}


def test_a_job_that_hung_before_somebody_ended_it_is_looked_into() -> None:
    """No progress for ten minutes, and a rank that complained: a person only put an end to it."""
    hang = program_error(650, "Watchdog caught collective operation timeout", "nccl_watchdog")
    stop = Stoppage("llm", at(-200), at(700), frozenset(NODES))
    assert {one.action for one in told([hang], state="TIMEOUT", stop=stop) if one.cause_class == "unknown"} == {
        "run_diagnostics"
    }
    assert likely(told([hang, xid(79, 95, "gpu-004")], state="TIMEOUT")) == [("gpu", "gpu-004/0000:0f:00.0")]


def test_nvlinks_of_all_gpus_that_fail_at_once_are_the_nodes() -> None:
    """No switch of the baseboard says a word; two GPUs alone are the link between them."""
    assert likely(told(fabric_of_node(8)[1:])) == [("node", "gpu-009")]
    assert {one.cause_class for one in told(fabric_of_node(2)[1:]) if one.probability >= 0.3} == {"nvlink"}


def test_a_nan_is_not_surely_the_programs() -> None:
    """A GPU that computes wrongly shows in no other way."""
    found = program_error(
        95, "rank 262: found NaN in local grad norm. Device: 6, node: gpu-033", "nan_found", "gpu-033"
    )
    verdict = told([found])[0]
    assert verdict.cause_class in ("application", "unknown")
    assert verdict.probability < 0.95


@pytest.mark.parametrize(("pci", "cause"), [(None, "nic"), ("0000:9b:00.0", "nic"), ("0000:18:00.0", "cable")])
def test_an_adapter_that_dies_takes_its_link_along(pci: str | None, cause: str) -> None:
    """The kernel calls it by its PCI address, the subnet manager mlx5_2: one, unless the topology tells another."""
    made = graph()
    if pci is not None:
        made.add(Place("nic", "gpu-019/mlx5_2"), [f"gpu-019/{pci}"])
    dead = host("mlx5_health", 88, "gpu-019", "poll_health:955:(pid 0): Fatal error 3 detected", "hardware")
    gone = replace(lost_port(93, "gpu-019"), device=Device("hca"), attributes={"hca": "mlx5_2"})
    verdicts = told([replace(dead, device=Device("nic", pci="0000:9b:00.0")), gone], made)
    assert cause in {one.cause_class for one in verdicts if one.probability >= 0.5}
    assert verdicts[0].node == "gpu-019"


def test_an_adapter_that_corrected_errors_hours_before_takes_no_link_along() -> None:
    """The cable is as likely as where the adapter said nothing."""
    mild = replace(host("pcie_aer", -9_000, "gpu-019", "severity=Corrected", "hardware"), severity="warning")
    mild = replace(mild, device=Device("nic", pci="0000:9b:00.0"))
    gone = replace(lost_port(93, "gpu-019"), device=Device("hca"), attributes={"hca": "mlx5_2"})
    assert likely(told([mild, gone]))[:1] == likely(told([gone]))[:1]


def test_that_a_process_ended_with_an_exit_code_is_no_error_of_its_program() -> None:
    """Each launcher prints it, whatever was the cause: here nothing else is known."""
    verdict = told(
        [program_error(95, "failed (exitcode: 1) local_rank: 0 (pid: 771) of binary: python3", "process_exit")]
    )[0]
    assert (verdict.cause_class, verdict.probability < 0.95) == ("application", True)

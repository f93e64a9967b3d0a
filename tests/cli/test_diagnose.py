"""`foreshock diagnose` and the shapes of the JSON that programs read, as DESIGN promises them."""

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from fault_events import at, iteration, job, lost_port, program_error, xid
from hand_made_run import saved

from cli.main import foreshock
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.records.event import Attribute, Device, Event, format_time
from store.records.fault_catalog import with_kind_meaning
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage

LEDGER = {"run", "nodes", "gpus", "start", "end", "wall_s", "buckets", "goodput", "interruptions"}
BUCKETS = (
    "productive checkpoint_save checkpoint_load startup detection waiting lost_work"
    " degraded data_stall evaluation unknown"
)
VERDICT = [
    *("id", "state", "revision", "explained_by", "rank", "probability", "score", "class", "name", "names", "node"),
    *("device", "cause", "action", "since", "last", "reason", "nodes", "victims", "jobs", "gpu_hours_at_stake"),
    *("incidents", "evidence_for", "evidence_against"),
]
DEVICE = ["type", "pci", "index", "uuid", "port"]


def told(engine: sa.Engine, events: list[Event], jobs: list[Job], outages: tuple[Outage, ...] = ()) -> str:
    """Store what happened; returns the URL."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", gpus=8) for n in range(1, 5)])
        append_jobs(connection, jobs)
        append_outages(connection, outages)
        update_incidents(connection, append_events(connection, events, at(100_000)).new)
    return str(engine.url)


def run(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, arguments)


def document(*arguments: str) -> Any:
    """The JSON of a command that must end well."""
    result = run(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def amdgpu(seconds: float, pci: str, kind: str, variant: str) -> Event:
    """What AMD's driver says of a GPU."""
    event = Event(at(seconds), "gpu-002", "kernel", kind, device=Device("gpu", pci=pci), id=f"{kind}-{pci}")
    return with_kind_meaning(event, variant)


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """One run that lost a GPU, and whose program said so."""
    events = [iteration(80), iteration(90), xid(79, 100, "gpu-002"), xid(45, 101, "gpu-002")]
    events += [lost_port(110, "gpu-003"), program_error(120, "RuntimeError: NCCL error", "nccl")]
    return told(engine, events, [job(0, 700, "FAILED")])


def test_each_verdict_has_every_key(url: str) -> None:
    """In this order; devices with every part, times in RFC 3339, ids of events as evidence; the likeliest first."""
    verdicts = document("diagnose", "--db", url)
    assert [list(one) for one in verdicts] == [VERDICT] * len(verdicts)
    assert [list(one["device"]) for one in verdicts] == [DEVICE] * len(verdicts)
    assert [one["rank"] for one in verdicts] == list(range(1, len(verdicts) + 1))
    chances = [one["probability"] for one in verdicts]
    assert chances == sorted(chances, reverse=True) == [one["score"] for one in verdicts]
    first = verdicts[0]
    assert (first["class"], first["node"], first["device"]["pci"]) == ("gpu", "gpu-002", "0000:0f:00.0")
    assert (first["since"], first["action"], first["jobs"]) == (format_time(at(100)), "reboot_node", ["llm"])
    assert first["evidence_for"][0]["events"] == ["gpu-002-79-00100.000"]
    assert first["evidence_for"][0]["weight"] > 0
    assert first["nodes"] == ["gpu-002"]
    assert first["incidents"] == ["gpu-002-79-00100.000"]
    assert "unknown" in {one["class"] for one in verdicts}


def test_each_ledger_has_every_key_and_every_bucket(url: str) -> None:
    """Buckets sum to the wall time; each interruption has its time, cause, culprit and cost."""
    (ledger,) = document("goodput", "--db", url)
    assert set(ledger) >= LEDGER
    assert list(ledger["buckets"]) == BUCKETS.split()
    assert sum(round(1000 * s) for s in ledger["buckets"].values()) == round(1000 * ledger["wall_s"])
    (cut,) = ledger["interruptions"]
    assert list(cut) == ["time", "cause", "culprit", "lost_s", "verdict", "kept", "torn"]
    assert list(cut["verdict"]) == ["id", "class", "name", "probability", "reason"]
    assert {"type", "node"} <= set(cut["culprit"])
    assert (cut["time"], cut["culprit"]["node"]) == (format_time(at(100)), "gpu-002")
    assert ledger["gpus"] == 32


def test_the_table_names_each_cause_and_what_speaks_for_it(url: str) -> None:
    """Rank, probability, class, name, node, since, reason; the evidence for and against the first below."""
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[0] == "llm: last progress 2025-03-01T12:01:30Z, end 2025-03-01T12:11:40Z"
    assert lines[1].split() == ["RANK", "PROBABILITY", "CLASS", "NAME", "NODE", "SINCE", "REASON"]
    assert lines[2].split()[0] == "1"
    assert lines[2].split()[2:5] == ["gpu", "gpu-002/0000:0f:00.0", "gpu-002"]
    (own,) = [line for line in lines if line.startswith("for gpu-002/0000:0f:00.0: gpu ") and "was lost" in line]
    assert own.endswith("(events gpu-002-79-00100.000)")
    assert any("job llm stopped: its last progress was at 2025-03-01 12:01:30 UTC" in line for line in lines)


def test_a_stop_names_the_newest_whole_save_though_the_program_told_of_a_later_one(engine: sa.Engine) -> None:
    """A directory shows that one to be torn: its work is lost, in the ledger and in the diagnosis."""

    def save(source: str, kind: str, seconds: float, number: int, message: str = "") -> Event:
        attributes: dict[str, Attribute] = {"run": "llm", "iteration": number}
        return Event(at(seconds), None, source, kind, message=message, attributes=attributes)

    torn = "save 30 is torn: 1 of 3 files; newest whole: 20, 10 min older"
    events = [iteration(at) for at in (10, 20, 30, 40)]
    events += [save("training", "checkpoint_save", number + 1, number) for number in (20, 30)]
    events += [save("checkpoints", "checkpoint_torn", 155, 30, torn), xid(79, 60, "gpu-002")]
    url = told(engine, events, [job(0, 100, "FAILED")])
    (ledger,) = document("goodput", "--db", url)
    (cut,) = ledger["interruptions"]
    assert (cut["kept"]["iteration"], cut["torn"]) == (20, 30)
    assert "save 20, 00:00:40 before; save 30 is torn" in run("goodput", "--db", url).stdout
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[1:3] == ["newest whole save: 20, 00:01:19 before the end", torn]


def test_a_torn_save_that_a_whole_one_followed_is_no_news(engine: sa.Engine) -> None:
    """It was torn for two minutes, or long ago."""

    def save(kind: str, seconds: float, number: int) -> Event:
        attributes: dict[str, Attribute] = {"run": "llm", "iteration": number}
        return Event(at(seconds), None, "checkpoints", kind, message="save torn", attributes=attributes)

    events = [iteration(90), save("checkpoint_torn", 30, 10), save("checkpoint_save", 60, 10)]
    url = told(engine, events, [job(0, 100, "FAILED")])
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[1].startswith("newest whole save: 10, ")
    assert "save torn" not in lines


def test_a_silent_node_is_shown_without_events(engine: sa.Engine) -> None:
    """The scheduler's word alone: no event to point to."""
    down = Outage("gpu-004", at(710), None, "DOWN", "Not responding", None, planned=False, cause="host")
    url = told(engine, [iteration(90)], [job(0, 700, "NODE_FAIL")], (down,))
    told_of = run("diagnose", "--db", url).stdout
    assert "gpu-004" in told_of
    assert "(events" not in told_of
    first = document("diagnose", "--db", url)[0]
    assert (first["class"], first["node"], first["cause"], first["incidents"]) == ("node", "gpu-004", "host", [])


def test_a_stop_that_nothing_explains_is_answered_with_unknown(engine: sa.Engine) -> None:
    """Never an empty list."""
    url = told(engine, [iteration(90)], [job(0, 700, "FAILED")])
    assert "unknown" in {one["class"] for one in document("diagnose", "--db", url)}
    assert "no cause that is known here explains it" in run("diagnose", "--db", url).stdout


def test_without_a_run_the_cluster_is_the_subject(engine: sa.Engine) -> None:
    """A store of kernel logs alone."""
    url = told(engine, [xid(79, 100, "gpu-001")], [])
    assert run("diagnose", "--db", url).stdout.startswith("the cluster: as of ")
    result = run("diagnose", "--db", url, "--run", "llm")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == (
        "Error: run 'llm' has no interruption: ingest its jobs.csv and kernel logs, or name another\n"
    )


def test_ranks_that_wait_are_explained_before_anything_has_stopped(engine: sa.Engine) -> None:
    """A hang that goes on, with neither a job that ended nor an incident."""
    standing = {"run": "llm", "group": "dp", "ranks": "0-3", "local_ranks": "0:0;1:1;2:2;3:3", "world": 4}
    standing |= {"last_enqueued": "71:2;72:0-1,3", "last_completed": 71, "stopped": "2"}
    url = told(engine, [Event(at(100), "gpu-001", "ranks", "collective_wait", attributes=standing)], [])
    first = document("diagnose", "--db", url)[0]
    assert (first["class"], first["cause"], first["action"]) == ("application", "application", "restart_app")
    assert first["probability"] > 0.5
    assert "rank 2 of llm is missing: its process does not run (local rank 2 of gpu-001)" in first["reason"]


def test_a_rank_whose_process_is_stopped_is_no_fault_of_its_gpu(engine: sa.Engine) -> None:
    """State T in /proc: somebody stopped it, or its program ended. The job of these nodes is known, or it is not."""
    standing = {"run": "llm", "group": "dp", "ranks": "0-3", "local_ranks": "0:0;1:1;2:2;3:3", "world": 8}
    here = standing | {"last_enqueued": "71:2;72:0-1,3", "last_completed": 71, "stopped": "2"}
    there = standing | {"ranks": "4-7", "local_ranks": "4:0;5:1;6:2;7:3", "last_enqueued": 72, "last_completed": 71}
    waits = [
        Event(at(100), node, "ranks", "collective_wait", attributes=told_there)
        for node, told_there in (("gpu-001", here), ("gpu-002", there))
    ]
    url = told(engine, waits, [Job("1", "llm", "RUNNING", at(0), at(0), None, 2, "gpu-[001-002]")])
    verdicts = document("diagnose", "--db", url, "--run", "llm")
    assert verdicts[0]["class"] == "application"
    assert not [one for one in verdicts if one["class"] in ("gpu", "nvlink")]


def test_a_rank_that_does_not_come_though_its_process_runs_may_be_its_gpus_fault(engine: sa.Engine) -> None:
    """The same words of a rank that nobody stopped."""
    standing = {"run": "llm", "group": "dp", "ranks": "0-3", "local_ranks": "0:0;1:1;2:2;3:3", "world": 4}
    standing |= {"last_enqueued": "71:2;72:0-1,3", "last_completed": 71}
    url = told(engine, [Event(at(100), "gpu-001", "ranks", "collective_wait", attributes=standing)], [])
    assert "gpu-001/gpu2" in run("diagnose", "--db", url).stdout


def test_the_gpus_that_amds_driver_resets_beside_a_bad_one_are_not_its_nodes_fault(engine: sa.Engine) -> None:
    """A memory error of one makes the driver reset all that are linked with it: the first is the culprit."""
    bad, *others = (f"0000:{bus}:00.0" for bus in ("65", "75", "85", "95"))
    events = [iteration(80), iteration(90)]
    events.append(amdgpu(100.0, bad, "gpu_ras", "uncorrectable"))
    events += [amdgpu(100.1, pci, "gpu_reset", "begin") for pci in (bad, *others)]
    events.append(program_error(120, "RuntimeError: HIP error: unspecified launch failure", "RuntimeError"))
    first = document("diagnose", "--db", told(engine, events, [job(0, 700, "FAILED")]))[0]
    assert (first["class"], first["node"], first["device"]["pci"]) == ("gpu", "gpu-002", bad)
    assert first["probability"] > 0.9


def test_memory_errors_of_two_gpus_of_a_small_rack_are_not_its_cooling(engine: sa.Engine) -> None:
    """Nothing speaks of heat: half an hour apart, each GPU is its own culprit."""
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(node, gpus=8, rack="r1") for node in ("gpu-001", "gpu-002")])
        events = [xid(48, 100), xid(48, 1900, "gpu-002")]
        update_incidents(connection, append_events(connection, events, at(100_000)).new)
    first, second, *others = document("diagnose", "--db", str(engine.url))
    assert {(one["class"], one["node"]) for one in (first, second)} == {("gpu", "gpu-001"), ("gpu", "gpu-002")}
    assert min(first["probability"], second["probability"]) > 0.7
    assert max(one["probability"] for one in others) < 0.4


@pytest.mark.parametrize("moment", ["soon", "2025-13-01", "", "12:00"])
def test_a_wrong_moment_is_refused_with_the_form_that_is_meant(url: str, moment: str) -> None:
    """For each command that takes one."""
    for arguments in (("diagnose", "--at"), ("goodput", "--until"), ("score", "--at"), ("train", "--until")):
        result = run(*arguments, moment, "--db", url)
        assert (result.exit_code, result.stdout) == (2, "")
        assert "is no time: write it as 2025-03-01T04:05:06Z" in result.stderr


def test_a_moment_before_everything_is_answered_with_the_moment(url: str) -> None:
    """Nothing was interrupted by then; the account is empty and exact."""
    result = run("diagnose", "--db", url, "--run", "llm", "--at", "2020-01-01")
    assert result.exit_code == 2
    assert "run 'llm' has no interruption by 2020-01-01: " in result.stderr
    (ledger,) = document("goodput", "--db", url, "--until", "2020-01-01")
    assert (ledger["wall_s"], ledger["goodput"], ledger["interruptions"]) == (0.0, None, [])
    assert run("goodput", "--db", url, "--until", "2020-01-01").stdout.startswith("llm: goodput unknown of 00:00:00")


def test_a_zone_of_the_moment_is_honoured(url: str) -> None:
    """Noon in UTC is one o'clock in Berlin: the same account."""
    here = document("goodput", "--db", url, "--until", "2025-03-01T12:01:00Z")
    there = document("goodput", "--db", url, "--until", "2025-03-01T13:01:00+01:00")
    assert here == there
    assert here[0]["wall_s"] == 60.0


def test_several_runs_are_parted_by_a_blank_line_and_days_are_told(engine: sa.Engine) -> None:
    """By name; a run without interruptions has no second table."""
    jobs = [job(0, 700, "FAILED"), Job("2", "bert", "COMPLETED", at(0), at(0), at(90_061), 4, "gpu-[001-004]")]
    blocks = run("goodput", "--db", told(engine, [], jobs)).stdout.split("\n\n")
    assert blocks[0].startswith("bert: goodput 0.00% of 1d 01:01:01 (2025-03-01T12:00:00")
    assert blocks[1].startswith("llm: ")
    assert "CULPRIT" not in blocks[0]
    assert blocks[2].split()[:5] == ["TIME", "CAUSE", "CULPRIT", "LOST", "KEPT"]
    assert blocks[2].split()[7] == "-"  # nobody is to blame


def test_a_run_without_a_date_says_so(engine: sa.Engine) -> None:
    """A log whose lines bear no time: lengths, no span."""
    attributes = {"run": "llm", "iteration": 1, "iterations": 1, "elapsed_ms": 1000.0}
    undated = Event(None, None, "training", "iteration", attributes=attributes, line=1)
    url = told(engine, [undated], [])
    assert run("goodput", "--db", url).stdout.splitlines()[:2] == [
        "llm: goodput 100.00% of 00:00:01 (no date known)",
        "? nodes, ? GPUs, 1 attempt",
    ]
    assert document("goodput", "--db", url, "--until", "2025-03-01")[0]["wall_s"] == 1.0


def test_advice_without_a_failure_says_whose_rate_it_used(engine: sa.Engine) -> None:
    """And leaves out what the run does now, where it saved once."""
    log = [iteration(30), *saved(None, 1, 4.0), iteration(40)]
    lines = [
        Event(e.time, None, "training", e.kind, attributes={**e.attributes, "run": "llm"}, line=n, file="llm.log")
        for n, e in enumerate(log)
    ]
    url = told(engine, lines, [job(0, 41, "COMPLETED")])
    text = run("advise", "checkpoint", "--db", url).stdout
    assert "failures per node-day (no failure seen yet: a published rate, FIELD D7)" in text
    assert "now every" not in text
    advice = document("advise", "checkpoint", "--db", url)
    assert {"run", "inputs", "interval_s", "formula", "rate_is_measured"} <= set(advice)
    assert advice["rate_is_measured"] is False


@pytest.mark.parametrize("command", [("checkpoint",), ("spares",)])
def test_advice_for_an_unknown_run_names_the_known(url: str, command: tuple[str, ...]) -> None:
    """Exit 2, nothing on stdout."""
    result = run("advise", *command, "--db", url, "--run", "lm")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == "Error: the database knows no run 'lm': it knows llm\n"


def test_a_demo_does_not_write_into_a_database_that_holds_data(url: str, tmp_path: Path) -> None:
    """Before anything is simulated."""
    result = run("demo", "--db", url, "--no-browser")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "holds data already: name an empty database, or leave --db out" in result.stderr
    assert "simulat" not in result.stderr
    broken = run("demo", "--db", f"sqlite:///{tmp_path}/no/such/x.db", "--no-browser")
    assert (broken.exit_code, broken.stdout) == (2, "")
    assert "create it first" in broken.stderr


def test_what_is_at_stake_is_told_in_money_at_the_price_that_is_given(url: str) -> None:
    """Exactly, beside the hours; without a price nothing is."""
    for one in document("diagnose", "--db", url, "--gpu-hour-price", "2.50 EUR"):
        assert Decimal(one["money_at_stake"]["amount"]) == Decimal(repr(one["gpu_hours_at_stake"])) * Decimal("2.50")
    assert "money_at_stake" not in document("diagnose", "--db", url)[0]


def test_a_start_that_failed_does_not_hide_why_the_run_stopped(engine: sa.Engine) -> None:
    """The attempt that worked and stopped is explained; the start after it is told of, with no fault of its own."""
    events = [iteration(80), iteration(90), xid(79, 100, "gpu-002")]
    url = told(engine, events, [job(0, 700, "FAILED"), job(10_000, 10_060, "FAILED", "gpu-[003-004]", number=2)])
    first, *_ = document("diagnose", "--db", url, "--run", "llm")
    assert (first["class"], first["node"]) == ("gpu", "gpu-002")
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[0] == (
        "llm: job 2, started 2025-03-01T14:46:40Z after this stop, failed at start-up"
        " (FAILED, 2025-03-01T14:47:40Z, no iteration): no fault of its own is known"
    )
    assert lines[1].startswith("llm: last progress 2025-03-01T12:01:30Z, end 2025-03-01T12:11:40Z")


def test_a_start_that_failed_by_a_fault_of_its_own_is_told_before_the_stop(engine: sa.Engine) -> None:
    """Both are said, the newest first."""
    events = [iteration(90), xid(79, 100, "gpu-002"), xid(48, 10_030, "gpu-003")]
    url = told(engine, events, [job(0, 700, "FAILED"), job(10_000, 10_060, "FAILED", "gpu-[003-004]", number=2)])
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert "job 2, started" in lines[0]
    assert "no iteration): gpu gpu-003/0000:0f:00.0: Xid 48" in lines[0]
    subject = next(place for place, line in enumerate(lines) if line.startswith("llm: last progress"))
    assert any("for gpu-003/0000:0f:00.0" in line for line in lines[1:subject])
    assert any(line.split()[:3] == ["1", *line.split()[1:2], "gpu"] and "gpu-002" in line for line in lines[subject:])
    causes = [(one["class"], one["node"]) for one in document("diagnose", "--db", url, "--run", "llm")]
    assert {causes[0], causes[1]} == {("gpu", "gpu-002"), ("gpu", "gpu-003")}


def test_a_start_that_failed_by_the_same_fault_says_so(engine: sa.Engine) -> None:
    """The GPU that nobody replaced."""
    events = [iteration(90), xid(79, 100, "gpu-002"), xid(79, 1_030, "gpu-002")]
    url = told(engine, events, [job(0, 700, "FAILED"), job(1_000, 1_060, "FAILED", number=2)])
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[0].endswith("no iteration): by the same as the stop")


def test_a_start_that_is_still_on_does_not_hide_why_the_run_stopped(engine: sa.Engine) -> None:
    """It has come to no iteration yet; of many such starts the newest are told, and the others counted."""
    events = [iteration(80), iteration(90), xid(79, 100, "gpu-002")]
    tries = [job(1_000 * number, 1_000 * number + 60, "FAILED", "gpu-[003-004]", number=number) for number in (2, 3, 4)]
    url = told(engine, events, [job(0, 700, "FAILED"), *tries, job(10_000, None, "RUNNING", "gpu-[003-004]", number=5)])
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[0] == "llm: job 5, started 2025-03-01T14:46:40Z after this stop, has made no iteration yet"
    assert [line.split(",")[0] for line in lines[1:3]] == ["llm: job 4", "llm: job 3"]
    assert lines[3:5] == [
        "1 more before these made no iteration either",
        "llm: last progress 2025-03-01T12:01:30Z, end 2025-03-01T12:11:40Z",
    ]
    first, *_ = document("diagnose", "--db", url, "--run", "llm")
    assert (first["class"], first["node"]) == ("gpu", "gpu-002")


def test_without_any_iteration_the_newest_attempt_is_explained(engine: sa.Engine) -> None:
    """A site without training logs: nobody knows which attempt worked."""
    events = [xid(79, 100, "gpu-002"), xid(79, 1_030, "gpu-003")]
    url = told(engine, events, [job(0, 700, "FAILED"), job(1_000, 1_060, "FAILED", number=2)])
    lines = run("diagnose", "--db", url, "--run", "llm").stdout.splitlines()
    assert lines[0].endswith("end 2025-03-01T12:17:40Z")
    first, *_ = document("diagnose", "--db", url, "--run", "llm")
    assert first["node"] == "gpu-003"

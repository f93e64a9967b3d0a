"""`foreshock check`: the site's own command on suspects; what it says is evidence, and nothing outlives it."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result
from real.patience import patience

from cli.main import foreshock
from diagnosis.causes.scene import Scene
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.folding import SymptomFold
from schedulers.lifecycle.active_check import CheckRefusedError, plan_checks
from schedulers.policy.settings import CheckSettings
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_jobs, append_nodes
from store.events.event_pages import EventWindow, read_events
from store.hints.hint_log import audit_page
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import Node
from store.records.verdict import Verdict
from store.verdicts.verdict_log import VerdictChange, save_changes

GPU = Device("gpu", pci="0000:0f:00.0")
SINCE = datetime.now(UTC).replace(microsecond=0) - timedelta(minutes=5)


def verdict(cause_class: Any = "gpu", **facts: Any) -> Verdict:
    """A GPU of gpu-1."""
    made: dict[str, Any] = {"name": "gpu-1/0000:0f:00.0", "probability": 0.9, "cause": "hardware", "action": "none"}
    made |= {"since": SINCE, "reason": "Xid 79", "id": "v1", "node": "gpu-1", "device": GPU, "nodes": ("gpu-1",)}
    return Verdict(cause_class, **(made | facts))


@pytest.fixture
def site(tmp_path: Path) -> str:
    """A store of six nodes under two leafs, with a verdict on gpu-1; a job runs on gpu-2."""
    url = f"sqlite:///{tmp_path / 'f.db'}"
    engine = open_database(url)
    migrate(engine)
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{i}", "r1", f"leaf-{i % 2}", gpus=8) for i in range(6)])
        append_jobs(connection, [Job("7", "llm", "RUNNING", SINCE, SINCE, None, 1, "gpu-2")])
        leaf = verdict("switch", id="v2", name="leaf-0", node=None, device=Device("switch"), nodes=("gpu-0", "gpu-2"))
        save_changes(connection, [VerdictChange(one, "opened") for one in (verdict(), leaf)], SINCE)
    engine.dispose()
    return url


def run(store: str, tmp_path: Path, suspect: str, *options: str, **checks: Any) -> Result:
    """The command with some commands of the site."""
    file = tmp_path / "foreshock.yaml"
    file.write_text(json.dumps({"checks": checks}), encoding="utf-8")
    return CliRunner().invoke(foreshock, ["check", suspect, "--db", store, "--config", str(file), *options])


def kept(site: str) -> list[Event]:
    """The results as they are stored."""
    with open_database(site).connect() as connection:
        window = EventWindow(since=SINCE, until=SINCE + timedelta(days=1))
        return list(read_events(connection, window, kinds=["check_passed", "check_failed"]))


def test_a_check_that_fails_is_an_event_of_its_device_and_exits_3(site: str, tmp_path: Path) -> None:
    """With the verdict's id, the audit's rows, and the last line of what was said."""
    done = run(site, tmp_path, "v1", "--json", dcgmi="sh -c 'echo GPU {device} of {node}: ECC; exit 9'")
    assert done.exit_code == 3, done.output
    (row,) = json.loads(done.stdout)
    assert row == {
        "node": "gpu-1",
        "check": "dcgmi",
        "peer": None,
        "outcome": "failed",
        "exit_code": 9,
        "said": "GPU 0000:0f:00.0 of gpu-1: ECC",
        "verdict": "v1",
    }
    (event,) = kept(site)
    assert (event.kind, event.node, event.device.pci) == ("check_failed", "gpu-1", "0000:0f:00.0")
    assert (event.severity, event.cause, event.attributes["verdict"]) == ("error", "hardware", "v1")
    with open_database(site).connect() as connection:
        rows = audit_page(connection, 10, None, "v1")
    assert [one["action"] for one in rows] == ["check failed", "check begun"]
    assert all(one["detail"]["node"] == "gpu-1" and one["actor"].startswith("cli:") for one in rows)


def test_what_a_check_says_speaks_for_and_against() -> None:
    """A failure is a symptom of its device; a pass ends what was seen there, and nothing elsewhere."""
    moment = datetime(2025, 3, 1, tzinfo=UTC)
    lost = Event(moment, "gpu-1", "kernel", "xid", 79, "fatal", "hardware", "reboot_node", GPU, "lost", id="a")
    other = replace(lost, node="gpu-2", id="b")
    passed = replace(lost, time=moment + timedelta(minutes=1), kind="check_passed", code=None, severity="info", id="c")
    failed = replace(passed, time=moment + timedelta(minutes=2), kind="check_failed", severity="error", id="d")
    fold = SymptomFold(DeviceGraph())
    fold.take([lost, other, passed])
    found = {one.node: one for one in fold.symptoms()}
    assert (found["gpu-1"].cured, found["gpu-2"].cured) == (passed.time, None)
    fold.take([failed])
    assert {one.kind for one in fold.symptoms() if one.node == "gpu-1"} == {"gpu_lost", "gpu_fault"}
    assert Scene(moment, fold.symptoms(), fold.graph).stop is None


def test_a_check_that_passes_exits_0(site: str, tmp_path: Path) -> None:
    """And is kept as well."""
    done = run(site, tmp_path, "v1", dcgmi="true {node}")
    assert done.exit_code == 0, done.output
    assert [event.kind for event in kept(site)] == ["check_passed"]


@pytest.mark.parametrize("command", ["/no/such/program {node}", "sh -c 'exit 75' {node}"])
def test_a_check_that_could_not_be_made_says_nothing_of_the_node(site: str, tmp_path: Path, command: str) -> None:
    """Not found, or put off (75): no evidence, but an audit row."""
    done = run(site, tmp_path, "v1", dcgmi=command)
    assert done.exit_code == 0, done.output
    assert kept(site) == []
    with open_database(site).connect() as connection:
        assert len(audit_page(connection, 10, None, "v1")) == 2


def test_a_node_with_a_job_is_left_alone_unless_allowed(site: str, tmp_path: Path) -> None:
    """Of a leaf's nodes the idle one is tried, and the other is told of."""
    done = run(site, tmp_path, "v2", pair="true {node} {peer}")
    assert "gpu-2 is not checked: a job runs on it" in done.stderr
    assert [(event.node, event.attributes["peer"]) for event in kept(site)] == [("gpu-0", "gpu-4")]
    done = run(site, tmp_path, "v2", "--with-jobs", pair="true {node} {peer}")
    assert {event.node for event in kept(site)} == {"gpu-0", "gpu-2"}


def test_the_budget_of_an_hour_holds_over_calls(site: str, tmp_path: Path) -> None:
    """By what is stored: whoever calls."""
    for _ in range(2):
        assert run(site, tmp_path, "v1", dcgmi="true {node}", per_hour=2).exit_code == 0
    done = run(site, tmp_path, "v1", dcgmi="true {node}", per_hour=2)
    assert done.exit_code == 2
    assert "2 checks began within the hour" in done.stderr
    assert len(kept(site)) == 2


def test_no_more_suspects_than_the_site_allows(site: str) -> None:
    """Of a verdict with many nodes the first few."""
    many = verdict("rack", node=None, nodes=tuple(f"gpu-{i}" for i in (0, 1, 3, 4, 5)))
    settings = CheckSettings(ping="true {node}", suspects=2)
    with open_database(site).connect() as connection:
        plan = plan_checks(connection, many, settings, datetime.now(UTC))
        assert [one.node for one in plan.requests] == ["gpu-0", "gpu-1"]
        assert len(plan.left_out) == 3
        with pytest.raises(CheckRefusedError, match="no check is configured"):
            plan_checks(connection, many, CheckSettings(), datetime.now(UTC))
        with pytest.raises(CheckRefusedError, match="no node is called"):
            plan_checks(connection, "-rf", settings, datetime.now(UTC))


def test_no_more_run_at_a_time_than_the_site_allows(site: str, tmp_path: Path) -> None:
    """Each leaves a mark while it runs; none ever sees another's."""
    marks = tmp_path / "marks"
    marks.mkdir()
    script = f"ls {marks} | wc -l; touch {marks}/$0; sleep 0.3; rm {marks}/$0"
    with writing(open_database(site)).begin() as connection:
        rack = verdict("rack", id="v3", name="r1", node=None, nodes=("gpu-0", "gpu-3", "gpu-5"))
        save_changes(connection, [VerdictChange(rack, "opened")], SINCE)
    done = run(site, tmp_path, "v3", "--json", ping=f"sh -c '{script}' {{node}}", at_once=1)
    assert [row["said"].strip() for row in json.loads(done.stdout)] == ["0", "0", "0"]


def test_a_check_that_hangs_is_ended_with_its_children_and_has_failed(site: str, tmp_path: Path) -> None:
    """At its time."""
    mark = tmp_path / "pid"
    done = run(
        site, tmp_path, "v1", "--json", dcgmi=f"sh -c 'sleep 600 & echo $! > {mark}; wait' {{node}}", timeout_s=1
    )
    assert done.exit_code == 3, done.output
    assert json.loads(done.stdout)[0]["outcome"] == "timed_out"
    assert _gone(int(mark.read_text()))


def test_whoever_stops_the_command_stops_the_check(site: str, tmp_path: Path) -> None:
    """Ctrl-C leaves nothing running on the cluster's behalf."""
    mark, file = tmp_path / "pid", tmp_path / "foreshock.yaml"
    file.write_text(json.dumps({"checks": {"dcgmi": f"sh -c 'echo $$ > {mark}; exec sleep 600' {{node}}"}}))
    # A shell's background job ignores Ctrl-C, and so does all that it starts: tests that run there, too.
    heed = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    main = [sys.executable, "-c", f"{heed}from cli.main import main; main()"]
    words = [*main, "check", "v1", "--db", site, "--config", str(file)]
    child = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + patience(30)
    while not (mark.exists() and mark.read_text().strip()) and time.monotonic() < deadline:
        time.sleep(0.05)
    child.send_signal(signal.SIGINT)
    child.wait(patience(30))
    assert _gone(int(mark.read_text()))


def _gone(pid: int) -> bool:
    """Whether a process is no more, after a while."""
    deadline = time.monotonic() + patience(10)
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.parametrize(
    ("checks", "word"),
    [
        ({"pair": "true"}, "{node} must stand in it"),
        ({"pair": "sh -c 'x {node}"}, "quote is not closed"),
        ({"pair": "{node} x"}, "first word is the command"),
        ({"pair": "true {node}", "at_once": 0}, "more than 0"),
        ({"nosuch": "true {node}"}, "unknown key"),
    ],
)
def test_a_command_that_cannot_be_meant_is_refused_with_its_key(
    site: str, tmp_path: Path, checks: dict[str, Any], word: str
) -> None:
    """At once, with file and key."""
    done = run(site, tmp_path, "v1", **checks)
    assert done.exit_code == 2
    assert "checks" in done.stderr
    assert word in done.stderr


def test_a_hostile_device_is_no_option_of_the_command(site: str) -> None:
    """What an event says of its device reaches no command line as an option or a path."""
    evil = verdict(device=Device("gpu", uuid="--config=/etc/shadow"))
    with open_database(site).connect() as connection:
        plan = plan_checks(connection, evil, CheckSettings(dcgmi="true {node} {device}"), datetime.now(UTC))
    assert plan.requests[0].words == ("true", "gpu-1", "")


def test_a_node_s_token_may_not_send_the_result_of_a_check() -> None:
    """Else whoever has a node passes its checks."""
    from store.records.event_sources import FLEET_KINDS

    assert {"check_passed", "check_failed"} <= FLEET_KINDS


def test_events_of_checks_are_told_apart_by_their_moment(site: str, tmp_path: Path) -> None:
    """Two of the same node are two."""
    for _ in range(2):
        run(site, tmp_path, "gpu-5", site="true {node}")
    assert len({event.id for event in kept(site)}) == 2
    with writing(open_database(site)).begin() as connection:
        assert not append_events(connection, kept(site), received=datetime.now(UTC)).new
        assert connection.scalar(sa.text("SELECT count(*) FROM events")) == 2

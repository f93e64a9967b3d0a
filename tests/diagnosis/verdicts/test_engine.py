"""The engine on a store: what comes in becomes verdicts, revised as more comes, ended when it is over."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from diagnosis.incidents.intake import put_faults
from diagnosis.verdicts import surroundings
from diagnosis.verdicts.comparison import what_changed
from diagnosis.verdicts.engine import HandedOverError, VerdictEngine
from parsers.registry import make_parser
from parsers.text.parser import Context, parse
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes, append_outages
from store.nodes.topology import append_links
from store.records.event import Device, Event, with_id
from store.records.job import Job
from store.records.node import Node
from store.records.outage import Outage
from store.records.verdict import Verdict
from store.verdicts.symptom_news import count_news
from store.verdicts.verdict_log import (
    VerdictChange,
    closed,
    open_verdicts,
    revisions_of,
    save_changes,
    verdict,
    verdicts_between,
)

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
FIXTURES = Path(__file__).parents[3] / "fixtures"


class Watch:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        return self.now

    def later(self, **by: float) -> None:
        self.now += timedelta(**by)


@pytest.fixture
def watch() -> Watch:
    """At noon."""
    return Watch()


@pytest.fixture
def cluster(any_engine: sa.Engine) -> sa.Engine:
    """64 nodes in four racks, and a job on the first two."""
    nodes = [Node(f"gpu-{n:03d}", f"r{n // 16}", f"leaf{n // 16}", "H100", 8, f"550.{n % 2}") for n in range(64)]
    with writing(any_engine).begin() as connection:
        append_nodes(connection, nodes)
        append_jobs(
            connection, [Job("1", "llm", "RUNNING", NOW, NOW - timedelta(hours=2), None, 2, "gpu-[000-001]", None)]
        )
    return any_engine


def xid(node: str, seconds: float = 0, code: int = 79, pci: str = "0000:0f:00.0") -> Event:
    """A GPU that fell off its bus."""
    device = Device("gpu", pci=pci)
    text = "GPU has fallen off the bus."
    return Event(
        NOW + timedelta(seconds=seconds), node, "kernel", "xid", code, "fatal", "hardware", "reboot_node", device, text
    )


def take(engine: sa.Engine, *events: Event, received: datetime = NOW) -> None:
    """What the API does with events."""
    with writing(engine).begin() as connection:
        new = append_events(connection, [with_id(event) for event in events], received).new
        put_faults(connection, new, received)


def standing(engine: sa.Engine) -> list[Verdict]:
    """Those that stand."""
    with engine.connect() as connection:
        return [one for one in open_verdicts(connection) if one.cause_class != "unknown"]


def test_a_verdict_says_what_a_code_means_and_its_evidence_quotes_the_line(cluster: sa.Engine, watch: Watch) -> None:
    """People read the meaning first."""
    take(cluster, xid("gpu-000"))
    VerdictEngine(cluster, watch).turn()
    (one,) = standing(cluster)
    assert one.reason == "gpu gpu-000/0000:0f:00.0: Xid 79, driver can no longer reach the GPU over PCIe"
    assert any("GPU has fallen off the bus." in evidence.text for evidence in one.evidence_for)


@pytest.mark.parametrize("words", ["NVRM", "oom", ""])
def test_real_faults_of_programs_accuse_no_machine(cluster: sa.Engine, watch: Watch, words: str) -> None:
    """An H100's kernel log: programs that fault, one killed at its memory limit; on nodes with a job and without."""
    lines = (FIXTURES / "kernel" / "h100.log").read_text().splitlines()
    for node in ("gpu-000", "gpu-040"):
        parser = make_parser("kernel", Context(node=node, boot_time=NOW), None)
        found = parse(
            parser, [line for line in lines if words in line], lambda line, error: pytest.fail(f"{line}: {error}")
        )
        take(cluster, *found)
    watch.later(minutes=3)
    VerdictEngine(cluster, watch).turn()
    assert {one.cause_class for one in standing(cluster)} <= {"application"}


def test_a_program_s_fault_on_a_node_without_a_known_job_is_a_program_s(cluster: sa.Engine, watch: Watch) -> None:
    """No scheduler tells of the job: it is told as one of that node, and not as unknown; of another node as its own."""
    device = Device("gpu", pci="0000:0f:00.0")
    for node in ("gpu-040", "gpu-041"):
        take(cluster, Event(NOW, node, "kernel", "xid", 31, "error", "application", "restart_app", device, "MMU Fault"))
    VerdictEngine(cluster, watch).turn()
    with cluster.connect() as connection:
        first, second = (one for one in open_verdicts(connection) if one.cause_class != "unknown")
    assert {first.name, second.name} == {"a job on gpu-040", "a job on gpu-041"}
    assert (first.cause_class, first.action, first.node, first.jobs) == ("application", "restart_app", None, ())
    assert len(first.nodes) == 1
    assert 0.7 < first.probability < 0.9


def test_a_fatal_fault_opens_a_verdict_with_what_is_at_stake(cluster: sa.Engine, watch: Watch) -> None:
    """Two hours of two nodes with eight GPUs each, for nothing was saved."""
    engine = VerdictEngine(cluster, watch)
    engine.turn()
    take(cluster, xid("gpu-000"))
    turn = engine.turn()
    assert turn.events == 1
    (found,) = standing(cluster)
    assert (found.state, found.node, found.jobs) == ("open", "gpu-000", ("llm",))
    assert found.cause_class in ("gpu", "node")
    assert found.gpu_hours_at_stake == pytest.approx(32.0)
    with cluster.connect() as connection:
        assert count_news(connection) == 0


def test_the_same_line_again_changes_nothing(cluster: sa.Engine, watch: Watch) -> None:
    """One cause, one verdict, no revision."""
    engine = VerdictEngine(cluster, watch)
    take(cluster, xid("gpu-005"))
    engine.turn()
    (before,) = standing(cluster)
    watch.later(seconds=5)
    take(cluster, xid("gpu-005"), xid("gpu-005", 2))
    engine.turn()
    (after,) = standing(cluster)
    assert (after.id, after.revision) == (before.id, before.revision)


def test_another_process_goes_on_with_the_same_verdicts(cluster: sa.Engine, watch: Watch) -> None:
    """A restart reads what was seen and what stands; nothing opens twice, and what waited is weighed."""
    first = VerdictEngine(cluster, watch)
    take(cluster, xid("gpu-005"))
    first.turn()
    (before,) = standing(cluster)
    take(cluster, xid("gpu-050"))
    watch.later(seconds=3)
    second = VerdictEngine(cluster, watch)
    second.turn()
    found = {one.node: one.id for one in standing(cluster)}
    assert found.keys() == {"gpu-005", "gpu-050"}
    assert found["gpu-005"] == before.id
    take(cluster, xid("gpu-020", 4))
    with pytest.raises(HandedOverError):
        first.turn()
    with cluster.connect() as connection:
        assert count_news(connection) == 1
    first.turn()
    assert {one.node for one in standing(cluster)} == {"gpu-005", "gpu-050", "gpu-020"}


def test_a_node_that_is_back_from_an_outage_ends_its_verdict(cluster: sa.Engine, watch: Watch) -> None:
    """The verdict says why it ended, and stays to be read."""
    engine = VerdictEngine(cluster, watch)
    take(cluster, xid("gpu-005"))
    engine.turn()
    (found,) = standing(cluster)
    start, end = NOW + timedelta(minutes=5), NOW + timedelta(minutes=30)
    with writing(cluster).begin() as connection:
        append_outages(connection, [Outage("gpu-005", start, end, "DOWN", "gpu", "root", False, "hardware")], end)
    watch.later(minutes=31)
    engine = VerdictEngine(cluster, watch)  # its surroundings are read anew: a test does not wait for that
    engine.turn()
    assert standing(cluster) == []
    with cluster.connect() as connection:
        ended = verdict(connection, found.id)
        assert ended is not None
        assert ended.state == "closed"
        assert "back since" in revisions_of(connection, found.id)[-1].what
        assert verdicts_between(connection, NOW, NOW + timedelta(minutes=1), node="gpu-005") == [ended]


def test_late_evidence_moves_the_first_sign_and_says_so(cluster: sa.Engine, watch: Watch) -> None:
    """A spool that comes after the network is back."""
    engine = VerdictEngine(cluster, watch)
    take(cluster, xid("gpu-005"))
    engine.turn()
    (before,) = standing(cluster)
    watch.later(seconds=40)
    take(cluster, xid("gpu-005", -90), received=watch.now)
    engine.turn()
    (after,) = standing(cluster)
    assert (after.id, after.state) == (before.id, "revised")
    assert after.since == before.since - timedelta(seconds=90)
    with cluster.connect() as connection:
        assert "late evidence: its first sign is 90 s earlier" in revisions_of(connection, after.id)[-1].what


def test_a_rack_that_loses_its_power_is_one_verdict_not_sixteen(cluster: sa.Engine, watch: Watch) -> None:
    """The first node's own verdict is taken in once the others fall silent, too."""
    engine = VerdictEngine(cluster, watch)
    silent = Event(NOW, "gpu-016", "kubernetes", "node_silent", severity="fatal", cause="host", message="silent")
    take(cluster, silent)
    engine.turn()
    watch.later(seconds=5)
    rest = [replace(silent, node=f"gpu-{n:03d}", time=NOW + timedelta(seconds=1)) for n in range(17, 32)]
    take(cluster, *rest, received=watch.now)
    engine.turn()
    shared = [one for one in standing(cluster) if one.name in ("r1", "leaf1")]
    assert len(shared) == 1
    assert set(shared[0].nodes) >= {f"gpu-{n:03d}" for n in range(16, 32)}
    assert [one for one in standing(cluster) if one.cause_class == "node"] == []


def test_an_event_that_nobody_can_explain_does_not_come_again(
    cluster: sa.Engine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The turn fails and is told of; the next one is fine."""
    engine = VerdictEngine(cluster, watch)
    engine.turn()
    take(cluster, xid("gpu-005"))

    def fails(*_given: object, **_options: object) -> list[Verdict]:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr("diagnosis.verdicts.engine.explain", fails)
        with pytest.raises(ZeroDivisionError):
            engine.turn()
    with cluster.connect() as connection:
        assert count_news(connection) == 0
    take(cluster, xid("gpu-006", 1))
    engine.turn()
    assert {one.node for one in standing(cluster)} == {"gpu-005", "gpu-006"}


def test_a_release_is_told_however_much_else_is_seen(
    cluster: sa.Engine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More symptoms than are weighed at once: those of one sign and one version, folded by node, are weighed alone."""
    monkeypatch.setattr("diagnosis.verdicts.engine._FEW", 20)
    for room in ("engine", "neighbourhood"):
        monkeypatch.setattr(f"diagnosis.verdicts.{room}.MOST_AROUND", 40)
    engine = VerdictEngine(cluster, watch)
    elsewhere = [xid(f"gpu-{n:03d}", 3 * n, code, f"0000:{code:02x}:00.0") for n in range(64) for code in (48, 94)]
    released = [xid(f"gpu-{n:03d}", 100 * n, 119) for n in range(1, 24, 2)]
    watch.later(seconds=3000)
    take(cluster, *elsewhere, *released)
    engine.turn()
    engine.turn()
    watch.later(seconds=16)
    engine.turn()
    assert ("driver", "550.1") in {(one.cause_class, one.name) for one in standing(cluster)}
    watch.later(seconds=16)
    engine.turn()
    assert ("driver", "550.1") in {(one.cause_class, one.name) for one in standing(cluster)}


def test_a_topology_that_was_told_just_before_the_first_fault_names_its_cable(
    any_engine: sa.Engine, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An event keeps the place that it is given: the devices are looked at before it, not ten seconds later."""
    monkeypatch.setattr(surroundings, "_GRAPH_REST", 0.0)  # a moment of a graph that takes a moment to read
    engine = VerdictEngine(any_engine, watch)
    engine.turn()
    watch.later(seconds=1)
    host = {"port": 12, "peer": "gpu-017", "peer_port": 1, "peer_type": "hca"}
    with writing(any_engine).begin() as connection:
        append_links(connection, [{**host, "switch": f"leaf{rail}", "hca": f"mlx5_{rail}"} for rail in range(8)])
    lost = Event(watch.now, "gpu-017", "opensm", "port_removed", None, "error", "fabric", "watch", Device("port"))
    take(any_engine, replace(lost, attributes={"hca": "mlx5_3"}))
    engine.turn()
    assert ("cable", "gpu-017/mlx5_3--leaf3/12") in {(one.cause_class, one.name) for one in standing(any_engine)}


def test_a_device_that_is_better_known_is_not_called_another() -> None:
    """What is the same to a reader is not said to be something else."""
    pci = Device("gpu", pci="0000:0f:00.0")
    old = Verdict("gpu", "gpu-037/0000:0f:00.0", 0.9, "hardware", "restart_app", NOW, "why", device=pci)
    told, is_urgent = what_changed(old, replace(old, device=replace(pci, index=0)))
    assert (told, is_urgent) == (["its device is described anew: gpu-037/0000:0f:00.0 gpu 0000:0f:00.0"], True)
    told, _ = what_changed(old, replace(old, name="gpu-037/1", device=Device("gpu", index=1)))
    assert told == ["it is gpu-037/1 gpu 1, not gpu-037/0000:0f:00.0 gpu 0000:0f:00.0"]


def test_what_ended_hours_ago_and_stands_again_by_the_same_sign_keeps_its_id(cluster: sa.Engine, watch: Watch) -> None:
    """An id is given once: a second row of it would keep every verdict of the site from being written."""
    take(cluster, xid("gpu-020"))
    VerdictEngine(cluster, watch).turn()
    (first,) = [one for one in standing(cluster) if one.node == "gpu-020"]
    with writing(cluster).begin() as connection:
        save_changes(connection, [VerdictChange(closed(first), "nothing speaks for it", first)], watch())
    watch.later(hours=3)
    take(cluster, xid("gpu-040", 3 * 3600), received=watch())
    VerdictEngine(cluster, watch).turn()
    assert {one.node for one in standing(cluster)} == {"gpu-020", "gpu-040"}
    with cluster.connect() as connection:
        told = revisions_of(connection, first.id)
    assert [(one.verdict.state, one.verdict.revision) for one in told] == [("open", 0), ("closed", 1), ("revised", 2)]
    assert told[-1].what == "it shows again"

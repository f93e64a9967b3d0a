"""A link that errs as no other of its domain does is told days before it fails; what all show is nobody's."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from link_storms import OPEN

from cli.main import foreshock
from diagnosis.incidents.intake import fold_everything
from diagnosis.links.link_outliers import LinkOutlier, note_outliers, outliers
from parsers.registry import make_parser
from parsers.text.parser import Context
from schedulers.policy.decision import decide
from schedulers.policy.fact_queries import gather
from store.database.connections import open_database, writing
from store.events.append import append_events, append_nodes
from store.events.event_pages import read_incidents
from store.nodes.domains import LinkReading, domain_of_each, note_domains
from store.records.event import Device, Event
from store.records.hint import Hint
from store.records.node import Node
from store.records.telemetry import Rollup
from store.telemetry.hours import append_rollups

NOW = datetime(2026, 9, 5, 12, tzinfo=UTC)
RECOVERY = "nvlink_recovery_event"


def reading(node: str, gpu: int, counters: dict[int, float] | None = None, name: str = RECOVERY) -> LinkReading:
    """What one GPU's 18 links showed."""
    shown = {(name, link): value for link, value in (counters or {}).items()}
    return LinkReading(node, Device("gpu", index=gpu), NOW, "nvidia_smi", 18, shown)


def domain_of(*odd: LinkReading, nodes: int = 16) -> list[LinkReading]:
    """A rack of four GPUs a node; those that are given are as they are, all others show nothing."""
    given = {(one.node, one.device.index): one for one in odd}
    places = [(f"n{node:02}", gpu) for node in range(nodes) for gpu in range(4)]
    return [given.get(place) or reading(*place) for place in places]


def places(found: list[LinkOutlier]) -> list[tuple[str, int | None, int]]:
    """Where they are."""
    return [(one.node, one.device.index, one.link) for one in found]


def test_one_link_of_a_thousand_stands_out() -> None:
    """The public report: 505 recovery events, and none on any other link."""
    (one,) = outliers("r129", domain_of(reading("n07", 0, {14: 505.0})))
    assert (one.node, one.device.index, one.link, one.value, one.usual, one.compared) == ("n07", 0, 14, 505, 0, 1151)
    event = one.event(NOW)
    assert (event.severity, event.kind, event.attributes["link"]) == ("warning", "nvlink_outlier", 14)
    assert event.id == one.event(NOW + timedelta(hours=3)).id, "told once a day"


@pytest.mark.parametrize(
    "counters",
    [{}, {3: 1.0}, {3: 7.0}],
    ids=["nothing", "one event", "seven events"],
)
def test_a_few_events_are_nothing(counters: dict[int, float]) -> None:
    """Links recover now and then."""
    assert outliers("r129", domain_of(reading("n07", 0, counters))) == []


def test_what_all_links_show_is_nobodys() -> None:
    """A driver that counts otherwise, a cold start: the median moves with them, and a little more is no outlier."""
    noisy = [
        reading(f"n{n:02}", g, {k: 40.0 + (7 * n + 3 * g + k) % 21 for k in range(18)})
        for n in range(16)
        for g in range(4)
    ]
    assert outliers("r129", noisy) == []
    noisy[5].counters[RECOVERY, 2] = 120.0  # type: ignore[index]
    assert outliers("r129", noisy) == []
    noisy[5].counters[RECOVERY, 2] = 9000.0  # type: ignore[index]
    assert places(outliers("r129", noisy)) == [("n01", 1, 2)]


def test_many_at_once_are_no_matter_of_one_link() -> None:
    """No flood: a switch that fails, or a firmware, is not told link by link."""
    assert outliers("r129", domain_of(*(reading(f"n{n:02}", 0, {14: 505.0}) for n in range(4)))) == []


def test_a_link_that_several_counters_tell_of_is_told_once() -> None:
    """By the gravest."""
    both = LinkReading("n07", Device("gpu", index=0), NOW, "dcgm", 18, {("nvlink_crc", 3): 900.0, (RECOVERY, 3): 505.0})
    (one,) = outliers("r129", domain_of(both))
    assert one.counter == RECOVERY


def test_too_few_links_tell_nothing_of_what_is_usual() -> None:
    """Two GPUs with a bridge of four links."""
    few = [LinkReading("n0", Device("gpu", index=0), NOW, "dcgm", 4, {(RECOVERY, 0): 505.0})]
    assert outliers("n0", few) == []


def test_a_rate_of_bit_errors_stands_out_by_orders_of_magnitude() -> None:
    """1e-6 among links without errors; 1e-15 is what those are taken to have."""
    odd = reading("n07", 0, {5: 1e-6}, name="nvlink_effective_ber_ratio")
    assert places(outliers("r129", domain_of(odd))) == [("n07", 0, 5)]
    assert outliers("r129", domain_of(reading("n07", 0, {5: 3e-15}, name="nvlink_effective_ber_ratio"))) == []


def sweep(node: str, recoveries: int = 0) -> str:
    """What `nvidia-smi nvlink -e` prints of a tray of four GPUs; link 14 of GPU 0 had so many recoveries."""
    lines = []
    for gpu in range(4):
        lines.append(f"GPU {gpu}: NVIDIA GB200 (UUID: GPU-{gpu:08x}-{node.encode().hex()[:4]:0>4}-4000-8000-{0:012x})")
        for link in range(18):
            count = recoveries if (gpu, link) == (0, 14) else 0
            lines.append(f"         Link {link}: Total link recovery events: {count}")
            lines.append(f"         Link {link}: Effective BER: 15e-255")
    return "\n".join(lines) + "\n"


RACK = ["s9jvxs64", *(f"s{number}marin" for number in range(15))]
FAULT = datetime(2026, 9, 10, 8, 8, 46, tzinfo=UTC)


def write_archive(root: Path) -> None:
    """Five days of sweeps, then the fault, as an operator's archive."""
    (root / "nvlink").mkdir(parents=True)
    (root / "kernel").mkdir()
    rows = "".join(f"{node},r129,GB200,4,dh1-r129\n" for node in RACK)
    (root / "nodes.csv").write_text("node,rack,gpu_model,gpus,nvlink_domain\n" + rows)
    for number, node in enumerate(RACK):
        texts = []
        for day in range(5, 11):
            had = 505 + 3 * (day - 5) if node == "s9jvxs64" else 0
            texts.append(f"2026-09-{day:02}T03:00:00+00:00\n{sweep(node, had)}")
        (root / "nvlink" / f"{node}.log").write_text("".join(texts))
        words = "145, RLW_SRC_TRACK Fatal XC0 i0 Link 03 (0x000000e2 0x00000010 0x00000000 0x00000000)"
        moment = FAULT + timedelta(seconds=0.02 * number)
        lines = []
        for gpu, pci in enumerate(("0008:01:00", "0009:01:00", "0018:01:00", "0019:01:00")):
            said = "149, NETIR_LINK_DOWN Fatal XC0 i0 Link 14" if (node, gpu) == ("s9jvxs64", 0) else words
            lines.append(f"{moment.isoformat(timespec='microseconds')} {node} kernel: NVRM: Xid (PCI:{pci}): {said}")
        (root / "kernel" / f"{node}.log").write_text("\n".join(lines) + "\n")


def run(*arguments: str) -> str:
    """What a command prints."""
    outcome = CliRunner().invoke(foreshock, list(arguments), catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return outcome.stdout


def test_the_public_report_from_the_watch_list_to_the_fault(tmp_path: Path) -> None:
    """Five days ahead the link is named; at the fault one incident, one culprit, its domain beside it."""
    write_archive(tmp_path / "archive")
    url = f"sqlite:///{tmp_path / 'foreshock.db'}"
    run("ingest", str(tmp_path / "archive"), "--db", url)
    with open_database(url).begin() as connection:
        incidents = read_incidents(connection, NOW - timedelta(days=9), FAULT + timedelta(days=1))
    watched = [one for one in incidents if one.kind == "nvlink_outlier"]
    assert {(one.node, one.device.index, one.link, one.severity) for one in watched} == {("s9jvxs64", 0, 14, "warning")}
    assert FAULT - watched[0].start > timedelta(days=4)
    assert "505" in watched[0].message
    (fault,) = [one for one in incidents if one.severity == "fatal"]
    assert (fault.node, fault.link, fault.domain, len(fault.nodes)) == ("s9jvxs64", 14, "dh1-r129", 16)
    at = (FAULT + timedelta(seconds=30)).isoformat()
    first = json.loads(run("diagnose", "--db", url, "--at", at, "--json"))[0]
    assert (first["node"], first["class"], len(first["nodes"])) == ("s9jvxs64", "nvlink", 16)
    assert "Link 14" in first["reason"]
    assert any("NVLink domain dh1-r129" in one["text"] for one in first["evidence_for"])


def hints(engine: sa.Engine, now: datetime) -> list[Hint]:
    """What the policy asks."""
    with engine.begin() as connection:
        return [hint for hint, _ in decide(gather(connection, OPEN, now), OPEN).changed]


def test_what_exporters_tell_of_single_links_is_compared_too(any_engine: sa.Engine) -> None:
    """DCGM's counters of each link, from the hours that are kept; the same look twice tells it once."""
    figures = {f"nvlink_recovery_l{link}": (0.0, 0.0, 0.0, 0.0, 0.0) for link in range(18)}
    odd = figures | {"nvlink_recovery_l14": (505.0, 505.0, 505.0, 505.0, 0.0)}
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node(f"n{n}", nvlink_domain="r1") for n in range(4)])
        for n in range(4):
            devices = {"gpu:0": odd if n == 2 else figures, "gpu:1": figures}
            append_rollups(connection, [Rollup(f"n{n}", NOW - timedelta(hours=1), 2, 2, devices=devices)])
    assert note_outliers(any_engine, NOW) == 1
    assert note_outliers(any_engine, NOW + timedelta(minutes=10)) == 0
    fold_everything(any_engine)
    with any_engine.begin() as connection:
        (incident,) = read_incidents(connection, NOW - timedelta(days=1), NOW + timedelta(days=1))
    assert (incident.node, incident.device.index, incident.link, incident.action) == ("n2", 0, 14, "watch")
    asked = hints(any_engine, NOW + timedelta(minutes=20))
    assert [(hint.node, hint.action, hint.evidence.incident) for hint in asked] == [("n2", "watch", incident.id)]
    assert "NVLink 14 stands out" in asked[0].reason
    assert hints(any_engine, NOW + timedelta(days=3)) == []


def test_a_nodes_own_word_fills_a_gap_and_moves_no_node(any_engine: sa.Engine) -> None:
    """A scheduler's labels are an operator's word, what nvidia-smi prints on the node is not."""
    text = "GPU 00000008:01:00.0\n    Fabric\n        State : Completed\n        Status : Success\n"
    text += "        CliqueId : 7\n        ClusterUUID : 50000000-0000-0000-0000-000000000005\n"
    events: list[Event] = []
    for node in ("known", "new"):
        parser = make_parser("nvidia_smi", Context(node=node))
        for number, one in enumerate(text.splitlines(), start=1):
            events += parser.feed(one, number)
        events += parser.flush()
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [Node("known", nvlink_domain="rack-3")])
        append_events(connection, events, received=NOW)
        assert domain_of_each(connection) == {"known": "rack-3", "new": "50000000-0000-0000-0000-000000000005.7"}
        note_domains(connection, {"known": "c.1", "new": "c.1"}, is_told=True)
        assert domain_of_each(connection) == {"known": "c.1", "new": "c.1"}

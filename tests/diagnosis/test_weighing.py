"""How causes are weighed: the table, parts that are fine, releases, who complains, and what the order changes."""

import json
import random
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pytest
from scipy.stats import fisher_exact

from diagnosis.causes import explanation
from diagnosis.causes.cause_catalog import cause_tables
from diagnosis.causes.explanation import explain
from diagnosis.causes.release_test import fisher
from diagnosis.causes.scene import Scene, SceneJob
from diagnosis.causes.weighing import cover, weigh
from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.meaning import meaning_of
from diagnosis.symptoms.symptom import SYMPTOM_KINDS, Symptom, SymptomKind
from parsers.registry import make_parser
from parsers.text.parser import Context, parse
from store.records.outage import Outage
from store.records.verdict import CauseClass, Verdict

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
NODES = 32
RAILS = 4


def cluster() -> DeviceGraph:
    """Racks of eight, a leaf for each rail of sixteen nodes, two drivers."""
    graph = DeviceGraph()
    for number in range(NODES):
        node = Place("node", f"n{number:02d}")
        graph.hang(node, Place("rack", f"r{number // 8}"))
        graph.hang(node, Place("driver", "550" if number % 4 else "580"))
        graph.add(Place("node", node.name), (f"10.0.0.{number}",))
        for rail in range(RAILS):
            nic, port = Place("nic", f"{node.name}/mlx5_{rail}"), Place("port", f"leaf{rail}{number // 16}/{number}")
            graph.hang(nic, node)
            graph.hang(nic, port)
            graph.hang(port, Place("switch", f"leaf{rail}{number // 16}"))
            graph.join(nic, port)
    return graph


def seen(kind: SymptomKind, part: CauseClass, name: str, seconds: float, **more: object) -> Symptom:
    """A symptom at a place of a node, seconds after noon."""
    moment = NOON + timedelta(seconds=seconds)
    node = name.partition("/")[0]
    return Symptom(kind, Place(part, name), node, moment, moment, events=(f"{kind} {name}",), **more)  # type: ignore[arg-type]


def explained(symptoms: list[Symptom], **more: object) -> list[Verdict]:
    """The causes of symptoms on the cluster, a minute later."""
    return explain(Scene(NOON + timedelta(minutes=1), symptoms, cluster(), **more))  # type: ignore[arg-type]


def first(symptoms: list[Symptom], **more: object) -> tuple[str, str]:
    """Class and name of the likeliest."""
    verdict = explained(symptoms, **more)[0]
    return verdict.cause_class, verdict.name


def test_the_table_has_a_prior_of_each_class_and_a_leak_of_each_symptom() -> None:
    """What the search looks up is there, and is a chance."""
    tables = cause_tables()
    assert set(tables.leak) >= set(SYMPTOM_KINDS)
    shown = {kind for kind, _, _ in tables.shows} - {"*"}
    assert shown <= set(tables.prior)
    chances = [*tables.prior.values(), *tables.leak.values(), *(row.chance for row in tables.shows.values())]
    assert all(0 < chance <= 1 for chance in chances)


@pytest.mark.parametrize(
    ("struck", "units", "others_struck", "others"), [(6, 16, 0, 112), (3, 3, 3, 3), (10, 50, 40, 50), (1, 9, 0, 3)]
)
def test_the_test_of_releases_is_fishers(struck: int, units: int, others_struck: int, others: int) -> None:
    """As SciPy computes it, one-sided."""
    table = [[struck, units - struck], [others_struck, others - others_struck]]
    assert fisher(struck, units, others_struck, others) == pytest.approx(
        fisher_exact(table, alternative="greater").pvalue
    )


def test_parts_that_are_fine_speak_against_what_they_share() -> None:
    """The more of a switch's links are up while six are down, the less it is the switch."""
    weights = [cover("switch", 6, units) for units in (6, 7, 8, 16, 64)]
    assert weights == sorted(weights, reverse=True)


def test_one_rail_of_many_hosts_is_their_leaf_and_all_rails_of_one_the_host() -> None:
    """The same lines on other ports."""
    leaf = [seen("link_down", "nic", f"n{number:02d}/mlx5_1", number / 10) for number in range(16)]
    host = [seen("link_down", "nic", f"n05/mlx5_{rail}", rail / 10) for rail in range(RAILS)]
    assert first(leaf) == ("switch", "leaf10")
    assert first(host) == ("node", "n05")
    rack = [
        seen("link_down", "nic", f"n{number:02d}/mlx5_{rail}", rail) for number in range(8) for rail in range(RAILS)
    ]
    assert first(rack) == ("power", "r0")


def test_what_is_left_is_a_second_cause() -> None:
    """A leaf, and a GPU elsewhere."""
    leaf = [seen("link_down", "nic", f"n{number:02d}/mlx5_1", number / 10) for number in range(16)]
    both = explained([*leaf, seen("gpu_lost", "gpu", "n30/gpu2", 20, severity="fatal")])
    likely = {(one.cause_class, one.name) for one in both if one.probability > 0.5}
    assert likely == {("switch", "leaf10"), ("gpu", "n30/gpu2")}


def test_a_release_is_told_from_the_others_by_its_share() -> None:
    """Six of its eight nodes, none of the others; the same on nodes of any version is no release's."""
    own = [seen("driver_fault", "gpu", f"n{number:02d}/gpu0", 400 * number, code=119) for number in range(0, 24, 4)]
    assert first(own) == ("driver", "580")
    any_version = [seen("driver_fault", "gpu", f"n{number:02d}/gpu0", 400 * number, code=119) for number in range(6)]
    assert all(one.cause_class != "driver" for one in explained(any_version))


def with_firmware(version: Callable[[int], tuple[str, ...]]) -> DeviceGraph:
    """The cluster, and what its adapters run."""
    graph = cluster()
    for number in range(NODES):
        for name in version(number):
            graph.hang(Place("node", f"n{number:02d}"), Place("firmware", name))
    return graph


def test_an_adapters_firmware_is_compared_with_others_of_its_model() -> None:
    """Every node has an adapter of a second model, which all run one version: that one is compared with none."""
    flaps = [seen("link_down", "nic", f"n{number:02d}/mlx5_{number % 4}", 700 * number) for number in range(0, 32, 5)]
    moment = NOON + timedelta(hours=7)
    some = with_firmware(lambda number: ("28.45.1200" if number % 5 == 0 else "28.39.1002", "22.36.1010"))
    best = explain(Scene(moment, flaps, some))[0]
    assert (best.cause_class, best.name) == ("firmware", "28.45.1200")
    same = with_firmware(lambda _number: ("28.39.1002", "22.36.1010"))
    assert all(one.cause_class != "firmware" for one in explain(Scene(moment, flaps, same)))
    other = with_firmware(lambda number: ("28.45.1200" if number % 5 == 0 else "22.36.1010",))
    assert all(one.cause_class != "firmware" for one in explain(Scene(moment, flaps, other)))


def test_who_complains_is_no_suspect_for_complaining() -> None:
    """Ten nodes of a job cannot reach one address: it is that address."""
    jobs = (
        SceneJob("llm", "1", frozenset(f"n{n:02d}" for n in range(NODES)), NOON - timedelta(hours=1), None, "RUNNING"),
    )
    words = [
        seen("peer_complaint", "node", f"n{n:02d}", n / 10, points_at=("10.0.0.20",), run="llm") for n in range(10)
    ]
    verdicts = explained(words, jobs=jobs)
    named = {one.node for one in verdicts if one.node is not None}
    assert named == {"n20"}


def test_the_order_of_symptoms_changes_nothing() -> None:
    """Nor do symptoms have to come in the order of time."""
    symptoms = [seen("link_down", "nic", f"n{number:02d}/mlx5_1", number / 10) for number in range(16)]
    symptoms += [seen("gpu_lost", "gpu", "n30/gpu2", 20), seen("host_fault", "node", "n09", 3)]
    shuffled = random.Random(4).sample(symptoms, len(symptoms))
    assert explained(shuffled) == explained(symptoms)


def test_twice_the_symptoms_are_weighed_at_most_little_more_than_twice_as_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By count: no suspect is weighed anew because there are more of others."""
    counts = []
    for hosts in (16, 32):
        calls = 0

        def counted(*arguments: object) -> object:
            nonlocal calls
            calls += 1
            return weigh(*arguments)  # type: ignore[arg-type]

        monkeypatch.setattr(explanation, "weigh", counted)
        explained([seen("gpu_fault", "gpu", f"n{number:02d}/gpu0", 900.0 * number) for number in range(hosts)])
        counts.append(calls)
    assert counts[1] <= 2.1 * counts[0]


def test_beside_planned_work_a_cured_flap_and_a_corrected_error_accuse_no_node() -> None:
    """Nobody tells when a warning is over: it does not keep a link's fault standing that is over itself."""
    since, names = NOON - timedelta(hours=1), [f"n{number:02d}" for number in range(8)]
    drained = tuple(Outage(name, since, None, "DRAIN", "PDU swap", "ops", True, "unknown") for name in names)
    silent = [seen("node_silent", "node", name, 0) for name in names]
    flap = seen("link_down", "nic", "n20/mlx5_1", -90, cured=NOON - timedelta(seconds=85))
    corrected = seen("host_fault", "node", "n20", -3000, severity="warning")
    verdicts = explained([*silent, flap, corrected], outages=drained)
    assert verdicts[0].cause_class == "planned"
    assert [one.name for one in verdicts[1:] if one.probability >= 0.5] == []


def test_what_a_switch_alone_tells_of_one_of_its_links_is_a_cable_and_not_the_switch() -> None:
    """All else of the switch is fine; where many of its links go, it is the switch."""
    alone = seen("link_down", "switch", "leaf00", -5)
    assert first([alone]) == ("cable", "leaf00")
    links = [seen("link_down", "nic", f"n{number:02d}/mlx5_0", -5) for number in range(15)]
    assert first([alone, *links]) == ("switch", "leaf00")


def test_a_rack_that_is_hit_by_more_than_the_loss_of_power_is_called_the_rack() -> None:
    """Dark nodes alone are its power, heat is its cooling, one GPU that goes with the power changes nothing."""
    names = [f"n{number:02d}" for number in range(8)]
    dark = [seen("node_silent", "node", name, number) for number, name in enumerate(names)]
    assert first(dark) == ("power", "r0")
    assert first([*dark, seen("gpu_lost", "gpu", "n03/0000:0f:00.0", -2)]) == ("power", "r0")
    hot = [seen("heat_sign", "node", name, 20 * number) for number, name in enumerate(names)]
    assert first(hot) == ("cooling", "r0")
    lost = [seen("gpu_lost", "gpu", f"{name}/0000:0f:00.0", 30 * number) for number, name in enumerate(names[4:])]
    disks = [seen("disk_fault", "node", name, 10) for name in names[:2]]
    assert first([*dark[:4], *lost, *disks]) == ("rack", "r0")
    scattered = [seen("gpu_lost", "gpu", f"n{number:02d}/0000:0f:00.0", 10) for number in (0, 9, 18, 27)]
    assert "rack" not in {one.cause_class for one in explained([*dark[:1], *scattered]) if one.probability >= 0.3}


def test_controllers_of_a_rack_speak_for_its_power_and_its_cooling() -> None:
    """As their messages are read: inputs that go together, leaks and heat together; one leak is its node's."""

    def told(number: int, seconds: float, key: str, words: str) -> Symptom:
        message = {"MessageId": f"X.1.0.{key}", "Message": words, "MessageSeverity": "Critical"}
        (event,) = parse(make_parser("redfish", Context(node=f"n{number:02d}")), [json.dumps(message)])
        kind = meaning_of(event).symptom
        assert kind is not None
        return seen(kind, "node", f"n{number:02d}", seconds)

    lost = [told(number, number, "Alert", "Power supply 1 lost its input") for number in range(8)]
    assert first(lost) == ("power", "r0")
    wet = [told(number, 60 * number, "LeakDetectedCritical", "Leak detector 'Tray' ...") for number in range(3)]
    hot = [told(number, 60 * number, "TemperatureAboveUpperCriticalThreshold", "hot") for number in range(3, 8)]
    assert first([*wet, *hot]) == ("cooling", "r0")
    assert first(wet[:1]) == ("node", "n00")


def test_many_signs_of_one_node_or_two_are_not_their_rack() -> None:
    """A switch of NVLinks takes all GPUs of its node with it."""
    gpus = [seen("nvlink_fault", "gpu", f"n03/0000:{number:02x}:00.0", 0.1 * number) for number in range(1, 9)]
    switch = seen("nvswitch_fault", "nvswitch", "n03/0000:08:00.0", 0)
    more = [seen("gpu_lost", "gpu", f"n04/0000:{number:02x}:00.0", number) for number in range(1, 9)]
    assert first([*gpus, switch]) != ("rack", "r0")
    assert "rack" not in {one.cause_class for one in explained([*gpus, switch, *more])}


def test_what_any_node_shows_now_and_then_is_not_its_rack() -> None:
    """Of a large cluster's racks, one has several nodes with a warning of a disk or of PCIe in the same minutes."""
    noise = [seen("disk_fault", "node", f"n{number:02d}", 90 * number) for number in range(4)]
    noise += [seen("host_fault", "node", f"n{number:02d}", 70 * number) for number in range(3, 7)]
    assert "rack" not in {one.cause_class for one in explained(noise)}


def test_some_nodes_of_a_rack_that_lose_a_gpu_at_once_are_not_their_rack() -> None:
    """Two that failed, and one that feigns it, excuse nobody."""
    lost = [seen("gpu_lost", "gpu", f"n{number:02d}/0000:0f:00.0", number, severity="fatal") for number in range(3)]
    found = {(one.cause_class, one.name) for one in explained(lost) if one.probability > 0.5}
    assert found == {("gpu", f"n{number:02d}/0000:0f:00.0") for number in range(3)}


@pytest.mark.parametrize("named", ["n05/gpu2", "n05/gpu5"])
def test_the_name_of_one_gpu_is_no_list_of_its_nodes_gpus(named: str) -> None:
    """Else a lost one would be all of them, and the node as likely a cause as the GPU."""
    lost, graph = [seen("gpu_lost", "gpu", "n05/gpu5", 0)], cluster()
    graph.hang(Place("gpu", named), Place("node", "n05"))
    plain, told = explained(lost), explain(Scene(NOON + timedelta(minutes=1), lost, graph))
    assert [(one.name, one.probability) for one in told] == [(one.name, one.probability) for one in plain]
    assert (plain[0].cause_class, plain[0].probability > 0.9) == ("gpu", True)

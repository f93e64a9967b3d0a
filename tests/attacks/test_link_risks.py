"""Who can raise the risk of a link, and what that does to another node: at the worst a soft hint within a budget."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, node

from predictor.dataset.labels import Labels, TrainingSample
from predictor.history.arrays import DAY_MS, Feature, Rows, to_ms
from predictor.links.cabling import Cable, Cabling
from predictor.links.link_log import known_links
from predictor.links.scoring import _of_many, own_risks, score_links
from predictor.links.stoppages import LEAST_HOSTS, MOST_OF_HOST, stop_share
from predictor.links.subjects import link_population
from predictor.model.forest import MOST_LEAVES, Forest
from schedulers.lifecycle.policy_turn import run_policy
from schedulers.policy.decision import Decision, decide
from schedulers.policy.facts import Inputs, NodeFacts
from schedulers.policy.settings import Control, Policy
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_links, append_nodes
from store.hints.hint_log import read_hints
from store.models.scores import LinkScore, save_link_scores
from store.nodes.topology import append_own_links
from store.records.event import Device, Event
from store.records.job import Job
from store.records.node import FabricLink
from store.records.score import Reason

LIAR, OTHERS = "gpu-0", ("gpu-1", "gpu-2", "gpu-3")
NOW = day(50)


def flap(host: str, at_d: float, port: int = 1) -> Event:
    """A lost link, as its own node tells it."""
    device = Device("port", uuid=f"0x{port:x}")
    return Event(day(at_d), host, "infiniband", "link_down", None, "error", "fabric", "none", device)


def leaf(engine: sa.Engine, *events: Event) -> None:
    """Four nodes on a leaf, whose cables the fabric told, and what was said."""
    cables = [{"switch": "leaf-0", "port": i, "peer": f"gpu-{i}", "peer_port": 1, "peer_type": "hca"} for i in range(4)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [node(f"gpu-{i}", "leaf-0") for i in range(4)])
        append_links(connection, cables)
        append_events(connection, sorted(events, key=lambda one: one.time or NOW), RECEIVED)


def lies(ports: int = 64) -> list[Event]:
    """The liar's ports fall twice a day each, for seven weeks."""
    return [flap(LIAR, 1 + step / 2 + port / 1000, port) for step in range(97) for port in range(ports)]


def test_a_node_that_invents_ports_and_losses_gets_nothing_asked_of_its_neighbours(engine: sa.Engine) -> None:
    """Sixty-four ports on a switch fall without end: only the liar's own node is watched, by one hint."""
    leaf(engine, *lies())
    second = FabricLink("leaf-0", 77, LIAR, 2)
    with writing(engine).begin() as connection:
        append_own_links(connection, LIAR, [second])  # with two cables its ports are links of their own
    found = score_links(engine, NOW).scores
    assert sum(one.node == LIAR for one in found) > 60
    assert all(not one.own_reasons for one in found if one.node in OTHERS)
    run_policy(engine, Policy(mode="shadow", control=Control(0.0)), NOW)
    with engine.connect() as connection:
        assert {(one.node, one.action) for one in read_hints(connection)} <= {(LIAR, "watch"), (LIAR, "avoid")}


def fabric(engine: sa.Engine, liar_tells: bool) -> dict[str, LinkScore]:
    """The links of sixty hosts, of which now and then one is lost, scored; the liar's ports may fall day and night."""
    draw = np.random.default_rng(1)
    told = [flap(f"gpu-{draw.integers(1, 60)}", float(draw.uniform(1, 49))) for _ in range(60)]
    told += [flap("gpu-7", 47.0), *(lies() if liar_tells else ())]
    cables = [
        {"switch": f"leaf-{i // 20}", "port": i, "peer": f"gpu-{i}", "peer_port": 1, "peer_type": "hca"}
        for i in range(60)
    ]
    with writing(engine).begin() as connection:
        append_nodes(connection, [node(f"gpu-{i}", f"leaf-{i // 20}") for i in range(60)])
        append_links(connection, cables)
        append_own_links(connection, LIAR, [FabricLink("leaf-0", 77, LIAR, 2)])
        append_events(connection, sorted(told, key=lambda one: one.time or NOW), RECEIVED)
    return {one.link: one for one in score_links(engine, NOW).scores}


def test_a_node_that_invents_losses_does_not_teach_that_links_fall(
    engine: sa.Engine, postgres_engine: sa.Engine
) -> None:
    """Before, its own signs gave a link that had fallen 93 %, where 0.7 % was right: now it is as without lies."""
    honest, lied_to = fabric(engine, liar_tells=False), fabric(postgres_engine, liar_tells=True)
    own = {link: one.own_risk for link, one in honest.items()}
    assert {link: lied_to[link].own_risk for link in own if link != "leaf-0/0"} == {
        link: risk for link, risk in own.items() if link != "leaf-0/0"
    }
    assert sum((risk or 0.0) > 0.0 for risk in own.values()) > 5
    assert len(lied_to) > len(honest) + 60


@pytest.mark.parametrize("every_d", [1.0, 2.0])
def test_a_node_that_backdates_losses_of_its_own_cable_teaches_little(every_d: float) -> None:
    """Its cable is the fabric's, so that it teaches: an eighth of all losses at the most, as far apart as they were."""
    draw = np.random.default_rng(2)
    host = np.concatenate([draw.integers(1, 60, 40), np.zeros(int(48 / every_d), dtype=np.int64)])
    time_ms = np.concatenate([draw.integers(0, 48 * DAY_MS, 40), (np.arange(48 / every_d) * every_d * DAY_MS)])
    rows = Rows(np.tile(host, 2), np.tile(time_ms.astype(np.int64), 2))
    hit = np.repeat([True, False], len(host))
    labels = Labels(hit | True, hit | True, hit, np.full(len(hit), np.nan))
    names = [f"leaf-0/{i}" for i in range(60)]
    cabling = Cabling([Cable(name, "leaf-0", f"gpu-{i}", 1, True) for i, name in enumerate(names)])
    kept = _of_many(TrainingSample(rows, labels, 1.0, 12.0), names, cabling)
    taught = kept.rows.node[kept.labels.positive]
    lies = kept.rows.time_ms[kept.labels.positive & (kept.rows.node == 0)]
    assert (taught != 0).sum() == 40
    assert len(lies) == 40 // 7
    assert np.ptp(lies) > 0.7 * np.ptp(time_ms[host == 0])
    assert (~kept.labels.positive).sum() == len(host)


def test_where_the_fabric_s_own_cables_taught_nothing_nothing_is_asked(engine: sa.Engine) -> None:
    """The liar alone has losses: links are scored by them, and no hint goes by such a score."""
    leaf(engine, *lies(8))
    second = FabricLink("leaf-0", 77, LIAR, 2)
    with writing(engine).begin() as connection:
        append_own_links(connection, LIAR, [second])
    found = score_links(engine, NOW).scores
    assert found[0].score > 0.5
    assert {one.own_risk for one in found} == {one.stop_risk for one in found} == {None}


def test_what_neighbours_show_does_not_multiply_what_a_link_shows_itself() -> None:
    """The odds of a forest multiply: a link that flapped once is as risky beside sixty that fall as beside none."""
    value = np.zeros((2, MOST_LEAVES))
    value[0, :2], value[1, :2] = (0.0, 2.0), (0.0, 3.0)
    forest = Forest(
        tree=np.array([0, 1]),
        feature=np.array([0, 1]),
        threshold=np.array([0.5, 0.5], dtype=np.float32),
        missing_left=np.array([True, True]),
        kills=np.array([1, 1], dtype=np.uint16),
        value=value,
        baseline=-5.0,
    )
    features = (Feature("link_flap_7d", "link_flap"), Feature("leaf_flaps_24h", "neighbours"))
    rows = np.array([[1, 0], [1, 64], [0, 64], [1, np.nan]], dtype=np.float32)
    alone, beside, quiet, unknown = own_risks(forest, rows, features, np.zeros(2, dtype=np.float32)).tolist()
    assert forest.probability(rows)[1] > 5 * forest.probability(rows)[0]
    assert (alone, quiet) == (beside, 0.0)
    assert unknown == alone > 0.03


def test_a_node_that_calls_another_a_switch_takes_none_of_its_losses(any_engine: sa.Engine) -> None:
    """Else the other's flaps would be of the liar's cables, or of none, and no hint would ever be made of it."""
    leaf(any_engine, *(flap("gpu-1", at) for at in (3, 13, 23)))
    made_up = [FabricLink("gpu-1", port, LIAR, port) for port in range(3)]
    with writing(any_engine).begin() as connection:
        append_own_links(connection, LIAR, made_up)
    with any_engine.connect() as connection:
        found = link_population(connection, to_ms(NOW))
    assert {found.fleet.names[at] for at in found.outages.node.tolist()} == {"leaf-0/1"}
    # What two nodes call a switch is one, though it logs lines of its own; so is what no node is called.
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [node("tor-7", None), node("host-a"), node("host-b")])
        append_own_links(connection, "host-a", [FabricLink("tor-7", 1, "host-a", 1), FabricLink("tor-8", 1, "host-a")])
        append_own_links(connection, "host-b", [FabricLink("tor-7", 2, "host-b", 1)])
        names = known_links(connection).cabling.cables
    assert {cable.name for cable in names} >= {"tor-7/1", "tor-7/2", "tor-8/1", "leaf-0/1"}


def everywhere(count: int, stop: float = 0.9) -> list[NodeFacts]:
    """What a switch's log, or whoever may write one, can say of all: every link is as good as lost."""
    why = (Reason("9 link flaps in 24 h", 0.9, ("e",)),)
    nodes = [NodeFacts(f"gpu-{i}", rack=f"r{i // 4}", leaf=f"leaf-{i // 16}") for i in range(count)]
    return [
        replace(one, links=(LinkScore(f"l/{i}", ("a", "b"), 24, NOW, 0.9, why, "m", one.node, 0.9, stop),))
        for i, one in enumerate(nodes)
    ]


@pytest.mark.parametrize("avoid_takes", [False, True])
def test_whoever_writes_a_switch_s_log_has_few_nodes_avoided_and_none_held(avoid_takes: bool) -> None:
    """Budgets of an avoid bind for links where no scheduler takes a node for one, too; the rest is watched."""
    policy = Policy(mode="act")
    limits = policy.budgets
    found = decide(Inputs(NOW, everywhere(400), avoid_takes=avoid_takes), policy)
    actions = Counter(made.action for made, _ in found.changed)
    assert actions == {"avoid": limits.avoid_per_hour, "watch": 400 - limits.avoid_per_hour}
    assert found.tripped == ()
    open_hints = [made for made, _ in found.changed]
    for hours in range(1, 9):
        old = tuple(replace(one, evidence=replace(one.evidence, acted=NOW)) for one in open_hints)
        later = decide(Inputs(day(50 + hours / 12), everywhere(400), old, avoid_takes=avoid_takes), policy)
        open_hints = _after(open_hints, later)
    avoided = [one for one in open_hints if one.action == "avoid"]
    assert len(avoided) == min(limits.avoid_nodes, round(400 * limits.avoid_percent / 100))
    of_leaf = Counter(int(one.node.partition("-")[2]) // 16 for one in avoided)
    assert max(of_leaf.values()) <= limits.avoid_per_leaf


def _after(before: list, decision: Decision) -> list:  # type: ignore[type-arg]
    changed = {made.id: made for made, _ in decision.changed}
    return [changed.get(one.id, one) for one in before]


def test_of_a_fabric_that_falls_few_nodes_are_watched(any_engine: sa.Engine) -> None:
    """The riskiest eight, or four in a hundred, also over many scorings; those that are watched already stay so."""
    policy = Policy(mode="shadow", control=Control(0.0))
    with writing(any_engine).begin() as connection:
        append_nodes(connection, [node(f"gpu-{i}", f"leaf-{i // 16}") for i in range(100)])
    for turn in range(3):
        found = [one.links[0] for one in everywhere(100)]
        told = [replace(one, own_risk=0.5 + (i + 31 * turn) % 100 / 250) for i, one in enumerate(found)]
        at = day(50 + turn / 4)
        with writing(any_engine).begin() as connection:
            save_link_scores(connection, 24, [replace(one, time=at) for one in told])
        run_policy(any_engine, policy, at)
        with any_engine.connect() as connection:
            hints = read_hints(connection)
        assert {(one.node, one.state) for one in hints} == {(f"gpu-{i}", "shadow") for i in range(92, 100)}


def test_a_node_whose_every_port_falls_hides_no_other_s_link(engine: sa.Engine) -> None:
    """Its links are the riskiest of all; the other's host is watched all the same."""
    why = (Reason("9 link flaps in 24 h", 0.9, ("e",)),)
    leaf(engine)
    mine = [LinkScore(f"{LIAR}/{i}", ("a",), 24, NOW, 0.99, why, "m", LIAR, 0.99) for i in range(64)]
    with writing(engine).begin() as connection:
        save_link_scores(
            connection, 24, [*mine, LinkScore("leaf-0/1", ("a", "b"), 24, NOW, 0.1, why, "m", "gpu-1", 0.1)]
        )
    run_policy(engine, Policy(mode="shadow", control=Control(0.0)), NOW)
    with engine.connect() as connection:
        assert {one.node for one in read_hints(connection)} == {LIAR, "gpu-1"}


def test_a_node_says_little_of_what_a_loss_does_to_jobs(engine: sa.Engine) -> None:
    """Each of its jobs fails just as it says that it lost a link: it counts with a few days, whatever it invents."""
    hosts = ("gpu-1", "gpu-2", "gpu-3")
    truth = [flap(host, at + 0.5) for host in hosts for at in range(1, 1 + MOST_OF_HOST)]
    jobs = [
        Job(f"{host}-{at}", "r", "COMPLETED", None, day(at), day(at + 0.9), 1, host)
        for host in hosts
        for at in range(1, 10)
    ]
    leaf(engine, *truth, *(flap(LIAR, at + 0.5) for at in range(1, 45)))
    jobs += [Job(f"l-{at}", "r", "FAILED", None, day(at), day(at + 0.502), 1, LIAR) for at in range(1, 45)]
    with writing(engine).begin() as connection:
        append_jobs(connection, jobs)
    with engine.connect() as connection:
        population, cabling = link_population(connection, to_ms(NOW)), known_links(connection).cabling
        share = stop_share(connection, population, cabling, NOW)
    assert len(hosts) >= LEAST_HOSTS
    assert share == (MOST_OF_HOST + 1) / (4 * MOST_OF_HOST + 2)


def test_one_node_alone_says_nothing_of_it(engine: sa.Engine) -> None:
    """Then no link may have its host avoided."""
    leaf(engine, *(flap(LIAR, at + 0.5) for at in range(1, 45)))
    with writing(engine).begin() as connection:
        append_jobs(
            connection, [Job(f"l-{at}", "r", "FAILED", None, day(at), day(at + 0.502), 1, LIAR) for at in range(1, 45)]
        )
    with engine.connect() as connection:
        population, cabling = link_population(connection, to_ms(NOW)), known_links(connection).cabling
        assert stop_share(connection, population, cabling, NOW) is None


def test_a_score_of_a_node_that_nobody_knows_makes_no_node(engine: sa.Engine) -> None:
    """A cable to a name of which nothing else is known asks nothing."""
    leaf(engine)
    why = (Reason("9 link flaps in 24 h", 0.9, ("e",)),)
    with writing(engine).begin() as connection:
        save_link_scores(
            connection, 24, [LinkScore("leaf-9/1", ("a", "b"), 24, NOW, 0.9, why, "m", "stranger", 0.9, 0.9)]
        )
    assert run_policy(engine, Policy(mode="shadow"), NOW) == Decision()

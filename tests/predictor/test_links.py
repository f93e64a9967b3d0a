"""Links as subjects: which one an event speaks of, what counts as a loss, and that a backtest of them works."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import RECEIVED, day, node, outage

from predictor.dataset.folds import BacktestSettings
from predictor.dataset.labels import label
from predictor.dataset.matrix import features_of, matrix
from predictor.evaluate.backtest import MomentFeatures, run_backtest
from predictor.history.arrays import DAY_MS, FAR_FUTURE_MS, every, to_ms
from predictor.links.link_log import known_links, read_link_log
from predictor.links.subjects import LINKS, LinkEvents, link_history, link_population
from store.database.connections import writing
from store.events.append import append_events, append_links, append_nodes, append_outages
from store.records.event import Device, Event
from store.records.outage import Outage
from store.tables import schema

DAY = timedelta(days=1)


def flap(host: str, at_d: float, port: str = "0xa1", kind: str = "port_removed", **more: Any) -> Event:
    """A host's port that vanishes, as a subnet manager tells it."""
    device = more.pop("device", Device("port", uuid=port))
    return Event(day(at_d), host, "opensm", kind, None, "error", "fabric", "none", device, attributes=more)


def put(engine: sa.Engine, events: list[Event], outages: list[Outage] | None = None, rails: int = 1) -> None:
    """Four hosts on a leaf that has an uplink; hosts have as many cables as rails."""
    hosts = [f"gpu-{i}" for i in range(4)]
    cables = [
        {"switch": f"leaf-{rail}", "port": i + 1, "peer": host, "peer_port": rail + 1, "peer_type": "hca"}
        for rail in range(rails)
        for i, host in enumerate(hosts)
    ]
    cables.append({"switch": "leaf-0", "port": 33, "peer": "spine-1", "peer_port": 1, "peer_type": "switch"})
    cables.append({"switch": "spine-1", "port": 1, "peer": "leaf-0", "peer_port": 33, "peer_type": "switch"})
    with writing(engine).begin() as connection:
        append_nodes(connection, [node(host) for host in hosts])
        append_links(connection, cables)
        append_events(connection, events, RECEIVED)
        append_outages(connection, outages or [])


def losses(engine: sa.Engine) -> list[tuple[str, float, float, bool]]:
    """(link, first day, minutes, excused) of every loss."""
    with engine.connect() as connection:
        found = link_population(connection, to_ms(day(100)))
    names, log = found.fleet.names, found.outages
    start_d = [(at - to_ms(day(0))) / DAY_MS for at in log.start_ms.tolist()]
    minutes = ((log.end_ms - log.start_ms) / 60_000).tolist()
    return list(zip([names[i] for i in log.node.tolist()], start_d, minutes, log.planned.tolist(), strict=True))


def test_a_cable_is_named_by_its_switch_and_port_and_once(engine: sa.Engine) -> None:
    """The uplink is in the topology from both its ends."""
    put(engine, [])
    with engine.connect() as connection:
        fleet = link_population(connection, 0).fleet
    assert fleet.names == ("leaf-0/1", "leaf-0/2", "leaf-0/3", "leaf-0/33", "leaf-0/4")
    assert len(set(fleet.leaf.tolist())) == 1


@pytest.mark.parametrize(
    ("event", "link"),
    [
        (flap("gpu-2", 3), "leaf-0/3"),
        (flap("leaf-0", 3, device=Device("port", port=33)), "leaf-0/33"),
        (flap("spine-1", 3, device=Device("port", port=1)), "leaf-0/33"),
        (flap("leaf-0", 3, device=Device("port", index=2)), "leaf-0/2"),
    ],
    ids=["host", "switch", "far end of an uplink", "index"],
)
def test_what_either_end_says_is_the_links(engine: sa.Engine, event: Event, link: str) -> None:
    """The host's port, the switch's, the other switch's."""
    put(engine, [event])
    assert [found[0] for found in losses(engine)] == [link]


def test_what_speaks_of_no_single_link_is_nobodys(engine: sa.Engine) -> None:
    """A switch's unknown port, a host that no topology knows without a port, and what is no link's event."""
    xid = Event(day(3), "gpu-1", "kernel", "xid", 79, "fatal", "hardware")
    put(engine, [flap("leaf-0", 3, device=Device("port", port=99)), flap("gpu-9", 3, device=Device("node")), xid])
    assert losses(engine) == []


def test_of_a_host_with_several_cables_each_port_is_a_link_of_its_own(engine: sa.Engine) -> None:
    """The topology does not say which is which: the port's name does, and the host's leaf is its."""
    events = [flap("gpu-1", 3, name="mlx5_0"), flap("gpu-1", 4, name="mlx5_3"), flap("gpu-1", 5, name="mlx5_3")]
    put(engine, events, rails=2)
    assert [found[0] for found in losses(engine)] == ["gpu-1/mlx5_0", "gpu-1/mlx5_3", "gpu-1/mlx5_3"]


@pytest.mark.parametrize(
    ("device", "name", "link"),
    [
        (Device("port", uuid="0xB83FD20300200061"), "mlx5_3", "leaf-1/2"),
        (Device("port", uuid="0xb83fd20300200062"), None, "gpu-1/0xb83fd20300200062"),
        (Device("hca", pci="0000:0f:00.0"), "mlx5_3", "leaf-0/2"),
        (Device("port"), "mlx5_9", "gpu-1/mlx5_9"),
    ],
)
def test_the_topology_may_name_which_cable_of_a_host_it_is(
    engine: sa.Engine, device: Device, name: str | None, link: str
) -> None:
    """By the GUID of its port, or by the adapter's name where that has one port alone."""
    put(engine, [flap("gpu-1", 5, device=device, name=name)], rails=3)
    told = {"peer": "gpu-1", "peer_type": "hca"}
    with writing(engine).begin() as connection:
        append_links(
            connection,
            [
                {**told, "switch": "leaf-0", "port": 2, "peer_port": 1, "hca": "mlx5_3"},
                {**told, "switch": "leaf-1", "port": 2, "peer_port": 2, "peer_port_guid": "0xb83fd20300200061"},
                {**told, "switch": "leaf-1", "port": 7, "peer_port": 1, "hca": "mlx5_9"},
                {**told, "switch": "leaf-2", "port": 2, "peer_port": 3, "hca": "mlx5_9"},
            ],
        )
    assert [one[0] for one in losses(engine)] == [link]


def test_a_node_that_invents_ports_makes_no_more_links_than_a_node_may_have(engine: sa.Engine) -> None:
    """The first by name stay, whoever asks; other nodes' links are what they were."""
    put(engine, [flap("gpu-1", 3 + n / 100, name=f"mlx5_{n}") for n in range(100)] + [flap("gpu-2", 5)], rails=2)
    names = {found[0] for found in losses(engine)}
    assert len([name for name in names if name.startswith("gpu-1/")]) == 64
    assert "gpu-1/mlx5_0" in names
    assert "gpu-2/0xa1" in names


def test_flaps_that_follow_closely_are_one_loss(engine: sa.Engine) -> None:
    """Three in a quarter of an hour; one an hour later is another; another link's does not join."""
    minutes = (0, 8, 15, 80)
    events = [flap("gpu-1", 3 + minute / 1440) for minute in minutes] + [flap("gpu-2", 3 + 4 / 1440)]
    put(engine, events)
    found = losses(engine)
    assert [(link, round(length)) for link, _, length, _ in found] == [
        ("leaf-0/2", 16),
        ("leaf-0/3", 1),
        ("leaf-0/2", 1),
    ]


@pytest.mark.parametrize(
    ("held", "excused"),
    [
        (outage("gpu-1", 2.9, 12, planned=True), True),
        (outage("gpu-1", 3.003, 12, cause="host"), True),
        (outage("gpu-1", 2.9, None, planned=True), True),
        (outage("gpu-1", 3.003, 12, cause="fabric"), False),
        (outage("gpu-2", 2.9, 12, planned=True), False),
        (outage("gpu-1", 2.0, 12, planned=True), False),
    ],
    ids=["maintenance", "host died", "still out", "the link itself", "another host", "over"],
)
def test_a_loss_while_the_host_was_out_is_no_fault_of_the_link(engine: sa.Engine, held: Outage, excused: bool) -> None:
    """Maintenance and a dead host take the link with them; a link that took its host out is to blame."""
    put(engine, [flap("gpu-1", 3)], [held])
    assert [found[3] for found in losses(engine)] == [excused]


def test_features_know_of_no_outage_that_is_written_down_later(engine: sa.Engine) -> None:
    """The host's death, told four minutes after its link's: hindsight is for labels alone."""
    put(engine, [flap("gpu-1", 3)], [outage("gpu-1", 3.003, 12, cause="host")])
    with engine.connect() as connection:
        assert link_history(connection, day(4), day(4)).outages.planned.tolist() == [False]


def test_nothing_at_or_after_the_moment_is_read(engine: sa.Engine) -> None:
    """Not an event of the same millisecond, not the end of a loss that lasts."""
    put(engine, [flap("gpu-1", 3), flap("gpu-1", 3 + 5 / 1440), flap("gpu-1", 4)])
    with engine.connect() as connection:
        history = link_history(connection, day(3), day(3) + timedelta(minutes=5, seconds=30))
        assert history.outages.end_ms.tolist() == [FAR_FUTURE_MS]
        assert len(history.precursors.node) == 2
        assert len(link_history(connection, day(3), day(3)).precursors.node) == 0


def test_what_is_read_once_for_all_histories_gives_the_same_as_what_is_read_for_one(engine: sa.Engine) -> None:
    """Flaps that two sources tell, counters with their counts, equal times, a port beside the topology."""
    chance = np.random.default_rng(4)
    told = []
    for at in np.sort(chance.uniform(1, 60, 200)).round(3).tolist():
        host, source = f"gpu-{chance.integers(4)}", ("opensm", "kernel")[chance.integers(2)]
        kind = ("port_removed", "bit_errors", "counter")[chance.integers(3)]
        one = flap(host, at, kind=kind, **({"count": int(chance.integers(1, 9))} if kind == "counter" else {}))
        told += [replace(one, source=source), replace(one, source="kernel", time=one.time + timedelta(seconds=20))]
    told.append(flap("gpu-9", 30, device=Device("port", index=1)))
    put(engine, told, [outage("gpu-1", 10, 200, cause="host"), outage("gpu-2", 30, 100, planned=True)])
    with engine.connect() as connection:
        once = LinkEvents.of(connection)
        for first, last in ((2, 60), (20.5, 31), (40, 40), (59, 61)):
            mine = once.history(connection, day(first), day(last))
            alone = link_history(connection, day(first), day(last))
            assert len(alone.precursors.node)
            for name in ("node", "time_ms", "family", "weight", "serious"):
                np.testing.assert_array_equal(getattr(mine.precursors, name), getattr(alone.precursors, name))
            for name in ("node", "start_ms", "end_ms", "planned"):
                np.testing.assert_array_equal(getattr(mine.outages, name), getattr(alone.outages, name))
        assert once.history(connection, day(2), day(60)).outages.planned.any()


def test_a_loss_is_excused_by_any_outage_that_it_lies_in(engine: sa.Engine) -> None:
    """Many losses and outages that overlap, end before they begin or do not end: as looked at one by one."""
    chance = np.random.default_rng(8)
    flaps = [flap(f"gpu-{chance.integers(4)}", at) for at in np.sort(chance.uniform(1, 30, 300)).round(2).tolist()]
    outages = []
    for at in np.sort(chance.uniform(1, 30, 120)).round(3).tolist():
        end_h = float(chance.uniform(-1, 20)) if chance.random() < 0.99 else None
        outages.append(outage(f"gpu-{chance.integers(4)}", at, end_h, cause=str(chance.choice(["host", "fabric"]))))
    put(engine, flaps, outages)
    late_d, excused = 15 / 1440, []
    spans = [
        (one.node, (one.start - day(0)) / DAY, np.inf if one.end is None else (one.end - day(0)) / DAY)
        for one in outages
        if one.cause != "fabric"
    ]
    found = losses(engine)
    for link, at, _, _ in found:
        host = f"gpu-{int(link.partition('/')[2]) - 1}"
        excused.append(any(host == node and start - late_d <= at <= end + late_d for node, start, end in spans))
    assert [planned for *_, planned in found] == excused
    assert 20 < sum(excused) < len(excused) - 20


def test_events_of_links_are_those_of_the_store_one_by_one(engine: sa.Engine) -> None:
    """What the database gathers by what is equal: the same times, counts and ids, each in its place."""
    counts = [3, 1, 7]
    errors = [flap("gpu-1", 3 + at / 1440, kind="counter", count=count) for at, count in enumerate(counts)]
    put(engine, [*errors, flap("gpu-2", 3), flap("gpu-1", 3.5)])
    with engine.connect() as connection:
        known = known_links(connection)
        log = read_link_log(connection, known.cabling, known.fleet.names, with_ids=True)
        found = log.precursors(0, FAR_FUTURE_MS)
        rows = connection.execute(sa.select(schema.events.c.id, schema.events.c.time, schema.events.c.node)).all()
    of_node = {row.id: (row.node, to_ms(row.time)) for row in rows}
    hosts = [known.cabling.host(known.fleet.names[link]) for link in found.node.tolist()]
    assert [of_node[ident] for ident in found.ids.tolist()] == list(zip(hosts, found.time_ms.tolist(), strict=True))
    assert found.weight.tolist() == [3, 1, 7, 1, 1]
    assert hosts == ["gpu-1"] * 4 + ["gpu-2"]


def test_history_reads_a_month_of_signs_and_a_year_of_losses(engine: sa.Engine) -> None:
    """What is older costs nothing; labels know of it all the same, and a port beside the topology that fell silent is
    no link any more."""
    old = [flap("gpu-1", at, kind=kind) for at in (3, 380, 410) for kind in ("port_removed", "bit_errors")]
    put(
        engine,
        [*old, flap("gpu-9", 3, device=Device("port", index=1)), flap("gpu-9", 400, device=Device("port", index=2))],
    )
    with engine.connect() as connection:
        history = link_history(connection, day(420), day(420))
        population = link_population(connection, to_ms(day(420)))
    assert [round((at - to_ms(day(0))) / DAY_MS) for at in history.outages.start_ms.tolist()] == [380, 400, 410]
    assert sorted(round((at - to_ms(day(0))) / DAY_MS) for at in history.precursors.time_ms.tolist()) == [400, 410, 410]
    assert [round((at - to_ms(day(0))) / DAY_MS) for at in population.outages.start_ms.tolist()] == [3, 380, 400, 410]
    assert history.fleet.names == population.fleet.names
    assert [name for name in history.fleet.names if name.startswith("gpu")] == ["gpu-9/2"]


def test_a_link_that_flapped_has_the_features_of_it_and_a_label(engine: sa.Engine) -> None:
    """Its flaps of the last week, its age, and whether it falls again; its neighbours hear of it."""
    put(engine, [flap("gpu-1", at) for at in (10, 12, 14.5)] + [flap("gpu-3", 40)])
    with engine.connect() as connection:
        population = link_population(connection, to_ms(day(30)))
        history = link_history(connection, day(14), day(14))
        rows = every(len(population.fleet.names), [day(14)])
        names = [feature.name for feature in features_of(history)]
        values = matrix(history, rows)
    mine = population.fleet.index["leaf-0/2"]
    other = population.fleet.index["leaf-0/1"]
    assert values[mine, names.index("link_flap_7d")] == 2
    assert values[other, names.index("link_flap_7d")] == 0
    assert values[mine, names.index("outages_28d")] == 2
    answers = label(population.fleet, population.outages, rows, 24, population.end_ms)
    assert answers.positive.tolist() == [i == mine for i in range(len(rows))]
    assert answers.known.all()


def chronic(engine: sa.Engine) -> None:
    """Sixty days: one link flaps every other day, bit errors come before each loss, others flap once."""
    random = np.random.default_rng(3)
    events = []
    for at in np.arange(2, 60, 2.0):
        events += [flap("gpu-1", float(at)), flap("gpu-1", float(at) - 0.3, kind="bit_errors")]
    events += [flap(f"gpu-{i}", float(random.uniform(2, 60))) for i in (0, 2, 3)]
    put(engine, sorted(events, key=lambda event: event.time or day(0)))


def test_a_backtest_of_links_ranks_the_chronic_one_first(engine: sa.Engine) -> None:
    """The whole machinery, its look for leaks included, on either rule beside it."""
    chronic(engine)
    found = run_backtest(engine, BacktestSettings(horizon_h=48, test_start=day(40)), None, LINKS)
    assert found.report["nodes"] == 5
    assert found.report["roc_auc"] > 0.8
    assert set(found.report["baselines"]) == {"history_count", "rules", "recency"}
    assert found.report["baselines"]["rules"]["roc_auc"] > 0.8


def test_the_features_of_a_moment_are_those_of_a_store_that_ends_there(engine: sa.Engine) -> None:
    """What came later changes none: the look-ahead test of links."""
    chronic(engine)
    moments = [day(20), day(30.5), day(44)]
    with engine.connect() as connection:
        fleet = link_population(connection, 0).fleet
        whole = link_history(connection, moments[0], moments[-1])
        for moment in moments:
            rows = every(len(fleet.names), [moment])
            _, alone = MomentFeatures(connection, link_history)(rows)
            assert np.array_equal(matrix(whole, rows), alone, equal_nan=True)


def test_links_are_read_alike_from_both_databases(any_engine: sa.Engine) -> None:
    """JSON devices, times and names."""
    put(any_engine, [flap("gpu-1", 3), flap("leaf-0", 4, device=Device("port", port=33))])
    assert [(link, start) for link, start, *_ in losses(any_engine)] == [("leaf-0/2", 3.0), ("leaf-0/33", 4.0)]

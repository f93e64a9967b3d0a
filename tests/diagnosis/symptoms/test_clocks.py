"""A node's clock is known by when its words are received; what it tells is dated by a common one."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.symptoms.clocks import MOST_NODES, NodeClocks, read_clocks
from diagnosis.symptoms.folding import SymptomFold
from store.database.connections import open_database
from store.events.append import append_events
from store.nodes.sidecars import SidecarReport, write_sidecars
from store.records.event import Device, Event
from store.tables.hint_tables import metadata

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def after(seconds: float) -> datetime:
    """Some seconds after noon."""
    return NOON + timedelta(seconds=seconds)


def lost(node: str, own: datetime, source: str = "kernel") -> Event:
    """A GPU that is lost, by the node's own clock."""
    device = Device(type="gpu", pci="0000:0f:00.0")
    return Event(own, node, source, "gpu_lost", severity="fatal", cause="hardware", device=device, id=f"{node}{own}")


@given(off_s=st.floats(-300, 300), delay_s=st.floats(0, 3))
def test_a_heartbeat_tells_how_far_a_clock_is_off(off_s: float, delay_s: float) -> None:
    """Within the delay; a clock that is right within a network's delays is left alone."""
    clocks = NodeClocks()
    clocks.heartbeat("a", after(off_s), after(delay_s))
    mended, doubt_s = clocks.common(lost("a", after(10 + off_s)), after(10 + off_s))
    assert abs((mended - after(10)).total_seconds()) <= 5.0 + delay_s
    assert doubt_s <= 5.0


def test_what_is_received_before_it_happened_comes_from_a_clock_ahead() -> None:
    """By at least so much, and all of the node's events move."""
    clocks = NodeClocks()
    clocks.receipt(lost("a", after(300)), after(2))
    assert clocks.common(lost("a", after(290)), after(290))[0] == after(-8)


def test_a_backlog_is_no_clock_that_is_behind() -> None:
    """Lags shrink from the first line to the last; a steady lag over a minute is a clock's."""
    clocks = NodeClocks()
    for seconds in range(0, 7200, 600):
        clocks.receipt(lost("late", after(seconds)), after(7200 + seconds / 1000))
    assert clocks.offset_s("late") == 0
    for seconds in (0, 30, 60, 90):
        clocks.receipt(lost("slow", after(seconds - 300)), after(seconds + 2))
    assert clocks.offset_s("slow") == 302


def test_one_late_line_tells_nothing() -> None:
    """It may have been sent late."""
    clocks = NodeClocks()
    clocks.receipt(lost("a", after(0)), after(300))
    assert clocks.common(lost("a", NOON), NOON) == (NOON, 1.0)


def test_a_clock_moves_the_words_of_its_own_node_alone() -> None:
    """Not what the subnet manager saw of the node, and no other node's."""
    clocks = NodeClocks()
    clocks.heartbeat("liar", after(-3000), NOON)
    for event in (lost("liar", NOON, "opensm"), lost("other", NOON)):
        assert clocks.common(event, NOON)[0] == NOON
    assert clocks.common(lost("liar", NOON), NOON)[0] == after(3000)


def test_invented_times_and_names_are_no_clocks() -> None:
    """Beyond a day nobody's clock is believed; beyond ten of the largest clusters no name is kept."""
    clocks = NodeClocks()
    clocks.receipt(lost("a", after(10**7)), NOON)
    clocks.heartbeat("a", after(-(10**7)), NOON)
    assert clocks.offset_s("a") == 0
    for number in range(MOST_NODES + 5):
        clocks.heartbeat(f"n{number}", after(-60), NOON)
    assert clocks.offset_s(f"n{MOST_NODES + 4}") == 0


def test_two_faults_are_in_their_true_order_though_both_clocks_are_wrong(tmp_path: Path) -> None:
    """By the heartbeats and receipts that the store holds."""
    engine = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    metadata.create_all(engine)
    with engine.begin() as connection:
        reports = [SidecarReport("second", NOON, after(-240), "0", NOON, False, {})]
        write_sidecars(connection, reports)
        append_events(connection, [lost("second", after(20 - 240))], after(22))
        append_events(connection, [lost("first", after(10 + 200))], after(12))
        clocks = read_clocks(connection, NOON, after(60))
    fold = SymptomFold(DeviceGraph())
    fold.clocks = clocks
    fold.take([lost("second", after(20 - 240)), lost("first", after(10 + 200))])
    assert [
        (one.node, abs((one.first - NOON).total_seconds() - true) <= 5)
        for one, true in zip(fold.symptoms(), (10, 20), strict=True)
    ] == [
        ("first", True),
        ("second", True),
    ]
    assert all(one.uncertainty_s == 5 for one in fold.symptoms())


def test_a_clock_that_was_set_since_is_known_by_what_it_told_then(tmp_path: Path) -> None:
    """Its heartbeat of next day says that it is right: of the stop of yesterday the receipts of then speak."""
    engine = open_database(f"sqlite:///{tmp_path / 'store.db'}")
    metadata.create_all(engine)
    told = [lost("a", after(90 * step - 240)) for step in range(6)]
    next_day = NOON + timedelta(days=1)
    with engine.begin() as connection:
        write_sidecars(connection, [SidecarReport("a", next_day, next_day, "0", NOON, False, {})])
        for step, event in enumerate(told):
            append_events(connection, [event], after(90 * step))
        assert abs(read_clocks(connection, NOON, after(600)).offset_s("a") - 240) <= 5
        assert read_clocks(connection, next_day, next_day).offset_s("a") == 0.0

"""The state of devices: what moves it up and down, and that no row sees another's time."""

from datetime import timedelta

import numpy as np
import pytest
import sqlalchemy as sa
from fleet_store import day, fill, node, outage, put, sbe, xid

from predictor.devices.filter import FAILING, HEALTHY, after_quiet, after_repair, figures, survival
from predictor.devices.node_devices import NodeDevice, node_devices
from predictor.devices.states import MOST_STEPS, DeviceStates, device_states
from predictor.history.arrays import Rows, every, from_ms
from predictor.history.store_reader import read_history
from store.catalog_rows import rows as table
from store.database.connections import writing
from store.events.append import append_outages
from store.nodes.repairs import repair_of
from store.records.event import Device, Event
from store.records.outage import Outage


def standing(engine: sa.Engine, at_d: float, name: str = "a") -> list[NodeDevice]:
    """The devices of a node that may not be healthy."""
    with engine.connect() as connection:
        return node_devices(connection, name, day(at_d))


def repaired(engine: sa.Engine, reason: str, name: str) -> float:
    """How probably a GPU that erred is failing after an outage of one hour with a reason."""
    put(engine, [node(name)], [sbe(name, 10 + hour / 24) for hour in range(8)])
    gone = Outage(name, day(10.5), day(10.5) + timedelta(hours=1), "DOWN", reason, None, False, "hardware")
    with writing(engine).begin() as connection:
        append_outages(connection, [gone])
    return standing(engine, 10.6, name)[0].probabilities["failing"] if standing(engine, 10.6, name) else 0.0


def test_signs_move_a_device_up_and_quiet_time_down(engine: sa.Engine) -> None:
    """Healthy, degraded, failing, and back; another GPU of the node stays out of it."""
    put(engine, [node("a")], [sbe("a", 10 + hour / 24, gpu=3) for hour in range(12)] + [sbe("a", 10.2, gpu=5)])
    first = standing(engine, 10.01)[0]
    assert (first.device, first.state) == ("GPU 3", "healthy")
    worst, other = standing(engine, 10.5)
    assert (worst.device, worst.state, worst.since) == ("GPU 3", "failing", day(10 + 4 / 24))
    assert worst.why == "12 corrected ECC errors in 28 days, the last 1 h ago"
    assert sum(worst.probabilities.values()) == pytest.approx(1.0)
    assert (other.device, other.state) == ("GPU 5", "healthy")
    states = [found[0].state if (found := standing(engine, at)) else "healthy" for at in (10.5, 12.0, 20.0, 30.0)]
    assert states == ["failing", "degraded", "healthy", "healthy"]


def test_a_burst_is_one_sign(engine: sa.Engine) -> None:
    """A thousand errors of one hour say what the first of them says."""
    put(
        engine,
        [node("a"), node("b")],
        [sbe("a", 10)] + [sbe("b", 10 + second / 86_400) for second in range(0, 3000, 30)],
    )
    one, many = standing(engine, 11)[0], standing(engine, 11, "b")[0]
    assert one.probabilities == many.probabilities


def test_a_swap_cures_more_than_a_reboot_and_that_more_than_a_mere_return(engine: sa.Engine) -> None:
    """By the words of the outage's reason."""
    swapped = repaired(engine, "GPU 0 replaced", "a")
    rebooted = repaired(engine, "drained, rebooted", "b")
    returned = repaired(engine, "returned, no fault found", "c")
    assert swapped < 0.5 * rebooted < rebooted < returned


def test_a_planned_outage_blames_no_device(engine: sa.Engine) -> None:
    """One that came unplanned moves the failing GPU up, and the one that erred once less."""
    signs = [sbe(name, 10 + hour / 24) for name in "ab" for hour in range(2)]
    put(engine, [node("a"), node("b")], signs, [outage("a", 10.1, None), outage("b", 10.1, None, planned=True)])
    unplanned, planned = standing(engine, 10.2)[0], standing(engine, 10.2, "b")[0]
    assert unplanned.probabilities["failing"] > 3 * planned.probabilities["failing"]
    assert "its node went out 2 h ago" in unplanned.why


def test_a_row_alone_and_among_others_has_the_same_bits(engine: sa.Engine) -> None:
    """Whatever is read before its 28 days or after its moment."""
    fill(engine, nodes=16)
    moments = [day(at) for at in (20.3, 31.0, 45.5, 58.9)]
    with engine.connect() as connection:
        history = read_history(connection, moments[0], moments[-1])
        whole = device_states(history.precursors, history.outages, rows := every(16, moments))
        assert whole.sign_risk(24.0).max() > 0.05
        for number, moment in enumerate(moments):
            own = read_history(connection, moment, moment)
            alone = device_states(own.precursors, own.outages, every(16, [moment]))
            mine = slice(16 * number, 16 * (number + 1))
            assert (alone.sign_risk(24.0) == whole.sign_risk(24.0)[mine]).all()
            assert _named(alone, every(16, [moment])) == _named(whole, rows.only(np.arange(64)[mine]), 16 * number)


def _named(states: DeviceStates, rows: Rows, shift: int = 0) -> dict[tuple[int, str], tuple[list[float], int]]:
    """State and since when, by row and device, of so many rows."""
    return {
        (int(row) - shift, states.names[device]): (state.tolist(), int(since))
        for row, device, state, since in zip(states.row, states.device, states.state, states.since_ms, strict=True)
        if shift <= row < shift + len(rows)
    }


def test_the_first_screen_of_a_storm_takes_a_bounded_number_of_steps(engine: sa.Engine) -> None:
    """A node that tells of ten thousand devices moves no other's state, and its own by the last steps alone."""
    storm = [sbe("a", 10 + number / 86_400, gpu=number) for number in range(3000)]
    put(engine, [node("a"), node("b")], [*storm, sbe("b", 10)])
    moment = from_ms(int(every(1, [day(10.5)]).time_ms[0]))
    with engine.connect() as connection:
        history = read_history(connection, moment, moment)
    found = device_states(history.precursors, history.outages, every(2, [moment]))
    assert np.bincount(found.row).tolist() == [MOST_STEPS, 1]
    alone = standing(engine, 10.5, "b")
    assert [one.device for one in alone] == ["GPU 0"]


def test_an_application_s_error_says_nothing(engine: sa.Engine) -> None:
    """A user's bug moves no device."""
    put(engine, [node("a")], [xid("a", 10 + hour / 24, 31, "application", "error") for hour in range(9)])
    assert standing(engine, 10.5) == []


def test_probabilities_stay_probabilities_whatever_comes() -> None:
    """After years, after no time, from any state; repairs and survival among them."""
    own = figures()
    kind = np.repeat(np.arange(len(own.types)), 3)
    corners = np.tile(np.eye(3), (len(own.types), 1))
    for hours in (0.0, 1e-6, 1.0, 1e3, 1e7, -5.0):
        p = after_quiet(corners, kind, np.full(len(kind), hours))
        assert np.allclose(p.sum(axis=1), 1.0) and (p >= 0).all()
    settled = after_quiet(corners, kind, np.full(len(kind), 1e5))
    assert np.allclose(settled, own.start[kind], atol=1e-9)
    assert np.allclose(after_repair(corners, np.zeros(len(kind), dtype=np.int64)).sum(axis=1), 1.0)
    chances = [survival(corners, kind, hours).reshape(-1, 3) for hours in (24.0, 168.0)]
    assert (chances[0][:, FAILING] < chances[0][:, HEALTHY]).all() and (chances[1] < chances[0]).all()


@pytest.mark.parametrize(
    ("reason", "hours", "driver", "kind"),
    [
        ("GPU 3 replaced", 2.0, False, "swap"),
        ("RMA of the board", 1.0, False, "swap"),
        ("GPU reset", 0.1, False, "reset"),
        ("Node unexpectedly rebooted", 2.0, False, "reboot"),
        ("reimaged after Xid 79", 3.0, False, "reimage"),
        ("Xid 79: GPU 1 has fallen off the bus", 0.2, False, "returned"),
        ("Xid 79: GPU 1 has fallen off the bus", 2.0, False, "reboot"),
        ("Xid 79: GPU 1 has fallen off the bus", 60.0, False, "swap"),
        ("swap space low", 0.2, False, "returned"),
        ("driver release 570", 2.0, True, "driver"),
        ("x" * 2000 + " replaced", 0.1, False, "returned"),
    ],
)
def test_what_was_done_is_read_from_the_reason_or_its_length(
    reason: str, hours: float, driver: bool, kind: str
) -> None:
    """Words first, then how long it took."""
    assert repair_of(reason, hours, driver) == kind


def test_every_figure_has_a_source_and_its_order() -> None:
    """Rates rise from state to state, and each row says where they are from."""
    for row in table("device_states"):
        assert row["source"] and float(row["outage_failing_per_h"]) > float(row["outage_healthy_per_h"]) > 0
    for row in table("device_signs"):
        assert row["source"] and float(row["healthy_per_h"]) <= float(row["degraded_per_h"]) <= float(
            row["failing_per_h"]
        )
    assert all(row["source"] and 0 <= float(row["cured"]) <= 1 for row in table("repairs"))


@pytest.mark.parametrize(("kind", "name"), [("gpu", "GPU 2"), ("npu", "NPU 2"), ("mlu", "MLU 2"), ("hpu", "HPU 2")])
def test_an_accelerator_of_any_maker_is_a_device_of_its_own(engine: sa.Engine, kind: str, name: str) -> None:
    """Signs of it move its own state, not its node's; `mlu_xid` counts as an Xid does."""
    told = [
        Event(day(10 + hour / 24), "a", "cambricon", "mlu_xid", 15, "error", "hardware", device=Device(kind, index=2))
        for hour in range(12)
    ]
    put(engine, [node("a")], told)
    (first, *_) = standing(engine, 10.6)
    assert first.device == name

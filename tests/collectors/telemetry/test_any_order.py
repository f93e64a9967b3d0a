"""The same events, however the rows of a history are ordered within a moment, repeated, or cut into batches."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from hypothesis import given, settings
from hypothesis import strategies as st

from collectors.telemetry.device_watch import DeviceWatch
from store.records.event import Event
from store.records.telemetry import Sample

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
CODES = (0.0, 31.0, 79.0)
GPU = st.fixed_dictionaries(
    {},
    optional={
        "xid_last": st.sampled_from(CODES),
        "xid_last_i1": st.sampled_from(CODES),
        "pcie_replay": st.integers(0, 3).map(float),
        "gpu_temp_c": st.just(40.0),
        "throttle_reasons": st.sampled_from((0.0, 8.0)),
    },
)
HOST = st.fixed_dictionaries(
    {"boot_time_s": st.sampled_from((1e9, 1e9 + 5, 1e9 + 5000)), "oom_kill": st.integers(0, 2).map(float)},
    optional={"node_time_s": st.just(1e9 + 4000)},
)
BMC_VALUES = st.fixed_dictionaries({"chassis_power_state": st.sampled_from((0.0, 1.0)), "bmc_up": st.just(1.0)})


@st.composite
def moments(draw: st.DrawFn) -> list[list[Sample]]:
    """Up to a dozen moments of one node, of any cadence; anything may lack at any of them."""
    found: list[list[Sample]] = []
    time = NOON
    for _ in range(draw(st.integers(1, 12))):
        time += timedelta(seconds=draw(st.sampled_from((10, 15, 600, 600, 86_400))))
        rows = [
            Sample(time, "n1", gpu, draw(GPU), uuid=draw(st.sampled_from((None, f"GPU-{gpu}"))))
            for gpu in range(3)
            if draw(st.booleans())
        ]
        if draw(st.booleans()):
            rows.append(Sample(time, "n1", 0, draw(HOST), type="node", source="node_exporter"))
        if draw(st.booleans()):
            rows.append(Sample(time, "n1", 0, draw(BMC_VALUES), type="bmc", source="ipmi"))
        found.append(rows)
    return found


def told(batches: Sequence[Sequence[Sample]]) -> list[Event]:
    """The events, with the watch written to JSON and read again between batches."""
    watch = DeviceWatch("here")
    events: list[Event] = []
    for batch in batches:
        watch = DeviceWatch("here", json.loads(json.dumps(watch.state())))
        events += watch.follow(batch)
    return sorted([*events, *watch.finish()], key=lambda event: (event.time, event.id))


@given(moments(), st.randoms(use_true_random=False))
@settings(deadline=None)
def test_the_order_of_rows_within_a_moment_is_nobody_s(rows: list[list[Sample]], random: object) -> None:
    """Files and series come in any order."""
    whole = [one for moment in rows for one in moment]
    shuffled = random.sample(whole, len(whole))  # type: ignore[attr-defined]
    assert told([shuffled]) == told([whole])


@given(moments(), st.data())
@settings(deadline=None)
def test_rows_that_come_twice_change_nothing(rows: list[list[Sample]], data: st.DataObject) -> None:
    """Two files of one day; a batch that is read again."""
    whole = [one for moment in rows for one in moment]
    twice = [one for one in whole for _ in range(data.draw(st.integers(1, 3)))]
    assert told([twice]) == told([whole])


@given(moments(), st.data())
@settings(deadline=None)
def test_how_a_history_is_cut_changes_nothing(rows: list[list[Sample]], data: st.DataObject) -> None:
    """Even in the midst of a moment."""
    whole = [one for moment in rows for one in moment]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=4)))
    batches = [whole[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]
    assert told(batches) == told([whole])

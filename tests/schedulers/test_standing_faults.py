"""A fault whose gauge still shows it keeps its node faulty and held, however long ago it was told."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from collectors.telemetry.device_watch import DeviceWatch
from diagnosis.incidents.intake import fold_everything, put_faults
from schedulers.lifecycle.operator_actions import release_node
from schedulers.policy.fact_queries import gather
from schedulers.policy.settings import Policy
from store.database.connections import writing
from store.events.append import append_events, append_nodes, append_outages
from store.hints.hint_log import save_hint
from store.nodes.fleet import FleetQuery, count_states
from store.records.event import Event
from store.records.hint import Evidence, Hint
from store.records.node import Node
from store.records.outage import Outage
from store.records.telemetry import Sample
from store.tables import hint_tables, schema

BEGAN = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
LOOK = timedelta(minutes=30)


class Gauge:
    """The page of a node with one GPU that shows Xid 79 from BEGAN on, looked at every half hour."""

    def __init__(self, engine: sa.Engine) -> None:
        self.engine = engine
        self.watch = DeviceWatch("http://gpu-001:9400/metrics")
        self.time = BEGAN - LOOK
        append = [Node("gpu-001", gpus=8), Node("gpu-002", gpus=8)]
        with writing(engine).begin() as connection:
            append_nodes(connection, append)
        self.show(0.0, LOOK)

    def show(self, code: float, length: timedelta) -> None:
        """What it shows for some time. A kernel that says other things each minute does not hide it."""
        end = self.time + length
        while self.time < end:
            found = self.watch.add([Sample(self.time, "gpu-001", 0, {"xid_last": code, "gpu_temp_c": 40.0})], self.time)
            self.tell(found)
            self.time += LOOK

    def tell(self, events: list[Event]) -> None:
        """Send events, as the sidecar does."""
        if events:
            with writing(self.engine).begin() as connection:
                put_faults(connection, append_events(connection, events, received=self.time).new, received=self.time)
            fold_everything(self.engine)

    def state(self) -> str:
        """What the node is now, by the list of nodes and by the policy, which must agree."""
        with self.engine.connect() as connection:
            fleet = FleetQuery(self.time, self.time - 24 * HOUR, 0.5, None, {})
            states = count_states(connection, fleet)
            facts = {one.node: one for one in gather(connection, Policy(), self.time).nodes}
        assert facts["gpu-002"].fault is None
        assert (facts["gpu-001"].fault is not None) == ("faulty" in states)
        return "faulty" if "faulty" in states else "ok"


@pytest.fixture
def gauge(any_engine: sa.Engine) -> Iterator[Gauge]:
    """A gauge that has shown a fault for forty hours."""
    found = Gauge(any_engine)
    found.show(79.0, 40 * HOUR)
    yield found


def test_a_fault_that_is_still_shown_keeps_its_node_faulty_and_is_one_incident(gauge: Gauge) -> None:
    """Its end stays that of its own events; a day after the gauge has cleared the node is well."""
    assert gauge.state() == "faulty"
    with gauge.engine.connect() as connection:
        [row] = connection.execute(sa.select(schema.incidents)).mappings().all()
    assert (row["severity"], row["kind"], row["end"]) == ("fatal", "xid", BEGAN)
    assert gauge.time - row["shown"] <= HOUR
    gauge.show(0.0, 23 * HOUR)
    assert gauge.state() == "faulty"
    gauge.show(0.0, 2 * HOUR)
    assert gauge.state() == "ok"


def test_a_node_back_from_an_outage_is_well_whatever_its_gauge_shows(gauge: Gauge) -> None:
    """A gauge shows the last Xid until the exporter starts anew: people have seen to the node."""
    down = ("DOWN", "bad gpu", "slurm", False, "hardware")
    back = gauge.time - 30 * HOUR
    with writing(gauge.engine).begin() as connection:
        append_outages(connection, [Outage("gpu-001", gauge.time - 38 * HOUR, back, *down)])  # type: ignore[arg-type]  # the fields in order
        said = {"scheduler": "slurm", "node": "gpu-001", "is_out": False, "back": back}
        connection.execute(hint_tables.scheduler_nodes.insert().values(**said))
    gauge.show(79.0, 3 * HOUR)
    assert gauge.state() == "ok"


def test_a_person_lets_such_a_node_go_and_a_new_fault_of_it_counts(gauge: Gauge) -> None:
    """The gauge goes on showing the old one, long after the hint is forgotten."""
    evidence = Evidence(incident="i")
    hint = Hint("h1", "gpu-001", "cordon", "sent", "r", "foreshock", BEGAN, gauge.time + HOUR, evidence)
    with writing(gauge.engine).begin() as connection:
        save_hint(connection, hint, gauge.time, {})
        release_node(connection, "gpu-001", gauge.time, "ann")
    gauge.show(79.0, 30 * HOUR)
    assert gauge.state() == "ok"
    gauge.show(0.0, HOUR)
    gauge.show(79.0, 30 * HOUR)
    assert gauge.state() == "faulty"


def test_a_node_that_reboots_shows_its_fault_no_more(any_engine: sa.Engine) -> None:
    """An exporter that starts anew may show no gauge at all until the next Xid."""
    gauge = Gauge(any_engine)
    gauge.show(79.0, 30 * HOUR)
    assert gauge.state() == "faulty"
    for _ in range(26 * 2):
        gauge.tell(gauge.watch.add([Sample(gauge.time, "gpu-001", 0, {"gpu_temp_c": 40.0})], gauge.time))
        gauge.time += LOOK
    assert gauge.state() == "ok"


def test_noise_of_the_same_minutes_does_not_hide_that_a_fault_stands(any_engine: sa.Engine) -> None:
    """Errors of another device, every minute for two days, are another incident."""
    gauge = Gauge(any_engine)
    gauge.show(79.0, 2 * HOUR)
    for _ in range(30):
        start = gauge.time
        gauge.show(79.0, HOUR)
        noise = range(0, 3600, 50)
        times = [start + timedelta(seconds=second) for second in noise]
        gauge.tell([Event(one, "gpu-001", "kernel", "nic_error", severity="error", id=f"{one}") for one in times])
    assert gauge.state() == "faulty"


@pytest.mark.parametrize("about", ["gpu-001", "gpu-002"])
def test_a_liar_keeps_only_itself_faulty_and_reads_little(any_engine: sa.Engine, about: str) -> None:
    """Its word of a fault that stands is worth nothing without the fault itself, and nothing to another node."""
    gauge = Gauge(any_engine)
    gauge.show(79.0, LOOK)
    gauge.time += 30 * HOUR
    for since in ("1970-01-01T00:00:00+00:00", "nonsense", BEGAN.isoformat()):
        attributes = {"follows": "xid:79", "since": since}
        lie = Event(gauge.time, about, "dcgm", "xid_hint", 79, severity="warning", attributes=attributes, id=since)
        gauge.tell([lie])
    assert gauge.state() == ("faulty" if about == "gpu-001" else "ok")

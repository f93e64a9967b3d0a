"""Plays a storm of one failed NVLink into a store, batch by batch as it arrives, and asks the policy after each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.stored_scene import read_scene
from diagnosis.incidents.incidents_table import update_incidents
from parsers.registry import make_parser
from parsers.text.parser import Context
from schedulers.policy.decision import decide
from schedulers.policy.fact_queries import gather
from schedulers.policy.facts import HOLDING
from schedulers.policy.settings import Breaker, Budgets, Policy
from simulator.faults.link_storm import LinkStorm, StormLine
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_nodes
from store.events.event_pages import read_incidents
from store.records.event import Event
from store.records.incident import Incident
from store.records.node import Node
from store.records.verdict import Verdict

# Nothing but the decision itself keeps the policy from holding every node.
OPEN = Policy(
    mode="act",
    budgets=Budgets(nodes=100, percent_of_nodes=100, per_rack=100, per_leaf=100, per_hour=100, per_nvlink_domain=100),
    breaker=Breaker(nodes=100, cluster_nodes=100),
)
_BATCH_S = 2.0


@dataclass(frozen=True, slots=True)
class StormOutcome:
    """What came of a storm. `held`: every node that the policy asked to hold at any moment of it."""

    incidents: tuple[Incident, ...]
    verdicts: tuple[Verdict, ...]
    held: frozenset[str] = field(default_factory=frozenset)

    def of_domain(self, domain: str) -> list[Incident]:
        """The incidents of an NVLink domain."""
        return [one for one in self.incidents if one.domain == domain]


def is_right(storm: LinkStorm, outcome: StormOutcome) -> bool:
    """Whether one incident of the domain names the GPU, and its link where the line that tells it arrived."""
    found = outcome.of_domain(storm.domains[storm.culprit.node])
    if len(found) != 1 or found[0].node != storm.culprit.node or found[0].device.pci != storm.culprit.pci:
        return False
    return found[0].link == (None if storm.is_root_lost else storm.culprit.link)


def wrongly_held(storm: LinkStorm, outcome: StormOutcome) -> frozenset[str]:
    """Held nodes that have no fault of their own."""
    return outcome.held - {storm.culprit.node, storm.second_node or storm.culprit.node}


def events_of(lines: Sequence[StormLine], number: int = 0) -> list[Event]:
    """The events of lines, through the kernel log's own parser."""
    parser = make_parser("kernel", Context(year=2026))
    found: list[Event] = []
    for place, line in enumerate(lines, start=1):
        text = f"{line.time.isoformat(timespec='microseconds')} {line.node} kernel: {line.text}\n"
        found += parser.feed(text, number + place)
    return found + list(parser.flush())


def play(storm: LinkStorm, url: str = "sqlite://") -> StormOutcome:
    """The storm from its first line to its last."""
    with _site(storm, url) as engine:
        held: set[str] = set()
        for batch in _batches(storm.lines):
            now = storm.start + timedelta(seconds=batch[-1].arrives_s + 1.0)
            take(engine, events_of(batch), now)
            held |= held_nodes(engine, now)
        return outcome_of(engine, storm.start, held)


def take(engine: sa.Engine, events: Sequence[Event], now: datetime) -> None:
    """Store events and make incidents of them."""
    with writing(engine).begin() as connection:
        update_incidents(connection, append_events(connection, events, received=now).new)


def held_nodes(engine: sa.Engine, now: datetime) -> set[str]:
    """The nodes that the policy would hold now."""
    with engine.begin() as connection:
        decision = decide(gather(connection, OPEN, now), OPEN)
    return {hint.node for hint, _ in decision.changed if hint.action in HOLDING}


def outcome_of(engine: sa.Engine, start: datetime, held: set[str]) -> StormOutcome:
    """What the store tells in the end."""
    with engine.begin() as connection:
        incidents = read_incidents(connection, start - timedelta(hours=1), start + timedelta(hours=1))
        scene = read_scene(connection)
    return StormOutcome(tuple(incidents), () if scene is None else tuple(explain(scene)), frozenset(held))


@contextmanager
def _site(storm: LinkStorm, url: str) -> Iterator[sa.Engine]:
    engine = open_database(url)
    migrate(engine)
    try:
        with writing(engine).begin() as connection:
            append_nodes(connection, [Node(node, nvlink_domain=domain) for node, domain in storm.domains.items()])
        yield engine
    finally:
        engine.dispose()


def _batches(lines: Sequence[StormLine]) -> Iterator[list[StormLine]]:
    batch: list[StormLine] = []
    for line in lines:
        if batch and line.arrives_s - batch[0].arrives_s > _BATCH_S:
            yield batch
            batch = []
        batch.append(line)
    if batch:
        yield batch

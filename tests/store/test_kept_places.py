"""What is kept of nodes as places for work never shows: an answer is what one gives that has kept nothing."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa

from store.database.connections import open_database, writing
from store.database.known_nodes import replace_known
from store.events.append import append_nodes, append_outages
from store.hints.hint_log import close_hint, save_hint
from store.hints.holds import SchedulerHold, save_holds
from store.models.scores import forget_scoring, save_scores, save_scoring_in_blocks
from store.nodes.fleet import FleetQuery, NodePage, SchedulableNode, SchedulableNodes, node_page
from store.nodes.node_states import newest_scoring
from store.records.hint import Hint
from store.records.node import Node
from store.records.outage import Outage
from store.records.score import Score
from store.tables import hint_tables, schema
from store.tables.bulk_rows import upsert_last_seen

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NAMES = tuple("abcdefgh")


def hint(action: Any = "cordon", state: Any = "confirmed", **more: Any) -> Hint:
    """One of node a."""
    return Hint(f"h-{action}", "a", action, state, "foreshock: x", "foreshock", NOW - HOUR, NOW + DAY, **more)


def scored(moment: datetime, horizon_h: int, **scores: float) -> list[Score]:
    """A scoring of some nodes."""
    return [Score(node, moment, horizon_h, score, (), "m") for node, score in scores.items()]


def fault(connection: sa.Connection, **more: Any) -> None:
    """A fatal incident of the hardware of node c."""
    row = {"id": "i", "node": "c", "start": NOW - HOUR, "end": NOW - HOUR, "kind": "xid", "code": 79, "count": 1}
    told = {"severity": "fatal", "cause": "hardware", "action": "reboot_node", "device": {"type": "gpu"}, "message": ""}
    connection.execute(schema.incidents.insert().values(**row | told | more, kinds={}))


def in_blocks(connection: sa.Connection) -> None:
    """A scoring as a server writes it."""
    rows = [(name, horizon_h, NOW, 0.3, "[]", "m") for name in "ab" for horizon_h in (24, 168)]
    save_scoring_in_blocks(connection, NOW, (24, 168), rows)


def writes() -> Iterator[tuple[str, Any]]:
    """Each kind of write that an answer depends on, one after the other."""
    outage = Outage("b", NOW - DAY, None, "DOWN", "t", None, False, "hardware")
    yield "nodes", lambda c: append_nodes(c, [Node(name, leaf=f"leaf {name}", gpus=8) for name in NAMES])
    yield "first scores", lambda c: save_scores(c, scored(NOW - HOUR, 24, a=0.01, b=0.2, c=0.3, d=0.5))
    yield "scores of a week", lambda c: save_scores(c, scored(NOW - HOUR, 168, a=0.02, b=0.3))
    yield "the same scoring anew", lambda c: save_scores(c, scored(NOW - HOUR, 24, a=0.4, b=0.01))
    yield "a later scoring", in_blocks
    yield "that scoring with one more node", lambda c: save_scores(c, scored(NOW, 24, c=0.9))
    yield "it is forgotten", lambda c: forget_scoring(c, NOW)
    yield "another of the same moment", lambda c: save_scores(c, scored(NOW, 24, a=0.05, e=0.6))
    yield "a hint", lambda c: save_hint(c, hint(), NOW, {})
    yield "of a job", lambda c: save_hint(c, hint("drain", job="j"), NOW, {})
    yield (
        "no scheduler knows its node",
        lambda c: save_holds(c, [SchedulerHold("h-cordon", "slurm", "a", "cordon", "absent", 1, NOW)]),
    )
    yield (
        "one does",
        lambda c: save_holds(c, [SchedulerHold("h-cordon", "kubernetes", "a", "cordon", "confirmed", 1, NOW)]),
    )
    yield "its end", lambda c: close_hint(c, hint(), "withdrawn", NOW, "t", {})
    yield "a proposed hint", lambda c: save_hint(c, hint("watch", "proposed"), NOW, {})
    yield "an outage", lambda c: append_outages(c, [outage])
    yield "its end later", lambda c: c.execute(schema.outages.update().values(end=NOW - HOUR))
    yield "a fault", fault
    yield "a standing fault", lambda c: fault(c, id="j", node="d", end=NOW - 9 * DAY, start=NOW - 9 * DAY, shown=NOW)
    yield "a person lets it go", lambda c: c.execute(hint_tables.node_releases.insert().values(node="d", time=NOW))
    yield (
        "a repair",
        lambda c: append_outages(
            c, [Outage("c", NOW - HOUR / 2, NOW - HOUR / 4, "DOWN", "t", None, False, "hardware")]
        ),
    )
    yield "nodes are heard of", lambda c: upsert_last_seen(c, dict.fromkeys("abcd", NOW))
    yield "another leaf", lambda c: append_nodes(c, [Node("a", leaf="é\t\"'", rack="", nvlink_domain="d", gpus=4)])
    yield "a node leaves", lambda c: append_nodes(c, [Node("f", in_service_until=NOW)])
    yield "an inventory", lambda c: replace_known(c, "operator", "abcd")
    yield "a new node", lambda c: append_nodes(c, [Node("z")])
    yield "it is of the inventory", lambda c: replace_known(c, "operator", "abcz")
    yield "a node is gone", lambda c: c.execute(schema.nodes.delete().where(schema.nodes.c.node == "b"))


def plain(connection: sa.Connection, fleet: FleetQuery) -> dict[str, tuple[Any, ...]]:
    """What the list of nodes, which keeps nothing, says of each that counts and is in service."""
    left = set(connection.scalars(sa.select(schema.nodes.c.node).where(schema.nodes.c.in_service_until <= NOW)))
    names = ("state", "score_24h", "withheld", "leaf", "rack", "gpus", "hint_id", "hint_action", "hint_state")
    listed = [row for row in node_page(connection, fleet, NodePage()) if row["state"] != "unknown"]
    return {row["node"]: tuple(row[name] for name in names) for row in listed if row["node"] not in left}


def told(place: SchedulableNode) -> tuple[Any, ...]:
    """The same of a place."""
    _node, state, risk, withheld, leaf, rack, _domain, gpus, *hint = place
    return (state, risk, withheld, leaf, rack, gpus, *hint)


@pytest.mark.parametrize("silent_before", [None, NOW - DAY], ids=["none is silent", "who was not heard is silent"])
def test_after_each_kind_of_write_of_another_process_the_answer_is_a_fresh_one(
    any_engine: sa.Engine, silent_before: datetime | None
) -> None:
    """As the states of the list of nodes are, too; of all nodes, and of some."""
    kept = SchedulableNodes()
    other = open_database(any_engine.url.render_as_string(hide_password=False))
    seen = set()
    for said, write in writes():
        with writing(other).begin() as connection:
            write(connection)
        with any_engine.connect() as connection:
            scorings = {horizon_h: newest_scoring(connection, horizon_h, NOW) for horizon_h in (24, 168)}
            fleet = FleetQuery(NOW, NOW - DAY, 0.1, silent_before, scorings)
            found = kept.read(connection, fleet)
            assert found == SchedulableNodes().read(connection, fleet) == kept.read(connection, fleet), said
            assert {place.node: told(place) for place in found} == plain(connection, fleet), said
            some = ["a", "c", "z", "nobody"]
            assert kept.read(connection, fleet, some) == [place for place in found if place.node in some], said
            for horizon_h, moment in scorings.items():
                fresh = type(kept.scores)().read(connection, horizon_h, moment)
                assert kept.scores.read(connection, horizon_h, moment) == fresh, said
        seen.update(place.state for place in found)
    other.dispose()
    assert seen == {"ok", "at_risk", "out", "cordoned", "faulty"} | ({"silent"} if silent_before else set())

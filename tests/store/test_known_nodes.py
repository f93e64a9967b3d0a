"""The inventory: whose word makes a node count."""

from datetime import UTC, datetime

import sqlalchemy as sa

from store.database.connections import writing
from store.database.known_nodes import (
    OPERATOR,
    TOKEN,
    append_named,
    counts,
    is_given,
    knowers,
    never_heard,
    replace_known,
)
from store.events.append import append_events
from store.nodes.tokens import TokenOrder, enrol, issue, revoke
from store.records.event import Event

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)


def test_tokens_alone_are_no_inventory(any_engine: sa.Engine) -> None:
    """A token for one node, issued or enrolled, makes no other node a stranger, and lets nothing act by itself."""
    with writing(any_engine).begin() as connection:
        issue(connection, TokenOrder("gpu-1", ("ingest",), "gpu-1"), NOW, "alice")
        join, _secret = issue(connection, TokenOrder("rack", ("join",), "gpu-[2-3]"), NOW, "alice")
        enrol(connection, join.sha256, "gpu-2", NOW, "rack")
        assert not is_given(connection)
        assert all(counts(connection, node) for node in ("gpu-1", "gpu-2", "gpu-9"))


def test_beside_an_inventory_a_node_counts_while_it_has_a_token(any_engine: sa.Engine) -> None:
    """A pattern of several nodes names none of them."""
    with writing(any_engine).begin() as connection:
        replace_known(connection, OPERATOR, ["gpu-9"])
        issue(connection, TokenOrder("gpu-1", ("ingest",), "gpu-1"), NOW, "alice")
        issue(connection, TokenOrder("rack", ("ingest",), "gpu-[2-3]"), NOW, "alice")
        assert [counts(connection, node) for node in ("gpu-9", "gpu-1", "gpu-2")] == [True, True, False]
        assert knowers(connection, ["gpu-9", "gpu-1", "gpu-2"]) == {"gpu-9": OPERATOR, "gpu-1": TOKEN}
        revoke(connection, "gpu-1", NOW, "alice")
        assert not counts(connection, "gpu-1")


def test_nodes_of_the_inventory_that_never_reported_are_told(any_engine: sa.Engine) -> None:
    """Each once, whoever names it; a row of `nodes` that nobody was heard for is no report."""
    with writing(any_engine).begin() as connection:
        replace_known(connection, "scheduler:slurm", ["gpu-1", "gpu-2", "gpu-3"])
        replace_known(connection, OPERATOR, ["gpu-3"])
        append_named(connection, ["gpu-3"])
        append_events(connection, [Event(NOW, "gpu-1", "kernel", "note")], NOW)
        assert never_heard(connection) == ["gpu-2", "gpu-3"]

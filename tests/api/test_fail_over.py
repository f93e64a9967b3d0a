"""Two servers of one PostgreSQL: one leads; when it dies or sleeps, the other does. The seconds are printed."""

import os
import re
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import sqlalchemy as sa
from real.foreshock import Running, serve
from real.postgres import Postgres
from real.programs import wait_for

from store.database.connections import migrate, open_database

pytestmark = pytest.mark.integration


@pytest.fixture
def servers(postgres_server: Postgres, tmp_path: Path) -> Iterator[tuple[Running, Running]]:
    """The one that leads, and its heir."""
    url = postgres_server.new_database()
    engine = open_database(url)
    migrate(engine)
    engine.dispose()
    with ExitStack() as stack:
        running = []
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            running.append(stack.enter_context(serve(url, folder)))
        wait_for("one of them leads", lambda: any(leads(server) for server in running))
        first, second = sorted(running, key=leads, reverse=True)
        assert not leads(second)
        yield first, second


def sample(server: Running, name: str) -> float:
    """A figure of its metrics."""
    found = re.search(rf"^{re.escape(name)} (\S+)$", server.text("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def leads(server: Running) -> bool:
    """Whether it says that it leads."""
    return sample(server, "foreshock_leader") == 1.0


def turns(server: Running) -> float:
    """How many turns it had of a loop that runs once."""
    return sample(server, 'foreshock_loop_turns_total{loop="policy"}')


def has_had_a_turn(server: Running) -> bool:
    """As the one that leads."""
    return leads(server) and turns(server) > 0


def follow(what: str, heir: Running) -> None:
    """Wait until the heir has had a turn of a loop that runs once."""
    began = time.monotonic()
    wait_for("the heir has had a turn", lambda: has_had_a_turn(heir))
    print(f"{what}: followed after {time.monotonic() - began:.1f} s")  # noqa: T201  # a figure to look at


def cut_connections(postgres_server: Postgres) -> int:
    """End every connection of ours; returns how many there were."""
    query = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'foreshock'"
    engine = open_database(postgres_server.url() + "&application_name=cutter")
    with engine.connect() as connection:
        found = connection.scalars(sa.text(query)).all()
    engine.dispose()
    return len(found)


def test_one_of_two_servers_leads_whatever_becomes_of_the_other(
    servers: tuple[Running, Running], postgres_server: Postgres
) -> None:
    """Stopped, it wakes as nobody; cut off from the database, both come back; killed, it is followed.

    The heir has a turn of the loops at once, not after their interval.
    """
    leader, heir = servers
    assert not has_had_a_turn(heir)
    os.kill(leader.pid, signal.SIGSTOP)
    try:
        follow("stopped", heir)
    finally:
        os.kill(leader.pid, signal.SIGCONT)
    assert (leads(leader), leads(heir)) == (False, True)

    assert cut_connections(postgres_server) > 0
    wait_for("one of them leads", lambda: leads(leader) != leads(heir))
    first, second = sorted(servers, key=leads, reverse=True)
    before = turns(second)
    os.kill(first.pid, signal.SIGKILL)
    began = time.monotonic()
    wait_for("the other has had another turn", lambda: leads(second) and turns(second) > before)
    print(f"killed: followed after {time.monotonic() - began:.1f} s")  # noqa: T201  # as above

"""Through NATS JetStream: queue, consumer, sidecar and PostgreSQL are killed under load; every line is stored once."""

import random
import time
from pathlib import Path

import pytest
from crash.feeds import Load
from crash.scene import LONG, NODE, ROUNDS, SEED, feeds_in, settle, sources_of
from real.fleet import fleet
from real.fleet_postgres import fleet_postgres

pytestmark = [pytest.mark.crash, pytest.mark.integration, pytest.mark.xdist_group("crash")]


@LONG
def test_every_line_comes_through_the_queue_once_whatever_is_killed(tmp_path: Path) -> None:
    """kill -9 of nats-server, consumer, sidecar or a backend of PostgreSQL; a server beside makes the incidents."""
    pytest.importorskip("nats")
    chance, feeds = random.Random(SEED), feeds_in(tmp_path)
    with fleet(tmp_path) as programs, fleet_postgres(programs) as database:
        queue = programs.nats()
        programs.server(database.url)
        consumer = programs.consumer(database.url, queue)
        agent = programs.sidecar([queue.url], NODE, *sources_of(feeds))
        with Load(feeds, SEED):
            for _ in range(min(30, ROUNDS)):
                time.sleep(chance.uniform(0.5, 2.0))
                chosen = chance.choice([queue, consumer, agent, None])
                if chosen is None:
                    database.kill_backend(chance.random())
                else:
                    chosen.kill()
                time.sleep(chance.uniform(0.0, 1.0))
                programs.revive()
        settle(programs, feeds, database.rows, "kill -9 of queue, consumer, sidecar, a backend", min(30, ROUNDS))

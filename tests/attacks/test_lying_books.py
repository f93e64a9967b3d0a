"""What a scheduler's host says of outages and jobs all loops read at once: a time that cannot be ends none of them.

Of a record that does not fit, the event stays, and so does all that was sent with it.
"""

import json
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from fleet_store import node
from real.foreshock import serve
from real.programs import wait_for

from store.database.connections import open_database, writing
from store.events.append import append_events, append_nodes
from store.records.event import from_wire
from store.tables import schema
from tests.attacks.test_lying_attributes import answers, had, reads, turns

SETTINGS = "mode: shadow\nintervals: {score_s: 1, policy_s: 1, dispatch_s: 1, ledgers_s: 1, lemons_s: 1, models_s: 1}\n"
NOW = datetime.now(UTC)
SOON, LATE = (NOW - timedelta(hours=2)).isoformat(), (NOW - timedelta(hours=1)).isoformat()
FIRST, LAST, FAR = "0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "9998-12-31T00:00:00Z"
LONG = "".join(map(chr, random.Random(1).sample(range(0x4E00, 0x9FFF), 3000)))  # what no index packs
JOBS: list[dict[str, Any]] = [
    *({"start": FIRST}, {"end": LAST}, {"end": FAR}, {"submit": FIRST, "start": None}, {"start": LAST, "end": None}),
    *({"job_id": LONG}, {"name": LONG}, {"nodes": 2**31}, {"nodes": -(2**40)}, {"nodes": 2**63 - 1}),
]
OUTAGES = [(FIRST, None), (LAST, None), (FIRST, LAST), (SOON, LAST), (LATE, SOON)]


def told(source: str, kind: str, whose: str | None, **attributes: Any) -> dict[str, Any]:
    """An event of a scheduler."""
    return {"time": NOW.isoformat(), "node": whose, "source": source, "kind": kind, "attributes": attributes}


def books() -> list[dict[str, Any]]:
    """Jobs and outages whose times, names and numbers cannot be; a fault beside each."""
    found = []
    for number, lie in enumerate(JOBS):
        honest = {"job_id": f"{number}", "name": f"run-{number}", "state": "FAILED", "submit": SOON, "start": SOON}
        rest = {"end": LATE, "nodes": 8, "node_list": "gpu-[001-008]", "exit_code": "0:0"}
        found.append(told("sacct", "job", None, **{**honest, **rest, **lie}))
    for number, (start, end) in enumerate(OUTAGES, start=1):
        found.append(told("sacctmgr", "outage", f"gpu-00{number}", start=start, end=end, state="DOWN", reason="Xid 79"))
    fault = {"severity": "fatal", "cause": "hardware", "action": "reboot_node", "code": 79}
    faults = [told("kernel", "xid", "gpu-009", n=n) | fault for n in range(len(found))]
    return [one for pair in zip(found, faults, strict=True) for one in pair]


def test_what_cannot_be_is_in_no_book(any_engine: sa.Engine) -> None:
    """Each event is stored; of the jobs those whose size alone is a lie, of the outages one that has no length."""
    events = [from_wire(one) for one in books()]
    with writing(any_engine).begin() as connection:
        assert len(append_events(connection, events, NOW).new) == len(events)
        jobs = connection.execute(sa.select(schema.jobs.c.job_id, schema.jobs.c.nodes)).all()
        outages = connection.execute(sa.select(schema.outages.c.start, schema.outages.c.end)).all()
    assert sorted(map(tuple, jobs)) == [("7", None), ("8", None), ("9", None)]
    assert [tuple(one) for one in outages] == [(datetime.fromisoformat(LATE),) * 2]


def survives(url: str, folder: Path) -> None:
    """A server goes on with all that it does, and answers."""
    (folder / "f.yaml").write_text(SETTINGS)
    with serve(url, folder, "--config", str(folder / "f.yaml")) as server:
        engine = open_database(url)
        with writing(engine).begin() as connection:
            append_nodes(connection, [node(f"gpu-00{number}") for number in range(1, 10)])
        engine.dispose()
        lies = books()
        assert server.post("/api/v1/events", json.dumps(lies).encode())["accepted"] == len(lies)
        begun = turns(server)
        wait_for("the loops have had their turns", lambda: had(server, begun), 60)
        assert server.get("/readyz")["checks"]["loops"] == "ok"
        assert [path for path in reads(server) if not answers(server, path)] == []
        assert "Traceback" not in (folder / "serve.log").read_text()


def test_no_loop_and_no_answer_ends_by_it(tmp_path: Path) -> None:
    """On SQLite."""
    survives(f"sqlite:///{tmp_path}/f.db", tmp_path)


@pytest.mark.integration
def test_nor_on_postgresql(tmp_path: Path, migrated_databases: Any) -> None:
    """Where a text can be too long for an index, and a number for a column."""
    survives(migrated_databases.take(), tmp_path)

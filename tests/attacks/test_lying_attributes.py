"""What an event says beside its kind is its sender's: attributes of any type stop no loop, no answer and no other's."""

import json
import random
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import quote

import pytest
from fleet_store import node
from real.foreshock import Running, serve
from real.programs import wait_for
from real.reused_database import MigratedDatabases

from predictor.dataset.folds import NoDataError
from predictor.links.scoring import score_links
from predictor.model.fit import TooFewPositivesError
from store.database.connections import open_database, writing
from store.events.append import append_links, append_nodes

FIXTURES = Path(__file__).parents[2] / "fixtures"
NODES = ("gpu-001", "gpu-002", "gpu-003", "gpu-004")
HONEST = "gpu-009"
LIES: tuple[Any, ...] = (
    *("abc", "", "NaN", "1e999", "-1", "0x10", "gpu-[001-999999]", "2025-13-45T99:99:99Z", "xid:" + "9" * 400),
    *("9" * 300, "{", "\u202e", "%s", "é" * 100),
    *(True, False, None, 0, -1, 10**18, -(2**63), 1.5, 1e308, -1e-300),
)
_SETTINGS = """\
mode: shadow
intervals: {score_s: 1, policy_s: 1, dispatch_s: 1, ledgers_s: 1, lemons_s: 1, models_s: 1}
limits: {requests_per_s: 0, node_records_per_s: 0}
"""
_LOOPS, _TURNS = ("incidents", "verdicts", "score", "policy", "checks", "ledgers", "lemons"), 3


def lies(seed: int) -> Iterator[dict[str, Any]]:
    """Events of each source, kind and shape that our fixtures have, whose attributes are lies for the most part."""
    dice, seen, now = random.Random(seed), set(), datetime.now(UTC)  # no secret
    for path in sorted(FIXTURES.glob("*/*.jsonl")):
        for event in map(json.loads, path.read_text().splitlines()):
            attributes = event["attributes"]
            shape = (event["source"], event["kind"], event["code"], *sorted(attributes))
            if not attributes or shape in seen:
                continue
            seen.add(shape)
            for _ in range(3):
                told = {name: dice.choice((dice.choice(LIES), kept)) for name, kept in attributes.items()}
                moment = now - timedelta(seconds=dice.uniform(1, 3 * 86_400))
                own = {"time": moment.isoformat(), "node": event["node"] and dice.choice(NODES), "id": None}
                yield {**event, **own, "attributes": told}


def of_honest() -> dict[str, Any]:
    """A fault of a node that does not lie."""
    told = {"time": datetime.now(UTC).isoformat(), "node": HONEST, "source": "kernel", "kind": "xid", "code": 79}
    rest = {"severity": "fatal", "cause": "hardware", "action": "reboot_node", "message": "off the bus"}
    return {**told, **rest, "device": {"type": "gpu", "pci": "0000:0f:00.0"}, "attributes": {}}


def survives(url: str, folder: Path) -> None:
    """A server takes or refuses each of them, goes on with all that it does, and answers."""
    (folder / "f.yaml").write_text(_SETTINGS)
    with serve(url, folder, "--config", str(folder / "f.yaml")) as server:
        engine = open_database(url)
        cables = [{"switch": "leaf-0", "port": at, "peer": name, "peer_port": 1} for at, name in enumerate(NODES)]
        with writing(engine).begin() as connection:
            append_nodes(connection, [node(name) for name in (*NODES, HONEST)])
            append_links(connection, [cable | {"peer_type": "hca"} for cable in cables])
        told = list(lies(1))
        answer = server.post("/api/v1/events", "\n".join(map(json.dumps, [*told, of_honest()])).encode())
        assert answer["accepted"] > len(told) / 2, answer
        begun = turns(server)
        wait_for("the loops have had their turns", lambda: had(server, begun), 60)
        assert server.get("/readyz")["checks"]["loops"] == "ok"
        assert not [
            line for line in of_metric(server, "foreshock_intake_set_aside_events") if not line.endswith(" 0.0")
        ]
        assert [one["code"] for one in server.get(f"/api/v1/incidents?node={HONEST}")["items"]] == [79]
        assert [path for path in reads(server) if not answers(server, path)] == []
        with suppress(NoDataError, TooFewPositivesError):
            score_links(engine, datetime.now(UTC))
        engine.dispose()
        log = (folder / "serve.log").read_text()
        assert "Traceback" not in log, log


def of_metric(server: Running, name: str) -> list[str]:
    """The lines of a metric."""
    return [line for line in server.text("/metrics").splitlines() if line.startswith(name)]


def turns(server: Running) -> dict[str, float]:
    """How many turns each loop has had without failing."""
    lines = of_metric(server, "foreshock_loop_turns_total{")
    return {line.split('"')[1]: float(line.rpartition(" ")[2]) for line in lines}


def had(server: Running, begun: dict[str, float]) -> bool:
    """Whether the loops that read events have had some more turns."""
    now = turns(server)
    return all(now[name] >= begun[name] + _TURNS for name in _LOOPS)


def reads(server: Running) -> list[str]:
    """Every path that is read, of each node, run, incident and verdict that there is."""
    runs = [one["run"] for one in server.get("/api/v1/runs?limit=1000")["items"]]
    known = {
        "node": NODES,
        "run": runs,
        "incident": [one["id"] for one in server.get("/api/v1/incidents?limit=40")["items"]],
        "verdict": [one["id"] for one in server.get("/api/v1/verdicts?limit=40")["items"]],
    }
    found = []
    for path, operations in server.get("/openapi.json")["paths"].items():
        if "get" not in operations or path.endswith(("/stream", "/openapi.json")):
            continue
        before, brace, rest = path.partition("{")
        name, _, after = rest.partition("}")
        found += [before + quote(one, safe="") + after for one in known.get(name, ())] if brace else [path]
    return found


def answers(server: Running, path: str) -> bool:
    """Whether it answers, or says what is wrong with the question."""
    try:
        server.text(path)
    except HTTPError as error:
        return error.code < 500
    except UnicodeDecodeError:
        return True  # an archive
    return True


def test_attributes_that_lie_stop_nothing(tmp_path: Path) -> None:
    """On SQLite."""
    survives(f"sqlite:///{tmp_path}/f.db", tmp_path)


@pytest.mark.integration
def test_nor_on_postgresql(tmp_path: Path, migrated_databases: MigratedDatabases) -> None:
    """Where a cast that fails ends the query of everybody."""
    survives(migrated_databases.take(), tmp_path)

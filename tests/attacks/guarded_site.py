"""A site with a token for each node, a real Slurm and a real server that acts by itself; and how it stands.

with guarded_site(tmp_path, "gpu-[000-015]") as site:
    site.fault("gpu-002")
    site.standing(without="gpu-001")
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import sqlalchemy as sa
from fleet_store import fill_trained
from real.foreshock import Running, serve
from real.patience import patience
from real.programs import wait_for
from real.slurm import Slurm, slurm

from store.database.connections import migrate, open_database
from store.records.hostlist import expand
from store.tables import schema

PREFIX = "/api/v1"
_SETTINGS = """\
mode: act
budgets: {{nodes: 12, percent_of_nodes: 80, per_rack: 12, per_leaf: 12, per_hour: 12}}
breaker: {{nodes: 12, cluster_nodes: 12}}
control: {{percent: 0}}
intervals: {{observe_s: 1, policy_s: 1, score_s: 0, models_s: 0}}
limits: {{requests_per_s: 0}}
schedulers:
  - {{kind: slurm, name: slurm, conf: {conf}, calls_per_min: 100000, soft: reservation}}
tokens:
{tokens}
"""


@dataclass(frozen=True, slots=True)
class GuardedSite:
    """A running site."""

    nodes: Sequence[str]
    engine: sa.Engine
    cluster: Slurm
    server: Running

    def client(self, name: str) -> httpx.Client:
        """A client with the token of a node, or of `people`."""
        headers = {"authorization": f"Bearer {secret(name)}"}
        return httpx.Client(base_url=self.server.url, headers=headers, timeout=patience(60))

    def get(self, path: str) -> Any:
        """A JSON answer, as people see it."""
        with self.client("people") as client:
            return client.get(PREFIX + path).raise_for_status().json()

    def fault(self, node: str, ident: str) -> None:
        """A GPU of a node falls off the bus, and its own sidecar reports it."""
        device = {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None}
        fault = {"kind": "xid", "code": 79, "severity": "fatal", "cause": "hardware", "action": "reboot_node"}
        rest = {"time": datetime.now(UTC).isoformat(), "source": "kernel", "device": device, "message": "gone"}
        event = {**fault, **rest, "id": ident, "node": node, "attributes": {}}
        with self.client(node) as client:
            taken = client.post(f"{PREFIX}/events", json=[event]).raise_for_status().json()
        assert taken["rejected"] == [], taken

    def drained(self) -> set[str]:
        """The nodes that Slurm drained for us."""
        return {node for node, (state, reason) in self._slurm().items() if "DRAIN" in state and "foreshock:" in reason}

    def until_drained(self, *nodes: str) -> None:
        """Wait until Slurm has drained them."""
        wait_for(f"{nodes} are drained", lambda: self.drained() >= set(nodes), 60.0)

    def standing(self, without: str) -> dict[str, Any]:
        """What is said and done of every node but one: by Slurm, by hints, and by what is stored."""
        hints = [hint for hint in self.get("/hints?limit=1000")["items"] if hint["node"] != without]
        with self.engine.connect() as connection:
            events = connection.execute(sa.select(schema.events.c.node, schema.events.c.kind, schema.events.c.source))
            incidents = connection.execute(sa.select(schema.incidents.c.node, schema.incidents.c.kind))
            outages = connection.execute(sa.select(schema.outages.c.node, schema.outages.c.start, schema.outages.c.end))
            return {
                "slurm": {node: found for node, found in self._slurm().items() if node != without},
                "reservations": without in self.cluster.run("scontrol", "show", "res") or "none but its own",
                "hints": sorted((hint["node"], hint["action"], hint["state"]) for hint in hints),
                "nodes": {
                    item["node"]: item["state"]
                    for item in self.get("/nodes?limit=1000")["items"]
                    if item["node"] != without
                },
                "events": Counter(tuple(row) for row in events if row.node not in (without, None)),
                "of the fabric": Counter(row.source for row in connection.execute(_NOWHERE)),
                "incidents": Counter(tuple(row) for row in incidents if row.node != without),
                "outages": sorted(map(str, (tuple(row) for row in outages))),
                "stop": self.get("/stop")["stop"],
                "breaker": self.get("/breaker?in_force=true")["items"],
            }

    def _slurm(self) -> dict[str, tuple[str, str]]:
        lines = self.cluster.run("scontrol", "-o", "show", "node").splitlines()
        return {line.split()[0].removeprefix("NodeName="): _state(line) for line in lines if line}


# Events without a node; what a program says of its work may name none.
_NOWHERE = sa.select(schema.events.c.source).where(
    schema.events.c.node.is_(None),
    schema.events.c.source.not_in(("training", "hook", "otel", "mlgoodput", "dlrover", "checkpoints", "nvrx")),
)


def _state(line: str) -> tuple[str, str]:
    words = line.split(" State=")[1].split()[0].split("+")
    state = "+".join(word for word in words if word != "NOT_RESPONDING")  # no slurmd runs: Slurm notices it some time
    reason = line.split(" Reason=")[1].split(" [")[0] if " Reason=" in line else ""
    return state, reason.split(" ")[0]  # what follows names the moment


def secret(name: str) -> str:
    """The token of a node, or of `people`."""
    return f"a-long-secret-of-{name}"


@contextmanager
def guarded_site(folder: Path, nodes: str) -> Iterator[GuardedSite]:
    """A site of its own, until the end of the block."""
    folder.mkdir()
    names = expand(nodes)
    url = f"sqlite:///{folder / 'foreshock.db'}"
    engine = open_database(url)
    migrate(engine)
    fill_trained(engine, len(names))
    with slurm(nodes) as cluster:
        tokens = [_token(name, "ingest", name) for name in names] + [_token("people", "read, act", "*")]
        text = _SETTINGS.format(conf=cluster.folder / "slurm.conf", tokens="\n".join(tokens))
        (folder / "foreshock.yaml").write_text(text, encoding="utf-8")
        with serve(url, folder, "--config", str(folder / "foreshock.yaml")) as server:
            yield GuardedSite(names, engine, cluster, server)
    engine.dispose()


def _token(name: str, scopes: str, node: str) -> str:
    digest = hashlib.sha256(secret(name).encode()).hexdigest()
    return f'  - {{name: {name}, sha256: {digest}, scopes: [{scopes}], node: "{node}"}}'

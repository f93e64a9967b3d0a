"""One node's attacker: root on it, its token and its logs; it sends whatever it likes to the server's API.

attacker = Attacker(random.Random(7), "gpu-001", others, known_ids, paths)
attack = attacker.step()        # one request, made to decide something about another node
"""

import gzip
import json
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import zstandard

PREFIX = "/api/v1"
_SOURCES = ("kernel", "dcgm", "opensm", "ufm", "sinfo", "scontrol", "sacctmgr", "alertmanager", "kubernetes", "switch")
_SOURCES += (
    "training",
    "hook",
    "otel",
    "nhc",
    "gpud",
    "sidecar",
    "fabricmanager",
    "ibnetdiscover",
    "mine",
    "telemetry",
)
_KINDS = (("xid", 79), ("xid", 48), ("sxid", 20034), ("link_down", None), ("link_up", None), ("node_down", None))
_KINDS += (("outage", None), ("gpu_lost", None), ("drained", None), ("recovered", None), ("iteration", None))
_FORMATS = ("auto", "kernel", "opensm", "ufm", "training", "sinfo", "scontrol", "squeue", "sacctmgr", "fabricmanager")
_FORMATS += ("kubernetes", "switch", "ibnetdiscover", "nvsentinel", "nothing")
_MESSAGE = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1, name=x, GPU has fallen off the bus."


@dataclass(frozen=True, slots=True)
class Attack:
    """One request."""

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Attacker:
    """What it knows: its own name, the names of others, and ids of hints and events that it should not know."""

    chance: random.Random
    own: str
    others: Sequence[str]
    known_ids: Sequence[str]
    paths: Sequence[tuple[str, str]]  # method and path of every operation

    def step(self) -> Attack:
        """The next request."""
        make: Callable[[], Attack] = self.chance.choice(
            (self._events,) * 5
            + (self._logs,) * 4
            + (
                self._telemetry,
                self._heartbeats,
                self._outages,
                self._alerts,
                self._traces,
                self._metrics,
                self._decide,
            )
            * 2
            + (self._anything, self._tricks)
        )
        return make()

    def _node(self) -> Any:
        """A name: another node's most of the time, in every spelling; its own; none; no name at all."""
        other = self.chance.choice(self.others)
        spellings = (other,) * 6 + (
            *(other.upper(), f"{other}.example.org", f" {other}", f"{other}\x00", f"{other}\n", f"{other}."),
            *(f"{self.own},{other}", "gpu-[000-031]", f"{self.own}\t{other}", other.replace("-", "\u2010")),
            *(f"{other}\u200b", "*", "-rf", "ALL", "", "127.0.0.1", "localhost", "ghost-1", None, None, [other], 7),
        )
        return self.chance.choice(spellings) if self.chance.random() < 0.75 else self.own

    def _time(self) -> str:
        ago = self.chance.choice((0, 0, 0, 1, 60, 3600, 86400 * 3, 86400 * 400, -3600, -86400 * 900))
        return (datetime.now(UTC) - timedelta(seconds=ago)).isoformat()

    def _device(self) -> dict[str, Any]:
        return {
            "type": self.chance.choice(("gpu", "node", "switch", "port", "hca", "rack", "nvswitch")),
            "pci": self.chance.choice(("0000:0f:00.0", None)),
            "index": self.chance.choice((0, 3, None)),
            "uuid": self.chance.choice(("0xb83fd203001000c0", "GPU-1", None)),
            "port": self.chance.choice((1, None)),
        }

    def _event(self) -> dict[str, Any]:
        kind, code = self.chance.choice(_KINDS)
        event = {
            "time": self.chance.choice((self._time(), None)),
            "node": self._node(),
            "source": self.chance.choice(_SOURCES),
            "kind": kind,
            "code": code,
            "severity": self.chance.choice(("fatal", "fatal", "error", "warning", "info")),
            "cause": self.chance.choice(("hardware", "hardware", "fabric", "driver", "application", "unknown")),
            "action": self.chance.choice(("reboot_node", "drain_node", "replace_part", "none")),
            "device": self._device(),
            "message": self.chance.choice((_MESSAGE, "", f"node {self.chance.choice(self.others)} is well again")),
            "attributes": self.chance.choice(
                (
                    {},
                    {"run": "llm", "iteration": 4, "iterations": 9, "nodes": "gpu-[000-031]", "rank": 3},
                    {"node": self.chance.choice(self.others), "host": self.chance.choice(self.others)},
                    {"caused_by": self.chance.choice(self.known_ids), "unit": self.chance.choice(self.others)},
                )
            ),
        }
        if self.chance.random() < 0.3:
            event["id"] = self.chance.choice(self.known_ids)
        return event

    def _events(self) -> Attack:
        found = [self._event() for _ in range(self.chance.randint(1, 6))]
        return self._packed("/events", json.dumps(found).encode())

    def _logs(self) -> Attack:
        """Lines that speak of others, in every format and wrapping."""
        other, now = self.chance.choice(self.others), datetime.now(UTC)
        host = self.chance.choice((other, other, self.own, f"{other}.example.org"))
        stamp = now.isoformat()
        lines = [
            f"{stamp} {host} kernel: {_MESSAGE}",
            f"<4>{stamp} {host} kernel: {_MESSAGE}",
            f"{now:%b %d %H:%M:%S} 123456 [7F1C2700] 0x02 -> osm_state: port 1 of {host} mlx5_0 removed",
            f"{now:%b %d %H:%M:%S} {host} slurmctld[1]: error: Nodes {host} not responding, setting DOWN",
            f"NodeName={other} Arch=x86_64 State=DOWN+DRAIN Reason=foreshock:x [root@{stamp}]",
            f"{other}|down|{stamp}|Xid 79|root",
            json.dumps({"date": now.timestamp(), "host": host, "log": _MESSAGE}),
            json.dumps({"_HOSTNAME": host, "MESSAGE": _MESSAGE, "_TRANSPORT": "kernel", "_UID": "0"}),
            json.dumps({"streams": [{"stream": {"host": host}, "values": [["1740801906789000000", _MESSAGE]]}]}),
            f"[rank3]:[E ProcessGroupNCCL.cpp] Rank 3 on {other}: CUDA error: {_MESSAGE}",
            "iteration 5/ 100 | elapsed time per iteration (ms): 10.0 |",
        ]
        body = "\n".join(self.chance.choice(lines) for _ in range(self.chance.randint(1, 8))).encode()
        query = f"?format={self.chance.choice(_FORMATS)}"
        if self.chance.random() < 0.5:
            query += f"&node={self.chance.choice((*self.others, self.own))}"
        if self.chance.random() < 0.3:
            query += "&run=llm"
        return self._packed("/logs" + query, body)

    def _telemetry(self) -> Attack:
        rollup = {"node": self._node(), "time": self._time(), "samples": 900, "gpus_seen": self.chance.choice((0, 8))}
        rollup |= {"gpu_temp_mean_c": self.chance.choice((-1e9, 20.0, 95.0, 1e30)), "power_mean_w": 700.0}
        return self._packed("/telemetry", json.dumps([rollup]).encode())

    def _heartbeats(self) -> Attack:
        beat = {
            "node": self._node(),
            "time": self._time(),
            "version": "9",
            "boot": "b",
            "started": self._time(),
            "interval_s": 60,
            "sources": [],
            "spool": {"events_bytes": 0, "telemetry_bytes": 0, "oldest_s": 0.0, "limit_bytes": 1},
            "lost": {"records": 0, "events": 0, "rollups": 0, "damaged_bytes": 0},
            "rejected": 0,
        }
        return self._packed("/heartbeats", json.dumps([beat]).encode())

    def _outages(self) -> Attack:
        start, end = self._time(), self.chance.choice((None, self._time()))
        reason = self.chance.choice(("Xid 79", "planned: maintenance", "foreshock: h1", "well again"))
        outage = {"node": self._node(), "start": start, "end": end, "state": "DOWN", "reason": reason, "user": "root"}
        return self._packed("/outages", json.dumps([outage]).encode())

    def _alerts(self) -> Attack:
        labels = {"alertname": "GpuHot", "node": str(self._node()), "severity": "critical", "gpu": "3"}
        alert = {"status": "firing", "labels": labels, "startsAt": self._time(), "endsAt": "0001-01-01T00:00:00Z"}
        return self._packed("/alerts", json.dumps({"version": "4", "status": "firing", "alerts": [alert]}).encode())

    def _traces(self) -> Attack:
        host = {"key": "host.name", "value": {"stringValue": str(self._node())}}
        span = {"name": "train_step", "startTimeUnixNano": "1", "endTimeUnixNano": "2", "attributes": [host]}
        spans = {"resource": {"attributes": [host]}, "scopeSpans": [{"spans": [span]}]}
        return self._packed("/traces?run=llm", json.dumps({"resourceSpans": [spans]}).encode())

    def _metrics(self) -> Attack:
        """Counters of others, by the resource or by a label."""
        labels = [{"key": key, "value": {"stringValue": str(self._node())}} for key in ("host.name", "Hostname")]
        gpu = {"key": "gpu", "value": {"stringValue": "0"}}
        value = self.chance.choice((0, 5, 1e12, 1e300))
        time = str(int(datetime.now(UTC).timestamp() * 1e9))
        point = {
            "timeUnixNano": time,
            "asDouble": value,
            "attributes": [gpu, *labels[:: self.chance.choice((1, -1, 2))]],
        }
        metric = {"name": "DCGM_FI_DEV_XID_ERRORS", "gauge": {"dataPoints": [point]}}
        of = {"resource": {"attributes": labels[:1]}, "scopeMetrics": [{"metrics": [metric]}]}
        return self._packed("/metrics", json.dumps({"resourceMetrics": [of]}).encode())

    def _decide(self) -> Attack:
        """A person's or a scheduler's word about another node's hint."""
        hint = self.chance.choice(self.known_ids)
        path, body = self.chance.choice(
            (
                (f"/hints/{hint}/approve", {}),
                (f"/hints/{hint}/withdraw", {}),
                (f"/hints/{hint}/ack", {"scheduler": "slurm", "result": "released"}),
                (f"/hints/{hint}/validation", {"passed": True, "detail": "well"}),
                ("/stop", {"stop": "all", "reason": "me"}),
                ("/breaker/1/reset", {"backlog": "drop"}),
                ("/enroll", {"node": self.chance.choice(self.others)}),
            )
        )
        return Attack("POST", PREFIX + path, json.dumps(body).encode(), {"content-type": "application/json"})

    def _anything(self) -> Attack:
        """Any operation that is published, with any words in its path."""
        method, path = self.chance.choice(self.paths)
        for name in ("node", "run", "hint", "delivery", "seq", "model", "ticket", "incident", "verdict"):
            path = path.replace(f"{{{name}}}", self.chance.choice((*self.others, *self.known_ids, "1")))
        body = json.dumps(self.chance.choice((self._event(), [], {}, "x", None))).encode() if method != "GET" else b""
        return Attack(method, path, body, {"content-type": "application/json"})

    def _tricks(self) -> Attack:
        """Headers that name somebody else, and bodies that are none."""
        other, event = self.chance.choice(self.others), json.dumps(self._event()).encode()
        headers = self.chance.choice(
            (
                {"x-forwarded-user": "admin", "x-remote-user": "admin", "x-forwarded-email": "admin@example.org"},
                {"x-http-method-override": "DELETE"},
                {"x-forwarded-for": "127.0.0.1", "forwarded": "for=127.0.0.1", "x-real-ip": "127.0.0.1"},
                {"content-encoding": "gzip"},
                {"content-encoding": "zstd"},
                {"x-ssl-client-s-dn": f"CN={other}", "x-forwarded-client-cert": f"Subject=CN={other}"},
                {"cookie": "authorization=Bearer admin"},
            )
        )
        body = self.chance.choice((event, b"", b"\x00" * 50, b"[" * 2000, b'{"a":' * 500, gzip.compress(b"") * 200))
        return Attack("POST", f"{PREFIX}/events", body, headers)

    def _packed(self, path: str, body: bytes) -> Attack:
        """The body as it is, or packed."""
        way = self.chance.random()
        if way < 0.1:
            return Attack("POST", PREFIX + path, gzip.compress(body), {"content-encoding": "gzip"})
        if way < 0.2:
            return Attack("POST", PREFIX + path, zstandard.compress(body), {"content-encoding": "zstd"})
        return Attack("POST", PREFIX + path, body)

"""A small HTTP server that answers what a test tells it to, in the shapes of `/api/v1`: also the wrong ones."""

import json
import sys
import threading
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest
import streamlit as st
from canned_models import CHECKS, MODELS
from drawn_page import Opened, draw_page

from dashboard.client import ApiAddress, ApiClient
from dashboard.panels.page import Site

GPU = {"type": "gpu", "pci": "0000:0f:00.0", "index": 3, "uuid": None, "port": None}
REASONS = [
    {"text": "14 corrected memory errors in 6 h", "contribution": 0.21, "events": ["e1"]},
    {"text": "no outage in 90 days", "contribution": -0.03, "events": []},
]
WHO = {"name": "ops", "person": None, "role": None, "scopes": ["read", "act:approve", "act:stop", "act:reset"]}
CLUSTER = {
    "now": "2025-03-29T03:12:00.000000Z",
    "mode": "approve",
    "nodes": 3,
    "gpus": 24,
    "states": {"ok": 1, "at_risk": 1, "faulty": 1, "out": 0, "cordoned": 0, "silent": 0},
    "incidents_24h": 1,
    "events_1h": 2,
    "goodput": 0.931,
    "run": "llm-70b",
    "target": 0.95,
    "model": {"id": "m1", "created": "2025-03-28T00:00:00Z", "trained_until": "2025-03-28T00:00:00Z", "metrics": {}},
    "sources": [{"source": "kernel", "last_event": "2025-03-29T03:11:20Z", "events_1h": 2}],
    "sidecars": {"known": 3, "silent": 1, "troubled": 1},
}


def node(name: str, state: str, score: float | None) -> dict[str, Any]:
    """An item of `GET /nodes`."""
    return {
        "node": name,
        "rack": "rack-01",
        "leaf": "leaf-1",
        "gpu_model": "H100-SXM5-80GB",
        "gpus": 8,
        "driver": "550.54.15",
        "last_seen": "2025-03-29T03:11:40Z",
        "state": state,
        "score_24h": score,
        "score_7d": None if score is None else min(1.0, 2 * score),
        "scored_at": None if score is None else "2025-03-29T03:11:00Z",
        "reasons": REASONS if score and score > 0.02 else [],
        "hint": {"id": "h1", "action": "cordon", "state": "proposed"} if state == "faulty" else None,
    }


MAP = {
    "since": None,
    "rows": None,
    "blocks_by": "leaf",
    "blocks": ["leaf-1"],
    "spines": ["spine-1"],
    "states": ["ok", "at_risk", "faulty"],
    "runs": ["llm-70b"],
    "node": ["gpu-001", "gpu-017", "gpu-023"],
    "block": [0, 0, 0],
    "state": [0, 2, 1],
    "risk": [0.004, None, 0.31],
    "temperature_c": [61, None, 70],
    "link_errors": [0, 3, 0],
    "run": [0, None, 0],
    "links": [],
}
NODES = [node("gpu-017", "faulty", 0.83), node("gpu-023", "at_risk", 0.31), node("gpu-001", "ok", 0.004)]
INCIDENT = {
    "id": "i1",
    "node": "gpu-017",
    "start": "2025-03-29T03:08:00Z",
    "end": "2025-03-29T03:08:02Z",
    "kind": "xid",
    "code": 79,
    "severity": "fatal",
    "cause": "hardware",
    "action": "reboot_node",
    "device": GPU,
    "message": "GPU has fallen off the bus.",
    "meaning": "Driver can no longer reach the GPU over PCIe",
    "count": 2,
    "kinds": {"xid:79": 2},
    "blast_radius": 3,
    "life": {"state": "acknowledged", "owner": "person:ann", "by": "person:ann", "since": "2025-03-29T03:10:00Z"}
    | {"silenced_until": "2025-03-29T07:10:00Z", "entries": 2, "again": None},
}
THREAD = [
    {"time": "2025-03-29T03:10:00Z", "actor": "person:ann", "step": "ack", "text": "", "owner": None, "until": None},
    {"time": "2025-03-29T03:10:05Z", "actor": "person:ann", "step": "silence", "text": "riser ordered", "owner": None}
    | {"until": "2025-03-29T07:10:00Z"},
]
EVENT = {
    "id": "e1",
    "line": 1,
    "time": "2025-03-29T03:08:00Z",
    "node": "gpu-017",
    "source": "kernel",
    "kind": "xid",
    "code": 79,
    "severity": "fatal",
    "cause": "hardware",
    "action": "reboot_node",
    "device": GPU,
    "message": "GPU has fallen off the bus.",
    "meaning": "Driver can no longer reach the GPU over PCIe",
    "attributes": {"pid": 1},
}
HINT = {
    "id": "h1",
    "node": "gpu-017",
    "action": "cordon",
    "state": "proposed",
    "reason": "Xid 79: GPU has fallen off the bus",
    "evidence": {"score_24h": 0.83, "reasons": REASONS, "incident": "i1", "nothing": None},
    "owner": "foreshock",
    "created": "2025-03-29T03:08:01Z",
    "valid_until": "2025-03-30T03:08:01Z",
}
TALLY = {"action": "avoid", "basis": "shadow", "judged": 40, "right": 6, "precision": 0.15, "low": 0.07, "high": 0.29}
OUTCOMES = {
    "since": "2025-02-27T03:12:00Z",
    "until": "2025-03-29T03:12:00Z",
    "node_days": 90.0,
    "false_holds_per_1000_node_days": 0.56,
    "tallies": [
        TALLY | {"lead_s": 7200.0, "held_gpu_h": 640.0, "saved_gpu_h": 2500.0},
        TALLY
        | {"action": "cordon", "basis": "acted", "judged": 3, "right": 0, "precision": None, "low": None}
        | {"high": None, "lead_s": None, "held_gpu_h": 576.0, "saved_gpu_h": None},
    ],
}
DETAIL = NODES[0] | {
    "devices": [
        {
            "device": "GPU 3",
            "state": "failing",
            "probabilities": {"healthy": 0.01, "degraded": 0.09, "failing": 0.9},
            "since": "2025-03-29T02:00:00Z",
            "why": "12 corrected ECC errors in 28 days, the last 1 h ago",
        }
    ],
    "incidents": [INCIDENT],
    "outages": [
        {
            "node": "gpu-017",
            "start": "2025-03-28T00:00:00Z",
            "end": "2025-03-28T02:00:00Z",
            "state": "DOWN*",
            "reason": "Not responding",
            "user": "root",
            "planned": False,
            "cause": "hardware",
        }
    ],
    "hints": [HINT],
    "telemetry": [
        {
            "node": "gpu-017",
            "time": f"2025-03-28T{h:02}:00:00Z",
            "samples": 960,
            "gpus_seen": 8,
            "gpu_temp_max_c": 70.0 + h,
        }
        for h in (1, 2, 3, 7, 8)
    ],
    "scores": [
        {"time": f"2025-03-29T{h:02}:00:00Z", "score_24h": h / 10, "score_7d": h / 5 if h else None} for h in range(4)
    ],
}
RUN = {
    "run": "llm-70b",
    "state": "RUNNING",
    "nodes": 2,
    "gpus": 16,
    "start": "2025-03-19T00:00:00Z",
    "end": None,
    "wall_s": 1000.0,
    "goodput": 0.931,
    "attempts": 2,
    "interruptions": 1,
}
LEDGER = {
    "run": "llm-70b",
    "nodes": 2,
    "gpus": 16,
    "start": "2025-03-19T00:00:00Z",
    "end": "2025-03-29T03:12:00Z",
    "wall_s": 100_000.0,
    "buckets": {"productive": 93_100.0, "lost_work": 4_000.0, "waiting": 2_900.0, "unknown": 0.0},
    "goodput": 0.931,
    "interruptions": [
        {"time": "2025-03-25T00:00:00Z", "cause": "hardware", "culprit": GPU | {"node": "gpu-017"}, "lost_s": 6_900.0}
    ],
}
STOP = {"time": "2025-03-25T00:00:00Z", "cause": "hardware", "culprit": GPU | {"node": "gpu-017"}, "lost_s": 6_900.0}
ATTEMPTS = {
    "run": "llm-70b",
    "start": "2025-03-19T00:00:00Z",
    "wall_s": 100_000.0,
    "attempts": 2,
    "shortest_s": 0.0,
    "items": [
        {"number": 1, "start": "2025-03-19T00:00:00Z", "end": "2025-03-25T00:00:00Z", "start_s": 0.0, "nodes": 2}
        | {"length_s": 50_000.0, "state": "NODE_FAIL", "gpus": 16, "interruption": STOP}
        | {"parts": [["startup", 0.0, 600.0], ["checkpoint_save", 9_000.0, 41.0], ["lost_work", 46_000.0, 4_000.0]]},
        {"number": 2, "start": "2025-03-25T00:48:20Z", "end": None, "start_s": 52_900.0, "nodes": 2}
        | {"length_s": 47_100.0, "state": "RUNNING", "gpus": 16, "interruption": None}
        | {"parts": [["waiting", 50_000.0, 2_900.0]]},
    ],
}
COMPARED = {"as_was": 0.931, "changed": 0.931, "gain": 0.0, "low": 0.0, "high": 0.0}
WHAT_IF = {
    "run": "llm-70b",
    "measured": 0.931,
    "stops": 1,
    "stops_then": 1.0,
    "replayed": COMPARED,
    "analytic": COMPARED,
    "inputs": {"interval_s": 3600.0, "save_s": 41.0, "detection_s": 60.0, "waiting_s": 300.0, "restart_s": 600.0},
    "gpus": 16,
}
TIMELINE = {
    "node": "gpu-017",
    "since": "2025-02-27T03:12:00Z",
    "until": "2025-03-29T03:12:00Z",
    "jobs": [
        {"job": "901", "run": "llm-70b", "state": "RUNNING", "start": "2025-03-25T00:48:20Z", "end": None, "nodes": 2}
    ],
    "jobs_since": None,
    "errors": [{"time": "2025-03-28T07:00:00Z", "corrected": 14, "uncorrected": 0, "links": 2}],
    "errors_since": None,
}
NODE_GPUS = [{"index": 3, "pci": "0000:0f:00.0", "uuid": None, "serial": "1650523000011"}]
CHECKPOINT = {
    "run": "llm-70b",
    "inputs": {"nodes": 2, "failures": 1, "node_days": 20.0, "save_s": 41.0, "restart_s": 900.0, "interval_s": 3600.0},
    "rate_is_measured": True,
    "rate_low": 0.0013,
    "rate_high": 0.28,
    "curve": [{"interval_s": s, "goodput": 0.9, "low": 0.8, "high": 0.95} for s in (1_050.0, 8_400.0, 67_200.0)],
    "mttf_s": 864_000.0,
    "interval_s": 8_400.0,
    "interval_shortest_s": 3_000.0,
    "interval_longest_s": 50_000.0,
    "goodput_now": 0.94,
    "goodput_advised": 0.96,
}
MTBF = {
    "runs": None,
    "cluster": {
        "node_days": 90.0,
        "nodes": 3,
        "components": [
            {"component": name, "failures": 4, "mtbf_h": 180.0, "mtbf_low_h": 70.0, "mtbf_high_h": 660.0}
            for name in ("all", "gpu")
        ],
    },
}
SPARES = {
    "run": None,
    "inputs": {"nodes": 3, "outages": 4, "node_days": 90.0, "mttr_s": 90_000.0},
    "confidence": 0.99,
    "expected_down": 0.13,
    "spares": 1,
    "spares_low": 1,
    "spares_high": 2,
}
GAINS = {
    "run": "llm-70b",
    "gains": [
        {
            "lever": "detection",
            "gain": 0.012,
            "low": 0.008,
            "high": 0.017,
            "says": "detection from 10 min to 60 s: +1.20",
        },
        {
            "lever": "waiting",
            "gain": 0.004,
            "low": 0.001,
            "high": 0.009,
            "says": "waiting for nodes from 5 min to 1 min: ",
        },
    ],
}
SIDECAR = {
    "node": "gpu-023",
    "received": "2025-03-29T03:11:30Z",
    "time": "2025-03-29T03:11:30Z",
    "version": "0.1.0",
    "started": "2025-03-28T00:00:00Z",
    "state": "troubled",
    "report": {
        "node": "gpu-023",
        "time": "2025-03-29T03:11:30Z",
        "version": "0.1.0",
        "started": "2025-03-29T00:00:00Z",
        "interval_s": 60,
        "sources": [
            {"source": "kmsg", "up": True, "lines": 900, "events": 2, "lost": 12},
            {"source": "scrape:http://127.0.0.1:9400/metrics", "up": False, "failures": 7},
        ],
        "spool": {"events_bytes": 4200, "telemetry_bytes": 0, "oldest_s": 2.0, "limit_bytes": 268435456},
        "lost": {"records": 12, "events": 0, "rollups": 0, "damaged_bytes": 0},
        "rejected": 0,
    },
}
LEMON = {
    "node": "gpu-017",
    "rack": "rack-01",
    "leaf": "leaf-1",
    "gpu_model": "H100-SXM5-80GB",
    "driver": "550.54.15",
    "probability": 0.993,
    "times_fleet": 12.8,
    "signals": {"outages": 4, "excluded_jobs": None},
    "part": {"words": "gpu 0000:0f:00.0", "type": "gpu", "pci": "0000:0f:00.0", "uuid": "GPU-7", "serial": None}
    | {"far_end": None, "days": 3, "of_days": 4},
    "codes": {"xid 79": 3},
    "first_seen": "2025-03-09T00:00:00Z",
    "last_seen": "2025-03-29T03:08:00Z",
    "evidence": [
        {"signal": "failures", "text": "4 unplanned outages in 28 days", "events": ["e1"], "incidents": [], "jobs": []},
        {"signal": "fault_days", "text": "xid 79 (3)", "events": [], "incidents": list("abcde"), "jobs": ["17"]},
    ],
    "repairs": [
        {"start": "2025-03-20T00:00:00Z", "end": "2025-03-20T02:00:00Z", "reason": "Xid 79", "planned": False}
        | {"came_back": True},
        {"start": "2025-03-29T03:09:00Z", "end": None, "reason": "", "planned": None, "came_back": False},
    ],
    "next_step": "Exchange gpu 0000:0f:00.0: the same fault came back after a repair.",
}
LINK = {
    "link": "leaf-03/12",
    "ends": ["leaf-03 port 12", "gpu-017"],
    "horizon_h": 24,
    "time": "2025-03-29T01:12:00Z",
    "score": 0.31,
    "reasons": [
        {"text": "lost 5 times in 28 days, the last 3 h ago", "contribution": 0.25, "events": ["e1"]},
        {"text": "the base rate of links, and everything else", "contribution": 0.06, "events": []},
    ],
    "model": "links-gbt-24h-0011aabb",
}
RISKIEST = {
    "as_of": "2025-03-29T03:12:00Z",
    "scored_at": "2025-03-29T03:00:00Z",
    "horizon_h": 24,
    "model": "gbt-24h-3f2a0c5a9b8e",
    "averted": 1.0,
    "chance": 0.43,
    "items": [
        {
            "node": "gpu-018",
            "state": "at_risk",
            "score": 0.31,
            "reasons": [
                {"text": "3 row remappings in 24 h", "contribution": 0.2, "events": ["e1"]},
                {"text": "1 GPU link error in 24 h", "contribution": 0.02, "events": []},
            ],
            "job": "4711",
            "run": "llm-70b",
            "job_gpus": 1024,
            "failure_gpu_h": 256.0,
            "action_gpu_h": 17.6,
            "worth_gpu_h": 61.8,
            "pays": True,
        },
        {
            "node": "gpu-019",
            "state": "ok",
            "score": 0.02,
            "reasons": [],
            "job": None,
            "run": None,
            "job_gpus": 1024,
            "failure_gpu_h": 256.0,
            "action_gpu_h": 17.6,
            "worth_gpu_h": -12.5,
            "pays": False,
        },
    ],
    "checked": "2025-03-29T02:00:00Z",
    "record": {
        "nodes": 10,
        "lists": 27,
        "hit": 9,
        "share": 0.333,
        "low": 0.186,
        "high": 0.522,
        "said": 0.36,
        "failing": 0.4,
        "lost_gpu_h": 310.0,
        "action_gpu_h": 176.0,
        "worth_gpu_h": 134.0,
    },
    "leads": [
        {
            "failed": "row_remap",
            "words": "row remapping",
            "outages": 12,
            "foreseen": 7,
            "p10_h": 2.0,
            "p50_h": 12.4,
            "p90_h": 21.6,
        },
        {"failed": "no_sign", "words": "no fault told", "outages": 9, "foreseen": 0},
    ],
}
REPAIR = {
    "at": "2025-03-29T03:11:30Z",
    "window_days": 28,
    "nodes": 12_500,
    "found": 1,
    "times_fleet": 4.0,
    "false_share": 0.1,
    "items": [LEMON],
    "next_cursor": None,
}
LEVEL = {
    "since": "2025-03-23T00:00:00Z",
    "until": "2025-03-29T03:12:00Z",
    "gpu_hours": {"existing": 1000.0, "out_planned": 20.0, "out_unplanned": 80.0, "schedulable": 900.0, "idle": 300.0}
    | {"allocated": 600.0, "running": 570.0, "productive": 500.0},
    "buckets": {"productive": 500.0, "startup": 30.0, "lost_work": 60.0, "checkpoint_save": 10.0, "waiting": 40.0},
    "scheduling_goodput": 0.6,
    "runtime_goodput": 0.8333,
    "program_goodput": None,
    "productive_of_existing": 0.5,
    "ettr": {"least": 0.797, "most": 0.8125},
}
CLUSTER_GOODPUT = LEVEL | {"program_covers": 0.0, "doubts": ["2 nodes have no known number of GPUs."], "days": [LEVEL]}
CAUSES = {
    "by": "cause",
    "total": {"interruptions": 3, "lost_s": 7200.0, "lost_gpu_hours": 32.0, "without_gpus": 0},
    "items": [
        {"cause": "hardware", "name": "hardware", "unexplained": False, "interruptions": 2, "runs": 1, "lost_s": 5400.0}
        | {"lost_gpu_hours": 24.0},
        {"cause": "unknown", "name": "unexplained", "unexplained": True, "interruptions": 1, "runs": 1}
        | {"lost_s": 1800.0, "lost_gpu_hours": 8.0},
    ],
    "next_cursor": None,
}
VERDICT = {
    "id": "v1",
    "state": "open",
    "revision": 1,
    "rank": 1,
    "probability": 0.93,
    "class": "switch",
    "name": "leaf004",
    "names": ["leaf004", "0xb83fd203001000c0"],
    "cause": "fabric",
    "action": "run_diagnostics",
    "since": "2025-03-29T03:08:00Z",
    "reason": "all 2 nodes below leaf004 lost a link within 2 s",
    "nodes": ["gpu-017", "gpu-023"],
    "victims": ["gpu-017", "gpu-023"],
    "jobs": ["llm-70b"],
    "gpu_hours_at_stake": 128.0,
    "incidents": ["i1"],
    "evidence_for": [{"text": "2 of the 2 nodes below it", "events": ["e1"], "weight": 3.4}],
    "evidence_against": [{"text": "its own log is quiet", "events": [], "weight": 0.4}],
}
REVISION = {"revision": 1, "time": "2025-03-29T03:09:00Z", "state": "revised", "what": "gpu-023 lost its link, too"}
REVISION |= {"probability": 0.93, "class": "switch", "name": "leaf004", "nodes": 2}
AUDIT = {
    "seq": 1,
    "time": "2025-03-29T03:08:01Z",
    "actor": "policy",
    "action": "hint_proposed",
    "subject": "h1",
    "detail": {"node": "gpu-017"},
}


def listed(*items: Any) -> dict[str, Any]:
    """One page that is the last."""
    return {"items": list(items), "next_cursor": None}


Connect = Callable[..., ApiClient]


@pytest.fixture(autouse=True)
def own_main() -> Iterator[None]:
    """Streamlit puts the script that it runs in the place of `__main__`; later tests that start processes need ours."""
    main = sys.modules["__main__"]
    yield
    sys.modules["__main__"] = main


@pytest.fixture
def connect() -> Iterator[Connect]:
    """Makes clients, and closes them at the end."""
    made: list[ApiClient] = []

    def make(server: str, token: str | None = None, transport: httpx2.BaseTransport | None = None) -> ApiClient:
        made.append(ApiClient(ApiAddress(server, token), transport))
        return made[-1]

    yield make
    for client in made:
        client.close()
    st.cache_resource.clear()  # the clients that the dashboard itself made


@dataclass
class CannedApi:
    """What the server answers by path below `/api/v1/` (a body, or a status and a body), and what it was asked."""

    url: str = ""
    answers: dict[str, Any] = field(default_factory=dict)
    asked: list[tuple[str, str, dict[str, str], str | None]] = field(default_factory=list)
    said: list[tuple[str, Any]] = field(default_factory=list)  # the path and JSON body of each POST
    headers: dict[str, str] = field(default_factory=dict)  # of each answer, besides its length


@pytest.fixture
def api() -> Iterator[CannedApi]:
    """A cluster of three nodes, one of them faulty."""
    canned = CannedApi(
        answers={
            "cluster": CLUSTER,
            "whoami": WHO,
            "nodes": listed(*NODES),
            "map": MAP,
            "nodes/gpu-017": DETAIL,
            "nodes/gpu-017/timeline": TIMELINE,
            "nodes/gpu-017/gpus": listed(*NODE_GPUS),
            "events": listed(EVENT),
            "incidents": listed(INCIDENT),
            "incidents/i1": INCIDENT | {"thread": THREAD, "verdicts": ["v1"]},
            "verdicts": listed(VERDICT),
            "verdicts/v1": VERDICT | {"revisions": [REVISION], "life": INCIDENT["life"], "thread": THREAD},
            "runs": listed(RUN),
            "runs/llm-70b/goodput": LEDGER,
            "runs/llm-70b/attempts": ATTEMPTS,
            "what-if": WHAT_IF,
            "goodput/cluster": CLUSTER_GOODPUT,
            "goodput/causes": CAUSES,
            "advice/checkpoint": CHECKPOINT,
            "advice/spares": SPARES,
            "advice/mtbf": MTBF,
            "advice/gains": GAINS,
            "hints": listed(HINT),
            "stop": {"stop": "none", "sources": []},
            "breaker": listed(),
            "policy": {"version": "7a67f599d650", "mode": "approve", "problem": None},
            "hints/outcomes": OUTCOMES,
            "budget": {"held": 2, "most": 8, "held_within_hour": 1, "most_per_hour": 4, "nodes": 3},
            "audit": listed(AUDIT),
            "sidecars": listed(SIDECAR),
            "lemons": REPAIR,
            "riskiest": RISKIEST,
            "links": listed(LINK),
            "models": MODELS,
            "checks": CHECKS,
        }
    )
    canned.answers = deepcopy(canned.answers)  # a test changes them in place: what it does ends with it

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            parts = urlsplit(self.path)
            path = parts.path.removeprefix("/api/v1/")
            canned.asked.append((self.command, path, dict(parse_qsl(parts.query)), self.headers["Authorization"]))
            answer = canned.answers.get(path, (404, {"title": "Not Found", "detail": f"nothing at {path}"}))
            status, body = answer if isinstance(answer, tuple) else (200, answer)
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            for name, value in {"Content-Length": str(len(data)), **canned.headers}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(data)

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"] or 0))
            canned.said.append((urlsplit(self.path).path.removeprefix("/api/v1/"), json.loads(body) if body else None))
            self.do_GET()

        def log_message(self, *_args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    canned.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield canned
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def drawn(api: CannedApi, connect: Connect) -> Opened:
    """Draws a page of the canned API."""
    return lambda page, **query: draw_page(Site(connect(api.url)), page, **query)

"""The dashboards for Grafana, made from one description: what a site imports, or provisions from a folder.

PYTHONPATH=tests python tests/grafana.py     writes deploy/grafana anew

Metric names are those of `/metrics` (docs/api.md, docs/goodput-cluster.md, docs/sidecar.md). Every server process of
one database tells the same of its gauges, so that `max by` makes one of them; counters are added up. The layout is that
of schema 39 (Grafana 10.4 and later).
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "deploy" / "grafana"
SOURCE = {"type": "prometheus", "uid": "${source}"}
_WIDTH = 24
_STATES = {"ok": "green", "at_risk": "yellow", "faulty": "red", "out": "purple", "cordoned": "blue", "silent": "gray"}


@dataclass(frozen=True, slots=True)
class GrafanaPanel:
    """One panel: what it shows, each query with its legend, and how wide (of 24) and high it is."""

    title: str
    queries: Sequence[tuple[str, str]]
    says: str
    kind: str = "timeseries"
    unit: str = "short"
    width: int = 12
    height: int = 8
    link: str = ""
    stacked: bool = False


@dataclass(frozen=True, slots=True)
class GrafanaPage:
    """One dashboard: its uid, title, variables (name, query) and panels."""

    uid: str
    title: str
    says: str
    variables: Sequence[tuple[str, str]]
    panels: Sequence[GrafanaPanel]


_RISK = 'max by (node) (foreshock_node_failure_risk_ratio{horizon="24h"})'
FLEET = GrafanaPage(
    "foreshock-fleet",
    "Foreshock: fleet",
    "How the nodes are, what is behind it, what is asked of the scheduler, and whether collection is healthy.",
    (),
    (
        GrafanaPanel(
            "Nodes by state", [("max by (state) (foreshock_nodes)", "{{state}}")], "now", "stat", width=12, height=5
        ),
        GrafanaPanel(
            "Causes that stand",
            [("sum(max by (class) (foreshock_verdicts_open))", "verdicts")],
            "verdicts that are open: the page Verdicts names each",
            "stat",
            width=6,
            height=5,
            link="verdicts",
        ),
        GrafanaPanel(
            "Hints that are open",
            [("sum(max by (action, state) (foreshock_open_hints)) or vector(0)", "hints")],
            "what is asked of the schedulers now",
            "stat",
            width=6,
            height=5,
            link="hints",
        ),
        GrafanaPanel(
            "Nodes likeliest to fail within 24 h",
            [(f"topk(20, {_RISK})", "{{node}}")],
            "the chance of an unplanned outage; faulty, silent and out nodes have none",
            "table",
            "percentunit",
            link="node?node=${__data.fields.node}",
        ),
        GrafanaPanel(
            "Nodes that are not well",
            [('max by (state) (foreshock_nodes{state!="ok"})', "{{state}}")],
            "by state",
            stacked=True,
        ),
        GrafanaPanel(
            "Causes that stand, by class",
            [("max by (class) (foreshock_verdicts_open)", "{{class}}")],
            "a shared cause counts once, however many nodes it hits",
            stacked=True,
        ),
        GrafanaPanel(
            "From the event to its verdict",
            [
                (f"histogram_quantile({share}, sum by (le) (rate(foreshock_verdict_seconds_bucket[1h])))", name)
                for share, name in ((0.5, "half of them"), (0.99, "99 of 100"))
            ],
            "how long after its event a verdict was told",
            unit="s",
        ),
        GrafanaPanel(
            "What comes in",
            [("sum by (source) (rate(foreshock_events_accepted_total[5m]))", "{{source}}")],
            "events a second by source",
            unit="eps",
            stacked=True,
        ),
        GrafanaPanel(
            "What is refused, and what waits",
            [
                ("sum(rate(foreshock_records_rejected_total[5m])) or vector(0)", "records refused, 1/s"),
                ("sum(rate(foreshock_shed_total[5m])) or vector(0)", "requests refused, 1/s"),
                ("max(foreshock_intake_age_seconds)", "the oldest event without incident, s"),
            ],
            "all three are near 0 where the server keeps up",
        ),
        GrafanaPanel(
            "Background loops",
            [("time() - max by (loop) (foreshock_loop_last_success_timestamp_seconds > 0)", "{{loop}}")],
            "seconds since the last turn that succeeded",
            unit="s",
        ),
        GrafanaPanel(
            "Sidecars in trouble",
            [
                ("count(foreshock_sidecar_source_up == 0) or vector(0)", "sources that cannot be read"),
                ("count(foreshock_sidecar_source_blocked == 1) or vector(0)", "sources that wait for room"),
                ("count(foreshock_sidecar_spool_oldest_seconds > 300) or vector(0)", "spools older than 5 min"),
            ],
            "of the sidecars that this Prometheus scrapes",
            link="collection",
        ),
    ),
)
NODE = GrafanaPage(
    "foreshock-node",
    "Foreshock: node",
    "One node's risk, and its sidecar.",
    (
        ("node", "label_values(foreshock_node_failure_risk_ratio, node)"),
        ("instance", "label_values(foreshock_sidecar_build_info, instance)"),
    ),
    (
        GrafanaPanel(
            "Risk",
            [('max by (horizon) (foreshock_node_failure_risk_ratio{node="$node"})', "within {{horizon}}")],
            "the chance of an unplanned outage; a gap: it is faulty, silent or out",
            unit="percentunit",
            width=24,
            link="node?node=$node",
        ),
        GrafanaPanel(
            "Its sidecar's sources",
            [('foreshock_sidecar_source_up{instance="$instance"}', "{{source}}")],
            "1: readable at the last turn",
        ),
        GrafanaPanel(
            "What its sidecar reads",
            [('sum by (source) (rate(foreshock_sidecar_lines_total{instance="$instance"}[5m]))', "{{source}}")],
            "lines a second",
            unit="cps",
        ),
        GrafanaPanel(
            "What waits in its spool",
            [
                ('foreshock_sidecar_spool_events_bytes{instance="$instance"}', "events"),
                ('foreshock_sidecar_spool_telemetry_bytes{instance="$instance"}', "telemetry"),
            ],
            "what the server has not acknowledged yet",
            unit="bytes",
            stacked=True,
        ),
        GrafanaPanel(
            "Since the server last took something",
            [('time() - foreshock_sidecar_last_contact_timestamp_seconds{instance="$instance"}', "seconds")],
            "minutes: the way to the server is broken",
            unit="s",
        ),
    ),
)
GOODPUT = GrafanaPage(
    "foreshock-goodput",
    "Foreshock: goodput",
    "What became of the training time, and what interruptions cost.",
    (("run", "label_values(foreshock_goodput_ratio, run)"),),
    (
        GrafanaPanel(
            "Goodput by run",
            [("max by (run) (foreshock_goodput_ratio)", "{{run}}")],
            "the productive share of wall time, of the runs that ended last",
            "bargauge",
            "percentunit",
            link="goodput?run=${__series.name}",
        ),
        GrafanaPanel(
            "Wall time of $run",
            [('max by (bucket) (foreshock_run_seconds{run="$run"})', "{{bucket}}")],
            "each second is in one bucket",
            "piechart",
            "s",
        ),
        GrafanaPanel(
            "GPU-hours lost in 7 days, by cause",
            [("max by (cause) (foreshock_lost_gpu_seconds) / 3600", "{{cause}}")],
            "what interruptions cost",
            "bargauge",
            link="goodput",
        ),
        GrafanaPanel(
            "Interruptions in 7 days, by cause",
            [("max by (cause) (foreshock_run_interruptions)", "{{cause}}")],
            "how many",
            "bargauge",
        ),
        GrafanaPanel(
            "Goodput over time",
            [("max by (run) (foreshock_goodput_ratio)", "{{run}}")],
            "a ledger is corrected when a run fails: work that was lost leaves the productive share",
            unit="percentunit",
        ),
        GrafanaPanel(
            "GPU-hours of the cluster in 7 days, by level",
            [("max by (level) (foreshock_cluster_gpu_seconds) / 3600", "{{level}}")],
            "from those that existed to those that count",
            "bargauge",
        ),
    ),
)
PAGES = (FLEET, NODE, GOODPUT)


def dashboard(page: GrafanaPage) -> dict[str, Any]:
    """The JSON model of a page."""
    variables = [
        {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus", "hide": 0},
        {
            "name": "foreshock",
            "label": "Foreshock's dashboard",
            "type": "textbox",
            "query": "http://localhost:8501",
            "current": {"text": "http://localhost:8501", "value": "http://localhost:8501"},
            "hide": 0,
        },
    ]
    for name, query in page.variables:
        variables.append(
            {"name": name, "type": "query", "datasource": SOURCE, "query": {"query": query, "refId": name}}
            | {"refresh": 2, "sort": 1, "hide": 0, "multi": False, "includeAll": False}
        )
    return {
        "uid": page.uid,
        "title": page.title,
        "description": page.says,
        "tags": ["foreshock"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "timezone": "utc",
        "refresh": "30s",
        "time": {"from": "now-24h", "to": "now"},
        "templating": {"list": variables},
        "links": [
            {
                "title": "Foreshock",
                "type": "link",
                "url": "${foreshock}/",
                "targetBlank": True,
                "icon": "external link",
            },
            {"title": "Others", "type": "dashboards", "tags": ["foreshock"], "asDropdown": True, "keepTime": True},
        ],
        "panels": list(_panels(page)),
    }


def _panels(page: GrafanaPage) -> Iterator[dict[str, Any]]:
    x = y = row = 0
    for number, panel in enumerate(page.panels, 1):
        if x + panel.width > _WIDTH:
            x, y, row = 0, y + row, 0
        yield _panel(panel, number, {"x": x, "y": y, "w": panel.width, "h": panel.height})
        x, row = x + panel.width, max(row, panel.height)


def _panel(panel: GrafanaPanel, number: int, place: dict[str, int]) -> dict[str, Any]:
    is_now = panel.kind in ("stat", "table", "bargauge", "piechart")
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": query, "legendFormat": legend}
        | ({"instant": True, "format": "table" if panel.kind == "table" else "time_series"} if is_now else {})
        for at, (query, legend) in enumerate(panel.queries)
    ]
    links = [{"title": "Open in Foreshock", "url": f"${{foreshock}}/{panel.link}", "targetBlank": True}]
    defaults: dict[str, Any] = {"unit": panel.unit, "links": links if panel.link else []}
    if panel.stacked:
        defaults["custom"] = {"stacking": {"mode": "normal"}, "fillOpacity": 30}
    coloured = [
        {"matcher": {"id": "byName", "options": state}, "properties": [_fixed(colour)]}
        for state, colour in _STATES.items()
        if "state" in panel.queries[0][1]
    ]
    found: dict[str, Any] = {
        "id": number,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": SOURCE,
        "gridPos": place,
        "targets": targets,
        "fieldConfig": {"defaults": defaults, "overrides": coloured},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}}
        if panel.kind in ("stat", "bargauge", "piechart")
        else {},
    }
    if panel.kind == "table":
        hidden = {"id": "organize", "options": {"excludeByName": {"Time": True}, "renameByName": {"Value": "risk"}}}
        found["transformations"] = [hidden]
    return found


def _fixed(colour: str) -> dict[str, Any]:
    return {"id": "color", "value": {"mode": "fixed", "fixedColor": colour}}


def written() -> dict[str, str]:
    """Each file's name and text."""
    return {f"{page.uid}.json": json.dumps(dashboard(page), indent=1) + "\n" for page in PAGES}


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in written().items():
        (FOLDER / name).write_text(text)
        sys.stdout.write(f"{FOLDER / name}\n")

"""Every list and object that the API gives, each at its commonest and at its worst, over the year of a large fleet."""

from collections.abc import Callable
from datetime import datetime, timedelta
from urllib.parse import urlencode

from benchmarks.fleet_rows import ABSENT_KIND, FLOODED, LONG_RUN, RARE_KIND

Ask = Callable[[str], dict[str, object]]
_NODE, _LEMON, _SOME = "gpu-06001", FLOODED, "gpu-[06000-06063]"


def paths(now: datetime, ask: Ask) -> list[str]:
    """The paths; `ask` gives one's answer, for the cursors of later pages."""
    hour, week, month, quarter, year = (
        f"{now - timedelta(days=days):%Y-%m-%dT%H:%M:%SZ}" for days in (1 / 24, 7, 30, 92, 364)
    )  # fmt: skip
    found = [
        *("cluster", "topology", "map", "advice/checkpoint", "advice/spares", "rules", "scores", "sidecars"),
        *("hints", "audit"),
        *(_path("nodes", limit=100, **more) for more in ({}, {"sort": "node"}, {"state": "faulty"}, {"state": "ok"})),
        *(_path("nodes", limit=1000), _path("nodes", limit=1000, state="ok", sort="node")),
        *(f"nodes/{node}" for node in (_NODE, _LEMON)),
        *(_path("events", limit=limit) for limit in (100, 1000)),
        *(_path("events", limit=limit, node=node) for limit, node in ((100, _NODE), (1000, _NODE), (1000, _LEMON))),
        *(_path("events", kind=kind) for kind in ("xid", "iteration", RARE_KIND, ABSENT_KIND)),
        *(_path("events", kind=kind, node=_NODE) for kind in ("xid", ABSENT_KIND)),
        *(_path("events", kind=kind, node=_LEMON) for kind in (RARE_KIND,)),
        *(_path("events", since=since) for since in (hour, month, year)),
        *(_path("events", since=year, **more) for more in ({"kind": RARE_KIND}, {"node": _NODE}, {"limit": 1000})),
        *(_path("events", until=month), _path("events", since=year, kind=ABSENT_KIND)),
        *(_path("incidents", **more) for more in ({}, {"limit": 1000}, {"node": _NODE}, {"node": _LEMON})),
        *(_path("incidents", since=since) for since in (hour, week, month, year)),
        *(_path("incidents", since=since, limit=1000) for since in (week,)),
        *(_path("incidents", severity=severity, limit=1000) for severity in ("fatal", "error", "info")),
        *(_path("incidents", severity="fatal", since=since, limit=1000) for since in (month, year)),
        _path("incidents", until=month),
        *(_path("scores", limit=1000), _path("scores", horizon_h=168), _path("scores", at=month)),
        *(_path("scores", node=_NODE), _path("scores", horizon_h=12), "riskiest", _path("riskiest", count=100)),
        *(_path("goodput/causes", by=by, since=year) for by in ("cause", "node", "device", "run")),
        *(_path("goodput/causes", by="node", limit=1000), _path("goodput/interruptions", limit=1000)),
        *("goodput/cluster", _path("goodput/cluster", since=quarter)),
        *("runs", _path("runs", limit=1000), f"runs/{LONG_RUN}/goodput", "runs/run-0001/goodput"),
        *(_path("advice/checkpoint", run=LONG_RUN), _path("advice/spares", run=LONG_RUN, confidence=0.999)),
        *(_path("hints", state="open"), _path("hints", limit=1000), _path("hints", node=_NODE)),
        *(_path("audit", hint="h00003000"), _path("audit", limit=1000), _path("sidecars", limit=1000)),
        *(_path("hints", since=since) for since in (hour, month, year)),
        *(
            "hints/outcomes",
            _path("hints/outcomes", days=365),
            "hints/h00003000/deliveries",
            "hints/h00003000/validation",
        ),
        *("budget", "breaker", "stop", "policy", "policies"),
        *("placement", _path("placement", limit=12_500), _path("placement", count=1024)),
        *(_path("placement", format="hostlist"), _path("placement", nodes=_SOME, format="hostlist")),
        *(_path("placement", nodes=_SOME), _path("placement", nodes=_SOME, count=16)),
        *(_path("sidecars", state=state) for state in ("troubled", "silent", "ok")),
    ]
    later = ("nodes", "events", "incidents", "scores", "runs", "hints", "audit", "sidecars")
    return found + [deep for path in later if (deep := _deep(path, ask)) is not None]


def _path(name: str, **query: object) -> str:
    return f"{name}?{urlencode(query)}" if query else name


def _deep(path: str, ask: Ask, pages: int = 5) -> str | None:
    """A page far from the first; None where a list has no second."""
    cursor, size = None, {"limit": 1000}
    for _ in range(pages):
        more: dict[str, object] = {} if cursor is None else {"cursor": cursor}
        following = ask(_path(path, **size, **more)).get("next_cursor")
        if following is None:
            break
        cursor = following
    return None if cursor is None else _path(path, cursor=cursor)

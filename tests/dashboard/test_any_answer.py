"""Every page with every answer spoilt in turn: gone, null, of a newer server. Never a traceback."""

from typing import Any

import pytest
from drawn_page import Opened, failing, seen

# What each page asks for, in the order in which it asks.
READS = {
    "cluster": ("cluster", "verdicts", "whoami", "runs/llm-70b/goodput", "nodes", "incidents", "map", "events"),
    "verdicts": ("cluster", "verdicts", "whoami", "verdicts/v1"),
    "incidents": ("cluster", "incidents", "whoami", "incidents/i1", "verdicts/v1", "events", "hints"),
    "node": ("nodes", "cluster", "nodes/gpu-017", "verdicts", "nodes/gpu-017/timeline", "nodes/gpu-017/gpus"),
    "run": ("runs", "cluster", "runs/llm-70b/goodput", "runs/llm-70b/attempts", "what-if"),
    "goodput": (
        *("runs", "cluster", "runs/llm-70b/goodput", "advice/checkpoint", "advice/spares"),
        *("advice/mtbf", "advice/gains", "goodput/cluster", "goodput/causes"),
    ),
    "hints": (
        *("whoami", "cluster", "hints", "stop", "breaker", "policy", "budget", "incidents", "hints/outcomes", "audit"),
    ),
    "repair": ("cluster", "lemons", "riskiest", "links"),
}
# Of these a page says that they are not known, and shows the rest.
ASIDE = ("goodput/cluster", "goodput/causes", "what-if", "nodes/gpu-017/timeline", "nodes/gpu-017/gpus")
ADVICE = (*ASIDE, "advice/checkpoint", "advice/spares", "advice/mtbf", "advice/gains")
# Without these a record says nothing: a server that sends null for them is not Foreshock's.
KEYS = {
    "now",
    "id",
    "run",
    "node",
    "kind",
    "link",
    "source",
    "start",
    "end",
    "time",
    "text",
    "action",
    "state",
    "rank",
    "probability",
    "class",
    "wall_s",
    "buckets",
    "inputs",
    "interval_s",
    "mttf_s",
    "spares",
    "confidence",
    "expected_down",
    "gains",
    "lever",
    "gain",
    "low",
    "high",
    "nodes",
    "failures",
    "node_days",
    "save_s",
    "restart_s",
    "outages",
    "mttr_s",
    "lost_s",
    "items",
    "since",
    "until",
    "name",
    "least",
    "most",
    "number",
    "start_s",
    "length_s",
    "attempts",
    "jobs",
    "job",
    "errors",
    "measured",
    "stops",
    "stops_then",
    "replayed",
    "analytic",
    "as_was",
    "changed",
    "detection_s",
    "waiting_s",
    "at",
    "times_fleet",
    "words",
}


# Objects whose names are data.
NAMED = {"states", "buckets", "gpu_hours", "evidence", "detail", "kinds", "codes", "signals", "fleet"}


def without_values(body: Any) -> Any:
    """The answer with null for all that an answer can do without."""
    if isinstance(body, dict):
        return {name: without_values(value) if name in KEYS else None for name, value in body.items()}
    if isinstance(body, list):
        return [without_values(item) for item in body]
    return body


def with_strangers(body: Any) -> Any:
    """The answer of a newer server: each object has fields that nobody here knows."""
    if isinstance(body, dict):
        known = {name: value if name in NAMED else with_strangers(value) for name, value in body.items()}
        return known | {"moon": {"phase": [1, None]}}
    if isinstance(body, list):
        return [with_strangers(item) for item in body]
    return body


@pytest.mark.parametrize("page", READS)
def test_nulls_everywhere_are_dashes(drawn: Opened, api: Any, page: str) -> None:
    """A server that knows the names and nothing else."""
    for path in READS[page]:
        api.answers[path] = without_values(api.answers[path])
    shown = drawn(page)
    assert failing(shown) == []
    assert "is not Foreshock's" not in seen(shown)
    assert "None" not in seen(shown)
    assert "nan" not in [metric.value for metric in shown.metric]


@pytest.mark.parametrize("page", READS)
def test_fields_of_a_newer_server_change_nothing(drawn: Opened, api: Any, page: str) -> None:
    """The page is the same with them and without them."""
    before = seen(drawn(page))
    for path in READS[page]:
        api.answers[path] = with_strangers(api.answers[path])
    shown = drawn(page)
    assert failing(shown) == []
    assert seen(shown) == before


@pytest.mark.parametrize(("page", "path"), [(page, path) for page, paths in READS.items() for path in paths])
def test_an_api_that_fails_in_the_middle_leaves_what_was_read_and_one_sentence(
    drawn: Opened, api: Any, page: str, path: str
) -> None:
    """The database goes away between two requests."""
    api.answers[path] = (503, {"title": "Service Unavailable", "detail": "the database is busy"})
    shown = drawn(page)
    assert failing(shown) == []
    said = seen(shown)
    assert "cannot answer now: the database is busy." in said
    if path in ADVICE:
        assert not [e for e in shown.error if "cannot answer now" in e.value]
        assert ("Not known." if path in ASIDE else "No advice yet.") in said
        return
    if (page, path) == ("cluster", "runs/llm-70b/goodput"):  # parts of their own: the page goes on without them
        assert not [e for e in shown.error if "cannot answer now" in e.value]
        assert "What stopped llm-70b is not known." in said
        return
    assert len({e.value for e in shown.error if "cannot answer now" in e.value}) == 1
    asked = [entry[1] for entry in api.asked if entry[1] != "what-if"]  # the sliders stand by themselves
    if path == "map":
        assert "Newest incidents" in said
        return
    if page == "cluster":  # of three rows each is drawn by itself
        assert asked[-1] == path if path == "cluster" else "events" in asked
        return
    assert "that is not the same as well" in said
    assert asked[-1] == path
    assert set(asked) <= {*READS[page][: READS[page].index(path) + 1]}


@pytest.mark.parametrize(
    ("page", "path", "changed", "says"),
    [
        ("cluster", "cluster", {"states": {"faulty": None, "ok": 3}}, "All 3 nodes are well"),
        ("cluster", "cluster", {"states": {"faulty": "many"}}, "ClusterJson.states[...]: expected int, got str"),
        ("cluster", "cluster", {"states": [1]}, "ClusterJson.states: expected object, got array"),
        ("cluster", "cluster", {"states": {}}, "3 nodes in a state not known"),
        ("cluster", "cluster", {"sources": [None]}, "ClusterJson.sources[0]: expected object, got null"),
        ("cluster", "nodes", {"items": []}, "The nodes are not listed at present"),
        ("cluster", "nodes", {"items": [{"node": "a", "state": "dreaming"}]}, "Look at these first"),
        ("goodput", "runs/llm-70b/goodput", {"buckets": {"productive": None, "waiting": 9.0}}, "The largest loss"),
        (
            "goodput",
            "runs/llm-70b/goodput",
            {"buckets": {"productive": "much"}},
            "LedgerJson.buckets[...]: expected float, got str",
        ),
        ("goodput", "runs/llm-70b/goodput", {"buckets": {"siesta": 60.0}}, "The largest loss: siesta, 1 min"),
        ("goodput", "runs/llm-70b/goodput", {"wall_s": "long"}, "LedgerJson.wall_s: expected float, got str"),
        (
            "goodput",
            "runs",
            {"items": [{"run": "llm-70b", "start": "soon"}]},
            "RunJson.items[0].start: invalid",
        ),
        ("hints", "hints", {"items": [{"id": "h", "node": "a", "action": "b", "state": "sent"}]}, "**b**: as named"),
        ("node", "nodes/gpu-017", {"telemetry": 7}, "NodeDetailJson.telemetry: expected array, got int"),
        ("node", "nodes/gpu-017", {"scores": [{"time": "2025-03-29T00:00:00Z"}] * 2}, "gpu-017 is faulty"),
        ("node", "nodes/gpu-017", {"state": "on_fire"}, "gpu-017 is on fire"),
    ],
)
def test_a_strange_value_is_coped_with_or_named(
    drawn: Opened, api: Any, page: str, path: str, changed: dict[str, Any], says: str
) -> None:
    """Never a traceback, and never a field that is taken for another."""
    api.answers[path] = api.answers[path] | changed
    shown = drawn(page)
    assert failing(shown) == []
    assert says in seen(shown)


@pytest.mark.parametrize("found", [7, "hot", {"a": None}, [None], True])
def test_evidence_of_any_shape_has_words(drawn: Opened, api: Any, found: Any) -> None:
    """Whatever a newer server writes as its reasons."""
    hint = api.answers["hints"]["items"][0]
    api.answers["hints"] = {"items": [hint | {"evidence": {"reasons": found, "score": found, "horizon_h": found}}]}
    shown = drawn("hints")
    assert failing(shown) == []
    assert "Xid 79: GPU has fallen off the bus" in seen(shown)

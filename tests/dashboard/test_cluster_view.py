"""The Cluster page: a replay beside this host's own events, very large clusters, what speaks against a node."""

from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from drawn_page import Opened, draw_page, failing, seen

from dashboard.panels import fabric_map
from dashboard.panels.page import Site
from dashboard.views import cluster as view
from predictor.live.scoring import _QUIET as QUIET
from predictor.live.scoring import _REST as REST
from wire.cluster import ClusterJson
from wire.events import DeviceJson, IncidentJson
from wire.nodes import MapJson, NodeJson, ReasonJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
CLUSTER = ClusterJson(now=NOW, nodes=3)


def fatal(begin: datetime, node: str = "gpu-017", code: int = 79) -> IncidentJson:
    """A fatal Xid of two seconds."""
    gpu = DeviceJson(type="gpu", pci="0000:0f:00.0", index=3)
    return IncidentJson(
        id="i",
        start=begin,
        end=begin + timedelta(seconds=2),
        kind="xid",
        node=node,
        code=code,
        severity="fatal",
        device=gpu,
        meaning="Driver lost it",
    )


def site_of(connect: Any, answers: dict[str, Any]) -> Site:
    """A site whose answers may depend on what is asked: a value, or a function of the query."""

    def answer(request: httpx2.Request) -> httpx2.Response:
        path = urlsplit(str(request.url)).path.removeprefix("/api/v1/")
        if path not in answers:
            return httpx2.Response(404, json={"detail": f"no {path}"})
        found = answers[path]
        return httpx2.Response(200, json=found(dict(request.url.params)) if callable(found) else found)

    return Site(connect("http://api", transport=httpx2.MockTransport(answer)))


def of_a_replay(api: Any, now: str, later: list[dict[str, Any]]) -> dict[str, Any]:
    """The canned answers at another clock, with incidents that are dated later than it."""
    old = api.answers["incidents"]["items"]

    def incidents(query: dict[str, str]) -> dict[str, Any]:
        return {"items": later if "since" in query else old}

    return api.answers | {"cluster": api.answers["cluster"] | {"now": now}, "incidents": incidents}


def test_incidents_of_this_host_do_not_hide_those_of_the_replay(connect: Any, api: Any) -> None:
    """They are dated years after the replay's clock: a line tells of them, the table stays the replay's."""
    later = api.answers["incidents"]["items"][0] | {"id": "i9", "node": "my-laptop", "code": 31, "severity": "error"}
    later["meaning"] = "A program touched memory"
    times = [{"start": f"2026-11-21T02:0{m}:00Z", "end": f"2026-11-21T02:0{m}:01Z"} for m in (1, 2)]
    site = site_of(connect, of_a_replay(api, "2025-03-29T03:12:00Z", [later | each for each in times]))
    drawn = draw_page(site, "cluster")
    assert failing(drawn) == []
    assert list(drawn.dataframe[0].value["Node"]) == ["gpu-017"]
    assert (
        "Dated later than this page's clock (a replay): 2 incidents, the newest on my-laptop at "
        "2026-11-21 02:02:00 UTC: Xid 31, a program touched memory" in seen(drawn)
    )


def test_at_the_present_later_incidents_are_of_a_host_whose_clock_runs_ahead(connect: Any, api: Any) -> None:
    """The same line with another cause; an incident without a node is told too."""
    now = datetime.now(UTC)
    soon = (now + timedelta(hours=2)).isoformat()
    later = {"id": "i9", "start": soon, "end": soon, "kind": "link_down", "node": None, "severity": "error"}
    later["meaning"] = "A link is down"
    said = seen(draw_page(site_of(connect, of_a_replay(api, now.isoformat(), [later])), "cluster"))
    assert "(a host's clock runs ahead): 1 incident, the newest on no node at" in said
    assert "a link is down" in said
    assert "(the clock of the replayed cluster)" not in said


def test_without_later_incidents_there_is_no_line_of_them(connect: Any, api: Any) -> None:
    """The common case."""
    drawn = draw_page(site_of(connect, of_a_replay(api, "2025-03-29T03:12:00Z", [])), "cluster")
    assert failing(drawn) == []
    assert "Dated later" not in seen(drawn)


def test_a_page_with_later_incidents_alone_says_both(connect: Any, api: Any) -> None:
    """None until now, one after it."""
    later = api.answers["incidents"]["items"][0]
    answers = of_a_replay(api, "2025-01-01T00:00:00Z", [later])
    answers["incidents"] = lambda query: {"items": [later] if "since" in query else []}
    said = seen(draw_page(site_of(connect, answers), "cluster"))
    assert "No fault is known." in said
    assert "Dated later than this page's clock" in said


@pytest.mark.parametrize("page", ["cluster", "verdicts", "goodput"])
def test_a_replay_says_when_it_ends_and_begins_again(drawn: Opened, api: Any, page: str) -> None:
    """On every page: what stands still is not taken for a cluster in which nothing happens."""
    now = datetime.fromisoformat(api.answers["cluster"]["now"])
    replay = {"end": (now + timedelta(hours=1)).isoformat(), "ends": datetime.now(UTC) + timedelta(seconds=301)}
    replay |= {"ends": replay["ends"].isoformat(), "again": "2026-11-26T15:01:02Z"}
    api.answers["cluster"] = api.answers["cluster"] | {"replay": replay}
    said = seen(drawn(page))
    assert "(the clock of the replayed cluster, which ends in 5 min)" in said
    assert "The replay ended" not in said
    api.answers["cluster"]["replay"] |= {"end": now.isoformat()}
    over = "The replay ended at 2025-03-29 03:12:00 UTC, by its own clock: nothing moves any more."
    for again, then in (
        ("2026-11-26T15:01:02Z", "begins again by itself at 15:01:02 UTC"),
        (None, "Start the demo anew"),
    ):
        api.answers["cluster"]["replay"] |= {"again": again}
        (told,) = [one.value for one in drawn(page).info if over in one.value]
        assert then in told


def test_what_is_read_ends_and_begins_a_minute_after_the_clock(drawn: Opened, api: Any) -> None:
    """No incident falls between the two questions, and the feed ends where the incidents do."""
    drawn("cluster")
    edge = "2025-03-29T03:13:00+00:00"
    asked = [(path, query) for _, path, query, _ in api.asked]
    assert ("incidents", {"limit": "300", "until": edge}) in asked
    assert ("incidents", {"limit": "300", "since": edge}) in asked
    assert ("events", {"limit": "200", "until": edge}) in asked


def test_the_newest_fatal_fault_of_a_node_speaks_against_it() -> None:
    """With its device and its age; another node's does not, and one of yesterday does not any more."""
    node = NodeJson(node="gpu-017", state="faulty")
    found = view.why(node, [fatal(NOW - timedelta(hours=2)), fatal(NOW - timedelta(hours=3), code=48)], CLUSTER)
    assert found.replace("\\", "") == "Xid 79, driver lost it (GPU 3 (0000:0f:00.0), 2.0 h ago)"
    no_more = "a fatal hardware fault that happened, or that a gauge showed, in the last 24 h"
    assert view.why(node, [fatal(NOW, "gpu-018")], CLUSTER) == no_more
    day = timedelta(days=1)
    assert "Xid 79" in view.why(node, [fatal(NOW - day)], CLUSTER)
    old = fatal(NOW - day - timedelta(seconds=2))
    assert view.why(node, [old], CLUSTER) == no_more
    standing = msgspec.structs.replace(old, shown=NOW - timedelta(minutes=5))
    assert view.why(node, [standing], CLUSTER).endswith("ago, last shown 5 min ago)")
    all_four = msgspec.structs.replace(standing, devices=(standing.device,) * 4)
    assert "(GPU 3 (0000:0f:00.0) and 3 more, " in view.why(node, [all_four], CLUSTER).replace("\\", "")


def test_a_fault_dated_later_than_the_clock_bears_its_date() -> None:
    """ "in 20 months" would be a prophecy."""
    found = view.why(
        NodeJson(node="gpu-017", state="faulty"), [fatal(datetime(2026, 11, 21, 2, 2, tzinfo=UTC))], CLUSTER
    )
    assert "2026-11-21 02:02:00 UTC" in found.replace("\\", "")
    assert " in " not in found


def test_only_what_raises_a_score_is_a_reason_to_look() -> None:
    """The two strongest of them, in the server's order."""
    reasons = (
        ReasonJson(text="young", contribution=-0.2),
        ReasonJson(text="hot", contribution=0.2),
        ReasonJson(text="flaps", contribution=0.1),
        ReasonJson(text="slow", contribution=0.05),
    )
    assert view.why(NodeJson(node="a", state="at_risk", reasons=reasons), [], CLUSTER) == "hot; flaps"


def test_what_the_reasons_leave_of_a_score_is_no_reason_to_look() -> None:
    """The words of the predictor, on the card and on the map; a quiet node's only sentence is one."""
    reasons = (ReasonJson(text="hot", contribution=0.02), ReasonJson(text=REST, contribution=0.3))
    node = NodeJson(node="a", state="at_risk", reasons=reasons)
    assert view.why(node, [], CLUSTER) == "hot"
    assert "no sign of trouble" in view.why(
        NodeJson(node="a", state="ok", reasons=(ReasonJson(text=QUIET, contribution=0.1),)), [], CLUSTER
    )


@pytest.mark.parametrize(
    ("node", "says"),
    [
        (NodeJson(node="a", state="silent", last_seen=NOW - timedelta(hours=5)), "last heard of 5.0 h ago"),
        (NodeJson(node="a", state="silent"), "never heard of"),
        (NodeJson(node="a", state="out"), "taken out of service by the scheduler; its page says since when and why"),
        (NodeJson(node="a", state="ok"), "nothing known against it"),
        (NodeJson(node="a", state="dreaming"), "its page says why"),
    ],
)
def test_each_state_says_why_it_is_one(node: NodeJson, says: str) -> None:
    """Silence, an outage, nothing."""
    assert view.why(node, [], CLUSTER) == says


def test_a_node_that_is_out_says_so_before_its_fault() -> None:
    """That it is out matters first."""
    found = view.why(NodeJson(node="gpu-017", state="out"), [fatal(NOW - timedelta(hours=2))], CLUSTER)
    assert found.startswith("taken out of service by the scheduler")
    assert "Xid 79" in found


def listed(api: Any, *nodes: dict[str, Any]) -> None:
    """Let the cluster have these nodes."""
    api.answers["nodes"] = {"items": list(nodes)}
    states: dict[str, int] = {}
    for node in nodes:
        states[node["state"]] = states.get(node["state"], 0) + 1
    api.answers["cluster"] = api.answers["cluster"] | {"nodes": len(nodes), "states": states}


def test_one_node_is_a_cluster(drawn: Opened, api: Any) -> None:
    """A workstation: in the singular."""
    listed(api, {"node": "box", "state": "ok"})
    shown = drawn("cluster")
    assert failing(shown) == []
    assert "The one node is well; run llm-70b" in seen(shown)
    assert shown.metric[0].label == "Well, of 1 node"
    assert len(shown.get("component_instance")) == 1


def test_nodes_of_the_inventory_that_never_reported_are_named(drawn: Opened, api: Any) -> None:
    """They are among no count: who reads "of 2 nodes" would take them for the whole cluster."""
    assert "never reported" not in seen(drawn("cluster"))
    api.answers["cluster"] |= {"never_heard": {"count": 2, "first": ["gpu003", "gpu004"]}}
    said = "2 nodes of the inventory have never reported (gpu003, gpu004): no sidecar runs there, or it cannot reach"
    assert said in seen(drawn("cluster"))
    api.answers["cluster"] |= {"never_heard": {"count": 1, "first": ["gpu003"]}}
    assert "1 node of the inventory has never reported (gpu003): no sidecar" in seen(drawn("cluster"))
    api.answers["cluster"] |= {"never_heard": {"count": 30, "first": ["gpu003"]}}
    assert "30 nodes of the inventory have never reported (gpu003, ...)" in seen(drawn("cluster"))


def test_what_the_inventory_notes_of_a_node_stands_beside_it(drawn: Opened, api: Any) -> None:
    """Under the map, well or not, also where six others are worse; its markup stays text."""
    noted = {"note": "Real telemetry, CC-BY-4.0 ![x](http://x.example/x.png)"}
    for state in ("faulty", "ok"):
        listed(
            api, {"node": "gwdg-1", "state": state, **noted}, *({"node": f"gpu-{i}", "state": state} for i in range(9))
        )
        shown = drawn("cluster")
        assert failing(shown) == []
        assert "Real telemetry, CC-BY-4.0" in seen(shown)
        assert not any("![x](" in str(part.value) for part in shown.caption)


def test_a_twelve_thousand_node_cluster_names_the_first_six_bad_ones(drawn: Opened, api: Any) -> None:
    """Drawn without a cell for each node, the first six bad ones in words, the rest counted."""
    nodes = [{"node": f"gpu-{i:05}", "state": "ok", "rack": f"r{i // 8:04}"} for i in range(12_500)]
    for place in range(0, 9000, 1000):
        nodes[place]["state"] = "at_risk"
    listed(api, *nodes)
    shown = drawn("cluster")
    assert failing(shown) == []
    said = seen(shown)
    assert "and 3 more that are not well: see the map" in said
    assert [m.value for m in shown.metric][:3] == ["12,491", "0", "9"]
    assert said.count("likely to fail within a day") == 6


def test_the_riskiest_that_are_well_follow_with_a_week_of_their_risk(drawn: Opened, api: Any) -> None:
    """Three of them; where the past of one is not told its row has no line."""
    well = [{"node": name, "state": "ok", "score_24h": 0.01 * place} for place, name in enumerate("abcde")]
    listed(api, *well, {"node": "z", "state": "at_risk", "score_24h": 0.3})
    told = [{"time": f"2025-03-2{day}T00:00:00Z", "score_24h": day / 100} for day in (4, 8)]
    api.answers["nodes/e"] = well[-1] | {"scores": told}
    shown = drawn("cluster")
    said = seen(shown)
    assert said.index("Look at these first") < said.index("Likely next")
    (line,) = [one for one in shown.get("html") if "<img" in one.proto.body]
    assert "risk in 24 h over seven days: 4 % to 8 %" in line.proto.body
    listed(api, *well)
    assert "Nothing needs you; likely next" in seen(shown.run())


def test_states_of_a_newer_server_are_not_called_well(drawn: Opened, api: Any) -> None:
    """In the answer, the legend and the list."""
    listed(api, {"node": "a", "state": "dreaming"}, {"node": "b", "state": "ok"})
    shown = drawn("cluster")
    said = seen(shown)
    assert "1 node dreaming" in said
    assert "Look at these first" in said


def test_counts_that_the_server_does_not_send_are_dashes(drawn: Opened, api: Any) -> None:
    """None is not nought."""
    api.answers["cluster"] = {"now": "2025-03-29T03:12:00Z", "nodes": 3}
    values = [metric.value for metric in drawn("cluster").metric]
    assert values == ["–"] * 6


def test_out_and_cordoned_are_counted_together(drawn: Opened, api: Any) -> None:
    """Neither takes new work."""
    api.answers["cluster"] = api.answers["cluster"] | {"nodes": 9, "states": {"out": 2, "cordoned": 3, "ok": 4}}
    values = {metric.label: metric.value for metric in drawn("cluster").metric}
    assert values["Out or cordoned"] == "5"
    assert values["Faulty"] == "0"


@pytest.mark.parametrize(
    ("goodput", "target", "delta"),
    [(0.931, 0.95, "-1.9 points"), (0.97, 0.95, "+2.0 points"), (None, 0.95, ""), (0.9, None, "")],
)
def test_goodput_is_held_against_its_target(
    drawn: Opened, api: Any, goodput: float | None, target: float | None, delta: str
) -> None:
    """In points, where both are known."""
    api.answers["cluster"] = api.answers["cluster"] | {"goodput": goodput, "target": target}
    assert drawn("cluster").metric[5].delta == delta


def test_routine_alone_is_no_news(drawn: Opened, api: Any) -> None:
    """Training steps, saves and job records fill no table."""
    routine = ("iteration", "evaluation", "checkpoint_save", "job", "telemetry", "checkpoint_save_start")
    api.answers["events"] = {"items": [{"time": None, "kind": kind, "source": "training"} for kind in routine]}
    shown = drawn("cluster")
    assert "Nothing but routine records of late." in seen(shown)
    assert len(shown.dataframe) == 1


def test_the_newest_fifty_are_shown(drawn: Opened, api: Any) -> None:
    """Newest first, of incidents and of events."""
    event, incident = api.answers["events"]["items"][0], api.answers["incidents"]["items"][0]
    api.answers["events"] = {"items": [event | {"message": f"m{i}", "kind": "k", "meaning": None} for i in range(60)]}
    api.answers["incidents"] = {"items": [incident | {"node": f"n{i}"} for i in range(60)]}
    incidents, events = drawn("cluster").dataframe
    assert list(incidents.value["Node"]) == [f"n{i}" for i in range(59, 9, -1)]
    assert events.value["What"].iloc[0] == "k: m59"
    assert len(events.value) == 50


@pytest.mark.parametrize(
    ("told", "means"),
    [
        ({"open": "gpu-017", "number": 2}, {"open": "gpu-017"}),
        ({"whole": True, "number": 2}, {"whole": True}),
        *((told, {}) for told in (None, 7, {"open": "x", "number": 1}, {"open": 5, "number": 2}, {"open": "x"})),
    ],
)
def test_what_the_map_tells_counts_once_and_only_in_its_own_words(told: Any, means: dict[str, Any]) -> None:
    """A browser may send anything; what was heard before is no news."""
    state: dict[str, Any] = {fabric_map._HEARD: 1}
    assert fabric_map.news(state, told) == means
    assert fabric_map.news(state, told) == {}


def test_a_map_whose_columns_do_not_fit_each_other_is_not_drawn() -> None:
    """The browser looks up places without asking whether they are there."""
    good: dict[str, Any] = {"node": ("a",), "block": (0,), "blocks": ("b",), "state": (0,), "states": ("ok",)}
    good |= {"risk": (None,), "temperature_c": (None,), "link_errors": (0,), "run": (None,)}
    assert fabric_map.is_drawable(MapJson(**good))
    for wrong in ({"state": (1,)}, {"block": (-1,)}, {"risk": ()}, {"run": (0,)}, {"since": "x", "rows": (0, 1)}):
        assert not fabric_map.is_drawable(MapJson(**(good | wrong)))

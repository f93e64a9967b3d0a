"""Every page, run by Streamlit's own test runner against an API that answers in each shape, and in none."""

import gc
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from real.patience import patience
from streamlit.testing.v1 import AppTest

import dashboard
from dashboard.app import PAGES
from dashboard.panels import hint_card
from dashboard.panels.page import Site
from wire.hints import HintJson, HintRiskJson

APP = Path(dashboard.__file__).parent / "app.py"


@pytest.fixture
def app(api: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The whole dashboard of the canned API, at its first page, not run yet."""
    monkeypatch.setattr("sys.argv", ["app.py", "--server", api.url])
    monkeypatch.setattr("dashboard.answers.FRESH_S", 0.0)  # what a test changes is there at once
    return AppTest.from_file(str(APP), default_timeout=patience(30))


def draw(site, view):  # type: ignore[no-untyped-def]  # the runner takes this text alone, without the imports
    """The script of one page: the test runner cannot turn to a page that is a function."""
    import importlib

    importlib.import_module(f"dashboard.views.{view}").page(site)


@pytest.fixture
def opened(api: Any, connect: Any) -> Callable[..., AppTest]:
    """Draws a page of it."""

    def draw_page(page: str, **query: str) -> AppTest:
        site = Site(connect(api.url))
        app = AppTest.from_function(draw, default_timeout=patience(30), kwargs={"site": site, "view": page})
        for name, value in query.items():
            app.query_params[name] = value
        return app.run()

    return draw_page


def seen(app: AppTest) -> str:
    """All that stands on the page, without Markdown's escapes."""
    parts = [*app.markdown, *app.caption, *app.error, *app.warning, *app.info, *app.success, *app.subheader]
    return "\n".join(str(part.value) for part in parts).replace("\\", "")


def test_the_registry_of_pages_is_the_folder() -> None:
    """A page whose line is forgotten would be missing from the menu."""
    assert PAGES.keys() == {path.stem for path in APP.parent.glob("views/*.py")} - {"__init__"}


@pytest.mark.parametrize("page", PAGES)
def test_every_page_is_drawn_without_an_exception(opened: Any, page: str) -> None:
    """And says which moment it speaks of."""
    drawn = opened(page)
    assert not drawn.exception
    assert "As of **2025-03-29 03:12:00 UTC** (the clock of the replayed cluster)" in seen(drawn)


@pytest.mark.parametrize("page", PAGES)
def test_an_api_that_is_away_is_one_sentence_on_every_page(opened: Any, api: Any, page: str) -> None:
    """No traceback, and the remedy."""
    api.answers.clear()
    drawn = opened(page)
    assert not drawn.exception
    assert len(drawn.error) == 1
    assert "Nothing at " in seen(drawn)
    assert "that is not the same as well" in seen(drawn)


@pytest.mark.parametrize("page", PAGES)
def test_an_empty_cluster_says_what_to_do_instead_of_empty_charts(opened: Any, api: Any, page: str) -> None:
    """Nothing is known yet."""
    for path in ("nodes", "events", "incidents", "verdicts", "runs", "hints", "audit", "links"):
        api.answers[path] = {"items": [], "next_cursor": None}
    api.answers["lemons"] = api.answers["lemons"] | {"items": [], "found": 0, "nodes": 0}
    api.answers["riskiest"] = {"as_of": "2025-03-29T03:12:00Z", "items": []}
    # Of no node anything was heard: a server calls that stale, too.
    api.answers["cluster"] = {"now": "2025-03-29T03:12:00Z", "mode": "shadow", "nodes": 0, "stale": True}
    api.answers["models"] = {"items": [], "training": None}
    api.answers["checks"] = {"items": []}
    api.answers["hints/outcomes"] = {"tallies": []}
    drawn = opened(page)
    assert not drawn.exception
    assert not drawn.get("plotly_chart")
    assert not drawn.dataframe
    said = seen(drawn)
    assert any(remedy in said for remedy in ("foreshock sidecar", "foreshock train", "A hint appears when"))


def test_the_cluster_page_begins_with_the_answer(app: AppTest) -> None:
    """What the cause is and who suffers; then how bad it is."""
    drawn = app.run()
    first, second = (found.value.replace("\\", "") for found in drawn.error)
    assert first == (
        "**Switch leaf004 is the cause. All 2 nodes below leaf004 lost a link within 2 s, 4 min ago.** "
        "2 nodes of 1 job suffer (llm-70b), 128 GPU-hours at stake. Do: run diagnostics. Probability: 93 %."
    )
    assert second == ("**1 node faulty, 1 at risk; run llm-70b at 93.1 % goodput, target 95 %.**")
    values = {metric.label: metric.value for metric in drawn.metric}
    assert values["Well, of 3 nodes"] == "1"
    assert values["Goodput, target 95 %"] == "93.1 %"


def test_what_a_program_has_imported_is_not_searched_for_garbage_again(app: AppTest) -> None:
    """Streamlit has all objects searched after each part that it drew."""
    gc.unfreeze()
    assert not app.run().exception
    assert gc.get_freeze_count() > 10_000
    gc.unfreeze()


def test_the_cluster_page_says_why_a_node_is_to_be_looked_at(app: AppTest) -> None:
    """Its fatal fault, its reasons, and what is asked of the scheduler."""
    said = seen(app.run())
    assert (
        "Xid 79, driver can no longer reach the GPU over PCIe (GPU 3 (0000:0f:00.0), 4 min ago); "
        "14 corrected memory errors in 6 h" in said
    )
    assert "hint: **cordon** (waits for approval)" in said
    assert "**83 %** risk in 24 h" in said
    assert "Last seen: kernel 40 s ago" in said


def test_the_tables_of_the_cluster_page_hold_incidents_and_events(app: AppTest, api: Any) -> None:
    """Routine records are left out of the feed."""
    api.answers["events"] = {
        "items": [{"time": None, "kind": "iteration", "source": "training"}, *api.answers["events"]["items"]]
    }
    incidents, events = app.run().dataframe
    assert list(incidents.value["Node"]) == ["gpu-017"]
    assert list(events.value["From"]) == ["kernel"]


def test_nodes_that_are_well_and_a_silent_one(app: AppTest, api: Any) -> None:
    """Silence is named as such; a cluster without trouble says so."""
    well, silent = dict(api.answers["nodes"]["items"][2]), dict(api.answers["nodes"]["items"][1])
    silent |= {"state": "silent", "score_24h": None, "reasons": [], "last_seen": "2025-03-29T02:12:00Z"}
    api.answers["nodes"] = {"items": [well, silent]}
    api.answers["incidents"] = {"items": []}
    assert "last heard of 1.0 h ago" in seen(app.run())
    api.answers["nodes"] = {"items": [well]}
    said = seen(app.run())
    assert "Nothing needs you; likely next" in said
    assert "nothing known against it" in said
    assert "No fault is known" in said


def test_a_cluster_without_a_model_says_how_to_get_one(app: AppTest, api: Any) -> None:
    """Scores do not come by themselves."""
    api.answers["cluster"] = api.answers["cluster"] | {"model": None}
    assert "foreshock train" in seen(app.run())


def test_the_node_page_follows_its_address(opened: Any) -> None:
    """?node= selects, and without one the worst is shown."""
    drawn = opened("node", node="gpu-017")
    assert drawn.selectbox[0].value == "gpu-017"
    said = drawn.error[0].value.replace("\\", "")
    assert said.startswith("**gpu-017 is faulty: Xid 79, ")
    assert " ago).** Do: reboot the node. The chance of an unplanned outage is 83 % within 24 h" in said
    assert len(drawn.get("plotly_chart")) == 2 + 2, "the axis, the reasons; telemetry in two columns"
    assert [next(iter(table.value.columns)) for table in drawn.dataframe] == [
        *("Device", "Open", "Open", "Began (UTC)", "When (UTC)")
    ]


def test_another_node_can_be_chosen(opened: Any, api: Any) -> None:
    """One of which little is known."""
    api.answers["nodes/gpu-023"] = api.answers["nodes"]["items"][1]
    drawn = opened("node")
    drawn.selectbox[0].select("gpu-023").run()
    assert "gpu-023 is at risk" in seen(drawn)
    assert "No fault of this node showed within 30 days." in seen(drawn)
    assert "No telemetry of this node" in seen(drawn)


def test_what_a_node_itself_measures_is_asked_for_when_it_is_wanted(opened: Any, api: Any) -> None:
    """Measures that differ are charts; one that stands still is none."""
    rollup = {"samples": 0, "gpus_seen": 0}
    hours = [
        {**rollup, "time": f"2025-03-28T{at:02}:00:00Z", "devices": {"node": {"x": [at] * 5, "still": [1] * 5}}}
        for at in range(3)
    ]
    api.answers["nodes/gpu-017/telemetry"] = {"items": hours, "next_cursor": None}
    drawn = opened("node", node="gpu-017")
    charts = len(drawn.get("plotly_chart"))
    drawn.toggle(key="own_measures").set_value(True).run()
    assert len(drawn.get("plotly_chart")) == charts + 1
    assert api.asked[-1][1] == "nodes/gpu-017/telemetry"
    api.answers["nodes/gpu-017/telemetry"] = {"items": hours[:1], "next_cursor": None}
    assert "Nothing that the node itself measures has differed" in seen(drawn.run())


def test_of_a_range_wider_than_a_week_its_newest_week_is_shown_and_that_is_said(opened: Any, api: Any) -> None:
    """More hours than that the API does not give at once."""
    drawn = opened("node", node="gpu-017", **{"from": "2025-03-01T00:00Z", "to": "2025-03-20T00:00Z"})
    hours = [
        {"samples": 0, "gpus_seen": 0, "time": f"2025-03-18T{at:02}:00:00Z", "devices": {"node": {"x": [at] * 5}}}
        for at in range(3)
    ]
    api.answers["nodes/gpu-017/telemetry"] = {"items": hours, "next_cursor": None}
    drawn.toggle(key="own_measures").set_value(True).run()
    assert "2025-03-13T00:00:00" in str(api.asked[-1])
    assert "Of this time range: the newest week of it." in seen(drawn)
    api.answers["nodes/gpu-017/telemetry"] = {"items": [], "next_cursor": None}
    assert "has differed within this time range, of the newest week of it." in seen(drawn.run())


def test_an_address_that_names_no_node_says_so(opened: Any) -> None:
    """And shows no other node in its place."""
    drawn = opened("node", node="gpu-999")
    assert "No node is called gpu-999" in seen(drawn)
    assert "gpu-017 is faulty" not in seen(drawn)
    assert not drawn.dataframe
    drawn.selectbox[0].select("gpu-017").run()
    assert "gpu-017 is faulty" in seen(drawn)


def test_a_node_without_a_score_says_why(opened: Any, api: Any) -> None:
    """Not scored yet, or out of service."""
    bare = api.answers["nodes/gpu-017"] | {
        "score_24h": None,
        "score_7d": None,
        "reasons": [],
        "scores": [],
        "hint": None,
    }
    api.answers["nodes/gpu-017"] = bare
    drawn = opened("node")
    assert "not scored yet" in seen(drawn)
    api.answers["nodes/gpu-017"] = bare | {"state": "out"}
    assert "nodes out of service are not scored" in seen(drawn.run())
    whole = {"start": "2025-03-28T00:00:00Z", "state": "DRAIN", "reason": "Xid 48", "planned": False}
    api.answers["nodes/gpu-017"] = bare | {"state": "out", "outages": [whole | {"node": "gpu-017"}]}
    since = "gpu-017 is out of service since 2025-03-28 00:00:00 UTC (27 h ago): Xid 48."
    assert since in drawn.run().warning[0].value.replace("\\", "")


def test_the_goodput_page_gives_the_ledger_the_stops_and_the_advice(opened: Any) -> None:
    """Answer, bar, causes, interruptions, advice."""
    drawn = opened("goodput", run="llm-70b")
    said = seen(drawn)
    assert "llm-70b did useful training in 93.1 % of 28 h; target 95 %" in said
    assert "**Save every 2.3 h; now it is every 1.0 h.**" in said
    assert "**Keep 1 node spare: enough 99 % of the time.**" in said
    assert len(drawn.get("plotly_chart")) == 8
    assert list(drawn.dataframe[1].value["Culprit"]) == ["gpu-017 · GPU 3 (0000:0f:00.0)"]
    assert "What each change would gain" in said
    assert list(drawn.dataframe[2].value["95 % interval"]) == ["2.9 d to 27.5 d"] * 2
    assert list(drawn.dataframe[3].value["Points of goodput"]) == ["+1.20", "+0.40"]


def test_advice_that_cannot_be_given_says_why_and_leaves_the_rest(opened: Any, api: Any) -> None:
    """A run that never saved."""
    api.answers["advice/checkpoint"] = (404, {"detail": "run 'llm-70b' shows no finished checkpoint save"})
    drawn = opened("goodput")
    assert not drawn.error
    assert "shows no finished checkpoint save" in seen(drawn)
    assert "Keep 1 node spare" in seen(drawn)


def test_a_run_that_lost_nothing_has_no_empty_charts(opened: Any, api: Any) -> None:
    """Only the bar, all of it useful."""
    ledger = api.answers["runs/llm-70b/goodput"]
    api.answers["runs/llm-70b/goodput"] = ledger | {"buckets": {"productive": 100_000.0}, "interruptions": []}
    drawn = opened("goodput")
    assert len(drawn.get("plotly_chart")) == 1 + 1 + 4  # that of saves, those of the cluster
    assert "Nothing was lost." in seen(drawn)
    assert "never interrupted" in seen(drawn)
    api.answers["runs/llm-70b/goodput"] = ledger | {"wall_s": 0.0, "goodput": None, "buckets": {}}
    assert "has done nothing yet" in seen(drawn.run())


def test_a_hint_waits_for_approval_with_its_evidence(opened: Any, api: Any) -> None:
    """What is asked, why, and in which state."""
    said = seen(opened("hints"))
    assert "1 hint waits for your approval." in said
    assert "**cordon**: place no new work on it" in said
    assert "Xid 79: GPU has fallen off the bus" in said
    assert "requested 4 min ago" in said


def posts(api: Any) -> list[str]:
    """What was posted."""
    return [path for method, path, _, _ in api.asked if method == "POST"]


def test_a_decision_needs_a_second_press(opened: Any, api: Any) -> None:
    """No slip of the hand acts on a cluster."""
    api.answers["hints/h1/approve"] = {}
    drawn = opened("hints")
    drawn.button(key="approve_h1").click().run()
    assert posts(api) == []
    assert "It will be sent to the scheduler: place no new work on it (gpu-017)." in seen(drawn)
    drawn.button(key="no_h1").click().run()
    assert posts(api) == []
    drawn.button(key="approve_h1").click().run()
    drawn.button(key="yes_h1").click().run()
    assert posts(api) == ["hints/h1/approve"]
    assert "Approved: cordon gpu-017." in seen(drawn)


def test_a_decision_that_the_api_refuses_is_said_plainly(opened: Any, api: Any) -> None:
    """A token without the scope `act`."""
    api.answers["hints/h1/withdraw"] = (403, {"detail": "token 'eye' lacks the scope act"})
    drawn = opened("hints")
    drawn.button(key="withdraw_h1").click().run()
    assert not drawn.exception
    assert "token 'eye' lacks the scope act" in seen(drawn)


def test_hints_in_shadow_cannot_be_approved_and_ended_ones_come_last(opened: Any, api: Any) -> None:
    """Written down, never sent."""
    hint = api.answers["hints"]["items"][0]
    api.answers["hints"] = {"items": [hint | {"id": "h0", "state": "expired"}, hint | {"state": "shadow"}]}
    api.answers["cluster"] = api.answers["cluster"] | {"mode": "shadow"}
    drawn = opened("hints")
    assert "1 open hint; in shadow mode none is sent." in seen(drawn)
    assert [button.key for button in drawn.button] == ["stop", "withdraw_h1"]
    states = [list(frame.value["State"]) for frame in drawn.dataframe if "State" in frame.value]
    assert states == [["shadow", "expired"]]


def test_more_hints_than_the_page_holds_are_counted(opened: Any, api: Any) -> None:
    """The command line shows all."""
    hint = api.answers["hints"]["items"][0]
    api.answers["hints"] = {"items": [hint | {"id": f"h{i}", "state": "sent"} for i in range(33)]}
    said = seen(opened("hints"))
    assert "33 open hints, 33 with the scheduler; none waits for you." in said
    assert "and 28 more" in said


def test_evidence_is_said_in_words_whatever_it_holds() -> None:
    """Known keys, unknown keys, markup."""
    made = datetime(2025, 3, 29, 3, 10, tzinfo=UTC)
    held = HintJson(id="h", node="n", action="avoid", state="sent", created=made - timedelta(days=3))
    given = replace(
        held,
        risk_now=HintRiskJson(score=0.13, time=made + timedelta(hours=3)),
        evidence={
            "score": 0.31,
            "scored": "2025-03-29T03:10:00Z",
            "horizon_h": 24,
            "reasons": ["![x](http://evil/x.png)"],
            "held": "budget of 8 nodes",
            "incident": "i1",
            "acted": "2025-03-29T03:08:01Z",
            "colour_of_moon": "blue",
            "nothing": None,
        },
    )
    lines = hint_card.evidence(given, made + timedelta(hours=4))
    assert lines[0] == (
        "**Risk within 24 h:** 31 % when it was made, 4.0 h ago · 03:10:00 UTC; "
        "13 % now, as of 1.0 h ago · 06:10:00 UTC"
    )
    assert "incident i1" in lines[1]
    assert lines[2].startswith("- \\!\\[x\\]\\(")
    assert lines[3:] == ["**Colour of moon:** blue"]
    assert hint_card.evidence(held, made) == []
    early = hint_card.evidence(replace(held, evidence={"score": 0.31}), made)  # of a version that kept no time of it
    assert early == ["**Risk within 24 h:** 31 % when it was made, 3.0 d ago · Mar 26 03:10 UTC"]


def test_a_token_file_is_read_and_one_that_cannot_be_is_named(
    api: Any, connect: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The token never stands on a command line."""
    token = tmp_path / "token"
    token.write_text("sesame\n")
    monkeypatch.setattr("sys.argv", ["app.py", "--server", api.url, "--token-file", str(token)])
    assert not AppTest.from_file(str(APP), default_timeout=patience(30)).run().exception
    assert {entry[3] for entry in api.asked} == {"Bearer sesame"}
    (tmp_path / "empty").touch()
    for name, told in (("none", "cannot be read"), ("empty", "is empty: write the token into it")):
        monkeypatch.setattr("sys.argv", ["app.py", "--server", api.url, "--token-file", str(tmp_path / name)])
        drawn = AppTest.from_file(str(APP), default_timeout=patience(30)).run()
        assert not drawn.exception
        assert told in seen(drawn)


@pytest.mark.parametrize("replay", [True, False])
def test_what_has_happened_is_never_told_as_still_to_come(opened: Any, api: Any, replay: bool) -> None:
    """Beside a replay this machine itself goes by the clock on the wall; elsewhere a host's clock runs ahead."""
    real = datetime.now(UTC)
    seen_at = (real - timedelta(seconds=30)).isoformat()
    ends = {"end": "2025-03-30T00:00:00Z", "ends": (real + timedelta(minutes=5)).isoformat()}
    api.answers["cluster"] |= {"replay": ends if replay else None}
    for answer in [*api.answers["nodes"]["items"], api.answers["nodes/gpu-017"]]:
        answer["last_seen"] = seen_at
    for incident in [*api.answers["incidents"]["items"], *api.answers["nodes/gpu-017"]["incidents"]]:
        incident |= {"start": seen_at, "end": seen_at}
    node = opened("node", node="gpu-017")
    figures = {metric.label: metric.value for metric in node.metric}
    assert figures["Last seen"].endswith(("s ago", "min ago")) if replay else figures["Last seen"] == "clock ahead"
    for drawn in (node, opened("cluster"), opened("incidents"), opened("verdicts"), opened("hints")):
        said = " ".join([seen(drawn), *(metric.value for metric in drawn.metric)])
        assert re.findall(r"\bin [\d.,]+ (?:d|years)\b", said) == []
        assert not re.search(r"[-\N{MINUS SIGN}][\d.]+ (s|min|h|d) ago", said)

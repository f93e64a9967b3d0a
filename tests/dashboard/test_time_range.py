"""The time range and the zone in the address: what they leave out, how times are said, and the one control of them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from drawn_page import Opened, failing, seen
from real.patience import patience
from streamlit.testing.v1 import AppTest

import dashboard
from api.routes import nodes
from dashboard.text import time_range, words
from dashboard.text.time_range import TimeRange
from dashboard.views import cluster, incidents, node, verdicts

APP = Path(dashboard.__file__).parent / "app.py"
NOON = datetime(2025, 3, 29, 12, tzinfo=UTC)
BERLIN = {"tz": "Europe/Berlin"}


@pytest.fixture
def app(api: Any, connect: Any, monkeypatch: pytest.MonkeyPatch) -> AppTest:
    """The whole dashboard of the canned API, not yet drawn."""
    monkeypatch.setattr("sys.argv", ["app.py", "--server", api.url])
    return AppTest.from_file(str(APP), default_timeout=patience(30))


def test_what_showed_within_a_range_is_of_it() -> None:
    """Its end is no part of it; what lasted is of it where any of it is."""
    span = TimeRange.read({"from": "2025-03-29T12:00Z", "to": "2025-03-29T14:00+01:00"})
    assert span == TimeRange(NOON, NOON + timedelta(hours=1))
    hours = [NOON + timedelta(hours=h) for h in (-1, 0, 0.5, 1)]
    assert [span.holds(moment) for moment in hours] == [False, True, True, False]
    assert [span.holds(hours[0], end) for end in hours] == [False, True, True, True]
    assert span.end(NOON) == NOON
    assert span.end(NOON + timedelta(days=1)) == NOON + timedelta(hours=1)
    assert (bool(span), bool(TimeRange())) == (True, False)


def test_an_empty_list_says_how_far_was_looked() -> None:
    """What was not looked at is not said to be nothing."""
    day, reach = timedelta(days=1), "the 30 days that are shown here"
    whole = "None within this time range."
    assert TimeRange(NOON, NOON + day).nothing("None", NOON, reach) == whole
    assert TimeRange(NOON - day, None).nothing("None") == whole
    older = "This time range is older than the 30 days that are shown here."
    assert TimeRange(NOON - day, NOON).nothing("None", NOON, reach) == older
    assert TimeRange(None, NOON).limit(NOON, reach) == older
    part = "None within this time range, of the 30 days that are shown here."
    assert TimeRange(NOON - day, None).nothing("None", NOON, reach) == part
    assert TimeRange(None, NOON + day).nothing("None", NOON, reach) == part
    newest = TimeRange(NOON, NOON + day).nothing("None", reach="the newest 300")
    assert newest == "None within this time range, of the newest 300."
    assert TimeRange(NOON, None).limit(None, "the newest 300") == "Of this time range: the newest 300."
    assert TimeRange().limit(NOON, reach) is None


def test_a_node_s_page_says_that_a_range_is_older_than_what_it_has(drawn: Opened) -> None:
    """The API answers the last 30 days of a node: of what was before the page knows nothing."""
    assert node.PAST == nodes._PAST
    shown = seen(drawn("node", node="gpu-017", **{"from": "2020-01-01", "to": "2020-01-02"}))
    assert shown.count("This time range is older than the 30 days that are shown here.") >= 4
    assert "within this time range" not in shown
    part = seen(drawn("node", node="gpu-017", **{"from": "2020-01-01"}))
    assert "Of this time range: the 30 days that are shown here." in part


def test_events_behind_the_newest_routine_ones_may_be_there(
    drawn: Opened, api: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Routine is left out of the newest events that came: where as many came as were asked for, there may be more."""
    items = [{"time": "2025-03-29T02:00:00Z", "kind": "iteration", "source": "training"}] * 2
    api.answers["events"] = {"items": items}
    monkeypatch.setattr(cluster, "FEED", 2)
    told = "Nothing but routine records within this time range, of the newest 2."
    assert told in seen(drawn("cluster", **{"from": "2025-03-29T01:00Z"}))
    assert "routine records within this time range." in seen(drawn("cluster", **{"from": "2025-03-29T02:00Z"}))


@pytest.mark.parametrize(("page", "module"), [("incidents", incidents), ("verdicts", verdicts), ("cluster", cluster)])
def test_an_empty_list_of_the_newest_alone_says_so(
    drawn: Opened, monkeypatch: pytest.MonkeyPatch, page: str, module: Any
) -> None:
    """As many came as were asked for, and none of them is of the range: older ones may be."""
    monkeypatch.setattr(module, "RECENT", 1)
    shown = seen(drawn(page, **{"from": "2020-01-01", "to": "2020-01-02"}))
    assert "within this time range, of the newest 1." in shown


@pytest.mark.parametrize(
    "text", ["", "yesterday", "0001-01-01T00:00+14:00", "9999-12-31T23:59-14:00", "2025-13-01", "\x00"]
)
def test_what_is_no_moment_leaves_its_side_open(text: str) -> None:
    """An address is written by anybody."""
    assert TimeRange.read({"from": text, "to": text}) == TimeRange()


@pytest.mark.parametrize("text", ["", "Mars/Olympus", "../../etc/passwd", "/etc/passwd", "\x00", "x" * 999, "Europe"])
def test_what_is_no_zone_is_utc(text: str) -> None:
    """The same of a zone."""
    assert time_range.zone({"tz": text}) is UTC


def test_an_address_is_read_as_it_was_written() -> None:
    """To the minute."""
    moment = datetime(2025, 3, 29, 12, 34, tzinfo=time_range.zone(BERLIN))
    assert TimeRange.read({"from": time_range.written(moment) or ""}).since == moment


@pytest.mark.parametrize("page", ["incidents", "verdicts"])
def test_lists_show_what_was_within_the_range(drawn: Opened, page: str) -> None:
    """And an empty one says why it is."""
    assert drawn(page, **{"from": "2025-03-29T00:00Z", "to": "2025-03-30T00:00Z"}).selectbox
    empty = drawn(page, **{"from": "2020-01-01", "to": "2020-01-02"})
    assert failing(empty) == []
    assert not empty.selectbox
    assert "within this time range" in seen(empty)


def test_tables_and_charts_show_what_was_within_the_range(drawn: Opened) -> None:
    """Of the Cluster page, a node and the hints; the first sentences stay those of the present."""
    long_ago = {"from": "2020-01-01", "to": "2020-01-02"}
    for page, query in (("cluster", {}), ("node", {"node": "gpu-017"}), ("hints", {})):
        shown, none = drawn(page, **query), drawn(page, **query, **long_ago)
        assert failing(none) == []
        assert "time range" in seen(none)
        assert "time range" not in seen(shown)
        assert [one.value for one in none.error] == [one.value for one in shown.error]


@pytest.mark.parametrize("page", ["cluster", "verdicts", "incidents", "hints", "models", "repair", "collection"])
def test_times_are_said_in_the_zone_of_the_address(drawn: Opened, page: str) -> None:
    """In sentences and at the heads of columns: 3:12 in the morning in UTC is 4:12 in Berlin."""
    shown = drawn(page, **BERLIN)
    assert failing(shown) == []
    assert "2025-03-29 04:12:00 CET" in seen(shown)
    assert " UTC" not in seen(shown)
    assert words.ZONE.get() is UTC


def test_the_bar_shows_the_range_and_writes_it_into_the_address(app: AppTest) -> None:
    """In the zone of the page; the addresses bear UTC, so that they say the same anywhere."""
    app.query_params["from"], app.query_params["tz"] = "2025-03-29T00:30Z", "Europe/Berlin"
    shown = app.run()
    assert failing(shown) == []
    assert shown.datetime_input(key="range_from").value == datetime(2025, 3, 29, 1, 30)  # noqa: DTZ001 - as it is typed
    shown.datetime_input(key="range_to").set_value(datetime(2025, 3, 29, 2, 0)).run()  # noqa: DTZ001 - as it is typed
    assert shown.query_params["to"] == "2025-03-29T01:00Z"
    assert shown.query_params["from"] == "2025-03-29T00:30Z"
    shown.toggle(key="range_local").set_value(False).run()
    assert "tz" not in shown.query_params
    assert shown.datetime_input(key="range_from").value == datetime(2025, 3, 29, 0, 30)  # noqa: DTZ001 - as it is typed
    shown.button(key="range_all").click().run()
    assert not {"from", "to"} & set(shown.query_params)
    assert failing(shown) == []

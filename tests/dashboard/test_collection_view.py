"""The Collection page: who reports, who does not, what is lost, and what to do about it."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from drawn_page import Opened, failing, seen

from dashboard.text.sidecars import faults, size, source_rows
from dashboard.views.collection import headline
from wire.cluster import ClusterJson
from wire.sidecars import HeartbeatJson, SidecarCountsJson, SidecarJson, SidecarLossJson, SidecarSourceJson, SpoolJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)


def beat(**changes: Any) -> HeartbeatJson:
    """A heartbeat of a sidecar that fares well, but for some fields."""
    began = NOW - timedelta(hours=3)
    fields = {"node": "gpu-023", "time": NOW, "version": "0.1.0", "started": began, "interval_s": 60.0}
    return HeartbeatJson(**(fields | {"sources": (), "lost": SidecarLossJson()} | changes))


def sidecar(report: HeartbeatJson, off: timedelta = timedelta()) -> SidecarJson:
    """A node's sidecar with a report, its clock off by so much."""
    return SidecarJson(
        node="gpu-023",
        received=NOW,
        time=NOW + off,
        version="0.1.0",
        started=NOW - timedelta(hours=3),
        state="troubled",
        report=report,
    )


@pytest.mark.parametrize(
    ("counted", "says"),
    [
        (None, ("info", "No sidecar has reported yet.")),
        (SidecarCountsJson(), ("info", "No sidecar has reported yet.")),
        (SidecarCountsJson(known=1), ("success", "The one sidecar reports and nothing was lost.")),
        (SidecarCountsJson(known=12_500), ("success", "All 12,500 sidecars report and nothing was lost.")),
        (SidecarCountsJson(known=12_500, silent=1), ("warning", "Of 12,500 sidecars: 1 sidecar silent.")),
        (SidecarCountsJson(known=12_500, troubled=3), ("warning", "Of 12,500 sidecars: 3 in trouble.")),
        (
            SidecarCountsJson(known=5, silent=2, troubled=1),
            ("warning", "Of 5 sidecars: 2 sidecars silent, 1 in trouble."),
        ),
    ],
)
def test_the_headline_says_whether_every_node_reports(counted: SidecarCountsJson | None, says: tuple[str, str]) -> None:
    """Silence is said before trouble."""
    assert headline(ClusterJson(now=NOW, sidecars=counted)) == says


@pytest.mark.parametrize(
    ("report", "says"),
    [
        (beat(lost=SidecarLossJson(events=3)), "3 events given up"),
        (beat(lost=SidecarLossJson(records=1)), "1 log record overwritten before they were read"),
        (beat(lost=SidecarLossJson(rollups=2)), "2 hours of telemetry given up"),
        (beat(lost=SidecarLossJson(damaged_bytes=4096)), "4.1 kB of the spool unreadable"),
        (beat(rejected=1), "1 item refused by the server"),
        (beat(sources=(SidecarSourceJson(source="kmsg", up=False),)), "cannot read kmsg"),
        (beat(sources=(SidecarSourceJson(source="kmsg", up=True, blocked=True),)), "kmsg waits for room in the spool"),
        (
            beat(spool=SpoolJson(events_bytes=90, telemetry_bytes=0, oldest_s=7200.0, limit_bytes=100)),
            "90 B wait for the server, the oldest 2.0 h",
        ),
        (
            beat(sources=(SidecarSourceJson(source="file:/var/log/train/run.log", up=True, refused=2, trust="user"),)),
            "2 lines refused of file:/var/log/train/run.log",
        ),
    ],
)
def test_each_trouble_is_said_with_a_remedy(report: HeartbeatJson, says: str) -> None:
    """Alone, and in words."""
    (fault,) = faults(sidecar(report))
    assert fault.what == says
    assert fault.do


@pytest.mark.parametrize(
    "report",
    [
        beat(),
        beat(sources=(SidecarSourceJson(source="kmsg", up=True, lines=5, events=1, errors=1, failures=3),)),
        beat(spool=SpoolJson(events_bytes=79, telemetry_bytes=0, oldest_s=1.0, limit_bytes=100)),
        beat(spool=SpoolJson(events_bytes=10**9)),
    ],
)
def test_what_is_well_makes_no_trouble(report: HeartbeatJson) -> None:
    """A broken line, a failure that is over, a spool with room, one without a known limit."""
    assert faults(sidecar(report)) == []


@pytest.mark.parametrize(
    ("off", "says"),
    [
        (timedelta(hours=5), ["its clock is 5.0 h ahead"]),
        (timedelta(hours=-5), ["its clock is 5.0 h behind"]),
        (timedelta(seconds=119), []),
    ],
)
def test_a_clock_that_is_wrong_is_trouble(off: timedelta, says: list[str]) -> None:
    """Its faults would be dated by it."""
    assert [fault.what for fault in faults(sidecar(beat(), off))] == says


def test_the_page_tells_whose_word_each_source_is() -> None:
    """The weakest first; an older sidecar does not say; equal sources of many nodes are one row."""
    log = SidecarSourceJson(source="file:/var/log/train/*.log", up=True, refused=2, trust="user")
    ring = SidecarSourceJson(source="kmsg", up=True, trust="kernel")
    found = [sidecar(beat(sources=(ring, log))), sidecar(beat(sources=(ring, SidecarSourceJson(source="journal"))))]
    rows = [(row["source"], row["trust"], row["nodes"], row["refused"]) for row in source_rows(found)]
    assert rows == [
        ("journal", "–", "1", "0"),
        ("file:/var/log/train/*.log", "user", "1", "2"),
        ("kmsg", "kernel", "2", "0"),
    ]


def test_what_is_lost_for_ever_is_said_first() -> None:
    """Its remedy is the one that the table shows."""
    report = beat(
        sources=(SidecarSourceJson(source="kmsg", up=False),),
        spool=SpoolJson(events_bytes=100, telemetry_bytes=0, oldest_s=9.0, limit_bytes=100),
        lost=SidecarLossJson(events=1),
    )
    assert [fault.what.split()[0] for fault in faults(sidecar(report))] == ["1", "cannot", "100"]


@pytest.mark.parametrize(
    ("count", "says"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.0 kB"), (12_345, "12 kB"), (4_200_000, "4.2 MB"), (3e9, "3.0 GB")],
)
def test_sizes_are_said_in_the_unit_that_a_person_would_choose(count: float, says: str) -> None:
    """Decimal, as disks are sold."""
    assert size(count) == says


def test_the_page_lists_what_is_in_trouble_and_what_is_silent(drawn: Opened, api: Any) -> None:
    """Each list is asked for by its state."""
    shown = drawn("collection")
    assert failing(shown) == []
    assert "Of 3 sidecars: 1 sidecar silent, 1 in trouble." in seen(shown)
    asked = [query["state"] for _method, path, query, _token in api.asked if path == "sidecars"]
    assert asked == ["troubled", "silent", "ok"]
    troubled, silent, trusts, sources = (frame.value for frame in shown.dataframe)
    assert list(troubled["What is wrong"]) == [
        "12 log records overwritten before they were read; cannot read scrape:http://127.0.0.1:9400/metrics"
    ]
    assert list(troubled["What to do"]) == ["enlarge the kernel's ring (log_buf_len), or find what floods it"]
    assert list(silent["Last heard of"]) == ["2025-03-29 03:11:30 UTC"]
    assert set(trusts["Source"]) >= {"scrape:http://127.0.0.1:9400/metrics"}
    assert list(sources["Source"]) == ["kernel"]


def test_a_healthy_cluster_asks_for_one_short_list(drawn: Opened, api: Any) -> None:
    """12,500 well sidecars cost no more than twenty: whose word their sources are."""
    api.answers["cluster"] = api.answers["cluster"] | {"sidecars": {"known": 3, "silent": 0, "troubled": 0}}
    shown = drawn("collection")
    assert "All 3 sidecars report and nothing was lost." in seen(shown)
    asked = [(query["state"], query["limit"]) for _method, path, query, _token in api.asked if path == "sidecars"]
    assert asked == [("ok", "20")]


def test_a_list_that_is_cut_says_how_many_more(drawn: Opened, api: Any) -> None:
    """The counts come from the server, the rows are the first of them."""
    api.answers["cluster"] = api.answers["cluster"] | {"sidecars": {"known": 12_500, "silent": 0, "troubled": 900}}
    assert "and 899 more: `GET /api/v1/sidecars?state=troubled` lists them all" in seen(drawn("collection"))


def test_a_server_of_before_says_nothing_of_sidecars(drawn: Opened, api: Any) -> None:
    """The page says how they come to report."""
    api.answers["cluster"] = {name: value for name, value in api.answers["cluster"].items() if name != "sidecars"}
    shown = drawn("collection")
    assert failing(shown) == []
    assert "Sidecars report themselves once a minute" in seen(shown)


def test_the_cluster_page_points_to_trouble_in_collection(drawn: Opened, api: Any) -> None:
    """And is quiet where there is none."""
    assert "Of 3 sidecars 1 are silent and 1 in trouble: see Collection." in seen(drawn("cluster"))
    api.answers["cluster"] = api.answers["cluster"] | {"sidecars": {"known": 3, "silent": 0, "troubled": 0}}
    assert "see Collection" not in seen(drawn("cluster"))

"""Words and units at their boundaries: no value on either side of one is said wrongly."""

import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some

from dashboard.panels import frames
from dashboard.text import words
from dashboard.text.advice import checkpoint_lines, spares_lines
from dashboard.views import goodput
from dashboard.views import node as node_view
from wire.advice import CheckpointAdviceJson, CheckpointInputsJson, SparesAdviceJson, SparesInputsJson
from wire.cluster import ClusterJson
from wire.events import AuditJson, EventJson, IncidentJson
from wire.goodput import InterruptionJson, LedgerJson
from wire.hints import HintJson
from wire.nodes import NodeDetailJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86_400.0, "years": 365.25 * 86_400}


@given(some.floats(0, 1e9))
def test_a_duration_is_said_to_within_its_last_digit(seconds: float) -> None:
    """Read back it is what it was, to a twentieth or half a unit; and no unit runs over into the next."""
    number, unit = words.duration(seconds).split()
    value = float(number.replace(",", ""))
    assert abs(value * UNITS[unit] - seconds) <= UNITS[unit] * (0.051 if "." in number else 0.501)
    assert value <= {"s": 59, "min": 59, "h": 48, "d": 731, "years": 1e9}[unit]


@given(some.floats(0, 1e8), some.floats(0, 1e8))
def test_a_longer_time_never_sounds_shorter(first: float, second: float) -> None:
    """Across units too."""

    def heard(seconds: float) -> float:
        number, unit = words.duration(seconds).split()
        return float(number.replace(",", "")) * UNITS[unit]

    low, high = sorted((first, second))
    assert heard(low) <= heard(high)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (59.49, "59 s"),
        (59.5, "1 min"),
        (3_569.9, "59 min"),
        (3_570.0, "1.0 h"),
        (10 * 3600, "10 h"),
        (172_799, "48 h"),
        (172_800, "2.0 d"),
        (6e7, "694 d"),
        (2 * 365.25 * 86_400, "2.0 years"),
        (1e8, "3.2 years"),
    ],
)
def test_units_change_where_a_person_would_change_them(seconds: float, said: str) -> None:
    """60 s, 60 min and 48 h are never said."""
    assert words.duration(seconds) == said


@given(some.floats(0, 1))
def test_a_risk_keeps_to_its_words(value: float) -> None:
    """Below 0.1 % and above 99 % no figure is claimed; between them the figure is right."""
    said = words.risk(value)
    if value < 0.001:
        assert said == "< 0.1 %"
    elif value > 0.99:
        assert said == "> 99 %"
    else:
        assert abs(float(said.removesuffix(" %")) - value * 100) <= (0.501 if value >= 0.1 else 0.0501)


@pytest.mark.parametrize(
    ("before_s", "said"),
    [
        (0, "just now"),
        (1.4, "just now"),
        (-1.4, "just now"),
        (2, "2 s ago"),
        (-59, "just now"),
        (-90, "at 2025-03-29 03:13:30 UTC"),
    ],
)
def test_a_moment_is_told_from_now(before_s: float, said: str) -> None:
    """Before, at and after it."""
    assert words.ago(NOW - timedelta(seconds=before_s), NOW) == said


def test_the_date_is_said_from_midnight_on() -> None:
    """A time of yesterday bears its date, one of today its seconds."""
    midnight = NOW.replace(hour=0, minute=0)
    assert words.when(midnight, NOW).endswith("· 00:00:00")
    assert words.when(midnight - timedelta(seconds=1), NOW).endswith("· Mar 28 23:59")


@given(some.text(alphabet="ab *_`[]()!#<>$:&~-|\\{}+.\n\t", max_size=60))
def test_plain_text_loses_nothing_but_blanks(text: str) -> None:
    """Without the escapes it is what it was."""
    assert re.sub(r"\\(.)", r"\1", words.plain(text)) == " ".join(text.split())


def test_a_headline_counts_states_of_tomorrow_and_of_nobody() -> None:
    """What is not known to be well is not called well."""
    level, text = words.headline(ClusterJson(now=NOW, nodes=5, states={"ok": 3, "dreaming": 1}))
    assert (level, text) == ("warning", "1 node dreaming, 1 in a state not known.")
    assert words.headline(ClusterJson(now=NOW, nodes=1, states={"ok": 1})) == ("success", "The one node is well.")
    assert words.headline(ClusterJson(now=NOW, nodes=2)) == ("warning", "2 nodes in a state not known.")
    assert words.headline(ClusterJson(now=NOW, nodes=1, states={"ok": 2}))[0] == "success"


def test_a_run_that_meets_its_target_exactly_is_no_warning() -> None:
    """95 of 95."""
    met = ClusterJson(now=NOW, nodes=1, states={"ok": 1}, run="r", goodput=0.95, target=0.95)
    assert words.headline(met)[0] == "success"
    ledger = LedgerJson(run="r", wall_s=100.0, buckets={"productive": 95.0, "waiting": 5.0}, goodput=0.95)
    assert goodput.headline(ledger, 0.95)[0] == "success"
    assert goodput.headline(ledger, 0.951)[0] == "warning"
    assert goodput.headline(ledger, None) == (
        "success",
        "r did useful training in 95.0 % of 2 min. The largest loss: waiting for nodes, 5 s.",
    )


@pytest.mark.parametrize(
    ("node", "level", "says"),
    [
        (
            NodeDetailJson(node="a", state="ok", score_24h=0.0, score_7d=None),
            "success",
            "< 0.1 % within 24 h and – within 7 days",
        ),
        (NodeDetailJson(node="a", state="faulty"), "error", "it is not scored yet"),
        (NodeDetailJson(node="a", state="out"), "warning", "nodes out of service are not scored"),
        (
            NodeDetailJson(node="a", state="cordoned", score_24h=1.0, score_7d=1.0),
            "warning",
            "cordoned by us; the chance of an unplanned",
        ),
        (NodeDetailJson(node="a"), "warning", "a is unknown to the inventory; it is not scored yet"),
    ],
)
def test_a_node_is_summed_up_in_one_sentence(node: NodeDetailJson, level: str, says: str) -> None:
    """Its state gives the colour, its score the words; a score of nought is a score."""
    found = node_view.headline(node, NOW)
    assert found[0] == level
    assert says in found[1]


def checkpoint(now: float | None, advised: float | None, **changes: object) -> list[str]:
    """The lines about saving every 2 h."""
    inputs = CheckpointInputsJson(nodes=64, failures=4, node_days=1920.0, save_s=41.0, restart_s=900.0, interval_s=None)
    given_: dict[str, object] = {"goodput_now": now, "goodput_advised": advised, **changes}
    return checkpoint_lines(CheckpointAdviceJson(run="r", inputs=inputs, interval_s=7200.0, mttf_s=86_400.0, **given_))  # type: ignore[arg-type]


def test_a_change_that_is_worth_nothing_is_not_sold() -> None:
    """Below a thousandth it is called little; from there on both figures stand side by side."""
    assert "worth little: expected goodput 95.1 % either way." in checkpoint(0.9502, 0.9511)[1]
    assert checkpoint(0.95, 0.96)[1] == "Expected goodput 96.0 % instead of 95.0 %."
    assert not [line for line in checkpoint(None, 0.96) if "Expected" in line]


def test_advice_without_the_present_interval_does_not_compare() -> None:
    """A run that saved once has no interval."""
    assert checkpoint(None, None)[0] == "**Save every 2.0 h.**"
    assert not [line for line in checkpoint(None, None, interval_shortest_s=1.0) if "certainty" in line]


def test_one_spare_and_one_outage_are_singular() -> None:
    """And the interval of certainty only where both its ends are known."""
    lines = spares_lines(
        SparesAdviceJson(
            inputs=SparesInputsJson(nodes=1, outages=1, node_days=30.0, mttr_s=3600.0),
            spares=1,
            confidence=0.99,
            expected_down=0.04,
        )
    )
    assert lines[0] == "**Keep 1 node spare: enough 99 % of the time.**"
    assert lines[2].startswith("Measured: 1 unplanned outage in 30 node-days, each 1.0 h")
    assert len(lines) == 3
    assert spares_lines(
        SparesAdviceJson(
            inputs=SparesInputsJson(nodes=1, outages=1, node_days=30.0, mttr_s=3600.0),
            spares=0,
            confidence=0.99,
            expected_down=0.04,
        )
    )[0].startswith("**Keep no node spare")


def test_without_an_outage_no_number_of_spares_is_sold_as_known() -> None:
    """Nobody has seen how often a node fails, nor how long it is gone."""
    inputs = SparesInputsJson(nodes=12_500, outages=0, node_days=10.0, mttr_s=86_400.0)
    lines = spares_lines(
        SparesAdviceJson(inputs=inputs, spares=0, spares_high=3_000, confidence=0.99, expected_down=0.0)
    )
    assert lines[0] == "**How many nodes to keep spare is not known yet: up to 3,000 nodes.**"
    assert lines[1] == "No unplanned outage is told of 10 node-days; a repair is taken to last 24 h."


def test_rows_of_nothing_are_no_rows() -> None:
    """Empty answers make empty tables."""
    assert frames.incident_rows([], NOW) == frames.event_rows([], NOW) == frames.outage_rows([], NOW) == []
    assert frames.interruption_rows([], NOW, 8) == frames.hint_rows([], NOW) == frames.audit_rows([], [], NOW) == []
    assert frames.bucket_rows({"productive": 0.0}, 10.0, 8) == []


def test_interruptions_without_a_time_come_last() -> None:
    """Nobody knows when they were."""
    stops = [
        InterruptionJson(time=None, lost_s=1.0),
        InterruptionJson(time=NOW, lost_s=2.0),
        InterruptionJson(time=NOW - timedelta(hours=1), lost_s=3.0),
    ]
    rows = frames.interruption_rows(stops, NOW, 8)
    assert [row["lost"] for row in rows] == ["2 s", "3 s", "1 s"]
    assert rows[-1]["when"] == "–"


def test_a_message_that_is_only_the_kind_is_not_repeated() -> None:
    """And a Xid's own words follow ours."""
    assert words.event_text(EventJson(time=None, kind="link_down", message="link_down")) == "link down"
    incident = IncidentJson(
        id="i", start=NOW, end=NOW, kind="xid", code=79, message="fell off", meaning="Driver lost it"
    )
    assert words.event_text(incident) == "Xid 79, driver lost it: fell off"
    assert words.what(EventJson(time=None, kind="xid")) == "xid"


def test_a_reason_without_our_mark_is_left_alone() -> None:
    """Only the mark at its beginning goes."""
    assert frames.unmarked("foreshock: Xid 79") == "Xid 79"
    assert frames.unmarked("moved by foreshock: no") == "moved by foreshock: no"
    row = frames.hint_rows([HintJson(id="h", node="n", action="watch", state="sent", reason="foreshock:")], NOW)[0]
    assert row["why"] == ""


def test_an_audit_entry_of_an_unknown_hint_keeps_its_subject() -> None:
    """Details of any shape."""
    entries = [
        AuditJson(time=NOW, actor="a", action="x_y", subject="s", detail=[1, 2]),
        AuditJson(time=NOW, actor="a", action="x", subject="s", detail={"node": None}),
    ]
    rows = frames.audit_rows(entries, [], NOW)
    assert [(row["hint"], row["why"], row["became"]) for row in rows] == [("s", "[1, 2]", "x y"), ("s", "", "x")]

"""The figures of a node: reasons, scores, telemetry with its gaps."""

from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

from dashboard.charts import charts
from wire.nodes import NodeScoresJson, OutageJson, ReasonJson, RollupJson

START = datetime(2025, 3, 28, tzinfo=UTC)
HOUR = timedelta(hours=1)


def test_the_strongest_reason_is_on_top_and_tells_whether_it_raises_or_lowers() -> None:
    """A bar chart of Plotly draws from the bottom."""
    figure = charts.reasons(
        [
            ReasonJson(text="hot", contribution=0.05),
            ReasonJson(text="errors", contribution=0.21),
            ReasonJson(text="no outage", contribution=-0.1),
        ]
    )
    bar = figure.data[0]
    assert list(bar.y) == ["hot", "no outage", "errors"]
    assert list(bar.text) == ["+5.0", "-10.0", "+21.0"]
    assert list(bar.marker.color) == [charts.RAISES, charts.LOWERS, charts.RAISES]


def test_what_the_named_reasons_leave_is_drawn_below_them() -> None:
    """However large: it names nothing. All are drawn, so that the bars add up to the score."""
    found = charts.reasons(
        [
            ReasonJson(text="hot", contribution=0.05),
            ReasonJson(text="the base rate, and everything else", contribution=0.4),
        ]
    ).data[0]
    assert [label.replace("<br>", " ") for label in found.y] == ["the base rate, and everything else", "hot"]
    assert sum(found.x) == 45


def test_long_reasons_are_wrapped_and_their_tags_disarmed() -> None:
    """An axis label reads tags."""
    label = charts.reasons(
        [
            ReasonJson(
                text="<i>corrected memory errors</i> rose fourteen times within six hours on GPU 3", contribution=0.1
            )
        ]
    )
    assert "<br>" in label.data[0].y[0]
    assert "&lt;i>" in label.data[0].y[0]


def test_outages_are_shaded_within_the_times_drawn() -> None:
    """One that lies before, one that is open."""
    hours = [RollupJson(time=START + h * HOUR, gpus_seen=8) for h in (0, 10)]
    before = OutageJson(start=START - 5 * HOUR, end=START - HOUR)
    (figure,) = charts.telemetry(hours, [before, OutageJson(start=START + 8 * HOUR)])
    assert [(shape.x0, shape.x1) for shape in figure.layout.shapes] == [(START + 8 * HOUR, START + 10 * HOUR)]


def test_a_gap_in_the_telemetry_stays_a_gap() -> None:
    """Hours that nobody measured break the line, however many they are."""
    hours = [RollupJson(time=START + h * HOUR, gpus_seen=8, gpu_util_mean=0.9) for h in (3, 0, 1)]
    left, right = charts.telemetry(hours, [])  # a figure a column: on a phone one stands below the other
    answered = left.data[0]
    assert list(answered.x) == [START, START + HOUR, START + 2 * HOUR, START + 3 * HOUR]
    assert list(answered.y) == [8, 8, None, 8]
    assert answered.connectgaps is False
    assert list(right.data[0].y) == [90.0, 90.0, None, 90.0]


def test_hours_bear_the_time_of_day_where_a_day_would_stand_many_times() -> None:
    """Of a range of some hours each mark would say the same day."""
    for hours, ticks in ((6, "%b %d\n%H:%M"), (7 * 24, "%b %d")):
        rollups = [RollupJson(time=START + n * HOUR, gpu_temp_max_c=70.0) for n in range(hours)]
        (figure,) = charts.telemetry(rollups, [])
        assert figure.layout.xaxis.tickformat == ticks


def test_what_nobody_measured_has_no_empty_chart() -> None:
    """Only the panels with data, and none at all without data."""
    (figure,) = charts.telemetry([RollupJson(time=START, gpu_temp_max_c=70.0, gpu_temp_mean_c=61.0)], [])
    titles = [note.text for note in figure.layout.annotations]
    assert len(titles) == 1
    assert titles[0].startswith("GPU temperature, °C: <span")
    assert charts.telemetry([], []) == []
    assert charts.telemetry([RollupJson(time=START)], []) == []


def test_counts_and_shares_begin_at_zero() -> None:
    """7 of 8 GPUs must not look like none of 8."""
    figures = charts.telemetry([RollupJson(time=START, gpus_seen=7, power_max_w=690.0)], [])
    assert [figure.layout.yaxis.rangemode for figure in figures] == ["tozero", None]


def test_a_week_of_risk_is_one_small_line_with_its_range_in_words() -> None:
    """Older scores, later ones and those that are not known are left out; from a single one nothing is drawn."""
    now = datetime(2025, 3, 29, tzinfo=UTC)
    told = [(8, 0.9), (7, 0.01), (3.5, None), (0, 0.02), (-1, 0.5)]
    scores = [NodeScoresJson(time=now - timedelta(days=days), score_24h=score) for days, score in told]
    drawn = charts.sparkline(scores, now)
    assert drawn is not None
    assert 'points="0.0,12.0 100.0,2.0"' in unquote(drawn)
    assert 'alt="risk in 24 h over seven days: 1 % to 2 %"' in drawn
    assert charts.sparkline(scores[:2], now) is None


def test_what_was_said_stands_beside_what_came() -> None:
    """In percent; what never came lies on the lower edge, with its interval above."""
    parts = [charts.ReliabilityPart(0.001, 0.0, 0.0, 0.004, 900), charts.ReliabilityPart(0.2, 0.3, 0.1, 0.5, 10)]
    figure = charts.reliability(parts)
    assert figure is not None
    line, dots = figure.data
    least, most = line.x
    assert list(dots.x) == [0.1, 20.0]
    assert list(dots.y) == [least, 30.0]
    assert dots.error_y.array[0] == 0.4 - least
    assert list(dots.error_y.arrayminus) == [0.0, 20.0]
    assert "said 20 %, came 30 % (10 to 50 %), 10 scores" in dots.text[1]
    assert 0 < least < 0.1 < 50.0 < most <= 100.0
    assert charts.reliability(parts[:1]) is None

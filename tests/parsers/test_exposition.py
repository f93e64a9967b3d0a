"""Prometheus' and OpenMetrics' text."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.text.exposition import MAX_LABELS, metric_name, read_point
from parsers.text.parser import Context, ParseError
from parsers.text.stamp import Stamps

STAMPS = Stamps(Context())
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "labels", "value"),
    [
        ("up 1", {}, 1.0),
        ("up{} 1", {}, 1.0),
        ("up { } 1", {}, None),
        ('up{a="b"} 1', {"a": "b"}, 1.0),
        ('up{a="b",} 1', {"a": "b"}, 1.0),
        ('up{ a = "b" , c="d" } 1', {"a": "b", "c": "d"}, 1.0),
        ('up{a=""} 1', {"a": ""}, 1.0),
        (r'up{a="x\"y\\z\n}, b"} 1', {"a": 'x"y\\z\n}, b'}, 1.0),
        ('up{a="b}"} 1.5e+09', {"a": "b}"}, 1.5e9),
        ("node:cpu:rate5m 0.25", {}, 0.25),
        ("up -3", {}, -3.0),
    ],
)
def test_names_labels_and_values_are_read(text: str, labels: dict[str, str], value: float | None) -> None:
    """With escapes, blanks and a comma at the end; a blank after the name is no series."""
    if value is None:
        with pytest.raises(ParseError):
            read_point(text, STAMPS)
        return
    point = read_point(text, STAMPS)
    assert point is not None
    assert (point.labels, point.value, point.time) == (labels, value, None)


@pytest.mark.parametrize("text", ["NaN", "+Inf", "-Inf", "Inf", "nan"])
def test_what_nobody_measured_is_no_value(text: str) -> None:
    """Not a number, infinite."""
    point = read_point(f"up {text}", STAMPS)
    assert point is not None
    assert (point.value, point.text) == (None, text)


@pytest.mark.parametrize(
    "time", ["1740801906000", "1740801906", "1740801906.0", "1740801906.000000"], ids=["ms", "s", "s.0", "s.micros"]
)
def test_times_are_milliseconds_or_openmetrics_seconds(time: str) -> None:
    """A whole number that would be before 1973 in milliseconds is in seconds."""
    point = read_point(f"up 1 {time}", STAMPS)
    assert point is not None
    assert point.time == NOW


def test_an_exemplar_is_passed_by() -> None:
    """OpenMetrics puts one after a counter."""
    point = read_point('requests_total{a="b"} 17 1740801906.0 # {trace_id="x y"} 0.67 1740801905.1', STAMPS)
    assert point is not None
    assert (point.value, point.time) == (17.0, NOW)


@pytest.mark.parametrize("text", ["", "   ", "# HELP up x", "# TYPE up gauge", "# EOF", "#"])
def test_comments_and_blank_lines_are_no_samples(text: str) -> None:
    """Nor are they errors."""
    assert read_point(text, STAMPS) is None
    assert metric_name(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "up",
        "up ",
        "up many",
        "up N/A (no PMA)",
        "up N/A",
        "up 1_000",
        "up 1 soon",
        "up{",
        'up{a="b',
        'up{a="b"',
        'up{a="b"}',
        'up{a="b"}1',
        "up{a=b} 1",
        'up{a="b" c="d"} 1',
        'up{a="0x1002,b="c"} 30',
        '{a="b"} 1',
        "9up 1",
        "=up 1",
    ],
)
def test_a_line_that_is_cut_short_or_broken_is_refused(text: str) -> None:
    """And says how a sample looks."""
    with pytest.raises(ParseError, match=r"NAME|no number"):
        read_point(text, STAMPS)


def test_a_series_of_too_many_labels_is_refused() -> None:
    """A limit on every loop."""
    labels = ",".join(f'l{number}="x"' for number in range(MAX_LABELS + 1))
    with pytest.raises(ParseError):
        read_point(f"up{{{labels}}} 1", STAMPS)


@given(
    labels=st.dictionaries(st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True), st.text(max_size=20), max_size=6),
    value=st.floats(allow_nan=False, allow_infinity=False),
    time=st.none() | st.integers(10**11, 10**12 * 4),
)
def test_what_an_exporter_writes_is_what_is_read(labels: dict[str, str], value: float, time: int | None) -> None:
    """Any label value, escaped as the format asks."""
    inner = ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items())
    point = read_point(f"m{{{inner}}} {value!r}" + ("" if time is None else f" {time}"), STAMPS)
    assert point is not None
    assert (point.labels, point.value) == (labels, value)
    assert point.time == (None if time is None else STAMPS.since_epoch(time / 1000))


def escaped(text: str) -> str:
    """A label's value as the format asks for it."""
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

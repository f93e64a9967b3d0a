"""Fields of objects from outside: the type asked for, or nothing."""

from datetime import UTC, datetime

import pytest

from parsers.text.json_fields import (
    MAX_TEXT,
    attributes,
    moment_of,
    plain,
    record_of,
    records_of,
    text_of,
    whole_of,
)

WHEN = datetime(2025, 3, 1, 4, 5, 6, 789012, tzinfo=UTC)


def test_a_text_is_the_first_that_says_something() -> None:
    """Blank ones, and other types, are passed over."""
    record = {"a": " ", "b": 3, "c": None, "d": " x ", "e": "y"}
    assert text_of(record, "a", "b", "c", "d", "e") == "x"
    assert text_of(record, "a", "z") is None


def test_objects_and_lists_of_them_are_never_missing() -> None:
    """Empty where there are none."""
    assert record_of({"a": [], "b": {"c": 1}}, "a", "b") == {"c": 1}
    assert record_of({}, "a") == {}
    assert records_of({"a": [1, {"b": 2}, None]}, "a") == [{"b": 2}]
    assert records_of({"a": {"b": 2}}, "a") == []


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (7, 7),
        ("7", 7),
        (True, None),
        (7.0, None),
        ("7.0", None),
        ("-7", None),
        ("٧", None),
        (2**70, None),
        (None, None),
    ],
    ids=repr,
)
def test_a_whole_number_may_be_text_but_nothing_else(value: object, expected: int | None) -> None:
    """Protobuf writes 64-bit numbers as text."""
    assert whole_of(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("2025-03-01T04:05:06.789012Z", WHEN),
        ("2025-03-01T04:05:06.789012999Z", WHEN),
        ("2025-03-01T05:05:06.789012+01:00", WHEN),
        ({"seconds": 1740801906, "nanos": 789012000}, WHEN),
        ({"seconds": "1740801906", "nanos": 789012345}, WHEN),
        ("0001-01-01T00:00:00Z", None),
        ("1970-01-01T00:00:00Z", None),
        ("soon", None),
        ({"seconds": 10**15}, None),
        ({}, None),
        (1740801906, None),
    ],
    ids=repr,
)
def test_a_moment_is_a_time_in_either_form(value: object, expected: datetime | None) -> None:
    """RFC 3339 or seconds and nanos; a zero time is none."""
    assert moment_of({"t": value}, "t") == expected


def test_the_first_time_that_can_be_read_counts() -> None:
    """Null and broken ones before it do not."""
    assert moment_of({"a": None, "b": "x", "c": "2025-03-01T04:05:06.789012Z"}, "a", "b", "c") == WHEN


def test_attributes_are_plain_and_finite() -> None:
    """Long texts are cut, lists are words, objects and NaN are missing."""
    assert attributes(a="x", b=1, c=1.5, d=True, e=None, f={}, g=float("nan"), h=[1, "y", {}], i=[], j=2**70) == {
        "a": "x",
        "b": 1,
        "c": 1.5,
        "d": True,
        "h": "1,y",
    }
    assert plain("x" * 999) == "x" * MAX_TEXT

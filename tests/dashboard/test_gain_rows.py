"""The ranked gains of the goodput page."""

from typing import Any

import msgspec

from dashboard.text.advice import gain_rows
from wire import message
from wire.advice import GainJson, GainsAdviceJson


def decode(kind: Any, body: Any) -> Any:
    """The object of a JSON value."""
    return message.decode(kind, msgspec.json.encode(body))


TOLD = {
    "run": "llm",
    "gains": [
        {
            "lever": "detection",
            "gain": 0.012,
            "low": 0.008,
            "high": 0.017,
            "says": "detection from 10 min to 60 s: +1.20",
        },
        {"lever": "checkpoint interval", "gain": 0.00002, "low": -0.001, "high": 0.001, "says": "x: y"},
    ],
}


def test_each_change_has_its_points_and_interval() -> None:
    """In the order of the answer; what is worth nothing is left out."""
    rows = gain_rows(decode(GainsAdviceJson, TOLD))
    assert rows == [{"change": "detection from 10 min to 60 s", "gain": "+1.20", "interval": "0.80 to 1.70"}]


def test_no_more_than_asked_for_and_a_name_where_no_words_are() -> None:
    """An older server tells no sentence."""
    advice = GainsAdviceJson(
        run="llm", gains=tuple(GainJson(lever=f"lever {n}", gain=0.01, low=0.0, high=0.02) for n in range(20))
    )
    rows = gain_rows(advice, most=3)
    assert [row["change"] for row in rows] == ["lever 0", "lever 1", "lever 2"]

"""The Run page: its attempts on one time axis, how each ended, and what if."""

from typing import Any

import pytest
from drawn_page import Opened, seen

from dashboard.charts.attempts import gantt
from dashboard.views.run import INTERVALS, choices, lines
from wire.advice import WhatIfJson
from wire.goodput import AttemptsJson
from wire.message import decode

from .conftest import ATTEMPTS, WHAT_IF


def read(kind: Any, body: dict[str, Any]) -> Any:
    """As the client reads an answer."""
    import orjson

    return decode(kind, orjson.dumps(body))


def test_the_run_page_says_how_it_stands_and_shows_each_attempt(drawn: Opened) -> None:
    """The newest first; what stopped the other one stands beside it."""
    page = drawn("run", run="llm-70b")
    said = seen(page)
    assert "**llm-70b: attempt 2 runs since 2025-03-25 00:48:20 UTC. 28 h so far, 93.1 % of it useful training" in said
    assert "interrupted 1 time." in said
    assert len(page.get("plotly_chart")) == 1
    (table,) = page.dataframe
    assert list(table.value["How it ended"]) == ["runs", "ended with a node's failure"]
    assert list(table.value["Stopped by"]) == ["–", "GPU 3 of gpu-017 (hardware)"]
    assert list(table.value["Start-up"]) == ["0 s", "10 min"]
    assert list(table.value["Lost work"]) == ["0 s", "1.1 h"]
    assert list(table.value["Waited"]) == ["48 min", "0 s"]


@pytest.mark.parametrize(
    ("items", "level", "says"),
    [
        ([], "info", "llm-70b has done nothing yet"),
        (ATTEMPTS["items"][:1], "error", "llm-70b was stopped 4.1 d ago by GPU 3 of gpu-017 (hardware) and has not"),
        (
            [ATTEMPTS["items"][1] | {"end": "2025-03-29T02:12:00Z", "state": "COMPLETED"}],
            "info",
            "2 completed 1.0 h ago",
        ),
        ([ATTEMPTS["items"][1] | {"state": "ON_FIRE"}], "info", "attempt 2 on fire"),
    ],
)
def test_how_a_run_stands(drawn: Opened, api: Any, items: list[Any], level: str, says: str) -> None:
    """One that was stopped and not started again is what nobody should miss."""
    api.answers["runs/llm-70b/attempts"] = ATTEMPTS | {"items": items, "attempts": len(items)}
    page = drawn("run")
    assert not page.exception
    assert says in getattr(page, level)[0].value.replace("\\", "")


def test_a_run_that_nobody_knows_is_said_and_no_other_is_shown(drawn: Opened) -> None:
    """?run= comes from whoever made the link."""
    page = drawn("run", run="llm-7b")
    assert "No run is called llm-7b" in seen(page)
    assert not page.get("plotly_chart")


def test_the_sliders_ask_the_api_and_only_for_what_was_moved(drawn: Opened, api: Any) -> None:
    """They stand at what was measured; the answer is the API's."""
    page = drawn("run")
    assert [slider.value for slider in page.select_slider] == [3600.0, 600.0]
    assert "Move a slider" in seen(page)
    better = {"as_was": 0.931, "changed": 0.942, "gain": 0.011, "low": 0.004, "high": 0.019}
    api.answers["what-if"] = WHAT_IF | {"replayed": better, "analytic": better | {"gain": 0.009}}
    page.select_slider[1].set_value(60.0).run()
    assert api.asked[-1][1:3] == ("what-if", {"run": "llm-70b", "restart_s": "60.0"})
    said = seen(page)
    assert "**+1.10 points of goodput.** With 95 % certainty +0.40 points to +1.90 points." in said
    assert "Its history lived again: 94.2 % instead of 93.1 %; the run itself had 93.1 %." in said
    assert "By the formula alone: +0.90 points." in said


def test_a_what_if_that_cannot_be_answered_says_why(drawn: Opened, api: Any) -> None:
    """A run that never saved; the rest of the page stands."""
    api.answers["what-if"] = (
        404,
        {"detail": "run 'llm-70b' shows no two finished saves: ingest its training log first"},
    )
    page = drawn("run")
    assert "Not known. Run 'llm-70b' shows no two finished saves: ingest its training log first." in seen(page)
    assert len(page.get("plotly_chart")) == 1


def test_choices_of_a_slider_read_differently() -> None:
    """What was measured takes the place of the round value that reads as it does."""
    assert choices(INTERVALS, 3601.0)[8] == 3601.0
    assert 3600.0 not in choices(INTERVALS, 3601.0)
    assert choices((60.0,), 61_000.0) == [60.0, 61_000.0]
    assert "worth" not in " ".join(lines(read(WhatIfJson, WHAT_IF), True))


def test_bars_of_the_axis_lie_where_the_parts_are() -> None:
    """Useful training below, what was not above it; by hours where no date is known; no tag lives in it."""
    told = read(AttemptsJson, ATTEMPTS)
    figure = gantt(told, ["GPU 3 of <b>gpu-017</b>", ""])
    assert [trace.name for trace in figure.data] == [
        *("Useful training", "Saving checkpoints", "Starting up", "Waiting for nodes", "Work lost", "Stopped"),
    ]
    assert figure.data[1].base[0].isoformat() == "2025-03-19T02:30:00+00:00"
    assert figure.data[1].x == (41_000.0,)
    assert list(figure.data[-1].text) == [" GPU 3 of &lt;b&gt;gpu-017&lt;/b&gt;"]
    # Plotly widens a bar of an opaque colour to a whole pixel: a thousand saves of a minute hid 40 days of training.
    assert all(len(bar.marker.color) == 9 and bar.marker.color[7:].lower() < "ff" for bar in figure.data[:-1])
    undated = gantt(read(AttemptsJson, ATTEMPTS | {"start": None}), ["", ""])
    assert (undated.data[1].base, undated.data[1].x) == ((2.5,), (41 / 3600,))

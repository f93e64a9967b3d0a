"""The table of hints: its filters in the address, its selection, and one decision about many."""

from datetime import UTC, datetime
from typing import Any

import pytest
from drawn_page import Opened, failing, seen

from dashboard.panels import hint_card, hint_table
from dashboard.panels.hint_table import HintFilter
from dashboard.text import words
from wire.cluster import ClusterJson
from wire.events import DeviceJson, IncidentJson
from wire.hints import HintJson, HintOutcomeJson, HoldJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)
AT = ClusterJson(now=NOW)


def given_hints(api: Any, *changes: dict[str, Any]) -> None:
    """Let the server list these, oldest first as it does."""
    base = {"action": "cordon", "state": "proposed", "reason": "Xid 79", "owner": "foreshock", "evidence": {}}
    times = {"created": "2025-03-29T03:08:01Z", "valid_until": "2025-03-30T03:08:01Z"}
    api.answers["hints"] = {"items": [{**base, **times, "node": f"gpu-{one['id']}", **one} for one in changes]}


def table_of(shown: Any) -> Any:
    """The table of hints on a page."""
    return next(frame.value for frame in shown.dataframe if "What became of it" in frame.value)


def select(shown: Any, *places: int) -> Any:
    """Select rows, as a person does with the boxes at their left."""
    key = shown.session_state["hint_table"]
    shown.session_state[key] = {"selection": {"rows": list(places), "columns": [], "cells": []}}
    return shown.run()


def test_the_table_has_every_hint_open_ones_first(drawn: Opened, api: Any) -> None:
    """Also those that are over, and with its reason, owner and device."""
    given_hints(
        api,
        {"id": "over", "state": "expired"},
        {"id": "wait", "evidence": {"incident": "i1"}},
        {"id": "sent", "state": "sent", "owner": "person:ann"},
    )
    shown = drawn("hints")
    assert failing(shown) == []
    table = table_of(shown)
    assert list(table["Node"]) == ["gpu-wait", "gpu-sent", "gpu-over"]
    assert list(table["Device"]) == ["GPU 3", words.DASH, words.DASH]
    assert list(table["Asked by"]) == ["foreshock", "ann", "foreshock"]
    assert list(table["Evidence"]) == ["incidents?incident=i1", "", ""]
    assert "3 hints of 3" in seen(shown)


def pressed(shown: Any, *keys: str) -> Any:
    """Press some buttons, one after the other."""
    for key in keys:
        shown = shown.button(key=key).click().run()
    return shown


def test_many_are_approved_with_one_question_and_each_refusal_is_told(drawn: Opened, api: Any) -> None:
    """A request a hint: the one that has expired in between holds up no other."""
    given_hints(api, {"id": "c", "state": "sent"}, {"id": "b"}, {"id": "a"})
    api.answers["hints/a/approve"] = {}
    api.answers["hints/b/approve"] = (409, {"detail": "hint b has expired"})
    shown = select(drawn("hints"), 0, 1, 2)
    assert "**3 hints selected**" in seen(shown)
    assert [b.label for b in shown.button if "many" in b.key] == ["Approve 2", "Withdraw 3"]
    shown = pressed(shown, "many_approve")
    assert "2 hints will be sent to the scheduler: cordon gpu-a; cordon gpu-b." in seen(shown)
    assert not api.said
    shown = pressed(shown, "many_yes")
    assert [path for path, _body in api.said] == ["hints/a/approve", "hints/b/approve"]
    assert "**1 hint approved.**" in seen(shown)
    assert "**1 hint could not be decided:**" in seen(shown)
    failed = next(frame.value for frame in shown.dataframe if list(frame.value) == ["Hint", "Why not"])
    assert list(failed["Hint"]) == ["cordon gpu-b"]
    assert "hint b has expired" in failed["Why not"][0]
    assert "selected**" not in seen(shown)


def test_a_hint_that_became_another_under_the_question_is_not_decided(drawn: Opened, api: Any) -> None:
    """The question asks of it as it is now, and what changed after it was read is left alone."""
    given_hints(api, {"id": "a", "action": "watch"})
    api.answers["hints/a/approve"] = {}
    shown = pressed(select(drawn("hints"), 0), "many_approve")
    given_hints(api, {"id": "a", "action": "drain"})
    asked = shown.run()
    assert "1 hint will be sent to the scheduler: drain gpu-a." in seen(asked)
    given_hints(api, {"id": "a", "action": "drain", "state": "approved"})
    shown = pressed(asked, "many_yes")
    assert not api.said
    assert (
        "it is drain, approved now: select it again"
        in next(frame.value for frame in shown.dataframe if list(frame.value) == ["Hint", "Why not"])["Why not"][0]
    )


def test_a_click_on_rows_that_are_gone_selects_nothing(drawn: Opened, api: Any) -> None:
    """Other rows are another table: a late click reaches none of them."""
    given_hints(api, {"id": "a"})
    shown = drawn("hints")
    before = shown.session_state["hint_table"]
    given_hints(api, {"id": "a"}, {"id": "new"})
    assert shown.run().session_state["hint_table"] != before


def test_what_is_selected_stays_selected_where_newer_hints_come(drawn: Opened, api: Any) -> None:
    """A row is a hint, not a place: nobody approves a hint that moved under the cursor."""
    given_hints(api, {"id": "a"})
    shown = select(drawn("hints"), 0)
    given_hints(api, {"id": "a"}, {"id": "newer"})
    shown = shown.run()
    assert list(table_of(shown)["Node"]) == ["gpu-a"]
    assert "1 newer hint: shown once no row is selected" in seen(shown)
    shown = pressed(shown, "many_withdraw")
    assert "1 hint will be taken back: cordon gpu-a." in seen(shown)
    shown = pressed(shown, "many_no")
    assert not api.said


def test_the_filter_stands_in_the_address(drawn: Opened, api: Any) -> None:
    """State, action and text; who sees nothing is told why; a viewer has no rows to select."""
    api.answers["whoami"] = {"name": "v", "scopes": ["read"]}
    given_hints(api, {"id": "a"}, {"id": "b", "state": "expired"}, {"id": "c", "state": "expired", "action": "drain"})
    shown = drawn("hints", hint_state="expired", hint_text="GPU-C")
    assert list(table_of(shown)["Node"]) == ["gpu-c"]
    assert "1 hint of 3" in seen(shown)
    shown.text_input(key="hint_text").set_value("nobody").run()
    assert "No hint fits this filter" in seen(shown)


@pytest.mark.parametrize(
    ("wanted", "takes"),
    [
        (HintFilter(), True),
        (HintFilter(("proposed", "sent")), True),
        (HintFilter(("sent",)), False),
        (HintFilter(actions=("drain",)), False),
        (HintFilter(text="xid gpu-a"), True),
        (HintFilter(text="xid gpu-b"), False),
        (HintFilter(text="4711"), True),
    ],
)
def test_a_filter_takes_what_fits_all_its_parts(wanted: HintFilter, takes: bool) -> None:
    """Every word of the text must stand somewhere."""
    hint = HintJson(id="h", node="gpu-a", action="cordon", state="proposed", reason="Xid 79", job="4711")
    assert wanted.takes(hint) is takes


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"state": "proposed"}, "waits for approval"),
        ({"state": "shadow"}, words.DASH),
        ({"state": "sent", "placements": (HoldJson(scheduler="slurm", state="confirmed"),)}, "slurm: has it"),
        ({"state": "withdrawn", "evidence": {"closed": {"by": "person:ann"}}}, "taken back by ann"),
        (
            {"state": "expired", "outcome": HintOutcomeJson(judged=NOW, basis="shadow", right=True, lead_s=7200.0)},
            "expired; right: the node failed 2.0 h later",
        ),
        (
            {"state": "expired", "outcome": HintOutcomeJson(judged=NOW, basis="shadow", right=False, held_gpu_h=96.0)},
            "expired; wrong: the node did not fail within a day (96 GPU-h held)",
        ),
        (
            {"state": "released", "outcome": HintOutcomeJson(judged=NOW, basis="acted")},
            "released; carried out: nobody knows whether it would have failed",
        ),
    ],
)
def test_a_hint_tells_what_became_of_it(given: dict[str, Any], says: str) -> None:
    """How far its schedulers are, who ended it, and whether it was right as far as that can be known."""
    hint = HintJson(**{"id": "h", "node": "n", "action": "cordon"} | given)
    assert hint_table.came(hint) == says


def test_text_of_others_is_text_in_the_table() -> None:
    """What is hidden in a name is seen, and an id cannot leave its place in a link."""
    evil = "a\u202eb\n?x=1&y"
    incident = IncidentJson(id="i", start=NOW, end=NOW, kind="xid", device=DeviceJson(type="gpu", pci=evil))
    hint = HintJson(id="h", node=evil, action=evil, state=evil, reason=evil, owner=evil, evidence={"incident": evil})
    (row,) = hint_table.rows([hint], {evil: incident}, AT)
    assert all("\u202e" not in str(value) and "\n" not in str(value) for value in row.values())
    assert row["evidence"] == "incidents?incident=a%E2%80%AEb%0A%3Fx%3D1%26y"


def test_a_hint_of_a_link_has_it_for_its_device() -> None:
    """An incident goes before it; what is no link is none."""
    hint = HintJson(id="h", node="n", action="watch", state="shadow", evidence={"link": {"name": "leaf-03/12"}})
    (row,) = hint_table.rows([hint], {}, AT)
    assert row["device"] == "link leaf-03/12"
    (row,) = hint_table.rows([HintJson(id="h", node="n", action="watch", state="shadow", evidence={"link": 3})], {}, AT)
    assert row["device"] == "\u2013"


def test_a_request_that_a_budget_lowered_says_so() -> None:
    """In the row and on the card: who reads "avoid" for a GPU that fell off the bus asks why."""
    lowered = HintJson(id="h", node="n", action="avoid", state="sent", evidence={"held": "budget: 1 node is held"})
    (row,) = hint_table.rows([lowered], {}, AT)
    assert row["came"] == "lowered from a cordon"
    assert any(line.startswith("**Lowered from a cordon:** budget") for line in hint_card.facts(lowered, NOW))
    watch = HintJson(id="w", node="n", action="watch", state="sent", evidence={"held": "avoid budget: 8 nodes"})
    assert hint_card.lowered(watch) == "lowered from an avoid"

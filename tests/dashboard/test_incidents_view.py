"""The Incidents page: whose a fault is, what people did, and the buttons that say more."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from drawn_page import Opened, seen

from dashboard.panels.page import Site
from dashboard.panels.page import _printed as printed
from dashboard.text import words
from dashboard.views import incidents
from wire.events import IncidentJson
from wire.hints import HintJson
from wire.message import decode

from .conftest import INCIDENT, CannedApi

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)


def shown(life: dict[str, Any] | None) -> dict[str, Any]:
    """The incident with a life."""
    return INCIDENT | {"life": life, "thread": [], "verdicts": ["v1"]}


def test_the_page_begins_with_what_happened_and_whose_it_is(drawn: Opened) -> None:
    """Then what to do, what is behind it, its lines, what was asked, and who said what."""
    said = seen(drawn("incidents"))
    assert (
        "**gpu-017, GPU 3 (0000:0f:00.0): Xid 79, driver can no longer reach the GPU over PCIe. "
        "Acknowledged, with ann.**" in said
    )
    for part in ("reboot the node", "leaf004", "What was said", "What was asked of the scheduler", "What people did"):
        assert part in said
    assert "with **ann**" in said


def test_a_fault_that_nobody_has_is_told_as_such(drawn: Opened, api: CannedApi) -> None:
    """And the first button takes it."""
    api.answers["incidents/i1"] = shown({"state": "open"})
    page = drawn("incidents")
    assert "Nobody has taken it yet." in page.error[0].value
    assert [button.label for button in page.button][:3] == ["Acknowledge", "Close", "Silence for 4 h"]
    page.button(key="ack_i1").click().run()
    assert api.said == [("incidents/i1/ack", {"text": ""})]


def test_what_undid_a_word_is_told(drawn: Opened, api: CannedApi) -> None:
    """It is open again, and why."""
    api.answers["incidents/i1"] = shown({"state": "open", "again": "it is worse than when person:ann saw it"})
    assert "It is worse than when person:ann saw it." in seen(drawn("incidents"))


@pytest.mark.parametrize(
    ("state", "labels"),
    [
        ("acknowledged", ["In repair", "Close"]),
        ("in_repair", ["Repaired and tested", "Close"]),
        ("validated", ["Close", "Open again"]),
        ("closed", ["Open again"]),
        ("frozen", ["Acknowledge", "Close"]),  # of a newer server
    ],
)
def test_each_state_has_its_steps(drawn: Opened, api: CannedApi, state: str, labels: list[str]) -> None:
    """What may follow, and no more."""
    api.answers["incidents/i1"] = shown({"state": state})
    found = [button.label for button in drawn("incidents").button]
    assert [label for label in found if label not in ("Silence for 4 h", "Add the note")] == labels


def test_a_note_is_sent_as_it_was_written(drawn: Opened, api: CannedApi) -> None:
    """One that says nothing is not."""
    page = drawn("incidents")
    page.text_input(key="note_text_i1").set_value("  ")
    next(one for one in page.button if one.label == "Add the note").click().run()
    assert api.said == []
    page.text_input(key="note_text_i1").set_value("riser *reseated*")
    next(one for one in page.button if one.label == "Add the note").click().run()
    assert api.said == [("incidents/i1/note", {"text": "riser *reseated*"})]


def test_who_may_not_act_sees_no_button(drawn: Opened, api: CannedApi) -> None:
    """But all the rest."""
    api.answers["whoami"] = {"name": "guest", "scopes": ["read"]}
    page = drawn("incidents")
    assert not page.button
    assert "What people did" in seen(page)


def test_open_ones_come_first(api: CannedApi) -> None:
    """Then those in somebody's hands; the worst first among them."""

    def one(ident: str, state: str, severity: str) -> IncidentJson:
        import orjson

        return decode(
            IncidentJson, orjson.dumps(INCIDENT | {"id": ident, "severity": severity, "life": {"state": state}})
        )

    found = [one("a", "closed", "fatal"), one("b", "acknowledged", "error"), one("c", "open", "warning")]
    found.append(one("d", "open", "fatal"))
    assert [each.id for each in incidents._ordered(found)] == ["d", "c", "b", "a"]


def test_an_address_opens_the_incident_that_it_names(drawn: Opened, api: CannedApi) -> None:
    """Not the first of the list; and another choice stands in the address by its id."""
    other = shown({"state": "open"}) | {"id": "i2", "node": "gpu-023"}
    api.answers["incidents"] = {"items": [other, INCIDENT]}
    api.answers["incidents/i2"] = other
    page = drawn("incidents", incident="i1")
    assert page.selectbox(key="incident").value == "i1"
    page.selectbox(key="incident").select_index(0).run()
    assert page.query_params["incident"] in ("i2", ["i2"])
    assert "gpu-023, GPU 3" in seen(page)
    api.answers["print/incidents/i2"] = b"<html>"
    assert [one.proto.label for one in page.get("download_button")] == ["Save for a ticket"]


def test_the_page_to_print_is_fetched_with_the_dashboards_own_power(api: CannedApi, connect: Any) -> None:
    """A file of it; where the API refuses, the file says why."""
    api.answers["print/week"] = b"<html>"
    site = Site(connect(api.url))
    assert printed(site, "print/week") == b"<html>"
    assert b"Nothing at print/none." in printed(site, "print/none")
    api.answers["print/evil"] = (404, {"detail": "no incident <script src=//x></script>"})
    assert b"<script" not in printed(site, "print/evil")


def test_a_hint_that_stood_before_the_fault_says_what_it_was_made_for(drawn: Opened, api: CannedApi) -> None:
    """It seemed twenty hours older than its reason."""
    base = api.answers["hints"]["items"][0]
    start = {"new": "2025-03-29T03:00:00Z", "old": "2025-03-28T03:00:00Z"}
    made = [("old", "i0"), ("old", "i1"), ("new", "i1"), ("new", "i2"), ("old", None)]
    items = [
        base | {"id": f"h{at}", "created": start[when], "evidence": {"incident": ident} if ident else {}}
        for at, (when, ident) in enumerate(made)
    ]
    incident = IncidentJson(id="i1", start=NOW - timedelta(hours=1), end=NOW, kind="xid")
    hints = [decode(HintJson, orjson.dumps(item)) for item in items]
    assert [words.hint_ground(hint, incident) for hint in hints] == [
        *("an earlier fault of the node", "this fault; it stood before, for another", "this fault"),
        *("another fault of the node", "an earlier risk or order"),
    ]
    assert any("Asked for" in table.value.columns for table in drawn("incidents").dataframe)

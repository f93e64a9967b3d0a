"""The Hints page: what comes first, what can be decided, and what came of it."""

from datetime import UTC, datetime
from itertools import permutations
from typing import Any

import pytest
from drawn_page import Opened, failing, seen
from hypothesis import example, given
from hypothesis import strategies as some
from msgspec.structs import replace

from dashboard.panels import hint_card, hint_controls
from dashboard.text import words
from dashboard.text import words as vocabulary
from dashboard.views import hints as view
from store.hints.holds import HOLD_STATES
from wire.cluster import ClusterJson
from wire.hints import HintJson, HoldJson
from wire.policy import BudgetJson

NOW = datetime(2025, 3, 29, 3, 12, tzinfo=UTC)


def hint(name: str, state: str = "proposed", action: str = "cordon") -> HintJson:
    """A hint about one node."""
    return HintJson(id=name, node=f"gpu-{name}", action=action, state=state)


def ordered(*hints: HintJson) -> list[str]:
    """Their ids as the page shows them."""
    return [h.id for h in sorted(hints, key=view.urgency)]


def test_the_gravest_request_comes_first() -> None:
    """A job on a culprit first, then drain, cordon, avoid, watch: in whatever order the server lists them."""
    grave = [hint(action, action=action) for action in ("swap", "drain", "cordon", "avoid", "watch", "release")]
    for mixed in permutations(grave):
        assert ordered(*mixed) == ["swap", "drain", "cordon", "avoid", "watch", "release"]


def test_what_waits_for_a_person_comes_before_what_does_not() -> None:
    """Even a watch before a drain that is sent already."""
    found = ordered(
        hint("s", "shadow", "drain"), hint("t", "sent", "drain"), hint("a", "approved", "drain"), hint("p", "proposed")
    )
    assert found == ["p", "a", "t", "s"]


def test_of_equals_the_newest_comes_first() -> None:
    """The server's order is kept."""
    assert ordered(hint("new"), hint("old"), hint("older")) == ["new", "old", "older"]


def test_an_action_of_a_newer_server_comes_last_of_its_state() -> None:
    """And does not stop the page."""
    assert ordered(hint("x", action="dance"), hint("r", action="release")) == ["r", "x"]


def test_every_open_state_and_action_has_words() -> None:
    """One that is added to one table is added to all."""
    assert set(view.OPEN) == set(vocabulary.HINT_TINTS)
    assert set(view.OPEN) <= set(vocabulary.HINT_STATES)
    assert set(view.GRAVEST) == set(hint_card.ASKS)
    assert set(view.OPEN) == set(hint_card.UNDO)
    assert set(hint_card.UNDO.values()) == set(hint_card.UNDONE)


@pytest.mark.parametrize(
    ("states", "mode", "says"),
    [
        ([], "act", ("success", "No hint is open.")),
        (["proposed"], "approve", ("warning", "1 hint waits for your approval.")),
        (["proposed", "proposed", "sent"], "approve", ("warning", "2 hints wait for your approval.")),
        (["shadow"], "shadow", ("info", "1 open hint; in shadow mode none is sent.")),
        (
            ["sent", "approved"],
            "act",
            ("info", "2 open hints, 1 with the scheduler, 1 about to be sent; none waits for you."),
        ),
        (["sent", "shadow"], "shadow", ("info", "2 open hints, 1 with the scheduler; in shadow mode none is sent.")),
        (["shadow"], None, ("info", "1 open hint; none waits for you.")),
    ],
)
def test_the_headline_says_whether_somebody_must_act(
    states: list[str], mode: str | None, says: tuple[str, str]
) -> None:
    """In the singular and the plural, in each mode."""
    cluster = ClusterJson(now=NOW, mode=mode)
    assert view.headline([hint(str(i), state) for i, state in enumerate(states)], cluster) == says


def test_what_a_stop_holds_back_is_not_said_to_be_with_the_scheduler(drawn: Opened, api: Any) -> None:
    """Nor about to be sent: in the headline, the table, on the card and on the page Cluster; a release goes on."""
    api.answers["cluster"] |= {"stop": "holds"}
    given_hints(
        api,
        {"id": "s", "state": "confirmed"},
        {"id": "a", "state": "approved"},
        {"id": "r", "state": "approved", "action": "release"},
    )
    page = drawn("hints")
    said = seen(page)
    counted = "1 with the scheduler, 1 about to be sent, 1 held back by the stop"
    assert f"3 open hints, {counted}; none waits for you." in said
    assert ("approved, held back by the stop" in said, "approved, about to be sent" in said) == (True, True)
    assert "held back by the stop" in list(page.dataframe[0].value["What became of it"])
    api.answers["nodes"]["items"][0]["hint"] = {"id": "a", "action": "cordon", "state": "approved"}
    said = seen(drawn("cluster"))
    assert "**Stopped: no new hints are sent; releases continue.** Mode approve" in said
    assert "hint: **cordon** (approved, held back by the stop)" in said


def given_hints(api: Any, *changes: dict[str, Any]) -> None:
    """Let the server list these, oldest first as it does."""
    base = api.answers["hints"]["items"][0]
    api.answers["hints"] = {"items": [base | change for change in changes]}


def test_cards_stand_in_the_order_of_urgency(drawn: Opened, api: Any) -> None:
    """As the buttons of the page show."""
    given_hints(
        api,
        {"id": "old", "action": "drain"},
        {"id": "new", "action": "drain"},
        {"id": "watch", "action": "watch"},
        {"id": "sent", "action": "drain", "state": "sent"},
    )
    keys = [button.key for button in drawn("hints").button if str(button.key).startswith("withdraw_")]
    assert keys == ["withdraw_new", "withdraw_old", "withdraw_watch", "withdraw_sent"]


@pytest.mark.parametrize(
    ("state", "buttons"),
    [
        ("proposed", ["approve_h1", "withdraw_h1"]),
        ("approved", ["withdraw_h1"]),
        ("sent", ["withdraw_h1"]),
        ("confirmed", ["withdraw_h1"]),
        ("shadow", ["withdraw_h1"]),
        ("withdrawn", []),
        ("expired", []),
        ("released", []),
        ("of_tomorrow", []),
    ],
)
def test_only_what_can_be_decided_has_a_button(drawn: Opened, api: Any, state: str, buttons: list[str]) -> None:
    """Approve what is proposed, withdraw what is open, nothing of what is over."""
    given_hints(api, {"state": state})
    shown = drawn("hints")
    assert failing(shown) == []
    assert [key for key in keys_of(shown) if key != "stop"] == buttons


def keys_of(shown: Any) -> list[Any]:
    """The buttons in their order."""
    return [button.key for button in shown.button]


def test_a_question_is_asked_of_one_hint_at_a_time(drawn: Opened, api: Any) -> None:
    """Asking of another takes the first question back; nothing is sent."""
    given_hints(api, {"id": "h1"}, {"id": "h2", "node": "gpu-002"})
    shown = drawn("hints")
    shown.button(key="approve_h1").click().run()
    shown.button(key="approve_h2").click().run()
    assert keys_of(shown) == ["stop", "yes_h2", "no_h2", "approve_h1", "withdraw_h1"]
    assert "It will be sent to the scheduler: place no new work on it (gpu-002)." in seen(shown)
    assert all(method == "GET" for method, *_ in api.asked)


@pytest.mark.parametrize(("state", "label", "says"), [("sent", "Undo", "Undone"), ("shadow", "Withdraw", "Withdrawn")])
def test_one_press_takes_a_hint_back(drawn: Opened, api: Any, state: str, label: str, says: str) -> None:
    """No second question: to undo does no harm."""
    given_hints(api, {"state": state})
    api.answers["hints/h1/withdraw"] = {}
    shown = drawn("hints")
    button = shown.button(key="withdraw_h1")
    assert button.label == label
    button.click().run()
    assert [(method, path) for method, path, *_ in api.asked if method == "POST"] == [("POST", "hints/h1/withdraw")]
    assert f"{says}: cordon gpu-017." in shown.success[0].value.replace("\\", "")


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (409, {"detail": "hint h1 has expired"}, "That is no longer possible: hint h1 has expired."),
        (404, {"detail": "no hint h1"}, "No hint h1."),
        (401, {"detail": "no token"}, "wants a token: start the dashboard with --token-file FILE"),
        (500, b"<html>", "answered 500: Internal Server Error."),
    ],
)
def test_a_refused_decision_leaves_the_hint_where_it_is(
    drawn: Opened, api: Any, status: int, body: Any, says: str
) -> None:
    """The sentence in red, the card with its buttons; the next question takes the sentence away."""
    api.answers["hints/h1/approve"] = (status, body)
    shown = drawn("hints")
    shown.button(key="approve_h1").click().run()
    shown.button(key="yes_h1").click().run()
    assert failing(shown) == []
    assert says in shown.error[0].value.replace("\\", "")
    assert not shown.success
    assert keys_of(shown) == ["stop", "approve_h1", "withdraw_h1"]
    shown.button(key="approve_h1").click().run()
    assert not shown.error


def test_hints_that_are_over_have_no_card(drawn: Opened, api: Any) -> None:
    """They stand in the table, the newest first."""
    given_hints(api, *({"id": f"h{i}", "state": "expired", "node": f"n{i}"} for i in range(120)))
    shown = drawn("hints")
    ended = next(frame.value for frame in shown.dataframe if "Node" in frame.value)
    assert list(ended["Node"]) == [f"n{i}" for i in range(119, -1, -1)]
    assert "A hint appears when a node's risk" in seen(shown)


def test_a_hint_without_reason_owner_or_times_is_still_a_card(drawn: Opened, api: Any) -> None:
    """Dashes, not blanks."""
    given_hints(api, {"reason": "", "owner": None, "created": None, "valid_until": None, "evidence": {}})
    said = seen(drawn("hints"))
    assert "no reason recorded" in said
    assert "requested – by unknown · expires –" in said


def test_the_mark_for_the_scheduler_is_not_read_to_people(drawn: Opened, api: Any) -> None:
    """In Slurm every reason of ours begins with it; here all are ours."""
    given_hints(api, {"reason": "foreshock: risk 31 %"})
    lines = seen(drawn("hints")).splitlines()
    assert "risk 31 %" in lines


JSON = some.recursive(
    some.none() | some.booleans() | some.integers() | some.floats() | some.text(max_size=12),
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
NAMES = some.sampled_from(["score", "horizon_h", "held", "incident", "reasons", "acted", "colour"]) | some.text()


@example({"score": float("nan")})  # what is no number was rounded
@given(some.dictionaries(NAMES, JSON, max_size=6))
def test_whatever_the_evidence_is_it_has_words_and_no_markup(found: dict[str, Any]) -> None:
    """Each value on a line of its own, no link and no image in any."""
    for line in hint_card.evidence(replace(hint("h"), evidence=found), NOW):
        assert "\n" not in line
        assert "](" not in line
        assert not line.removeprefix("- ").startswith(("!", "#", "<"))
    for name, value in found.items():
        if name not in hint_card.SAID and value is not None:
            alone = replace(hint("h"), evidence={name: value})
            assert any(line.startswith("**") for line in hint_card.evidence(alone, NOW))


def test_a_card_tells_who_said_yes(drawn: Opened, api: Any) -> None:
    """A person by name, the policy by its version, or nobody yet."""
    said = {"approved": {"by": "alice", "time": "2025-03-29T03:09:00Z"}}
    given_hints(api, {"state": "sent", "evidence": said})
    assert "**Approved by:** alice, 3 min ago · 03:09:00 UTC" in seen(drawn("hints"))
    given_hints(api, {"state": "confirmed", "policy": "ab12", "evidence": {}})
    assert "**Approved by:** the policy, version ab12" in seen(drawn("hints"))
    given_hints(api, {"state": "proposed", "evidence": {"quiet": "22:00-06:00"}})
    assert "**Approved by:** nobody yet, it waits for you (quiet hours 22:00-06:00)" in seen(drawn("hints"))
    given_hints(api, {"state": "shadow"})
    assert "**Approved by:** nobody (shadow mode)" in seen(drawn("hints"))


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        ({"held_gpu_h": 192.0}, "up to 192 GPU-hours of this node until it expires"),
        (
            {"held_gpu_h": 192.0, "failure_gpu_h": 2500.0, "run": "llm"},
            "up to 192 GPU-hours of this node until it expires; a failure stops llm and costs about 2,500 GPU-hours",
        ),
        ({"failure_gpu_h": 128.0}, "a failure under the largest job costs about 128 GPU-hours"),
        (
            {"held_gpu_h": 192.0, "failure_gpu_h": 112.0, "node_gpus": 8, "job_gpus": 448},
            "up to 136 GPU-hours of this node until it expires; "
            "a failure under the largest job that ran when that was reckoned (448 GPUs) costs about 112 GPU-hours",
        ),
        (
            {"held_gpu_h": 192.0, "failure_gpu_h": 256.0, "node_gpus": 8, "job_gpus": 1024}
            | {"assumed": ["node_gpus", "job_gpus"]},
            "up to 136 GPU-hours of this node until it expires (8 GPUs assumed: how many it has is not known); "
            "a failure under a job of 1,024 GPUs (assumed: none ran when that was reckoned) costs about 256 GPU-hours",
        ),
        ({"held_gpu_h": None}, ""),
        ({"held_gpu_h": "many"}, ""),
    ],
)
def test_a_card_tells_what_it_costs_as_far_as_it_is_known(cost: dict[str, Any], says: str) -> None:
    """And what not asking may cost; by the time that is left, and with what nobody knew and was assumed."""
    assert hint_card.costs(cost, 17 * 3600.0).replace("\\", "") == says


def test_a_card_tells_where_each_scheduler_is(drawn: Opened, api: Any) -> None:
    """In words, with when it was seen and what it said."""
    asked = {"scheduler": "k8s", "state": "asked", "action": "release", "asked": "2025-03-29T03:10:00Z"}
    slurm = {"scheduler": "slurm", "state": "foreign", "observed": "2025-03-29T03:11:00Z", "detail": "by root: dimm"}
    given_hints(api, {"state": "confirmed", "placements": [asked, slurm, {"scheduler": "new", "state": "odd"}]})
    said = seen(drawn("hints"))
    assert "**k8s:** release ordered, not read back yet, 2 min ago · 03:10:00 UTC" in said
    assert "**slurm:** already held by another, unchanged, 1 min ago · 03:11:00 UTC (by root: dimm)" in said
    assert "**new:** odd" in said


def test_every_state_of_a_placement_has_words() -> None:
    """As many as the store knows."""
    assert set(hint_card.PLACED) == set(HOLD_STATES)
    assert (
        hint_card.hold_state_text(HoldJson(scheduler="s", state="asked", action="cordon"), NOW)
        == "ordered, not read back yet"
    )


def test_a_hint_on_a_job_names_the_job_and_the_spare(drawn: Opened, api: Any) -> None:
    """What the job's owner needs."""
    given_hints(api, {"action": "swap", "job": "4711", "evidence": {"spare": "gpu-099"}})
    said = seen(drawn("hints"))
    assert "**Job:** 4711, the spare is **gpu-099**" in said
    assert "its job should go on with a spare in its place" in said


def test_the_budget_that_is_used_is_told(drawn: Opened) -> None:
    """Before one approves another hold."""
    assert "**2 of 8** nodes held or requested · **1 of 4** within the hour" in seen(drawn("hints"))
    assert hint_controls.used(BudgetJson(held=1, most=8, held_within_hour=1, most_per_hour=4), "shadow").startswith(
        "**1 of 8** nodes would be held"
    )


def test_one_press_stops_all_new_hints(drawn: Opened, api: Any) -> None:
    """And the page then says so, who it was, and offers the way back."""
    shown = drawn("hints")
    by = {"source": "switch", "stop": "holds", "reason": "driver", "by": "ann", "time": "2025-03-29T03:11:00Z"}
    api.answers["stop"] = {"stop": "holds", "sources": [by]}
    shown.button(key="stop").click().run()
    assert api.said == [("stop", {"stop": "holds", "reason": "stopped on the dashboard"})]
    assert "Stopped: no new hints are sent; releases continue." in shown.error[0].value
    assert "ann, 1 min ago · 03:11:00 UTC: driver · the button below lifts it" in seen(shown)
    assert "stop" not in keys_of(shown)
    shown.button(key="resume").click().run()
    assert api.said[-1] == ("stop", {"stop": "none", "reason": "resumed on the dashboard"})


def test_what_a_file_stops_no_button_lifts(drawn: Opened, api: Any) -> None:
    """It says how it is lifted."""
    by = {"source": "file", "stop": "all", "reason": "/etc/foreshock/stop", "by": None, "time": None}
    api.answers["stop"] = {"stop": "all", "sources": [by]}
    shown = drawn("hints")
    assert "nothing is sent, not even releases" in shown.error[0].value
    assert "the file: /etc/foreshock/stop · remove the file" in seen(shown)
    assert not {"stop", "resume"} & set(keys_of(shown))


@pytest.mark.parametrize("backlog", ["drop", "review"])
def test_a_trip_is_reset_with_a_choice(drawn: Opened, api: Any, backlog: str) -> None:
    """What called is forgotten, or each waits for a person."""
    why = "breaker: 5 nodes of leaf leaf-3 call for a cordon at once"
    trip = {"seq": 7, "kind": "leaf", "name": "leaf-3", "why": why, "count": 5, "time": "2025-03-29T03:00:00Z"}
    api.answers["breaker"] = {"items": [trip]}
    api.answers["breaker/7/reset"] = trip
    shown = drawn("hints")
    assert "The breaker is open for 1 group:" in seen(shown)
    assert "**leaf leaf-3**: 5 nodes of leaf leaf-3 call for a cordon at once · 12 min ago" in seen(shown)
    assert ("GET", "breaker") in {(method, path) for method, path, *_ in api.asked}
    shown.button(key=f"{backlog}_7").click().run()
    assert api.said == [("breaker/7/reset", {"backlog": backlog})]
    assert "The breaker is reset for leaf leaf-3" in shown.success[0].value.replace("\\", "")


def test_a_refused_stop_is_said_in_red(drawn: Opened, api: Any) -> None:
    """The switch is not thrown, and nobody shall think that it is."""
    shown = drawn("hints")
    api.answers["stop"] = (403, {"detail": "the token lacks the scope act"})
    shown.button(key="stop").click().run()
    assert "another role, or a token with the scope" in shown.error[0].value.replace("\\", "")


def test_what_came_of_hints_is_a_table(drawn: Opened) -> None:
    """Shares with their intervals; of what was carried out none, for a held node cannot show."""
    shown = drawn("hints")
    table = next(frame.value for frame in shown.dataframe if "Surely (95 %)" in frame.value)
    assert list(table["Asked"]) == ["avoid", "cordon"]
    assert list(table["Became"]) == ["recorded only", "carried out"]
    assert list(table["Right"]) == ["6 (15 %)", words.DASH]
    assert list(table["Surely (95 %)"]) == ["7 % to 29 %", words.DASH]
    assert list(table["Saved, GPU-h"]) == ["2,500", words.DASH]
    assert "**0.56** false holds per 1,000 node-days." in seen(shown)


def test_without_outcomes_the_page_says_when_there_will_be_some(drawn: Opened, api: Any) -> None:
    """No empty table."""
    api.answers["hints/outcomes"] = {"tallies": []}
    assert "No hint is old enough to be judged yet" in seen(drawn("hints"))


def test_a_policy_file_that_does_not_hold_is_said(drawn: Opened, api: Any) -> None:
    """An operator who changed it must not think that it is in force."""
    api.answers["policy"] = {"version": "a", "problem": "/etc/p.yaml, line 3: unknown key 'budget'"}
    said = seen(drawn("hints"))
    assert "The policy file is refused, the previous policy stays in force: /etc/p.yaml, line 3" in said


@pytest.mark.parametrize(
    ("evidence", "says"),
    [
        ({"release": "2025-03-29T03:00:00Z"}, "**Release:** well for long enough, waits for its test"),
        ({"release": "x", "repair": "3 tests failed"}, "**Repair:** it failed its test too often"),
    ],
)
def test_a_node_on_its_way_back_says_what_it_waits_for(
    drawn: Opened, api: Any, evidence: dict[str, Any], says: str
) -> None:
    """Its test, or a person with a spare part."""
    given_hints(api, {"state": "confirmed", "evidence": evidence})
    assert says in seen(drawn("hints"))


@pytest.mark.parametrize(
    ("scopes", "buttons", "says"),
    [
        (["read"], [], "may not approve or withdraw hints, stop or resume hints or reset the breaker"),
        (["read", "act:approve"], ["approve_h1", "withdraw_h1"], "may not stop or resume hints or reset the breaker"),
        (["read", "act:stop"], ["stop"], "may not approve or withdraw hints or reset the breaker"),
        (["read", "act:approve", "act:stop", "act:reset"], ["stop", "approve_h1", "withdraw_h1"], None),
    ],
)
def test_a_page_has_the_buttons_that_the_role_has(
    drawn: Opened, api: Any, scopes: list[str], buttons: list[str], says: str | None
) -> None:
    """And names those that are absent."""
    given_hints(api, {"state": "proposed"})
    api.answers["whoami"] = {"name": "person:v@x", "person": "v@x", "role": "viewer", "scopes": scopes}
    shown = drawn("hints")
    assert keys_of(shown) == buttons
    assert ("those buttons are absent" in seen(shown)) == (says is not None)
    assert says is None or f"Your role (viewer) {says}" in seen(shown)


def test_who_has_given_one_of_two_approvals_is_not_asked_again(drawn: Opened, api: Any) -> None:
    """Another person is; the card says who approved, and that it waits."""
    given = {"by": "person:v@example.com token:web", "person": "person:v@example.com", "time": "2025-03-29T03:09:00Z"}
    given_hints(api, {"state": "proposed", "approvals": [given], "approvals_needed": 2})
    who = {"role": "operator", "scopes": ["read", "act:approve"]}
    for name, buttons, headline in (
        ("v@example.com", ["withdraw_h1"], "1 open hint; none waits for you."),
        ("w@example.com", ["approve_h1", "withdraw_h1"], "1 hint waits for your approval."),
    ):
        api.answers["whoami"] = who | {"name": f"person:{name}", "person": name}
        shown = drawn("hints")
        assert keys_of(shown) == buttons
        assert headline in seen(shown)
        assert "`v@example.com` (through web), 3 min ago · 03:09:00 UTC; **1 of 2**: it needs another person" in seen(
            shown
        )


LINK = {"name": "leaf-03/12", "ends": ["leaf-03 port 12", "gpu-017 port 1"], "score": 0.31, "horizon_h": 24}


def test_a_hint_of_a_link_says_which_and_how_likely_it_is_lost(drawn: Opened, api: Any) -> None:
    """On the card with both ends; the node's own risk is called so."""
    told = {
        "link": LINK | {"stop_risk": 0.08, "time": "2025-03-29T03:00:00Z"},
        "score": 0.004,
        "reasons": ["7 link flaps in 7 days"],
    }
    given_hints(api, {"state": "shadow", "action": "avoid", "evidence": told | {"held": "avoid budget: 16 nodes"}})
    said = seen(drawn("hints")).replace("\\", "")
    assert (
        "**Link:** leaf-03/12, between leaf-03 port 12 and gpu-017 port 1: 31 % to be lost within 24 h, "
        "as of 2025-03-29 03:00:00 UTC; "
        "by its own signs alone 8 % that it is lost and stops the job" in said
    )
    assert "**Risk of the node itself within 24 h:** 0.4 % when it was made, " in said
    assert "**Lowered from an avoid:** avoid budget: 16 nodes" in said


@pytest.mark.parametrize(
    ("link", "says"),
    [
        (None, ""),
        ("x", ""),
        ({}, ""),
        ({"name": "l/1"}, "l/1"),
        ({"name": "l/1", "ends": 3, "score": "x", "stop_risk": None}, "l/1"),
        ({"name": "![x](http://evil)", "ends": ["[a](b)"]}, "\\!\\[x\\]\\("),
    ],
)
def test_whatever_the_link_is_it_has_words_and_no_markup(link: Any, says: str) -> None:
    """What a server may have of it."""
    text = hint_card.link_text(link)
    assert text.startswith(says) if says else text == ""
    assert "](" not in text

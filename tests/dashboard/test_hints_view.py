"""The Hints page: what comes first, what can be decided, and what came of it."""

from itertools import permutations
from typing import Any

import pytest
from drawn_page import Opened, failing, seen
from hypothesis import given
from hypothesis import strategies as some

from dashboard import vocabulary
from dashboard.answers import Hint
from dashboard.views import hints as view


def hint(name: str, state: str = "proposed", action: str = "cordon") -> Hint:
    """A hint about one node."""
    return Hint(name, f"gpu-{name}", action, state)


def ordered(*hints: Hint) -> list[str]:
    """Their ids as the page shows them."""
    return [h.id for h in sorted(hints, key=view.urgency)]


def test_the_gravest_request_comes_first() -> None:
    """Drain before cordon before avoid before watch before release, in whatever order the server lists them."""
    grave = [hint(action, action=action) for action in ("drain", "cordon", "avoid", "watch", "release")]
    for mixed in permutations(grave):
        assert ordered(*mixed) == ["drain", "cordon", "avoid", "watch", "release"]


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
    assert set(view.GRAVEST) == set(view.ASKS)
    assert set(view.CONFIRM) == set(view.DONE)


@pytest.mark.parametrize(
    ("states", "mode", "says"),
    [
        ([], "auto", ("success", "Nothing is asked of the scheduler.")),
        (["proposed"], "approve", ("warning", "1 hint waits for your approval.")),
        (["proposed", "proposed", "sent"], "approve", ("warning", "2 hints wait for your approval.")),
        (["shadow"], "shadow", ("info", "1 open hint; in shadow mode none is sent.")),
        (["sent", "approved"], "auto", ("info", "2 open hints, 2 with the scheduler; none waits for you.")),
        (["sent", "shadow"], "shadow", ("info", "2 open hints, 1 with the scheduler; in shadow mode none is sent.")),
        (["shadow"], None, ("info", "1 open hint; none waits for you.")),
    ],
)
def test_the_headline_says_whether_somebody_must_act(
    states: list[str], mode: str | None, says: tuple[str, str]
) -> None:
    """In the singular and the plural, in each mode."""
    assert view.headline([hint(str(i), state) for i, state in enumerate(states)], mode) == says


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
    assert [button.key for button in shown.button] == buttons


def test_a_question_is_asked_of_one_hint_at_a_time(drawn: Opened, api: Any) -> None:
    """Asking of another takes the first question back; nothing is sent."""
    given_hints(api, {"id": "h1"}, {"id": "h2", "node": "gpu-002"})
    shown = drawn("hints")
    shown.button(key="approve_h1").click().run()
    shown.button(key="withdraw_h2").click().run()
    keys = {button.key for button in shown.button}
    assert keys == {"approve_h1", "withdraw_h1", "yes_h2", "no_h2"}
    assert "It will be taken back; where the scheduler has it already, it is asked to undo it (gpu-002)" in seen(shown)
    assert all(method == "GET" for method, *_ in api.asked)


@pytest.mark.parametrize(
    ("status", "body", "says"),
    [
        (409, {"detail": "hint h1 has expired"}, "That is no longer possible: hint h1 has expired."),
        (404, {"detail": "no hint h1"}, "knows nothing of that name (no hint h1)."),
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
    assert [button.key for button in shown.button] == ["approve_h1", "withdraw_h1"]
    shown.button(key="withdraw_h1").click().run()
    assert not shown.error


def test_hints_that_are_over_are_folded_away_and_bounded(drawn: Opened, api: Any) -> None:
    """The newest hundred, the number of all."""
    given_hints(api, *({"id": f"h{i}", "state": "expired", "node": f"n{i}"} for i in range(120)))
    shown = drawn("hints")
    assert [e.label for e in shown.expander] == ["Hints that are over (120)"]
    assert list(shown.dataframe[0].value["node"]) == [f"n{i}" for i in range(119, 19, -1)]
    assert "Nothing is asked at present." in seen(shown)


def test_a_hint_without_reason_owner_or_times_is_still_a_card(drawn: Opened, api: Any) -> None:
    """Dashes, not blanks."""
    given_hints(api, {"reason": "", "owner": None, "created": None, "valid_until": None, "evidence": {}})
    said = seen(drawn("hints"))
    assert "no reason recorded" in said
    assert "asked – UTC by unknown · ends by itself – UTC" in said


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


@given(some.dictionaries(NAMES, JSON, max_size=6))
def test_whatever_the_evidence_is_it_has_words_and_no_markup(found: dict[str, Any]) -> None:
    """Each value on a line of its own, no link and no image in any."""
    for line in view.evidence(found):
        assert "\n" not in line
        assert "](" not in line
        assert not line.removeprefix("- ").startswith(("!", "#", "<"))
    for name, value in found.items():
        if name not in view.SAID and value is not None:
            assert any(line.startswith("**") for line in view.evidence({name: value}))

"""Answers that the sessions of one dashboard share."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier, Event
from typing import Any
from unittest.mock import ANY

import pytest
from real.programs import wait_for

from dashboard import answers
from dashboard.answers import SharedAnswers
from dashboard.client import ApiAddress, ApiClient, ApiProblem
from dashboard.panels.fabric_map import HeldMap, renewed
from dashboard.panels.page import Site

TOGETHER = 20


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Lets time pass."""
    passed = [100.0]
    monkeypatch.setattr(answers.time, "monotonic", lambda: passed[0])
    return lambda seconds: passed.__setitem__(0, passed[0] + seconds)


@pytest.mark.parametrize("fails", [False, True])
def test_who_asks_at_once_is_answered_at_once(fails: bool) -> None:
    """One asks, and all get what came of it: an API that does not answer is waited for once."""
    shared, began, slow = SharedAnswers(60.0), Barrier(TOGETHER), Event()
    asked = []

    def ask() -> list[int]:
        asked.append(1)
        slow.wait(0.05)
        if fails:
            raise ApiProblem("nobody there")
        return [1]

    def one(_: int) -> Any:
        began.wait()
        try:
            return shared.get("cluster", ask)
        except ApiProblem as trouble:
            return str(trouble)

    with ThreadPoolExecutor(TOGETHER) as pool:
        found = list(pool.map(one, range(TOGETHER)))
    assert found == ["nobody there" if fails else [1]] * TOGETHER
    assert len(asked) == 1


def test_an_answer_is_given_once_more_while_it_is_fresh(api: Any, clock: Callable[[float], None]) -> None:
    """To the same person alone; what is done lets all be asked anew."""
    client = ApiClient(ApiAddress(api.url), fresh_s=0.5)
    ann, bob = (client.acting_for({"Foreshock-Person": name}) for name in ("ann", "bob"))
    api.answers["hints/h1/approve"] = {}
    for of, asked in ((ann, 1), (ann, 1), (bob, 2), (client, 3)):
        of.cluster()
        assert len(api.asked) == asked
    ann.decide("h1", "approve")
    bob.cluster()
    assert len(api.asked) == 5
    clock(0.6)
    bob.cluster()
    assert len(api.asked) == 6
    client.close()


def test_the_map_is_shared_by_those_who_hold_the_same(api: Any, clock: Callable[[float], None]) -> None:
    """Whoever holds another one is answered by itself; what is held already is not drawn anew."""
    api.headers["ETag"] = '"1"'
    client = ApiClient(ApiAddress(api.url), fresh_s=0.5)
    site = Site(client)
    first, second = (renewed(site, None) for _ in range(2))
    assert first == second == HeldMap('"1"', ANY, '"1"')
    assert len(api.asked) == 1
    clock(0.6)
    assert renewed(site, first) is first
    assert renewed(site, second) is second
    assert len(api.asked) == 2
    api.headers["ETag"] = '"2"'
    clock(0.6)
    assert renewed(site, first) == HeldMap('"2"', ANY, '"2"')
    client.close()


def test_a_large_list_of_nodes_is_asked_for_more_seldom(api: Any, connect: Any, clock: Callable[[float], None]) -> None:
    """12,000 nodes every half minute and behind, a small cluster's at each turn; for all sessions together."""
    client = connect(api.url)
    api.answers["nodes"] = {"items": [{"node": f"gpu-{i:05}", "state": "ok"} for i in range(12_000)]}
    for passed_s in (0.0, 29.0):
        clock(passed_s)
        assert len(client.nodes()) == 12_000
        assert len(api.asked) == 1
    clock(2.0)
    api.answers["nodes"] = {"items": [{"node": "box", "state": "ok"}]}
    assert len(client.nodes()) == 12_000, "the old ones, and nobody waits"
    wait_for("the new ones are there", lambda: len(client.nodes()) == 1)
    before = len(api.asked)
    for asked in (before + 1, before + 2):
        clock(1.0)
        client.nodes()
        assert len(api.asked) == asked


def test_answers_that_nobody_asks_for_any_more_do_not_pile_up(clock: Callable[[float], None]) -> None:
    """Windows of time differ with each moment."""
    shared = SharedAnswers(0.5)
    for number in range(3 * answers.MOST):
        shared.get(number, lambda: 1)
        clock(0.01)
    assert len(shared._held) <= answers.MOST

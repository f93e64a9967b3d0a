"""Verdicts on the pages: the first answer, the page of one, the node's part in it; unknown is shown as unknown."""

from datetime import UTC, datetime
from typing import Any

import pytest
from drawn_page import Opened, failing, seen

from dashboard.text import verdicts as sayings
from wire.verdicts import VerdictJson

SINCE = "2025-03-29T03:08:00Z"
NOW = datetime(2025, 3, 29, 3, 8, 40, tzinfo=UTC)


def verdict(**facts: Any) -> VerdictJson:
    """A leaf switch, from which 64 nodes of two jobs suffer."""
    import msgspec

    made = {"id": "v1", "rank": 1, "probability": 0.93, "class": "switch", "name": "leaf004", "since": SINCE}
    made |= {"nodes": [f"n{i}" for i in range(64)], "jobs": ["a", "b"]}
    return msgspec.convert(made | facts, VerdictJson)


LOST = {
    "class": "gpu",
    "name": "n1/0000:0f:00.0",
    "node": "n1",
    "nodes": ["n1"],
    "jobs": ["llm"],
    "action": "reboot_node",
}
FELL = {"reason": "gpu n1/0000:0f:00.0: GPU has fallen off the bus.", "gpu_hours_at_stake": 112.4}
RAILS = {"reason": "8 of 8 nodes below it lost a link at once: switch leaf004", "action": "run_diagnostics"}


@pytest.mark.parametrize(
    ("facts", "level", "text"),
    [
        (
            {**LOST, **FELL, "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": 5}},
            "error",
            "GPU 5 of n1 is the cause. GPU has fallen off the bus, 40 s ago. "
            "1 job suffers (llm), 112 GPU-hours at stake. Do: reboot the node. Probability: 93 %.",
        ),
        (
            LOST,
            "error",
            "GPU 0000:0f:00.0 of n1 is the cause. It began 40 s ago. 1 job suffers (llm). Do: reboot the node. "
            "Probability: 93 %.",
        ),
        (
            RAILS,
            "error",
            "Switch leaf004 is the cause. 8 of 8 nodes below it lost a link at once, 40 s ago. "
            "64 nodes of 2 jobs suffer (a and b). Do: run diagnostics. Probability: 93 %.",
        ),
        (
            {"name": "Switch 4", "jobs": ["a", "b", "c"]},
            "error",
            "Switch 4 is the cause. It began 40 s ago. 64 nodes of 3 jobs suffer. Probability: 93 %.",
        ),
        (
            {"nodes": ["n1"], "jobs": [], "gpu_hours_at_stake": 3.0},
            "error",
            "Switch leaf004 is the cause. It began 40 s ago. 1 node suffers. Probability: 93 %.",
        ),
        (
            {"probability": 0.3, "reason": "switch leaf004"},
            "warning",
            "Switch leaf004 may be the cause. It began 40 s ago. 64 nodes of 2 jobs suffer (a and b). "
            "Probability: 30 %.",
        ),
        (
            {"nodes": [], "jobs": []},
            "error",
            "Switch leaf004 is the cause. It began 40 s ago. Probability: 93 %.",
        ),
        (
            {"class": "application", "name": "llm-7b", "nodes": [], "reason": "the program of llm-7b failed by itself"},
            "info",
            "Program of llm-7b: no machine is to blame. The program of llm-7b failed by itself, 40 s ago. "
            "2 jobs suffer (a and b). Probability: 93 %.",
        ),
        (
            {"class": "unknown", "name": "unknown", "reason": "no cause that is known here explains it"},
            "warning",
            "Something is wrong and its cause is not known. No cause that is known here explains it, 40 s ago. "
            "64 nodes of 2 jobs suffer (a and b). Probability that it is none known here: 93 %.",
        ),
    ],
)
def test_the_first_answer_names_the_cause_what_it_did_who_suffers_and_what_to_do(
    facts: dict[str, Any], level: str, text: str
) -> None:
    """In short sentences, with how sure that is."""
    found = sayings.headline(verdict(**facts), NOW)
    assert (found[0], " ".join(found[1:]).replace("\\", "")) == (level, text)


def test_others_that_stand_are_counted() -> None:
    """They are listed below."""
    assert sayings.headline(verdict(), NOW, 3)[2].replace("\\", "").endswith("93 %. 3 other verdicts below.")


def test_a_long_reason_is_cut_and_what_is_hidden_in_it_is_seen() -> None:
    """It is text that a node wrote."""
    said = sayings.headline(verdict(reason="switch leaf004: ![x](http://e.vil) <b>\u202e" + "x" * 999), NOW)[1]
    assert len(said) < 500
    assert "http://" not in said
    assert "\u202e" not in said


def test_a_cause_that_is_likely_goes_before_the_unknown_and_the_unknown_before_a_guess() -> None:
    """A guess is no answer."""
    unknown = verdict(id="u", rank=1, probability=0.7, **{"class": "unknown"})
    likely, guess = verdict(id="l", rank=2), verdict(id="g", rank=3, probability=0.2)
    over = verdict(id="o", state="closed", probability=1.0)
    assert [one.id for one in sayings.standing([unknown, guess, over, likely])] == ["l", "g", "u"]
    for found, first in (([unknown, likely], likely), ([unknown, guess], unknown), ([guess], guess), ([over], None)):
        assert sayings.first_of(found) == first


def test_what_stands_is_in_the_order_in_which_it_wants_somebody() -> None:
    """Not yet taken, certain, a machine's fault, much at stake, something to do, likely: in this order."""
    taken = {"life": {"state": "acknowledged"}}
    found = [
        verdict(id="much at stake", rank=8, probability=0.6, gpu_hours_at_stake=400.0),
        verdict(id="little at stake", rank=7, probability=0.99, gpu_hours_at_stake=2.0, action="reboot_node"),
        verdict(id="to do", rank=6, probability=0.7, action="reboot_node"),
        verdict(id="likelier, to watch", rank=1, probability=0.98, action="watch"),
        verdict(id="nothing to do", rank=5, probability=0.99, jobs=[], gpu_hours_at_stake=0.2),
        verdict(id="a program", rank=2, gpu_hours_at_stake=999.0, **{"class": "application"}),
        verdict(id="unknown", rank=3, **{"class": "unknown"}),
        verdict(id="a guess", rank=4, probability=0.24, gpu_hours_at_stake=999.0),
        verdict(id="taken", rank=9, probability=0.99, gpu_hours_at_stake=999.0, **taken),
    ]
    assert sayings.by_urgency(found[::-1]) == found
    assert sayings.by_urgency(found) == found


def test_the_page_of_a_verdict_says_why_who_and_what_to_do(drawn: Opened) -> None:
    """Evidence for and against, its nodes and jobs, and how it has changed."""
    page = drawn("verdicts", verdict="v1")
    assert failing(page) == []
    assert page.error[0].value.replace("\\", "").startswith("**Switch leaf004 is the cause")
    said = seen(page)
    for words in ("What to do:** run diagnostics", "all 2 nodes below leaf004", "also called 0xb83fd203001000c0"):
        assert words in said
    tables = [table.value for table in page.dataframe]
    assert list(tables[0]["What"]) == ["2 of the 2 nodes below it"]
    assert list(tables[1]["What"]) == ["its own log is quiet"]
    assert list(tables[2]["What has changed"]) == ["gpu-023 lost its link, too"]
    values = {metric.label: metric.value for metric in page.metric}
    assert (values["Probability"], values["Nodes"], values["GPU-hours at stake"]) == ("93 %", "2", "128")


def test_a_verdict_that_is_not_listed_is_still_shown_by_its_address(drawn: Opened, api: Any) -> None:
    """A link of a hint may be older than the list; one that never was is a sentence."""
    api.answers["verdicts"] = {"items": [], "next_cursor": None}
    assert "leaf004 is the cause" in drawn("verdicts", verdict="v1").error[0].value.replace("\\", "")
    assert "Nothing at verdicts/v9" in drawn("verdicts", verdict="v9").error[0].value


def test_a_cause_that_is_not_known_is_said_to_be_so(drawn: Opened, api: Any) -> None:
    """On the first page and on its own."""
    unknown = api.answers["verdicts"]["items"][0] | {"class": "unknown", "name": "unknown", "cause": "unknown"}
    api.answers["verdicts"] = {"items": [unknown], "next_cursor": None}
    api.answers["verdicts/v1"] = unknown
    for page in (drawn("cluster"), drawn("verdicts", verdict="v1")):
        assert failing(page) == []
        assert "its cause is not known" in page.warning[0].value.replace("\\", "")


def test_the_cluster_page_puts_an_incident_down_to_its_verdict(drawn: Opened) -> None:
    """And lists what stands with what to do."""
    page = drawn("cluster")
    assert list(page.dataframe[0].value["Verdict"]) == ["switch leaf004 (93 %)"]
    assert "2 nodes of 1 job · since 4 min ago · what to do: run diagnostics" in seen(page)


def test_a_certain_fault_leads_though_it_is_dated_later_than_the_page(drawn: Opened, api: Any) -> None:
    """This host's own kernel beside a replay: a guess of the replay does not go before it, and its date is said."""
    guess = api.answers["verdicts"]["items"][0] | {"probability": 0.24, "gpu_hours_at_stake": 900.0}
    own = guess | LOST | {"id": "v2", "since": "2026-11-21T00:00:00Z", "probability": 0.97, "jobs": [], "rank": 2}
    api.answers["verdicts"] = {"items": [own, guess], "next_cursor": None}
    api.answers["verdicts/v2"] = own
    for page in (drawn("cluster"), drawn("verdicts")):
        assert failing(page) == []
        led = page.error[0].value.replace("\\", "")
        assert "GPU 0000:0f:00.0 of n1 is the cause" in led
        assert "at 2026-11-21 00:00:00 UTC" in led
    assert "began at 2026-11-21 00:00:00 UTC, later than this page's clock" in seen(drawn("cluster"))
    page = drawn("verdicts")
    assert page.selectbox[0].options[0].endswith("2026-11-21 00:00:00 UTC")
    assert {metric.label: metric.value for metric in page.metric}["Since"] == "clock ahead"


def test_a_node_s_page_says_what_it_is_to_the_verdict(drawn: Opened, api: Any) -> None:
    """A victim here; the cause where it is of this node."""
    page = drawn("node", node="gpu-017")
    assert failing(page) == []
    assert "**93 %**: this node only suffers from it" in seen(page)
    (told,) = [frame.value["Verdict"] for frame in page.dataframe if "Verdict" in frame.value]
    assert list(told) == ["switch leaf004 (93 %)"]
    item = api.answers["verdicts"]["items"][0]
    api.answers["verdicts"]["items"] = [item | {"node": "gpu-017", "class": "gpu"}]
    assert "this node is the cause" in seen(drawn("node", node="gpu-017"))


def test_hostile_names_and_reasons_stay_text(drawn: Opened, api: Any) -> None:
    """No markup of a log line comes to life."""
    evil = "![x](http://evil.example/a.png) <script>alert(1)</script> **bold**"
    item = api.answers["verdicts"]["items"][0] | {
        "name": evil,
        "reason": evil,
        "jobs": [evil],
        "names": [evil, evil + "2"],
    }
    api.answers["verdicts"] = {"items": [item], "next_cursor": None}
    api.answers["verdicts/v1"] = item
    for page in (drawn("cluster"), drawn("verdicts", verdict="v1"), drawn("node", node="gpu-017")):
        assert failing(page) == []
        parts = [*page.markdown, *page.caption, *page.error, *page.warning]
        assert not any("![x]" in str(part.value) or "<script>" in str(part.value) for part in parts)

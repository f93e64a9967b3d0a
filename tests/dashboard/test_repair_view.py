"""The Repair page: what it says of each node, and of a fleet in which none stands out."""

from datetime import UTC, datetime
from typing import Any

import pytest
from drawn_page import Opened, failing, seen

from dashboard.views import repair as view
from wire.repair import LemonJson, PartJson, RepairEvidenceJson, RepairListJson


def test_the_page_says_what_to_do_before_it_says_why(drawn: Opened, api: Any) -> None:
    """Who is called at night reads the first line of a card: the step, then the evidence."""
    shown = drawn("repair")
    assert failing(shown) == []
    said = seen(shown)
    assert "1 node should go to repair. The worst: gpu-017, it fails 13 times as often as the fleet." in said
    step = said.index("**Do:** Exchange gpu 0000:0f:00.0: the same fault came back after a repair.")
    assert step < said.index("4 unplanned outages in 28 days")
    assert "rack rack-01 · 99 % sure that it is no bad luck" in said
    assert "gpu 0000:0f:00.0**, bad on 3 of the 4 days with a fault (PCI 0000:0f:00.0, UUID GPU-7)" in said
    assert "of the list as a whole up to 10 % may be bad luck; how sure each one is its card says" in said


def test_repairs_say_whether_the_fault_came_back(drawn: Opened, api: Any) -> None:
    """The newest first; one that lasts is still out."""
    rows = drawn("repair").dataframe[0].value
    assert rows["Lasted"].tolist() == ["still out", "2.0 h"]
    assert rows["Fault came back"].tolist() == ["no", "yes"]


def test_links_with_the_highest_risk_stand_below_the_nodes(drawn: Opened, api: Any) -> None:
    """With both ends and what raised the risk; one that nothing speaks against is not among them."""
    link = api.answers["links"]["items"][0]
    api.answers["links"]["items"].append(link | {"link": "leaf-03/13", "reasons": link["reasons"][1:]})
    shown = drawn("repair")
    rows = shown.dataframe[-1].value
    why = "lost 5 times in 28 days, the last 3 h ago"
    assert rows.to_numpy().tolist() == [["leaf-03/12", "leaf-03 port 12 and gpu-017", "31 %", why]]
    api.answers["links"] = {"items": [], "next_cursor": None}
    assert "Links with the highest risk" not in seen(drawn("repair"))


def test_nodes_to_check_stand_with_what_that_finds(drawn: Opened, api: Any) -> None:
    """The chance as the scores say, what came of such lists, and of each node what keeping it free is worth."""
    shown = drawn("repair")
    said = seen(shown)
    assert "The chance that at least one of these 2 nodes fails within 24 h is 43 % by the scores." in said
    assert "Of the last 27 lists of 10 nodes 9 had a failure: 33 % (between 19 % and 52 %)" in said
    assert "Runs lost 310 GPU-hours a list by them; to keep all the nodes of a list free saves 134." in said
    rows = shown.dataframe[1].value.to_numpy().tolist()
    assert rows == [
        ["gpu-018", "31 %", "3 row remappings in 24 h; 1 GPU link error in 24 h", "llm-70b", "256", "62"],
        ["gpu-019", "2 %", "nothing stands out", "\N{EN DASH}", "256", "nothing, by its score"],
    ]
    assert shown.dataframe[2].value.to_numpy().tolist()[0] == ["row remapping", 12, 7, "12 h"]
    record = api.answers["riskiest"]["record"] | {"lists": 1, "hit": 1}
    less = [one | {"worth_gpu_h": 0.2, "pays": True} for one in api.answers["riskiest"]["items"]]
    api.answers["riskiest"] = api.answers["riskiest"] | {"record": record, "items": less}
    shown = drawn("repair")
    assert "Of the last 1 list of 10 nodes 1 had a failure" in seen(shown)
    assert {row[-1] for row in shown.dataframe[1].value.to_numpy().tolist()} == {"< 1"}, "it does not save nothing"
    api.answers["riskiest"] = api.answers["riskiest"] | {"record": None, "leads": []}
    assert "What came of earlier lists is not known yet." in seen(drawn("repair"))
    api.answers["riskiest"] = api.answers["riskiest"] | {"items": [], "states": {"silent": 64}}
    assert "No node that is at work has a score: 64 silent." in seen(drawn("repair"))


def test_a_fleet_without_lemons_is_good_news(drawn: Opened, api: Any) -> None:
    """And says what would bring a node here."""
    api.answers["lemons"] = api.answers["lemons"] | {"items": [], "found": 0}
    shown = drawn("repair")
    assert "No node of 12,500 needs repair" in shown.success[0].value
    assert "A node appears here when it fails again and again" in seen(shown)


def test_more_than_a_page_of_nodes_are_counted(drawn: Opened, api: Any) -> None:
    """Nobody works through more at a time."""
    lemon = api.answers["lemons"]["items"][0]
    many = [lemon | {"node": f"gpu-{i:03}"} for i in range(view.SHOWN + 2)]
    api.answers["lemons"] = api.answers["lemons"] | {"items": many, "found": len(many)}
    assert "and 2 more: `foreshock lemons` shows all" in seen(drawn("repair"))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (None, "No single part stands out: the faults are spread, or no source names a device."),
        (PartJson(words="disk nvme0"), "**disk nvme0**"),
        (
            PartJson(words="gpu 3", serial="S1", days=2, of_days=2),
            "**gpu 3**, bad on 2 of the 2 days with a fault (serial S1)",
        ),
    ],
    ids=["none", "named", "numbered"],
)
def test_a_part_is_told_by_all_its_numbers(part: PartJson | None, says: str) -> None:
    """What is not known is left out."""
    assert view.numbers(part) == says


def test_many_records_are_counted_not_listed() -> None:
    """The newest three of each kind."""
    lines = [
        RepairEvidenceJson(text="a", events=("e1",)),
        RepairEvidenceJson(text="b", incidents=tuple("abcde"), jobs=("17",)),
    ]
    assert view.records(lines) == "incident c, d, e and 2 more; event e1; job 17"
    assert view.records([]) == ""


def test_a_server_that_promises_nothing_is_not_quoted() -> None:
    """Without the multiple and the share the page makes no claim."""
    report = RepairListJson(
        at=datetime(2025, 3, 1, tzinfo=UTC),
        items=(LemonJson(node="n", probability=0.9, times_fleet=5.0),),
        found=1,
        nodes=9,
    )
    assert view.basis(report).endswith("from the last 28 days.")
    assert view.headline(report)[0] == "warning"

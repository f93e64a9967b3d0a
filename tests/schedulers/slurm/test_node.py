"""Nodes as scontrol prints them: lines of 22.05, JSON of several data_parsers, free text that looks like fields."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.slurm.node import SlurmNode, read_json, read_text

# Printed by Slurm 22.05.8 (`scontrol -o show node`), with what a test sets put in.
LINE = (
    "NodeName={name} Arch=x86_64 CoresPerSocket=1  CPUAlloc=0 CPUEfctv=64 CPUTot=64 CPULoad=1.16 "
    "AvailableFeatures={features} ActiveFeatures={features} Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=localhost "
    "Port=23837 Version=22.05.8 OS=Linux 6.1.0-18-amd64 #1 SMP PREEMPT_DYNAMIC Debian 6.1.76-1 (2024-02-01)  "
    "RealMemory=512000 AllocMem=0 FreeMem=21999 Sockets=64 Boards=1 State={state} ThreadsPerCore=1 TmpDisk=0 "
    "Weight={weight} Owner=N/A MCS_label=N/A Partitions=train,debug  BootTime=2026-11-22T06:10:04 "
    "SlurmdStartTime=2026-11-22T09:42:31 LastBusyTime=2026-11-22T09:42:31 CfgTRES=cpu=64,mem=500G,billing=64 "
    "AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 "
    "ExtSensorsTemp=n/s{free}\n"
)
STAMP = "[root@2026-11-22T09:42:31]"


def line(free: str = "", name: str = "gpu001", state: str = "IDLE+DRAIN", features: str = "(null)") -> str:
    """One line, with free text at its end."""
    return LINE.format(name=name, state=state, features=features, weight=17, free=free)


def one(text: str) -> SlurmNode:
    """The only node of a text."""
    (node,) = read_text(text).values()
    return node


def test_a_line_tells_all_of_a_node() -> None:
    """Its states as a set, the reason without its stamp, what stands in Comment and Extra."""
    free = f" Reason=fan 3 is loud {STAMP} Comment=rack 4, slot 2 Extra=foreshock=off"
    assert one(line(free, features="a,b")) == SlurmNode(
        "gpu001",
        frozenset({"IDLE", "DRAIN"}),
        "fan 3 is loud",
        "root",
        17,
        "rack 4, slot 2",
        "foreshock=off",
        ("a", "b"),
    )


@pytest.mark.parametrize(
    ("free", "reason"),
    [
        ("", ""),
        (f" Reason=x {STAMP}", "x"),
        (" Reason=x [slurm@Unknown]", "x"),
        (f" Reason=a [b@c] d {STAMP}", "a [b@c] d"),
        (f" Reason=foreshock: x id=h-1 [root@2026-01-01T00:00:00] fan {STAMP}", None),
        (f" Reason=l1 {STAMP}        l2", "l1 l2"),
        (" Reason=no stamp", "no stamp"),
    ],
)
def test_a_reason_ends_at_its_stamp(free: str, reason: str | None) -> None:
    """The last one; what 22.05 prints of a reason's further lines stands behind it."""
    found = one(line(free)).reason
    assert found == (reason if reason is not None else "foreshock: x id=h-1 [root@2026-01-01T00:00:00] fan")


@pytest.mark.parametrize(
    ("state", "states"),
    [
        ("IDLE", {"IDLE"}),
        ("DOWN*+DRAIN", {"DOWN", "DRAIN", "NOT_RESPONDING"}),
        ("MIXED+COMPLETING+PLANNED", {"MIXED", "COMPLETING", "PLANNED"}),
        ("IDLE+FAIL+NOT_RESPONDING", {"IDLE", "FAIL", "NOT_RESPONDING"}),
        ("IDLE~", {"IDLE"}),
    ],
)
def test_states_are_words(state: str, states: set[str]) -> None:
    """Signs behind a word are dropped but for the one that says that a node does not answer."""
    assert one(line(state=state)).states == states


@pytest.mark.parametrize(
    "free",
    [
        " Comment=ab\nNodeName=gpu002 State=IDLE \n",
        " Comment=x Comment=y",
        " Comment=x Extra=y Extra=z",
    ],
)
def test_free_text_that_looks_like_fields_makes_a_node_doubtful(free: str) -> None:
    """It is not known what is whose: then nothing is touched."""
    nodes = read_text(line(free) + line(name="gpu002"))
    assert [node.name for node in nodes.values() if node.is_doubtful] == ["gpu002" if "\n" in free else "gpu001"]


@given(st.text(max_size=80), st.text(max_size=80))
def test_no_text_in_a_reason_or_comment_breaks_the_reading(reason: str, comment: str) -> None:
    """The node itself, its state and the nodes around it are read all the same."""
    text = line(name="a") + line(f" Reason={reason} {STAMP} Comment={comment}", name="b") + line(name="c")
    nodes = read_text(text)
    assert {"a", "b", "c"} <= nodes.keys()
    assert nodes["b"].states == {"IDLE", "DRAIN"}
    assert nodes["a"].reason == nodes["c"].reason == ""


ROWS: list[dict[str, Any]] = [
    # v0.0.38: a base state and flags
    {"state": "idle", "state_flags": ["DRAIN"], "weight": 17, "features": "a,b", "reason_changed_at": 1},
    # v0.0.39 and 40: one list
    {"state": ["IDLE", "DRAIN"], "weight": 17, "features": ["a", "b"], "reason_changed_at": {"set": True, "number": 1}},
    # a number that may be unset
    {"state": ["IDLE", "DRAIN"], "weight": {"set": True, "infinite": False, "number": 17}, "features": ["a", "b"]},
]


@pytest.mark.parametrize("row", ROWS)
def test_every_form_of_json_says_the_same(row: dict[str, Any]) -> None:
    """As the text does."""
    more = {"name": "gpu001", "reason": "fan", "reason_set_by_user": "root", "comment": "c", "extra": ""}
    found = read_json(json.dumps({"meta": {}, "nodes": [{**more, **row}, {"name": 7}, None]}))
    assert found == {
        "gpu001": SlurmNode("gpu001", frozenset({"IDLE", "DRAIN"}), "fan", "root", 17, "c", "", ("a", "b")),
    }


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"nodes": null}', '{"nodes": {}}'])
def test_another_answer_is_no_list_of_nodes(text: str) -> None:
    """And says so."""
    with pytest.raises(ValueError, match=r"list of nodes|line 1 column"):
        read_json(text)

"""scontrol show node, over lines, on one line and as JSON."""

import json
from datetime import UTC, datetime

import pytest

from parsers.formats.scontrol import ScontrolParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

HEAD = "NodeName=gpu001 Arch=x86_64 CoresPerSocket=1 "
STATE = "   State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A"
REASON = "   Reason=Xid 79 on GPU 3 [root@2026-11-20T22:22:18]"
SET = datetime(2026, 11, 20, 22, 22, 18, tzinfo=UTC)


def decode(*lines: str) -> tuple[list[Event], list[str]]:
    """The events and errors of some lines."""
    errors: list[str] = []
    return list(parse(ScontrolParser(Context()), lines, lambda n, error: errors.append(f"{n}: {error}"))), errors


def test_a_node_is_told_once_all_its_lines_have_come() -> None:
    """At the next node, at a blank line, at the end; its line is its first."""
    node = (HEAD, "   OS=Linux 6.1 #1 SMP PREEMPT_DYNAMIC @0 ", STATE, REASON)
    idle = (HEAD.replace("gpu001", "gpu002"), STATE.replace("MIXED+DRAIN", "IDLE"))
    events, errors = decode(*node, *idle, "", *node, "", *node)
    assert errors == []
    assert [(e.line, e.node, e.time, e.cause) for e in events] == [
        (1, "gpu001", SET, "hardware"),
        (8, "gpu001", SET, "hardware"),
        (13, "gpu001", SET, "hardware"),
    ]
    assert events[0].attributes == {
        "state": "DRAIN",
        "busy": True,
        "reason": "Xid 79 on GPU 3",
        "user": "root",
        "owner": None,
    }


def test_the_form_on_one_line_is_the_same() -> None:
    """scontrol -o show node; a comment may follow the reason."""
    whole = " ".join(part.strip() for part in (HEAD, STATE, REASON))
    events, _ = decode(
        whole, whole + " Comment=Reason=no [x@y]", whole.replace(" [root@2026-11-20T22:22:18]", " Extra=e")
    )
    assert [e.attributes["reason"] for e in events] == ["Xid 79 on GPU 3"] * 3
    assert [e.time for e in events] == [SET, SET, None]


def test_a_reason_may_have_several_lines() -> None:
    """It ends with who set it; without that, with the node."""
    first, second = "   Reason=fan 3", "   is loud [ops@2026-11-20T22:22:18]"
    real = ("   Reason=fan 3 [ops@2026-11-20T22:22:18]", "          is loud", "   Comment=x", "          not this")
    assert [e.attributes["reason"] for e in decode(HEAD, STATE, *real)[0]] == ["fan 3\nis loud"]
    events, _ = decode(HEAD, STATE, first, second, "   Comment=x", "", HEAD, STATE, first, "   is loud")
    assert [(e.attributes["reason"], e.attributes["user"], e.time) for e in events] == [
        ("fan 3\nis loud", "ops", SET),
        ("fan 3\nis loud", None, None),
    ]


def test_a_node_without_a_state_is_an_error_and_the_next_is_read() -> None:
    """The output was cut."""
    events, errors = decode(HEAD, "   Gres=gpu:8", HEAD, STATE, "", HEAD)
    assert ([e.line for e in events], len(errors)) == ([3], 2)
    assert errors[0] == "3: the node gpu001 has no State: its lines are cut short"


@pytest.mark.parametrize(
    "text",
    [
        "PartitionName=train State=DOWN Nodes=gpu[001-004]",
        "Node gpu009 not found",
        "slurm_load_node error: Unable to contact slurm controller (connect failure)",
        "   State=DOWN",
    ],
)
def test_other_lines_give_nothing(text: str) -> None:
    """Partitions, errors, the middle of nothing."""
    assert decode(text) == ([], [])


def answer(**fields: object) -> str:
    """A JSON answer with one node."""
    return json.dumps({"meta": {}, "nodes": [{"name": "gpu001", **fields}], "errors": []}, indent=1)


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "mixed", "state_flags": ["DRAIN"], "reason_changed_at": int(SET.timestamp())},
        {"state": ["MIXED", "DRAIN"], "reason_changed_at": {"set": True, "infinite": False, "number": SET.timestamp()}},
    ],
)
def test_json_of_old_and_new_slurm_is_the_same(fields: dict[str, object]) -> None:
    """One word with flags and a bare number in 22.05; a list and a wrapped number in 24.11."""
    events, errors = decode(*answer(reason="Xid 79", reason_set_by_user="root", **fields).split("\n"))
    assert errors == []
    assert [(e.node, e.time, e.attributes) for e in events] == [
        ("gpu001", SET, {"state": "DRAIN", "busy": True, "reason": "Xid 79", "user": "root", "owner": None})
    ]


@pytest.mark.parametrize(
    "fields",
    [
        {"state": "idle", "state_flags": []},
        {"state": ["IDLE", "PLANNED"]},
        {"state": None},
        {"state": 7},
        {},
        {"name": 3, "state": "down"},
        {"name": "", "state": "down"},
    ],
)
def test_json_of_a_node_in_service_or_of_no_node_gives_nothing(fields: dict[str, object]) -> None:
    """Healthy, or not what Slurm writes."""
    assert decode(*answer(**fields).split("\n")) == ([], [])


@pytest.mark.parametrize("changed", [None, 0, "x", True, {"set": False, "number": 5}, {"number": 5}, 1e300])
def test_json_without_a_time_has_none(changed: object) -> None:
    """Never set, or no number."""
    events, _ = decode(*answer(state="down", reason=None, reason_changed_at=changed).split("\n"))
    assert [(e.time, e.attributes["reason"]) for e in events] == [(None, None)]


def test_json_that_is_cut_short_gives_the_whole_nodes_and_an_error() -> None:
    """One node of two."""
    text = json.dumps({"nodes": [{"name": "a", "state": "down"}, {"name": "b", "state": "down"}]}, indent=1)
    events, errors = decode(*text.split("\n")[:8])
    assert ([e.node for e in events], len(errors)) == (["a"], 1)


def test_a_configuration_is_no_list_of_nodes() -> None:
    """slurm.conf names nodes too."""
    assert detect(["NodeName=gpu[001-004] CPUs=64 Gres=gpu:8 State=UNKNOWN"]) is None
    assert detect([HEAD]) == detect([HEAD.strip()]) == "scontrol"

"""sinfo's lists of nodes, in every layout; what states and reasons mean."""

from datetime import UTC, datetime

import pytest

from parsers.formats.scontrol import read_state
from parsers.formats.sinfo import FORMAT, SinfoParser
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> tuple[list[Event], list[str]]:
    """The events and errors of some lines."""
    errors: list[str] = []
    return list(parse(SinfoParser(Context()), lines, lambda n, error: errors.append(f"{n}: {error}"))), errors


@pytest.mark.parametrize(
    ("text", "flags", "busy"),
    [
        ("idle", (), False),
        ("mixed", (), True),
        ("alloc", (), True),
        ("allocated+", (), True),
        ("comp", (), True),
        ("planned", (), False),
        ("mixed-", (), True),
        ("resv", (), False),
        ("reserved", (), False),
        ("future", (), False),
        ("drained", ("DRAIN",), False),
        ("drain*", ("DRAIN", "NOT_RESPONDING"), False),
        ("drng", ("DRAIN",), True),
        ("draining@", ("DRAIN", "REBOOT"), True),
        ("down*", ("DOWN", "NOT_RESPONDING"), False),
        ("idle*", ("NOT_RESPONDING",), False),
        ("idle~", ("POWERED_DOWN",), False),
        ("idle#", ("POWERING_UP",), False),
        ("maint", ("MAINT",), False),
        ("idle$", ("MAINT",), False),
        ("fail", ("FAIL",), False),
        ("failg", ("FAIL",), True),
        ("inval", ("INVALID_REG",), False),
        ("unk*", ("UNKNOWN", "NOT_RESPONDING"), False),
        ("MIXED+DRAIN", ("DRAIN",), True),
        ("DOWN*+DRAIN", ("DOWN", "NOT_RESPONDING", "DRAIN"), False),
        ("IDLE+CLOUD+POWERED_DOWN", ("POWERED_DOWN",), False),
        ("DOWN+DRAIN+NOT_RESPONDING+REBOOT_ISSUED", ("DOWN", "DRAIN", "NOT_RESPONDING", "REBOOT"), False),
        ("IDLE+DYNAMIC_NORM+PLANNED", (), False),
        ("n/a", (), False),
    ],
)
def test_a_state_is_read_from_words_and_signs(text: str, flags: tuple[str, ...], busy: bool) -> None:
    """sinfo's long and short words, scontrol's flags."""
    state = read_state(text)
    assert (state.flags, state.busy) == (flags, busy)


def test_columns_may_be_separated_by_blanks_though_the_reason_holds_some() -> None:
    """sinfo -N -o '%N %T %E %H %u'."""
    events, errors = decode(
        "NODELIST STATE REASON TIMESTAMP USER",
        "gpu001 draining foreshock: Xid 79 on GPU 3 (p=0.93) 2026-11-20T22:22:18 root",
        "gpu002 mixed none Unknown Unknown",
    )
    assert errors == []
    assert [(e.node, e.time, e.attributes) for e in events] == [
        (
            "gpu001",
            datetime(2026, 11, 20, 22, 22, 18, tzinfo=UTC),
            {
                "state": "DRAIN",
                "busy": True,
                "reason": "foreshock: Xid 79 on GPU 3 (p=0.93)",
                "user": "root",
                "owner": "foreshock",
            },
        )
    ]


def test_columns_may_stand_in_any_order() -> None:
    """The reason first, in the middle, last."""
    row = {"NODELIST": "gpu001", "STATE": "down", "REASON": "fan 3 is loud", "USER": "ops"}
    for names in (["REASON", "USER", "STATE", "NODELIST"], ["NODELIST", "REASON", "USER", "STATE"], [*row][:3]):
        events, errors = decode(" ".join(names), "   ".join(row[name] for name in names))
        assert errors == []
        assert [(e.node, e.attributes["reason"]) for e in events] == [("gpu001", "fan 3 is loud")]


def test_a_column_that_is_empty_may_be_left_out() -> None:
    """sinfo -l prints no reservation where there is none; its first line bears the time of the list."""
    events, errors = decode(
        "Fri Nov  6 22:30:00 2026",
        "PARTITION AVAIL  TIMELIMIT   JOB_SIZE ROOT OVERSUBS     GROUPS  NODES       STATE RESERVATION NODELIST",
        "train*       up   infinite 1-infinite   no       NO        all      1       down*             gpu002",
        "train*       up   infinite 1-infinite   no       NO        all      1       down* jubilee     gpu003",
    )
    assert errors == []
    assert [e.node for e in events] == ["gpu002", "gpu003"]
    assert {e.time for e in events} == {datetime(2026, 11, 6, 22, 30, tzinfo=UTC)}


@pytest.mark.parametrize("end", ["", "|", "| "])
def test_a_row_may_end_in_a_separator_and_names_may_stand_twice(end: str) -> None:
    """The last of a name counts; blanks around a name or value do not."""
    events, errors = decode(
        "STATE|USER |NODELIST |STATE |USER |REASON", f"drain*|root|gpu1 |drained* |root(0) |swap | x{end}"
    )
    assert errors == []
    assert [(e.node, e.attributes["state"], e.attributes["user"]) for e in events] == [
        ("gpu1", "DRAIN+NOT_RESPONDING", "root")
    ]
    assert str(events[0].attributes["reason"]).startswith("swap | x")


def test_a_list_of_reasons_prints_no_state() -> None:
    """sinfo -R: the state is unknown, the nodes are many."""
    events, _ = decode(
        "REASON   USER   TIMESTAMP   NODELIST", "Not responding   slurm   2026-11-20T22:23:10 gpu[001-002,007]"
    )
    assert [e.node for e in events] == ["gpu001", "gpu002", "gpu007"]
    assert {(e.attributes["state"], e.attributes["busy"], e.severity, e.cause) for e in events} == {
        (None, None, "warning", "host")
    }


def test_a_node_of_several_partitions_is_told_once_a_list() -> None:
    """And again in the next list, or in another state."""
    header, row = "PARTITION NODELIST STATE", "{} gpu1 {}"
    rows = [row.format("a", "down"), row.format("b", "down"), row.format("b", "drain")]
    events, _ = decode(header, *rows, header, rows[0], "", "PARTITION|NODELIST|STATE", "a|gpu1|down", "b|gpu1|down")
    assert [e.line for e in events] == [2, 4, 6, 9]


@pytest.mark.parametrize(
    ("state", "reason", "severity", "cause", "owner"),
    [
        ("drained", "foreshock: score 0.8", "info", "unknown", "foreshock"),
        ("drained", "NHC: check_hw_ib:  No IB port is ACTIVE", "warning", "fabric", "nhc"),
        ("drained", "[user_problem] quota", "info", "application", "soperator"),
        ("drained", "slurm-operator: node is gone", "warning", "unknown", "slurm-operator"),
        ("drained", "quarterly maintenance", "info", "unknown", None),
        ("drained", "see foreshock: it was right", "warning", "unknown", None),
        ("down*", "none", "warning", "host", None),
        ("down", "Xid 79", "warning", "hardware", None),
        ("maint", "none", "info", "unknown", None),
        ("idle~", "none", "info", "unknown", None),
        ("idle@", "none", "info", "unknown", None),
    ],
)
def test_a_reason_says_whose_it_is_and_what_it_means(
    state: str, reason: str, severity: str, cause: str, owner: str | None
) -> None:
    """What somebody wanted is information."""
    events, _ = decode("NODELIST|STATE|REASON", f"gpu1|{state}|{reason}")
    assert [(e.severity, e.cause, e.attributes["owner"]) for e in events] == [(severity, cause, owner)]


def test_errors_name_what_is_wrong_and_the_rest_is_read() -> None:
    """A short row, a time that is none, brackets that do not match, no header."""
    header = "NODELIST STATE TIMESTAMP"
    events, errors = decode(header, "gpu1 down", "gpu2 down now", "gpu[3 down Unknown", "gpu4 down Unknown")
    assert [e.node for e in events] == ["gpu4"]
    assert [text[:30] for text in errors] == [
        "2: the row has 2 fields, its h",
        "3: TIMESTAMP is 'now': sinfo w",
        "4: hostlist 'gpu[3': a bracket",
    ]
    assert decode("gpu1 down Unknown")[1] == [
        "1: no header line: write the table with `sinfo -N -o '%N|%T|%E|%H|%u'`, without -h"
    ]


def test_a_list_ends_at_a_blank_line() -> None:
    """What stands below it is something else's."""
    assert decode("NODELIST STATE", "gpu1 down", "", "$ date")[1] == []


@pytest.mark.parametrize(
    ("text", "known"),
    [
        ("NODELIST STATE REASON", True),
        ("REASON               USER      TIMESTAMP           NODELIST", True),
        ("PARTITION AVAIL  TIMELIMIT  NODES  STATE NODELIST", True),
        ("AVAIL|S:C:T|NODES(A/I) |REASON |NODELIST |STATE ", True),
        ("HOSTNAMES|STATE", True),
        ("JOBID NAME STATE NODELIST", False),
        ("JOBID PARTITION NAME USER ST TIME NODES NODELIST(REASON)", False),
        ("JobID|State|NodeList", False),
        ("NODELIST is STATE", False),
        ("the NODELIST STATE", False),
    ],
)
def test_a_header_is_recognised(text: str, known: bool) -> None:
    """Not that of squeue or sacct, nor a sentence."""
    assert bool(FORMAT.recognises.search(text)) is known

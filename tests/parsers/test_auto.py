"""Finding a log's format, and reading logs of several."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parsers.registry import MIXED, PARSERS, detect, make_parser, recognise
from parsers.site_rules.rules import read_rules
from parsers.text.parser import Context, ParseError, clean, parse
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures"
XID = "2025-03-01T04:05:06Z gpu-017 kernel: NVRM: Xid (PCI:0000:0f:00): 79, GPU has fallen off the bus."
REMOVED = (
    "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
    "LID range [17, 17] of node:gpu007 mlx5_0"
)
UNLINKING = "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> state_mgr: Unlinking local node 0x1, port 3"
PEER = "\t\t\t\tand remote node 0x2, port 9"


def decoded(lines: list[str], name: str = MIXED) -> list[Event]:
    """The events of lines."""
    return list(parse(make_parser(name, Context(year=2025, run="fixture")), lines))


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        (["# HELP DCGM_FI_DEV_SM_CLOCK x"], "dcgm"),
        (["Account|JobID|State|End"], "sacct"),
        (["Account|#JobID|#State"], "sacct"),
        (["Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"], "sacctmgr"),
        (["building GPT model ...", "x"], "training"),
        (["[rank1]: torch.distributed.DistBackendError: NCCL error in: x.hpp:268"], "training"),
        (["2: torch.cuda.OutOfMemoryError: CUDA out of memory."], "training"),
        (["srun: error: gpu-02: task 2: Exited with exit code 1"], "training"),
        (["RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB"], "training"),
        (["  [x][INFO][training_log.py:661] -  iteration=      22/  105963 | loss=1 |"], "training"),
        (["[default7]: iteration 5 | elapsed time per iteration (s): 215.82 |"], "training"),
        (["Nov 20 22:31:54 vm kernel: usb 1-1: new device"], "kernel"),
        (["[    0.000000] Linux version 6.1"], "kernel"),
        (['{"MESSAGE":"x","_TRANSPORT":"kernel"}'], "kernel"),
        (["[  +0.000001] pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: id=0008"], "kernel"),
        (["blk_update_request: I/O error, dev nvme0n1, sector 262656 op 0x0:(READ) flags 0x0"], "kernel"),
        (["mlx5_core 0000:d2:00.0: Port module event[error]: module 0, Cable error, Bus stuck"], "kernel"),
        (["Buffer I/O error on dev fd0, logical block 0, async page read"], None),
        (["We saw blk_update_request: I/O error, dev sda, sector 1 last week"], None),
        (['{"MESSAGE": "NVRM: Xid'], "kernel"),
        ([XID, REMOVED], MIXED),
        ([XID, XID, "JobID|State|End"], "sacct"),
        (["hello", "", "a,b,c"], None),
        ([], None),
    ],
)
def test_the_format_that_the_lines_speak_for_is_found(lines: list[str], name: str | None) -> None:
    """Several are mixed, unless one is a table; None where there is none."""
    assert detect(lines) == name


def test_each_line_of_a_mixed_log_goes_to_its_format() -> None:
    """What belongs to the line above goes with it, other formats' lines between or not."""
    events = decoded([XID, UNLINKING, PEER, REMOVED, "of no format"])
    assert [(event.source, event.kind, event.line) for event in events] == [
        ("kernel", "xid", 1),
        ("opensm", "link_down", 2),
        ("opensm", "port_removed", 4),
    ]
    assert events[1].attributes["peer"] == "0x0000000000000002"


def test_a_mixed_log_is_read_by_the_sites_rules() -> None:
    """In each of its formats."""
    rules = read_rules("faults: [{kind: xid, severity: info}, {kind: port_removed, severity: fatal}]", "r")
    events = list(parse(make_parser(MIXED, Context(year=2025), lambda: rules), [XID, REMOVED]))
    assert [event.severity for event in events] == ["info", "fatal"]


def test_a_broken_line_of_a_mixed_log_is_an_error_of_its_own() -> None:
    """What stands beside it is read."""
    errors: list[int] = []

    def on_error(line: int, _error: ParseError) -> None:
        errors.append(line)

    broken = REMOVED.replace("Nov 20", "Nov 77")
    events = list(parse(make_parser(MIXED, Context(year=2025)), [XID, broken, REMOVED], on_error))
    assert errors == [2]
    assert len(events) == 2


LOGS = sorted(
    log
    for name, entry in PARSERS.items()
    if entry.shape == "log"
    for log in (FIXTURES / name).glob("*.log")
    if log.with_suffix(".jsonl").read_text()
)


@pytest.mark.parametrize("log", LOGS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_a_fixture_gives_the_same_events_beside_lines_of_another_format(log: Path) -> None:
    """A stranger's line at the end changes nothing."""
    name = log.parent.name
    lines = [text for raw in log.read_bytes().split(b"\n") if recognise(text := clean(raw)) in (name, None)]
    other = REMOVED if name != "opensm" else XID
    alone, mixed = decoded(lines, name), decoded([*lines, other])
    assert [event for event in mixed if event.source == name] == alone


def test_a_message_without_its_prefix_is_read_beside_another_format() -> None:
    """A person pastes what he saw: the kernel's message as it stands, and the manager's log."""
    events = decoded(["nvme nvme1: Identify Controller failed (-4)", REMOVED])
    assert [(event.source, event.kind) for event in events] == [
        ("kernel", "nvme_not_ready"),
        ("opensm", "port_removed"),
    ]


def test_what_stands_before_the_first_known_line_is_shown_to_its_format() -> None:
    """A date above a sweep dates it, and a broken heading loses nothing; of many lines the last count."""
    gpu = "GPU 0: NVIDIA GB200 (UUID: GPU-d1b93026-6d5b-03bd-3a71-f85b47a61bde)"
    for before in (["2026-09-05T12:00:00Z"], [*["x"] * 100, "2026-09-05T12:00:00Z"]):
        found = decoded([*before, gpu, "         Link 14: Total link recovery events: 505", REMOVED])
        assert [event.kind for event in found] == ["port_removed", "nvlink_counters"]
        assert str(found[1].time) == "2026-09-05 12:00:00+00:00"


@given(lines=st.lists(st.text(max_size=120), max_size=10))
def test_any_lines_are_survived(lines: list[str]) -> None:
    """Whatever stands between a Xid and a removed port, both are found."""
    events = decoded([XID, *lines, REMOVED])
    assert {"xid", "port_removed"} <= {event.kind for event in events}
    assert all(recognise(line) is None or recognise(line) in PARSERS for line in lines)

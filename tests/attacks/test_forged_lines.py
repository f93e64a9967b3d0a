"""A user who can print, log or crash cannot speak as the kernel, a driver, the fabric or another node."""

import json
import os
from pathlib import Path

import pytest
from attacks.forged_lines import FAULT, ITERATION, NODE, PRINTED, SWITCH_FAULT, read_file, written

from collectors.files.archive import context_of, find_parts, read_part
from parsers.registry import make_parser
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

# Recorded on Linux 6.18: a user's program whose file is named "a\nNVRM: Xid (PCI:0000:3b:00): 79, pid=1, x" crashed.
CRASH = (
    r"6,4359,13676184001,-;a\x0aNVRM: Xid (PC[23045]: segfault at 0 ip 0000559f2925c132 sp 00007fff666b2b00 error 6 in "
    r"a\x0aNVRM: Xid (PCI:0000:3b:00): 79, pid=1, x[1132,559f2925c000+1000] likely on CPU 0 (core 0, socket 0)"
)
# As rsyslog writes it, which reads /proc/kmsg: a line for each line of the message, with the kernel's stamp on each.
CRASH_LINES = [
    f"2026-11-22T04:05:06.789000+00:00 {NODE} kernel: [13676.184001] {text}"
    for text in (
        "python[23045]: segfault at 0 ip 0000559f2925c132 sp 00007fff666b2b00 error 6 in a",
        "NVRM: Xid (PCI:0000:3b:00): 79, pid=1, GPU has fallen off the bus.",
        "b[1132,559f2925c000+1000] likely on CPU 0 (core 0, socket 0)",
    )
]


def decoded(*lines: str, trust: str | None = "kernel") -> tuple[list[Event], list[str]]:
    """Events and refusals of kernel lines."""
    refused: list[str] = []

    def on_error(_line: int, error: ParseError) -> None:
        refused.append(str(getattr(error, "reason", error)))

    more = {} if trust is None else {"trust": trust}
    parser = make_parser("kernel", Context(node=NODE, **more))  # type: ignore[arg-type]  # also as it was before
    return list(parse(parser, lines, on_error)), refused


@pytest.mark.parametrize("suffix", ["", ":training", ":auto"])
def test_two_printed_lines_of_a_training_log_are_no_fault(tmp_path: Path, suffix: str) -> None:
    """The iteration counts; whatever else a user prints is refused, and counted."""
    log = written(tmp_path / "train" / "llm-70b.log", ITERATION, *PRINTED, ITERATION.replace("10/", "20/"))
    turn = read_file(log, suffix)
    assert {event.source for event in turn.events} == {"training"}
    assert {event.node for event in turn.events} <= {NODE, None}
    assert {event.kind for event in turn.events} == {"iteration"}
    assert turn.refused["trust"] >= 2


def test_a_log_of_printed_lines_alone_is_no_kernel_log(tmp_path: Path) -> None:
    """`auto` finds nothing in it that a user may tell."""
    turn = read_file(written(tmp_path / "train" / "run.log", *PRINTED))
    assert turn.events == ()


def test_a_training_log_blames_no_other_node(tmp_path: Path) -> None:
    """Slurm's line in it names gpu-018: that stays to be read, and is nobody's fault."""
    blame = "srun: error: gpu-018: task 3: Bus error"
    turn = read_file(written(tmp_path / "run.log", ITERATION, blame), ":training")
    errors = [event for event in turn.events if event.kind == "training_error"]
    assert [(event.node, event.attributes.get("named_node")) for event in errors] == [(None, "gpu-018")]


@pytest.mark.parametrize("name", ["syslog", "messages", "syslog.1", "user.log", "slurm-4711.out"])
def test_a_syslog_file_is_everybodys(tmp_path: Path, name: str) -> None:
    """`logger -t kernel` and `logger -t nv-fabricmanager` write there; an operator may say that nobody does."""
    lines = (*PRINTED[:2], f"2026-11-22T04:05:06+00:00 {NODE} nv-fabricmanager[77]: {SWITCH_FAULT}")
    log = written(tmp_path / name, *lines)
    turn = read_file(log, ":kernel")
    assert (turn.events, sum(turn.refused.values())) == ((), 3)
    assert len(read_file(log, ":kernel", trust="system").events) == 3


def test_a_log_that_others_may_write_is_a_users(tmp_path: Path) -> None:
    """Whatever its name is, and its format."""
    log = written(tmp_path / "kern.log", PRINTED[0])
    assert len(read_file(log, ":kernel").events) == 1
    log.chmod(0o666)
    assert read_file(log, ":kernel").events == ()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_log_that_a_user_owns_is_a_users(tmp_path: Path) -> None:
    """He can write it, and put another in its place."""
    log = written(tmp_path / "kern.log", PRINTED[0])
    os.chown(log, 4711, 4711)
    assert read_file(log, ":kernel").events == ()


def test_the_name_of_a_program_that_crashed_is_no_message() -> None:
    """The kernel prints it as it is, line breaks too: in its ring, in the journal, in dmesg's text, in kern.log."""
    message = CRASH.partition(";")[2].replace(r"\x0a", "\n")
    journal = json.dumps({"_TRANSPORT": "kernel", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": message})
    indented = ["[13676.184001] python[23045]: segfault at 0 ip 0 sp 0 error 6 in a", f"               {FAULT}"]
    for lines in ([CRASH], [journal], indented, CRASH_LINES):
        events, _refused = decoded(*lines)
        assert [event.kind for event in events if event.kind == "xid"] == [], lines


def test_a_fault_after_a_crash_is_a_fault() -> None:
    """Nobody can hide one by crashing."""
    later = f"2026-11-22T04:05:06.789001+00:00 {NODE} kernel: [13676.184777] {FAULT}"
    events, refused = decoded(*CRASH_LINES, later)
    assert [(event.code, event.line) for event in events] == [(79, 4)]
    assert refused == ["crash"]


def test_the_name_of_a_process_is_no_second_fault() -> None:
    """The process of an Xid is called as its user likes."""
    for name in ("NVRM: Xid (PCI:0000:3b:00): 79, GPU", "a, NVRM: Xid (PCI:0000:3b:00): 79", r"a\x0aNVRM: Xid (PCI"):
        line = f"3,8416,2122548539,-;NVRM: Xid (PCI:0000:0f:00): 31, pid=9, name={name}, Ch 00000008, intr 00000000."
        events, _refused = decoded(line)
        assert [(event.code, event.device.pci) for event in events] == [(31, "0000:0f:00.0")]


@pytest.mark.parametrize(
    "fields",
    [
        {"_TRANSPORT": "syslog", "_UID": "1000", "SYSLOG_IDENTIFIER": "kernel", "MESSAGE": FAULT},
        {"_TRANSPORT": "syslog", "_UID": "1000", "SYSLOG_IDENTIFIER": "NVRM", "MESSAGE": FAULT[6:]},
        {"_TRANSPORT": "stdout", "_UID": "1000", "MESSAGE": FAULT},
        {"_TRANSPORT": "journal", "_UID": "1000", "SYSLOG_FACILITY": "0", "MESSAGE": FAULT},
        {"_TRANSPORT": "syslog", "_UID": "1000", "_COMM": "logger", "SYSLOG_IDENTIFIER": "nv-fabricmanager"},
        {"_TRANSPORT": "journal", "_UID": "0", "_COMM": "dockerd", "SYSLOG_IDENTIFIER": "nv-fabricmanager"},
    ],
)
def test_the_journal_knows_who_wrote_a_record(fields: dict[str, str]) -> None:
    """Its own fields tell, in an operator's file as well: nobody can set those that begin with a line."""
    record = {"MESSAGE": SWITCH_FAULT, "__REALTIME_TIMESTAMP": "1740801906789000", "_HOSTNAME": NODE, **fields}
    export = [f"{name}={value}" for name, value in record.items()]
    for trust in ("kernel", None):
        assert decoded(json.dumps(record), trust=trust) == ([], ["writer"])
        assert decoded("__CURSOR=x", *export, "", trust=trust) == ([], ["writer"])


def test_a_record_of_roots_daemon_is_its_own() -> None:
    """The kernel's records, and those of the Fabric Manager that root runs."""
    daemon = {"_TRANSPORT": "syslog", "_UID": "0", "_COMM": "nv-fabricmanage", "SYSLOG_IDENTIFIER": "nv-fabricmanager"}
    events, refused = decoded(
        json.dumps({**daemon, "MESSAGE": SWITCH_FAULT}), json.dumps({"_TRANSPORT": "kernel", "MESSAGE": FAULT})
    )
    assert ([event.kind for event in events], refused) == (["fabricmanager_nvswitch", "xid"], [])


def test_a_kernel_line_has_the_kernels_facility() -> None:
    """`logger -t kernel` is of the facility `user`, whatever it claims."""
    forged = f"<11>1 2026-11-22T04:05:06+00:00 {NODE} kernel - - - {FAULT}"
    assert decoded(forged) == ([], ["facility"])
    assert len(decoded(forged.replace("<11>", "<3>"))[0]) == 1


def test_a_training_log_of_an_archive_tells_of_training_alone(tmp_path: Path) -> None:
    """Its place says what it is."""
    written(tmp_path / "training" / "llm-70b.log", *PRINTED, ITERATION)
    written(tmp_path / "training" / "other.log", *PRINTED)
    parts = find_parts(tmp_path)
    found = [event for part in parts for event in read_part(part, context_of(part, None)).events]
    assert {event.source for event in found} == {"training"}

"""Real logs that are not in this repository: decoded where they are at hand, and counted against their facts."""

import gzip
import json
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

from parsers.registry import PARSERS
from parsers.text.parser import Context, ParseError, parse
from store.records.event import Event

DATA = Path(__file__).parents[2] / ".." / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="the real logs (../shared/data) are not on this machine")


@cache
def lines_of(path: Path) -> list[bytes]:
    """A file's lines, decompressed by its name."""
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix == ".gz" else raw).split(b"\n")


def decode(name: str, path: Path) -> tuple[list[Event], list[int]]:
    """The events and the broken lines of a file."""
    broken: list[int] = []

    def on_error(line: int, _error: ParseError) -> None:
        broken.append(line)

    parser = PARSERS[name].make(Context(year=2026, run=path.name))
    return list(parse(parser, lines_of(path), on_error)), broken


def kernel_rows() -> list[dict[str, object]]:
    """The kernel lines with what each must decode to; none where the file is not at hand."""
    path = DATA / "kernel" / "lines.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []


# What a row calls otherwise than our records do.
KINDS = {"xid_lenient": "xid"}


def record_of(event: Event) -> dict[str, object]:
    """The event under the names that the rows use: attributes, and what stands elsewhere in a record."""
    attributes = event.attributes
    return {
        **attributes,
        "kind": event.kind,
        "code": event.code,
        "bdf": event.device.pci,
        "name": attributes.get("process", attributes.get("name")),
        "port": event.device.port if event.device.port is not None else attributes.get("port"),
        "uuid": event.device.uuid,
    }


@pytest.mark.parametrize("row", kernel_rows(), ids=lambda row: str(row["line"])[:40])
def test_a_real_kernel_line_decodes_to_what_is_expected(row: dict[str, object]) -> None:
    """Every field that a row expects is in the one record of its line; a near miss gives none."""
    expect = row["expect"]
    assert isinstance(expect, dict)
    events = list(parse(PARSERS["kernel"].make(Context()), str(row["line"]).split("\n")))
    if expect["kind"] == "none":
        assert events == []
        return
    assert len(events) == 1
    found = record_of(events[0])
    wanted = {key: value for key, value in expect.items() if value is not None and key != "pci"}
    wanted["kind"] = KINDS.get(expect["kind"], expect["kind"])
    assert {key: found.get(key) for key in wanted} == wanted
    if expect["kind"] in ("xid", "sxid"):  # a process that the line does not name is none
        assert [found.get(key) for key in ("pid", "name")] == [expect["pid"], expect["name"]]
    if expect.get("fatal") or expect.get("severity") == "fatal":
        assert events[0].severity == "fatal"
    if expect.get("severity") in ("nonfatal", "correctable"):
        assert events[0].severity != "fatal"


@pytest.mark.parametrize("name", PARSERS)
def test_every_parser_survives_every_real_file(name: str) -> None:
    """No file of any kind stops a parser; nearly every foreign file gives it nothing."""
    for path in sorted(DATA.rglob("*")):
        if path.is_file():
            events, _broken = decode(name, path)
            assert all(event.source == name for event in events), path


@pytest.mark.parametrize(
    "name",
    [
        "megatron_pp8_n8",
        "megatron_pp64_n64",
        "megatron_deepspeed_3d_n16",
        "megatron_deepspeed_zero_n16",
        "hf_trainer_deepspeed_n4",
        "megatron_deepspeed_3d_old_nccl_n16",
        "megatron_deepspeed_2n_dies_in_save",
    ],
)
def test_a_real_training_log_gives_the_counted_events(name: str) -> None:
    """Iterations, their times, loads, saves and the ending, as counted by hand from the log."""
    facts = json.loads((DATA / "training" / "facts.json").read_text())[f"{name}.log.gz"]
    events, broken = decode("training", DATA / "training" / f"{name}.log.gz")
    kinds = Counter(event.kind for event in events)
    iterations = [event.attributes for event in events if event.kind == "iteration"]
    if name.startswith("hf_trainer"):  # bars alone: a test of its own counts what they show
        iterations = [attributes for attributes in iterations if "loss" in attributes]
    assert broken == []
    assert len(iterations) == facts["iteration_lines"]
    assert kinds["checkpoint_load"] == len(facts["load_checkpoint_lines"])
    assert kinds["checkpoint_save_start"] == facts["saves_started"]
    assert kinds["checkpoint_save"] == facts["saves_finished"]
    cancelled = [event for event in events if event.attributes.get("error") in ("cancelled", "time_limit")]
    assert len(cancelled) == len(facts["slurm_ending"])
    if not iterations:
        return
    assert iterations[0]["iteration"] == facts["first_iteration"]
    assert iterations[-1]["iteration"] == facts["last_iteration"]
    assert {attributes["total"] for attributes in iterations} == {facts["of"]}
    assert iterations[0]["elapsed_ms"] == facts["ms_per_iteration_first"]
    assert iterations[-1]["elapsed_ms"] == facts["ms_per_iteration_last"]
    assert sum(int(a["skipped"] or 0) for a in iterations) == facts["skipped_iterations_sum"]
    assert sum(int(a["nan"] or 0) for a in iterations) == facts["nan_iterations_sum"]
    assert sum(int(a["iterations"] or 0) for a in iterations) == facts["last_iteration"]


def test_quoted_save_lines_are_the_saves_that_they_quote() -> None:
    """One of Megatron with its timer, one of torchtitan without times."""
    events, broken = decode("training", DATA / "training" / "checkpoint_lines.txt")
    assert broken == []
    assert [(e.kind, e.attributes.get("iteration"), e.attributes.get("duration_ms")) for e in events] == [
        ("checkpoint_save_start", 1, None),
        ("checkpoint_save", 1, 21027.08),
        ("checkpoint_save_start", None, None),
        ("checkpoint_save", None, 600.0),
    ]


def test_a_real_log_of_the_trainer_gives_its_start_and_end_once() -> None:
    """Four processes a node print them; the model saved at the end is no checkpoint. No loss line stands between."""
    told, _ = decode("training", DATA / "training" / "hf_trainer_deepspeed_n4.log.gz")
    steps = [event for event in told if event.kind == "iteration"]
    assert [event.attributes["iteration"] for event in steps] == [2, 3, 5, 6, 7, 9, 11, 13, 15]  # a minute apart
    events = [event for event in told if event.kind != "iteration"]
    assert [event.kind for event in events] == ["training_start", "training_end"]
    assert sum(int(event.attributes["iterations"] or 0) for event in (*steps, events[1])) == 16
    assert str(events[0].time) == "2021-05-25 06:38:26.284000+00:00"


@pytest.mark.parametrize(
    ("name", "jobs"),
    [
        ("sacct_all_columns.txt.gz", 0),  # steps alone
        ("sacct_running.txt", 0),  # steps alone
        ("sacct_midnight_small.txt", 3),
        ("sacct_one_multiline.txt", 2),
        ("sacct_one_multiline_joined.txt", 2),
        ("sacct_invalid_line.txt", 0),
    ],
)
def test_a_real_sacct_table_gives_its_jobs(name: str, jobs: int) -> None:
    """One event per allocation, whatever the separator, and one error for the row that is no row."""
    events, broken = decode("sacct", DATA / "slurm" / name)
    assert len(events) == jobs
    assert bool(broken) == ("invalid" in name)


def test_a_job_with_a_line_break_in_a_field_is_the_same_job() -> None:
    """The joined file was made by taking the break out."""
    split, _ = decode("sacct", DATA / "slurm" / "sacct_one_multiline.txt")
    joined, _ = decode("sacct", DATA / "slurm" / "sacct_one_multiline_joined.txt")
    assert [event.attributes for event in split] == [event.attributes for event in joined]


def test_a_real_list_of_nodes_gives_the_one_out_of_service() -> None:
    """Once, though it is listed for two partitions; the names stand twice, one row ends in a separator."""
    events, broken = decode("sinfo", DATA / "slurm" / "sinfo.txt")
    assert broken == []
    assert [(e.line, e.node, e.attributes["state"], e.attributes["reason"]) for e in events] == [
        (2, "node0201", "DRAIN+NOT_RESPONDING", "replace")
    ]


def test_a_real_session_gives_its_nodes_out_of_service() -> None:
    """Lists of sinfo and scontrol among other commands' output."""
    listed, _ = decode("sinfo", DATA / "slurm" / "session.txt")
    shown, _ = decode("scontrol", DATA / "slurm" / "session.txt")
    assert ("gpu001", "DRAIN", "foreshock") in [(e.node, e.attributes["state"], e.attributes["owner"]) for e in listed]
    assert ("gpu001", "DRAIN", "foreshock") in [(e.node, e.attributes["state"], e.attributes["owner"]) for e in shown]
    lost, _ = decode("sinfo", DATA / "slurm" / "failures.txt")
    assert ("gpu002", "DOWN+NOT_RESPONDING") in [(e.node, e.attributes["state"]) for e in lost]


def test_a_real_node_in_service_gives_nothing() -> None:
    """Slurm 24.11."""
    assert decode("scontrol", DATA / "slurm" / "scontrol-show-node-24.11.txt") == ([], [])
    assert decode("scontrol", DATA / "slurm" / "scontrol_partitions.txt") == ([], [])


@pytest.mark.parametrize(("group", "kind"), [("SONiC", "link_down"), ("Arista", "link_up")])
def test_a_real_line_of_a_switch_is_decoded(group: str, kind: str) -> None:
    """Captured or quoted by others."""
    rows = [line.split("\t") for line in (DATA / "fabric" / "link_lines.tsv").read_text().splitlines()]
    found = [
        list(parse(PARSERS["switch"].make(Context(year=2026)), [row[2]])) for row in rows if row[0].startswith(group)
    ]
    assert [[event.kind for event in events] for events in found] == [[kind]]


def test_every_real_outage_is_decoded() -> None:
    """As many as the facts count, each with its cause from the reason table."""
    facts = json.loads((DATA / "faults" / "facts.json").read_text())
    events, broken = decode("sacctmgr", DATA / "faults" / "outages.csv")
    assert broken == []
    assert len(events) == 584
    assert str(len(events)) in json.dumps(facts)


@pytest.mark.parametrize("folder", ["all-default", "all-0x07-verbose", "flap-default", "diags"])
def test_one_state_change_trap_is_one_event(folder: str) -> None:
    """Trap and notice are one event at every log level, and every removed port is there."""
    path = next((DATA / "opensm" / folder).glob("opensm.log*"))
    events, broken = decode("opensm", path)
    text = b"\n".join(lines_of(path))
    kinds = Counter(event.kind for event in events)
    assert broken == []
    assert kinds["link_state_change"] == text.count(b" num:128 (Link state change)")
    assert kinds["port_removed"] == text.count(b"Removed port with GUID")
    assert kinds["port_discovered"] == text.count(b"Discovered new port with GUID")


def test_removed_ports_are_those_that_the_scenario_took_down() -> None:
    """Each host whose cable was pulled is named by a removed port."""
    folder = DATA / "opensm" / "all-default"
    truth = [json.loads(line) for line in (folder / "truth.jsonl").read_text().splitlines()]
    down = {row["host"] for row in truth if row["event"] in ("link-down", "node-down") and row.get("host")}
    events, _ = decode("opensm", folder / "opensm.log")
    assert down <= {event.node for event in events if event.kind == "port_removed"}


@pytest.mark.parametrize("path", sorted((DATA / "hostlog").glob("*")), ids=lambda path: path.name)
def test_every_reader_of_the_kernel_log_is_understood(path: Path) -> None:
    """The record written by hand is found in each form, on the same GPU, at the same time where the form bears one."""
    events, broken = decode("kernel", path)
    if ".conf" in path.name:
        assert events == []
        return
    assert broken == []
    assert events, path
    assert {event.device.pci for event in events} <= {"0000:3b:00.0", "0000:86:00.0", "0000:5e:00.0"}
    untimed = ("dev-kmsg", "dmesg-S", "dmesg-delta", "dmesg-json", "dmesg-r.", "dmesg-t.", "dmesg-x", "dmesg.")
    if path.name.startswith((*untimed, "journalctl-cat", "journalctl-short-monotonic")):
        assert {event.time for event in events} == {None}
    else:
        assert {str(event.time)[:15] for event in events} == {"2026-11-20 22:3"}
    named = path.name.startswith(("journalctl", "syslog")) and path.name != "journalctl-cat.txt"
    assert {event.node for event in events} == {"vm" if named else None}

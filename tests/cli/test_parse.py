"""`foreshock parse` and `foreshock formats`, as a user runs them."""

import gzip
import json
import os
import subprocess
import sys
import zoneinfo
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import zstandard

from parsers.registry import PARSERS, misread
from parsers.text.scan import LARGE_BYTES

ROOT = Path(__file__).parents[2]
XID = "NVRM: Xid (PCI:0000:0f:00): 79, pid=1234, name=python, GPU has fallen off the bus."
SYSLOG = f"2025-03-01T04:05:06.789000+00:00 gpu-017 kernel: {XID}\n"


def run(
    *arguments: str | Path, stdin: bytes = b"", env: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The command, run."""
    command = [sys.executable, "-c", "from cli.main import main; main()", *map(str, arguments)]
    return subprocess.run(
        command, input=stdin, capture_output=True, cwd=ROOT, env={**os.environ, "TZ": "UTC", **(env or {})}
    )


def events(done: subprocess.CompletedProcess[bytes]) -> list[dict[str, Any]]:
    """The records printed."""
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_one_line_decodes_to_the_documented_record(tmp_path: Path) -> None:
    """Every key of the contract, nothing else."""
    log = tmp_path / "x.log"
    log.write_text("quiet\n\n" + SYSLOG)
    done = run("parse", "kernel", log)
    assert done.returncode == 0
    assert done.stderr == b""
    assert events(done) == [
        {
            "line": 3,
            "time": "2025-03-01T04:05:06.789000Z",
            "node": "gpu-017",
            "source": "kernel",
            "kind": "xid",
            "code": 79,
            "severity": "fatal",
            "cause": "hardware",
            "action": "reboot_node",
            "device": {"type": "gpu", "pci": "0000:0f:00.0", "index": None, "uuid": None, "port": None},
            "message": "GPU has fallen off the bus.",
            "attributes": {"pid": 1234, "process": "python"},
        }
    ]


@pytest.mark.parametrize("arguments", [(), ("-",)])
def test_standard_input_is_read(arguments: tuple[str, ...]) -> None:
    """By default, and where `-` says so."""
    done = run("parse", "kernel", *arguments, "--node", "n1", stdin=XID.encode())
    assert [event["node"] for event in events(done)] == ["n1"]
    assert "file" not in events(done)[0]


def test_several_files_are_told_apart(tmp_path: Path) -> None:
    """Packed or not, by their content; lines count from 1 in each."""
    (tmp_path / "a.log").write_text(SYSLOG)
    (tmp_path / "b.log.gz").write_bytes(gzip.compress(SYSLOG.encode()))
    (tmp_path / "c.log.zst").write_bytes(zstandard.ZstdCompressor().compress(SYSLOG.encode()))
    files = sorted(tmp_path.iterdir())
    done = run("parse", "kernel", *files)
    assert [(event["file"], event["line"]) for event in events(done)] == [(str(file), 1) for file in files]


def test_auto_finds_the_format(tmp_path: Path) -> None:
    """Of each file by itself."""
    (tmp_path / "kernel.log").write_text(SYSLOG)
    (tmp_path / "jobs.csv").write_text("JobID|State|End\n1|COMPLETED|2025-03-01T00:00:00\n")
    done = run("parse", "auto", *sorted(tmp_path.iterdir()))
    assert [event["source"] for event in events(done)] == ["sacct", "kernel"]


def test_auto_says_when_it_knows_nothing(tmp_path: Path) -> None:
    """And what to do; an empty file is no error."""
    (tmp_path / "letter.txt").write_text("dear all\n")
    (tmp_path / "empty.txt").write_text("")
    done = run("parse", "auto", tmp_path / "letter.txt")
    assert done.returncode == 2
    assert b"letter.txt is of no format that is known" in done.stderr
    assert run("parse", "auto", tmp_path / "empty.txt").returncode == 0


def test_the_year_is_the_files_own_or_the_given_one(tmp_path: Path) -> None:
    """A line of December in a file of January is of last year."""
    log = tmp_path / "messages"
    log.write_text(f"Dec 31 23:59:59 vm kernel: {XID}\nJan  1 00:00:01 vm kernel: {XID}\n")
    moment = datetime(2026, 1, 2, tzinfo=UTC).timestamp()
    os.utime(log, (moment, moment))
    assert [event["time"][:4] for event in events(run("parse", "kernel", log))] == ["2025", "2026"]
    assert [event["time"][:4] for event in events(run("parse", "kernel", "--year", "2023", log))] == ["2023", "2024"]


def test_the_zone_comes_from_tz_or_the_option(tmp_path: Path) -> None:
    """Of times that bear none."""
    log = tmp_path / "messages"
    log.write_text(f"Jul  1 12:00:00 vm kernel: {XID}\n")
    done = run("parse", "kernel", log, "--year", "2025", env={"TZ": "Europe/Berlin"})
    assert events(done)[0]["time"] == "2025-07-01T10:00:00.000000Z"
    zones = next((Path(path) for path in zoneinfo.TZPATH if (Path(path) / "Asia/Tokyo").is_file()), None)
    if zones is not None:
        done = run("parse", "kernel", log, "--year", "2025", env={"TZ": f":{zones}/Asia/Tokyo"})
        assert events(done)[0]["time"] == "2025-07-01T03:00:00.000000Z"
    done = run("parse", "kernel", log, "--year", "2025", "--tz", "Asia/Tokyo")
    assert events(done)[0]["time"] == "2025-07-01T03:00:00.000000Z"


def test_seconds_since_boot_become_times_with_a_boot_time(tmp_path: Path) -> None:
    """And stay unknown without."""
    log = tmp_path / "dmesg"
    log.write_text(f"[   60.500000] {XID}\n")
    assert events(run("parse", "kernel", log))[0]["time"] is None
    done = run("parse", "kernel", log, "--boot-time", "2025-03-01T00:00:00Z")
    assert events(done)[0]["time"] == "2025-03-01T00:01:00.500000Z"


def test_a_run_is_named_by_its_file_or_the_option(tmp_path: Path) -> None:
    """Endings taken off."""
    log = tmp_path / "llm-70b.log.gz"
    log.write_bytes(gzip.compress(b" iteration 1/ 10 | elapsed time per iteration (ms): 5.0 |\n"))
    assert events(run("parse", "training", log))[0]["attributes"]["run"] == "llm-70b"
    assert events(run("parse", "training", log, "--run", "x"))[0]["attributes"]["run"] == "x"


def test_broken_lines_are_counted_once_at_the_end(tmp_path: Path) -> None:
    """The good ones beside them are printed, and the exit is 0."""
    log = tmp_path / "jobs.txt"
    rows = [
        "JobID|State|End",
        "1|COMPLETED|2025-03-01T00:00:00",
        "2|a|b|c",
        "3|FAILED|never",
        "4|FAILED|2025-03-01T00:00:00",
    ]
    log.write_text("\n".join(rows) + "\n")
    done = run("parse", "sacct", log)
    assert done.returncode == 0
    assert [event["attributes"]["job_id"] for event in events(done)] == ["1", "4"]
    assert done.stderr.decode() == f"2 lines of {log} skipped: first at line 3: the row has 4 fields, its header 3\n"


@pytest.mark.parametrize("pack", [gzip.compress, zstandard.ZstdCompressor().compress], ids=["gzip", "zstd"])
def test_a_packed_file_cut_short_prints_what_was_whole_and_fails(tmp_path: Path, pack: Any) -> None:
    """The error names the file; what the parser held is printed too."""
    log = tmp_path / "node.log.packed"
    packed = pack(b"".join(SYSLOG.replace("1234", str(number)).encode() for number in range(20_000)))
    log.write_bytes(packed[: len(packed) // 2])
    done = run("parse", "kernel", log)
    assert done.returncode == 2
    assert b"Error: " in done.stderr
    assert b"node.log.packed is cut short" in done.stderr
    pids = [event["attributes"]["pid"] for event in events(done)]
    assert pids == list(range(len(pids)))
    assert pids


def test_an_unreadable_file_fails_and_the_others_are_read(tmp_path: Path) -> None:
    """The good one is printed whole; the exit is 2, as of grep."""
    log = tmp_path / "x.log"
    log.write_text(SYSLOG)
    missing, folder = tmp_path / "missing.log", tmp_path
    done = run("parse", "kernel", missing, log, folder)
    assert done.returncode == 2
    assert len(events(done)) == 1
    assert f"cannot read {missing}: No such file or directory" in done.stderr.decode()
    assert "is a directory" in done.stderr.decode()
    assert run("parse", "kernel", missing).returncode == 2


def test_a_sites_rules_judge_what_is_found_and_find_more(tmp_path: Path) -> None:
    """A pattern is found in a line that bears no sign of ours; without one, lines are passed over as ever."""
    log, rules = tmp_path / "x.log", tmp_path / "rules.yaml"
    log.write_text("2025-03-01T04:05:06Z gpu-017 kernel: mmfs: suspected deadlock on fs7\n" + SYSLOG)
    rules.write_text("faults:\n  - {kind: xid, code: 79, severity: warning}\n")
    assert [event["severity"] for event in events(run("parse", "kernel", "--rules", rules, log))] == ["warning"]
    pattern = (
        "{name: gpfs, match: suspected deadlock, kind: gpfs_stall, severity: error, cause: storage, action: watch}"
    )
    rules.write_text(f"patterns:\n  - {pattern}\n")
    found = events(run("parse", "kernel", "--rules", rules, log))
    assert [(event["kind"], event["line"]) for event in found] == [("gpfs_stall", 1), ("xid", 2)]
    done = run("parse", "kernel", "--rules", tmp_path / "missing.yaml", log)
    assert done.returncode == 2
    assert b"missing.yaml cannot be read" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("kernal",), "no format 'kernal': use one of auto, "),
        (("kernel", "--tz", "Mars/Phobos"), "no time zone 'Mars/Phobos'"),
        (("kernel", "--tz", "../etc"), "no time zone"),
        (("kernel", "--tz", "/etc/passwd"), "no time zone"),
        (("kernel", "--boot-time", "soon"), "--boot-time 'soon' is no time"),
        (("kernel", "--year", "12"), "12"),
    ],
)
def test_bad_usage_is_one_sentence(arguments: tuple[str, ...], why: str) -> None:
    """And exit 2, without a traceback."""
    done = run("parse", *arguments)
    assert done.returncode == 2
    assert why in done.stderr.decode()
    assert b"Traceback" not in done.stderr


def test_bad_bytes_are_read(tmp_path: Path) -> None:
    """Binary, NUL, broken UTF-8, carriage returns, a megabyte on a line, nothing at all."""
    log = tmp_path / "bad.log"
    log.write_bytes(
        b"\x89PNG\r\n\x1a\n\x00\x00IHDR\x00NVRM Xid\n"
        + b"\xff\xfe"
        + XID.encode("utf-16-le")
        + b"\n"
        + b"NVRM: Xid (PCI:0000:0f:00): 48, "
        + b"z" * 1_000_000
        + b"\n"
        + b"\x00\x00"
        + XID.encode()
        + b" \xe9\r\n"
    )
    (tmp_path / "empty.log").write_bytes(b"")
    done = run("parse", "kernel", log, tmp_path / "empty.log")
    assert done.returncode == 0
    assert done.stderr == b""
    assert [(event["line"], event["code"]) for event in events(done)] == [(5, 48), (6, 79)]


def test_a_reader_that_goes_away_is_no_error() -> None:
    """`foreshock parse ... | head -1`."""
    command = f"yes '{XID}' | head -200000 | {sys.executable} -c 'from cli.main import main; main()' parse kernel"
    script = f"set -o pipefail; ({command}; echo rc $? >&2) | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, cwd=ROOT)
    assert json.loads(done.stdout)["code"] == 79
    assert b"Traceback" not in done.stderr
    assert b"rc 0" in done.stderr or b"rc 141" in done.stderr


def test_events_of_a_pipe_come_as_they_are_read() -> None:
    """`tail -f | foreshock parse kernel`: the first event is there before the input ends."""
    command = [sys.executable, "-c", "from cli.main import main; main()", "parse", "kernel"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(SYSLOG.encode())
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["code"] == 79
        process.stdin.close()
    assert process.returncode == 0


@pytest.fixture(scope="module")
def large_log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Larger than what one process reads by itself, with faults here and there and a record of several lines."""
    quiet = "".join(f"2025-03-01T04:05:06Z gpu-017 kernel: usb 1-{n}: new high-speed USB device\n" for n in range(900))
    record = f"_TRANSPORT=kernel\nPRIORITY=3\n_HOSTNAME=gpu-9\nMESSAGE={XID}\n\n"
    log = tmp_path_factory.mktemp("large") / "kern.log"
    log.write_text((quiet + SYSLOG + quiet + record) * (LARGE_BYTES // len(quiet) // 2 + 20))
    assert log.stat().st_size > LARGE_BYTES
    return log


@pytest.mark.parametrize("format_name", ["kernel", "auto"])
@pytest.mark.parametrize("way", ["file", "standard input", "gzip", "zstd"])
def test_a_large_log_gives_the_same_by_every_way(tmp_path: Path, large_log: Path, format_name: str, way: str) -> None:
    """Searched by several processes, unpacked ahead, or read as it comes: every fault with its line."""
    name, stdin = large_log, large_log.read_bytes()
    if way == "gzip":
        name = tmp_path / "kern.log.gz"
        name.write_bytes(gzip.compress(stdin, 1))
    elif way == "zstd":
        name = tmp_path / "kern.log.zst"
        name.write_bytes(zstandard.ZstdCompressor().compress(stdin))
    done = run("parse", format_name, name) if way != "standard input" else run("parse", format_name, stdin=stdin)
    assert (done.returncode, done.stderr) == (0, b"")
    starts = [number for number, line in enumerate(stdin.split(b"\n"), 1) if b"Xid" in line or line.startswith(b"_TR")]
    records = {number + 3 for number in starts}
    expected = [number for number in starts if number not in records]
    assert [event["line"] for event in events(done)] == expected
    assert {event["node"] for event in events(done)} == {"gpu-017", "gpu-9"}


def test_a_file_as_standard_input_is_read_as_a_file_is(large_log: Path) -> None:
    """`foreshock parse kernel < kern.log`."""
    command = [sys.executable, "-c", "from cli.main import main; main()", "parse", "kernel"]
    with large_log.open("rb") as stdin:
        done = subprocess.run(command, stdin=stdin, capture_output=True, cwd=ROOT)
    assert done.stderr == b""
    assert done.stdout == run("parse", "kernel", large_log).stdout


def test_formats_lists_every_format_with_a_sample() -> None:
    """For reading, and as JSON; in the order of the alphabet."""
    text, as_json = run("formats").stdout.decode(), run("formats", "--json")
    assert [line.split()[0] for line in text.splitlines() if line[:1].strip()] == sorted(PARSERS)
    assert all(entry.sample.split()[0] in text for entry in PARSERS.values())
    rows = json.loads(as_json.stdout)
    assert [row["format"] for row in rows] == sorted(PARSERS)
    assert all(row["description"] and row["sample"] for row in rows)


def test_a_node_needs_none_of_the_servers_packages() -> None:
    """The sidecar's install can parse."""
    script = (
        "import sys\n"
        "for name in ('sqlalchemy', 'pandas', 'numpy', 'sklearn', 'fastapi', 'pyarrow'): sys.modules[name] = None\n"
        "from cli.main import main\nmain()"
    )
    command = [sys.executable, "-c", script, "parse", "kernel"]
    done = subprocess.run(command, input=SYSLOG.encode(), capture_output=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, b"")
    assert len(events(done)) == 1


OPENSM = "Nov 20 22:18:11 928774 [8EAC6C0] 0x02 -> SUBNET UP\n"
QUIET = "2025-03-01T04:05:07.000000+00:00 n kernel: usb 1-1: new device\n"


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("opensm", QUIET, "no line of 20 is of the format opensm: it looks like kernel"),
        ("kernel", OPENSM, "no line of 20 is of the format kernel: it looks like opensm"),
        ("sacctmgr", SYSLOG, "no header line"),
        ("kubernetes", "nothing of the sort\n", "no line of 20 is of the format kubernetes"),
        ("kernel", QUIET, ""),
        ("opensm", OPENSM, ""),
        ("training", "a line of anyone's program\n", ""),
    ],
)
def test_a_log_of_another_format_is_told_of(tmp_path: Path, name: str, text: str, said: str) -> None:
    """In one sentence; of a quiet log nothing is said, and neither is an error."""
    log = tmp_path / "x.log"
    log.write_text(text * 20)
    done = run("parse", name, log)
    assert (done.returncode, done.stdout) == (0, b"")
    assert said in done.stderr.decode()
    assert len(done.stderr.splitlines()) == bool(said)


@pytest.mark.parametrize("name", ["x.log", "x.log.gz"])
def test_what_is_no_text_is_bad_input(tmp_path: Path, name: str) -> None:
    """Random bytes, whatever they are called."""
    log = tmp_path / name
    log.write_bytes(os.urandom(5000))
    done = run("parse", "kernel", log)
    assert done.returncode == 2
    assert done.stderr.decode() == f"Error: {log}: it is no text: replace it with the log itself\n"


def test_no_format_doubts_its_own_sample() -> None:
    """A log that is all of one line of it, and would tell nothing."""
    for name, entry in PARSERS.items():
        assert misread(name, [entry.sample] * 20) is None

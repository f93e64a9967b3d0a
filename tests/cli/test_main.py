"""The `foreshock` command itself: exit codes, one sentence on stderr, readers that go away."""

import inspect
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fault_events import at, iteration, job, xid
from real.programs import wait_for

from cli.main import COMMANDS, foreshock, help_of
from diagnosis.incidents.incidents_table import update_incidents
from store.database.connections import migrate, open_database, writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.node import Node

ROOT = Path(__file__).parents[2]
MAIN = [sys.executable, "-c", "from cli.main import main; main()"]
# A shell's background job ignores Ctrl-C, and so does all that it starts: tests that run there, too.
HEED = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
HEEDFUL = [sys.executable, "-c", f"{HEED}from cli.main import main; main()"]
RUNS = 400


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A database whose tables of runs and culprits are longer than a pipe holds."""
    url = f"sqlite:///{tmp_path_factory.mktemp('db') / 'x.db'}"
    engine = open_database(url)
    migrate(engine)
    names = [f"run-{n:03d}" for n in range(RUNS)]
    with writing(engine).begin() as connection:
        append_nodes(connection, [Node(f"gpu-{n:03d}", gpus=8) for n in range(1, 5)])
        jobs = [job(0, 700, "FAILED", number=n) for n in range(RUNS)]
        append_jobs(connection, [replace(one, run=name) for one, name in zip(jobs, names, strict=True)])
        events = [iteration(90, "run-000"), *(xid(79, 100, f"gpu-{n:03d}") for n in range(1, 5))]
        update_incidents(connection, append_events(connection, events, at(9999)).new)
    engine.dispose()
    return url


def run(*arguments: str, script: str | None = None) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own."""
    command = MAIN if script is None else [sys.executable, "-c", script]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, cwd=ROOT)


def deaf(arguments: Sequence[str]) -> tuple[int, str]:
    """Exit code and stderr of a command whose reader is gone before it says its first word."""
    reader, writer = os.pipe()
    os.close(reader)
    try:
        done = subprocess.run([*MAIN, *arguments], stdout=writer, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    finally:
        os.close(writer)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ("--help",),
        ("formats", "--json"),
        ("goodput",),
        ("goodput", "--json"),
        ("diagnose", "--json"),
        ("hints", "list"),
    ],
)
def test_a_reader_that_is_gone_is_no_error(url: str, arguments: tuple[str, ...]) -> None:
    """Exit 0, nothing on stderr, whatever the command had still to say."""
    needs_store = arguments[0] in ("goodput", "diagnose", "hints")
    assert deaf([*arguments, *(["--db", url] if needs_store else [])]) == (0, "")


@pytest.mark.parametrize("arguments", [("goodput",), ("goodput", "--json")])
def test_head_gets_its_line_of_much_more_than_a_pipe_holds(url: str, arguments: tuple[str, ...]) -> None:
    """`foreshock goodput | head -1` in a shell."""
    words = " ".join([*arguments, "--db", url])
    script = f"({sys.executable} -c 'from cli.main import main; main()' {words}; echo rc $? >&2) | head -1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout in ("[\n", done.stdout.partition("\n")[0] + "\n")
    assert done.stdout.startswith("[" if "--json" in arguments else "run-000: goodput")
    assert done.stderr == "rc 0\n"


def test_a_failure_whose_message_nobody_reads_is_no_traceback(url: str) -> None:
    """Standard output is gone, standard error is not: the sentence and the code arrive."""
    code, told = deaf(["goodput", "--db", url, "--run", "x"])
    assert code == 2
    assert told.startswith("Error: the database knows no run 'x'")


def test_a_closed_output_is_no_traceback(url: str) -> None:
    """`foreshock goodput >&-`."""
    command = " ".join([*(f"'{word}'" for word in MAIN), "goodput", "--db", url, ">&-"])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("nope",), "No such command 'nope'"),
        (("goodput",), "Missing option '--db'"),
        (("advise", "nope"), "No such command 'nope'"),
        (("goodput", "--db"), "Option '--db' requires an argument"),
        (("goodput", "--nope"), "No such option"),
        (("score", "--db", "sqlite://", "--top", "0"), "--top"),
        (("advise", "spares", "--db", "sqlite://", "--confidence", "1"), "--confidence"),
        (("demo", "--nodes", "7"), "--nodes"),
        (("demo", "--days", "19"), "--days"),
        (("demo", "--speed", "0"), "--speed"),
    ],
)
def test_bad_usage_exits_with_2_and_says_what_is_wrong(arguments: tuple[str, ...], sentence: str) -> None:
    """On stderr, with nothing on stdout."""
    result = CliRunner().invoke(foreshock, arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stdout == ""


def test_the_process_exits_as_the_command_does(url: str) -> None:
    """0 done, 2 bad usage or input, 3 a failed check."""
    assert run("--version").returncode == 0
    assert run("goodput", "--db", url, "--run", "run-000", "--json").returncode == 0
    unknown = run("goodput", "--nope")
    assert (unknown.returncode, unknown.stdout) == (2, "")
    assert "Error: No such option" in unknown.stderr
    failed = run("doctor", "--db", "sqlite:////nowhere/at/all.db")
    assert failed.returncode == 3
    assert "Traceback" not in failed.stderr
    assert failed.stderr.startswith("Error: not in order: ")


def test_an_interrupt_ends_a_command_without_a_traceback() -> None:
    """Ctrl-C while it waits for its input."""
    with subprocess.Popen([*HEEDFUL, "parse", "kernel"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("2025-03-01T04:05:06+00:00 n kernel: NVRM: Xid (PCI:0000:0f:00): 79, pid=1, gone\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["code"] == 79
        stat = Path(f"/proc/{process.pid}/stat")
        wait_for("it waits for more", lambda: stat.read_text().rpartition(")")[2].split()[0] == "S")
        process.send_signal(signal.SIGINT)
        _, told = process.communicate()
    assert process.returncode == 130, "as shells have it: 1 is a fault of the program"
    assert told.strip() == "Broken off"


def test_every_command_has_a_name_that_loads_and_a_line_of_help() -> None:
    """What `--help` lists is what there is."""
    told = CliRunner().invoke(foreshock, ["--help"]).stdout
    for name in COMMANDS:
        assert f"\n  {name} " in told
        assert CliRunner().invoke(foreshock, [name, "--help"]).exit_code == 0


@pytest.mark.parametrize(
    ("package", "command", "extra"),
    [("sqlalchemy", "goodput", "server"), ("fastapi", "serve", "server")],
)
def test_a_package_that_is_missing_is_named_with_what_to_install(
    package: str, command: str, extra: str, tmp_path: Path
) -> None:
    """A node has the sidecar alone: help is there for every command, and its work names the extra that it needs."""
    script = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name.partition('.')[0] == {package!r}:\n"
        "            raise ModuleNotFoundError(f'No module named {name!r}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from cli.main import main\nmain()"
    )
    assert run(command, "--help", script=script).returncode == 0
    done = run(command, "--db", f"sqlite:///{tmp_path / 'x.db'}", script=script)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"`foreshock {command}` needs the package {package}" in done.stderr
    assert f"install foreshock[{extra}]" in done.stderr


def test_the_help_of_the_whole_needs_no_package_of_the_server() -> None:
    """It lists every command, also those that cannot run here, with the words of each."""
    script = (
        "import sys\n"
        "for name in ('sqlalchemy', 'pandas', 'numpy', 'sklearn', 'fastapi', 'pyarrow', 'streamlit'):\n"
        "    sys.modules[name] = None\n"
        "from cli.main import main\nmain()"
    )
    done = run("--help", script=script)
    assert (done.returncode, done.stderr) == (0, "")
    words = " ".join(done.stdout.split())
    for name in COMMANDS:
        command = foreshock.get_command(click.Context(foreshock), name)
        assert command is not None
        assert command.help
        assert help_of(name) == inspect.cleandoc(command.help)
        assert f" {name} {help_of(name)[:20]}" in words


def test_the_database_may_be_named_by_the_environment(engine: sa.Engine) -> None:
    """FORESHOCK_DB stands for --db."""
    result = CliRunner().invoke(foreshock, ["goodput"], env={"FORESHOCK_DB": str(engine.url)})
    assert result.exit_code == 2
    assert "knows no training run" in result.stderr

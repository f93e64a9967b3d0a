"""`foreshock lemons`: a table for people, JSON for programs, a file for the vendor."""

from pathlib import Path
from typing import Any

import orjson
import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from fleet_store import day, node, outage, put

from cli.main import foreshock


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """Three hundred nodes, one of which fails every six days."""
    usual = [outage(f"gpu-{i:03}", 75 + i / 20) for i in range(5, 300, 10)]
    often = [outage("gpu-000", at) for at in (74, 80, 86, 92, 98)]
    put(engine, [node(f"gpu-{i:03}") for i in range(300)], (), [*usual, *often])
    return str(engine.url)


def run(*arguments: str) -> Any:
    """The command, in this process."""
    return CliRunner().invoke(foreshock, ["lemons", *arguments])


def test_the_table_names_the_node_and_the_next_step(url: str) -> None:
    """And every sentence below it."""
    done = run("--db", url, "--at", day(100).isoformat())
    assert done.exit_code == 0
    assert done.stdout.startswith("1 of 300 nodes for repair, as of 2025-04-11 00:00Z")
    assert "No single part stands out" in done.stdout
    assert "\ngpu-000:\n  5 unplanned outages in 28 days" in done.stdout


def test_json_and_the_vendors_file_tell_the_same_node(url: str, tmp_path: Path) -> None:
    """The export is written beside what is printed, as a table or as JSON."""
    for name in ("parts.csv", "parts.json"):
        done = run("--db", url, "--at", day(100).isoformat(), "--json", "--rma", str(tmp_path / name))
        assert [item["node"] for item in orjson.loads(done.stdout)["items"]] == ["gpu-000"]
    assert (tmp_path / "parts.csv").read_text().splitlines()[1].startswith("gpu-000,r1,")
    assert orjson.loads((tmp_path / "parts.json").read_bytes())[0]["outages_28d"] == 5


def test_tickets_are_written_as_a_table_or_as_json(url: str, tmp_path: Path) -> None:
    """Beside the vendor's file, or alone."""
    for name in ("t.csv", "t.json"):
        assert run("--db", url, "--at", day(100).isoformat(), "--tickets", str(tmp_path / name)).exit_code == 0
    assert (tmp_path / "t.csv").read_text().splitlines()[1].startswith("gpu-000,r1,")
    (ticket,) = orjson.loads((tmp_path / "t.json").read_bytes())
    assert (ticket["node"], ticket["tests"]) == ("gpu-000", [])
    assert "--tickets t.txt: name a file" in run("--db", url, "--tickets", "t.txt").output


def test_without_a_moment_the_newest_record_is_the_present(url: str) -> None:
    """The last outage ended on day 98."""
    assert "as of 2025-04-09" in run("--db", url).stdout


def test_a_quiet_fleet_is_told_so(engine: sa.Engine) -> None:
    """No table."""
    put(engine, [node("gpu-000")], (), [outage("gpu-000", 20)])
    assert run("--db", str(engine.url)).stdout.startswith("no node of 1 stands out in the 28 days before 2025-01-21")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--at", "soon"], "--at: 'soon' is no time"),
        (["--rma", "parts.xlsx"], "name a file that ends in .csv or .json"),
        (["--rma", "/nowhere/parts.csv"], "cannot write /nowhere/parts.csv"),
    ],
    ids=["time", "suffix", "folder"],
)
def test_bad_usage_is_one_sentence(url: str, arguments: list[str], says: str) -> None:
    """Exit 2, and the remedy."""
    done = run("--db", url, *arguments)
    assert done.exit_code == 2
    assert says in done.stderr


def test_an_empty_database_says_what_to_do(engine: sa.Engine) -> None:
    """Nothing was ingested."""
    done = run("--db", str(engine.url))
    assert done.exit_code == 2
    assert "run `foreshock ingest` first" in done.stderr

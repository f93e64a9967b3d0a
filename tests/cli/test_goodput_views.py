"""`foreshock goodput --by`, `--cluster` and `--html`, on a run that failed once."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

import pytest
import sqlalchemy as sa
from click.testing import CliRunner, Result

from cli.main import foreshock
from store.database.connections import writing
from store.events.append import append_events, append_jobs, append_nodes
from store.records.event import Device, Event
from store.records.job import Job, LossKey
from store.records.node import Node

START = datetime(2025, 3, 1, tzinfo=UTC)


def at(hours: float) -> datetime:
    """A moment, hours after the start."""
    return START + timedelta(hours=hours)


@pytest.fixture
def url(engine: sa.Engine) -> str:
    """Two nodes; an hour's run that met an Xid after half of it, and began anew."""
    lines = [
        Event(at(n / 10 + (1 if n > 4 else 0)), None, "training", "iteration", file="a.log", line=n,
              attributes={"run": "llm", "iteration": n % 5 + 1, "iterations": 1, "elapsed_ms": 360_000.0})
        for n in range(1, 9)
    ]  # fmt: skip
    fault = Event(at(0.5), "gpu-1", "kernel", "xid", 79, "fatal", "hardware", device=Device("gpu", index=3))
    with writing(engine).begin() as connection:
        nodes = [Node(f"gpu-{i}", leaf="l1", gpus=8, driver="550", gpu_model="H100") for i in (1, 2)]
        append_nodes(connection, nodes)
        jobs = [Job("1", "llm", "FAILED", at(0), at(0), at(1), 2, "gpu-[1-2]")]
        append_jobs(connection, [*jobs, Job("2", "llm", "COMPLETED", at(1), at(1.4), at(1.8), 2, "gpu-[1-2]")])
        append_events(connection, [*lines, fault], at(9))
    engine.dispose()
    return str(engine.url)


def run(*arguments: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(foreshock, ["goodput", *arguments])


@pytest.mark.parametrize("by", get_args(LossKey))
def test_losses_are_told_by_each_of_them(url: str, by: str) -> None:
    """As a table and as JSON; the rows sum to the total."""
    told = json.loads(run("--db", url, "--by", by, "--json").stdout)
    assert told["by"] == by
    assert sum(row["lost_s"] for row in told["items"]) == told["total"]["lost_s"] > 0
    shown = run("--db", url, "--by", by)
    assert shown.exit_code == 0, shown.output
    assert shown.stdout.startswith("1 interruption cost ")
    assert told["items"][0]["name"] in shown.stdout
    assert "100.0%" in shown.stdout


def test_a_window_takes_the_interruptions_of_its_time(url: str) -> None:
    """It was at half past midnight."""
    assert "no interruption in that time" in run("--db", url, "--by", "node", "--since", "2025-03-01T01:00:00Z").stdout
    assert "gpu-1" in run("--db", url, "--by", "node", "--since", "2025-03-01T00:30:00Z").stdout


def test_the_cluster_is_told_level_by_level(url: str) -> None:
    """GPU-hours, shares, ratios; the MFU where a shape is given, else what is missing for it."""
    shown = run("--db", url, "--cluster", "--shape", "llm*:batch=64,layers=80,seq=4096,hidden=8192", "--shape",
                "other:batch=1,layers=1,seq=1,hidden=1")  # fmt: skip
    assert shown.exit_code == 0, shown.output
    for words in ("allocated: held by jobs", "runtime goodput", "ETTR (Meta)", "llm: MFU "):
        assert words in shown.stdout
    told = json.loads(run("--db", url, "--cluster", "--since", "2025-03-01T00:00:00Z", "--json").stdout)
    assert told["gpu_hours"]["allocated"] == pytest.approx(16 * 1.4)
    assert told["program_goodput"] is None
    assert len(told["days"]) == 1


def test_the_report_is_a_page_in_a_file(url: str, tmp_path: Path) -> None:
    """Nothing on stdout."""
    out = tmp_path / "week.html"
    done = run("--db", url, "--html", str(out))
    assert (done.exit_code, done.stdout) == (0, "")
    text = out.read_text()
    assert text.startswith("<!doctype html>")
    assert "gpu-1" in text


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--by", "node", "--cluster"), "three views: ask for one at a time"),
        (("--since", "2025-03-01T00:00:00Z"), "--since goes with --by, --cluster or --html"),
        (("--cluster", "--since", "2026-03-01T00:00:00Z"), "--since, --until: the period is empty"),
        (("--cluster", "--since", "2020-03-01T00:00:00Z"), "longer than 400 days"),
        (("--cluster", "--shape", "llm:batch=1"), "--shape: 'batch=1' lacks layers, seq, hidden"),
        (("--html", "/nowhere/at/all.html"), "cannot write /nowhere/at/all.html"),
        (("--by", "node", "--since", "never"), "--since: 'never' is no time"),
    ],
)
def test_what_cannot_be_done_fails_in_one_sentence(url: str, arguments: tuple[str, ...], sentence: str) -> None:
    """Exit 2, on stderr."""
    result = run("--db", url, *arguments)
    assert result.exit_code == 2, result.output
    assert sentence in result.stderr


def test_hours_are_told_in_money_at_the_price_that_is_given(url: str, tmp_path: Path) -> None:
    """Each view, by option or environment; the report too; what is no price is a usage error."""
    told = json.loads(run("--db", url, "--by", "node", "--gpu-hour-price", "2.50 EUR", "--json").stdout)
    assert told["total"]["lost_money"]["currency"] == "EUR"
    assert float(told["total"]["lost_money"]["amount"]) == told["total"]["lost_gpu_hours"] * 2.5 > 0
    out = tmp_path / "report.html"
    for view in (["--by", "node"], ["--cluster"], [], ["--html", str(out)]):
        shown = CliRunner(env={"FORESHOCK_GPU_HOUR_PRICE": "300 JPY"}).invoke(
            foreshock, ["goodput", "--db", url, *view]
        )
        assert shown.exit_code == 0, shown.output
        text = out.read_text() if "--html" in view else shown.stdout
        assert re.search(r"JPY [1-9]", text), view
        bare = run("--db", url, *view)
        assert "JPY" not in (out.read_text() if "--html" in view else bare.stdout)
    refused = run("--db", url, "--gpu-hour-price", "2,50")
    assert refused.exit_code == 2
    assert "write 2.50 EUR" in refused.output

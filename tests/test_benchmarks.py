"""The benchmarks load: a name that moved in the product is seen here, not when somebody measures."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import slower
from benchmarks.result import Result, Verdict

ROOT = Path(__file__).parents[1]


def test_the_benchmarks_load_and_name_themselves() -> None:
    """As whoever asks for help sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = "".join(done.stdout.split())  # a long line is broken anywhere
    assert all(name in said for name in ("scan", "rails", "storm-verdicts", "graph", "diagnosis"))


PAGE = """| what | budget | here | the other | ratio | | |
|---|---|---|---|---|---|---|
| read a log (`a`) | <= 1 x rg | 2.00 s | 1.00 s | 2.00 | met | |
| take events (`a`) | >= 0.5 x COPY | 60,000 rows/s | 100,000 rows/s | 0.60 | met | |
| answer (`a`) | p95 < 200 ms | p95 168 ms (the slowest) | - | - | met | |
| nothing of it here (`b`) | < 1 s | 0.10 s | - | - | met | |
"""


def result(what: str, budget: str, ours: str, ratio: float | None, verdict: Verdict = "met") -> Result:
    """A row that was measured now."""
    return Result(what, budget, ours, "-", ratio, verdict)


@pytest.mark.parametrize(
    ("now", "said"),
    [
        (result("read a log", "<= 1 x rg", "9.00 s", 2.10), []),  # a slow machine: the ratio is the same
        (result("read a log", "<= 1 x rg", "2.00 s", 3.00), ["1.50 times worse"]),
        (result("take events", ">= 0.5 x COPY", "90,000 rows/s", 0.90), []),
        (result("take events", ">= 0.5 x COPY", "40,000 rows/s", 0.40, "not met"), ["met before (60,000 rows/s)"]),
        (result("answer", "p95 < 200 ms", "p95 252 ms (the slowest)", None), ["1.50 times worse"]),
        (result("answer", "p95 < 200 ms", "p95 1.5 s (the slowest)", None), []),  # another unit: not compared
        (result("answer", "p95 < 200 ms", "-", None, "not measured"), []),
        (result("new here", "< 1 s", "9 s", None), []),
    ],
)
def test_what_became_slower_than_the_committed_table_is_told(now: Result, said: list[str]) -> None:
    """By the ratio, else by the first figure; more is better of a budget that begins with >=."""
    found = slower(PAGE, {"a": [now]})
    assert len(found) == len(said)
    assert all(part in sentence for part, sentence in zip(said, found, strict=True))

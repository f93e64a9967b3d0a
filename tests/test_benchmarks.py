"""The benchmarks load: a name that moved in the product is seen here, not when somebody measures."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_the_benchmarks_load_and_name_themselves() -> None:
    """As whoever asks for help sees it."""
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    said = "".join(done.stdout.split())  # a long line is broken anywhere
    assert all(name in said for name in ("scan", "rails", "storm-verdicts", "graph", "diagnosis"))

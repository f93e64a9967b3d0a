"""The deep profile multiplies the examples of every property, and a failure says how to see it again."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).parent
OWN = {"implicit": 60, "explicit": 3, "one": 2, "another": 2, "method": 4, "machine": 2, "machine by hand": 2}


def run(*arguments: str, **environ: str) -> subprocess.CompletedProcess[str]:
    """Another pytest, that runs properties alone."""
    return subprocess.run(
        [
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "no:cacheprovider",
            "-p",
            "no:schemathesis",
            "-m",
            "hypothesis",
            *arguments,
        ],
        cwd=TESTS.parent,
        env={**os.environ, **environ},
        text=True,
        capture_output=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("options", "times"), [([], 1), (["--hypothesis-profile=deep"], 100)], ids=["by default", "deep"]
)
def test_every_kind_of_property_has_its_examples_times_the_depth(
    options: list[str], times: int, tmp_path: Path
) -> None:
    """Implicit, explicit, parametrized, of a class, of a state machine."""
    counts = tmp_path / "counts.json"
    done = run("tests/depth_sample.py", *options, DEPTH_COUNTS=str(counts))
    assert done.returncode == 0, done.stdout
    assert json.loads(counts.read_text()) == {name: own * times for name, own in OWN.items()}


def test_workers_of_a_parallel_run_are_deep_whatever_they_print(tmp_path: Path) -> None:
    """As `make deep` runs them; a verbosity changes the name of the profile in force."""
    counts = tmp_path / "counts.json"
    options = ["--hypothesis-profile=deep", "--hypothesis-verbosity=quiet", "-n1", "-k", "explicit"]
    done = run("tests/depth_sample.py", *options, DEPTH_COUNTS=str(counts))
    assert done.returncode == 0, done.stdout
    assert json.loads(counts.read_text()) == {"explicit": 300}


@pytest.mark.parametrize("profile", ["patient", "deep"])
def test_a_failure_prints_what_reproduces_it(profile: str, tmp_path: Path) -> None:
    """Wherever it ran, one line above the test brings it back."""
    failing = tmp_path / "test_failing.py"
    failing.write_text(
        "from hypothesis import given, settings, strategies as st\n"
        "@settings(max_examples=50, database=None)\n@given(st.integers())\n"
        "def test_small(number: int) -> None:\n    assert number < 1000\n"
    )
    options = [str(failing), "-p", "conftest", "--rootdir", str(tmp_path), f"--hypothesis-profile={profile}"]
    done = run(*options, PYTHONPATH=str(TESTS))
    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"@reproduce_failure\('[\d.]+', b'[^']+'\)", done.stdout)
    assert "number=1000" in done.stdout


def test_a_state_machine_that_is_run_by_hand_is_deepened_and_marked() -> None:
    """Pytest does not see that it is a property: the test itself has to say so, with `deepened` and the marker."""
    by_hand = [path for path in TESTS.rglob("*.py") if "run_state_machine_as_test(" in path.read_text()]
    found = [path for path in by_hand if path != Path(__file__)]
    assert len(found) >= 2
    for path in found:
        text = path.read_text()
        assert "settings=deepened(" in text, path
        assert "@pytest.mark.hypothesis" in text, path

"""The factor of all waits: read from the environment, and clearly refused where it is none."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from real.patience import VARIABLE, factor, patience
from real.programs import stop, wait_for

TESTS = Path(__file__).parents[1]


@pytest.mark.parametrize(
    ("environ", "expected"),
    [({}, 3.0), ({VARIABLE: ""}, 3.0), ({VARIABLE: "10"}, 10.0), ({VARIABLE: " 0.5 "}, 0.5)],
)
def test_a_number_is_the_factor_and_without_one_it_is_generous(environ: dict[str, str], expected: float) -> None:
    """Three times what a quiet machine takes."""
    assert factor(environ) == expected


@pytest.mark.parametrize("text", ["0", "-1", "long", "nan", "inf", "3 s"])
def test_what_is_no_factor_is_refused_with_the_name_of_the_variable(text: str) -> None:
    """And with one that would do."""
    with pytest.raises(ValueError, match=rf"FORESHOCK_TEST_PATIENCE is '{text}': give a number above 0, such as 3"):
        factor({VARIABLE: text})


def test_a_bad_factor_stops_a_run_before_its_first_test() -> None:
    """Not each test that waits, one after the other."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--co", str(TESTS / "test_docs.py")]
    environ = os.environ | {VARIABLE: "soon"}
    done = subprocess.run(command, capture_output=True, text=True, env=environ, cwd=TESTS.parent, timeout=patience(60))
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "ValueError: FORESHOCK_TEST_PATIENCE is 'soon': give a number above 0" in done.stdout + done.stderr


def test_every_wait_is_longer_by_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of `wait_for` and `stop`, too."""
    monkeypatch.setattr("real.patience._FACTOR", 100.0)
    assert patience(60) == 6000.0
    with pytest.raises(TimeoutError, match="the moon: not within 1 s"):
        wait_for("the moon", lambda: False, timeout_s=0.01)
    waited: list[float] = []

    class Ended(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            waited.append(timeout or 0.0)
            return super().wait(timeout)

    with Ended(["sleep", "60"]) as process:
        stop(process, 15, timeout_s=20.0)
        assert waited == [2000.0]

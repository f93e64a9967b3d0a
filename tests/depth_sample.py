"""Properties that hold, of each kind that the suite has; `test_depth.py` runs them and counts their examples."""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from depth import deepened
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

COUNTS: Counter[str] = Counter()
NUMBERS = st.integers(0, 2**64)


@pytest.fixture(scope="module", autouse=True)
def counted() -> Iterator[None]:
    """The counts outlive the program."""
    yield
    Path(os.environ["DEPTH_COUNTS"]).write_text(json.dumps(COUNTS))


@given(NUMBERS)
def test_implicit(number: int) -> None:
    """It leaves its examples to the profile."""
    COUNTS["implicit"] += 1


@settings(max_examples=3, suppress_health_check=[HealthCheck.filter_too_much])
@given(NUMBERS)
def test_explicit(number: int) -> None:
    """It names its examples, and lifts one health check alone."""
    COUNTS["explicit"] += 1


@pytest.mark.parametrize("name", ["one", "another"])
@given(number=NUMBERS)
@settings(max_examples=2)
def test_of_two_parameters(name: str, number: int) -> None:
    """It is collected twice."""
    COUNTS[name] += 1


class TestMethods:
    """Properties may be methods."""

    @settings(max_examples=4)
    @given(number=NUMBERS)
    def test_method(self, number: int) -> None:
        """It names its examples."""
        COUNTS["method"] += 1


class Machine(RuleBasedStateMachine):
    """One step an example."""

    name = "machine"

    @rule(number=NUMBERS)
    def step(self, number: int) -> None:
        """The only step."""
        COUNTS[self.name] += 1


Machine.TestCase.settings = settings(max_examples=2, stateful_step_count=1)
TestMachine = Machine.TestCase


@pytest.mark.hypothesis
def test_machine_by_hand() -> None:
    """Pytest does not see that this is a property."""

    class ByHand(Machine):
        """Of another name."""

        name = "machine by hand"

    run_state_machine_as_test(ByHand, settings=deepened(settings(max_examples=2, stateful_step_count=1)))  # type: ignore[no-untyped-call]

"""How many examples a property has: its own number, or a hundred times that with `--hypothesis-profile=deep`.

A profile only fills in what a test leaves open, so the numbers that tests name are multiplied once they are collected.
"""

from collections.abc import Iterable

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings

PROFILE = "deep"
TIMES = 100


def is_deep() -> bool:
    """Whether this is a deep run; a verbosity on the command line adds to the profile's name."""
    return settings.get_current_profile_name().split("-")[0] == PROFILE


def deepened(own: settings) -> settings:
    """A property's settings as this run wants them; what is slow on purpose fails no health check."""
    if not is_deep():
        return own
    every = list(HealthCheck)
    return settings(own, max_examples=own.max_examples * TIMES, deadline=None, suppress_health_check=every)


def deepen(items: Iterable[pytest.Item]) -> None:
    """Each property once, however many parameters it is collected with."""
    found = [item for item in items if isinstance(item, pytest.Function) and is_hypothesis_test(item.obj)]
    machines = {item.cls for item in found if hasattr(item.function, "_hypothesis_state_machine_class")}
    for machine in machines:
        machine.settings = deepened(machine.settings)
    for function in {item.function for item in found if item.cls not in machines}:
        function._hypothesis_internal_use_settings = deepened(function._hypothesis_internal_use_settings)

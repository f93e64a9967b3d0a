"""Every figure says where it comes from."""

import pytest

from simulator.calibration import calibration, described
from simulator.site import CALIBRATIONS


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_every_parameter_names_its_source(name: str) -> None:
    """A FIELD row, a program's option, a real set with the number of its records, or that it is ours."""
    chosen = calibration(name)
    for parameter, entry in described(chosen).items():
        assert len(entry["source"]) > 3, parameter
        assert entry["value"] == getattr(chosen.parameters, parameter)


@pytest.mark.parametrize("name", CALIBRATIONS)
def test_ranges_run_upwards(name: str) -> None:
    """A pair is (low, high), five are quantiles; none means that nothing was measured."""
    for parameter, entry in described(calibration(name)).items():
        if isinstance(entry["value"], tuple):
            assert len(entry["value"]) in (0, 2, 5), parameter
            assert list(entry["value"]) == sorted(entry["value"]), parameter
            assert all(figure >= 0 for figure in entry["value"]), parameter

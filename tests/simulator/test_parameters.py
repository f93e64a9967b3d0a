"""Every figure says where it comes from."""

from simulator.site import Parameters, described


def test_every_parameter_names_its_source() -> None:
    """A FIELD row, a program's option, or that it is ours."""
    for name, entry in described(Parameters()).items():
        assert len(entry["source"]) > 3, name
        assert entry["value"] == getattr(Parameters(), name)


def test_ranges_run_upwards() -> None:
    """A pair is (low, high)."""
    for name, entry in described(Parameters()).items():
        if isinstance(entry["value"], tuple):
            low, high = entry["value"]
            assert 0 <= low < high, name

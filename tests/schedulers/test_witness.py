"""Two detectors: which are independent, and which only repeat each other."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schedulers.policy.facts import FAMILY, corroborated
from store.nodes.node_states import FaultSign
from store.records.event_sources import DETECTORS, NO_FAULT

from .cluster import sign

KERNEL, DCGM = sign("kernel", "nvlink_error", 1.0), sign("dcgm", "row_remap_failure", 0.5)


def test_two_families_are_two_detectors() -> None:
    """The earlier one first, whatever the order."""
    assert corroborated([KERNEL, DCGM], 3600) == (KERNEL, DCGM)
    assert corroborated([DCGM, KERNEL], 3600) == (KERNEL, DCGM)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (("kernel", {}), ("fabricmanager", {})),
        (("opensm", {}), ("ufm", {})),
        (("dcgm", {}), ("nvml", {})),
        (("kernel", {}), ("alertmanager", {})),
        (("kernel", {}), ("gpud", {})),
        (("kernel", {}), ("training", {})),
        (("kernel", {}), ("sacct", {})),
        (("kernel", {}), ("a site's own", {})),
        (("kernel", {"severity": "warning"}), ("dcgm", {})),
        (("kernel", {"cause": "application"}), ("dcgm", {})),
        (("kernel", {"cause": "driver"}), ("dcgm", {})),
    ],
)
def test_what_looks_the_same_way_or_repeats_others_is_one(one: Any, other: Any) -> None:
    """One family, a relay, a program, a warning, another's cause."""
    signs = [sign(source, f"kind {i}", **facts) for i, (source, facts) in enumerate((one, other))]
    assert corroborated(signs, 3600) is None


def test_the_same_thing_told_twice_is_one_sign() -> None:
    """DCGM has a field that repeats the number of the kernel's Xid."""
    told = [sign("kernel", "xid", code=63), sign("dcgm", "xid", code=63)]
    assert corroborated(told, 3600) is None
    assert corroborated([told[0], sign("dcgm", "xid", code=64)], 3600) is not None


def test_they_must_be_close_and_the_newest_pair_counts() -> None:
    """Measured from the end of the earlier to the start of the later; half an hour apart here."""
    assert corroborated([KERNEL, DCGM], 1800) == (KERNEL, DCGM)
    assert corroborated([KERNEL, DCGM], 1799) is None
    old = sign("kernel", "gpu_over_temperature", 30)
    newer = sign("opensm", "link_down", 0.1, cause="fabric")
    assert corroborated([old, KERNEL, DCGM, newer], 3600) == (DCGM, newer)


def test_no_relay_and_nothing_that_reports_no_faults_has_a_family() -> None:
    """`store/records/event_sources.py` says who repeats others; a node health check tries the machine itself."""
    assert not set(FAMILY) & (DETECTORS - {"nhc"})
    assert not set(FAMILY) & NO_FAULT


SIGNS = st.builds(
    lambda source, kind, hours, severity, cause: sign(source, kind, hours, severity=severity, cause=cause),
    st.sampled_from([*FAMILY, "gpud", "training"]),
    st.sampled_from(["a", "b", "c"]),
    st.floats(0, 48),
    st.sampled_from(["warning", "error", "fatal"]),
    st.sampled_from(["hardware", "fabric", "driver"]),
)


@given(signs=st.lists(SIGNS, max_size=12), within_s=st.floats(0, 1e5))
def test_a_pair_is_two_independent_errors_whatever_comes(signs: list[FaultSign], within_s: float) -> None:
    """And where one is found, more time finds one, too."""
    found = corroborated(signs, within_s)
    if found is None:
        return
    one, other = found
    assert FAMILY[one.source] != FAMILY[other.source]
    assert {one.severity, other.severity} <= {"error", "fatal"}
    assert {one.cause, other.cause} <= {"hardware", "fabric"}
    assert (one.kind, one.code) != (other.kind, other.code)
    assert (other.start - one.end).total_seconds() <= within_s
    assert corroborated(signs, within_s * 2) is not None

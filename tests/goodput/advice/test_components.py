"""Which component failed: culprits and outage reasons as the field writes them."""

import pytest

from goodput.advice.mtbf import COMPONENTS, component_of, component_of_outage


@pytest.mark.parametrize(
    ("device", "kind", "code", "cause", "component"),
    [
        ("gpu", "xid", 79, "hardware", "gpu"),
        ("gpu", "xid", 48, "hardware", "gpu memory"),
        ("gpu", "xid", 95, "hardware", "gpu memory"),
        ("gpu", "xid", 74, "hardware", "nvlink"),
        ("gpu", "xid", 145, "hardware", "nvlink"),
        ("gpu", "xid", 31, "application", "software"),
        ("nvswitch", "sxid", 20034, "fabric", "nvlink"),
        ("port", "port_removed", None, "fabric", "link or optic"),
        ("switch", "port_removed", None, "fabric", "switch"),
        ("node", "outage", None, "host", "host"),
        ("node", "outage", None, "storage", "storage"),
        ("gpu", "gpu_lost", None, "hardware", "gpu"),
        ("mlu", "mlu_xid", 14, "hardware", "gpu"),
        ("npu", "ascend_fault", 1, "hardware", "gpu"),
        ("disk", "nvme_reset", None, "storage", "storage"),
        ("node", "training_error", None, "application", "software"),
        (None, None, None, "unknown", "unknown"),
        (None, None, None, "driver", "software"),
    ],
)
def test_the_component_of_a_culprit(
    device: str | None, kind: str | None, code: int | None, cause: str, component: str
) -> None:
    """By the Xid first, then the kind's words, the device, the cause."""
    assert component_of(device, kind, code, cause) == component
    assert component in COMPONENTS


@pytest.mark.parametrize(
    ("reason", "cause", "component"),
    [
        ("Xid 79", "hardware", "gpu"),
        ("NHC: check_nvsmi: XID 74 seen", "hardware", "nvlink"),
        ("xid:94 contained ECC", "hardware", "gpu memory"),
        ("PSU 2 lost input", "hardware", "power or cooling"),
        ("GPU ECC double bit", "hardware", "gpu memory"),
        ("ib link flapping", "fabric", "link or optic"),
        ("Not responding", "host", "host"),
        ("lustre mount stale", "storage", "storage"),
        ("Kill task failed", "application", "software"),
        ("", "unknown", "unknown"),
    ],
)
def test_the_component_of_an_outage(reason: str, cause: str, component: str) -> None:
    """By the words of its reason, else by its cause."""
    assert component_of_outage(reason, cause) == component

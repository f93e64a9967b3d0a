"""The table of counters."""

import re

import pytest

from store.catalog_rows import rows
from store.records.fault_catalog import counter, kind_meanings, link_counters
from store.records.telemetry import COUNTERS

# Of the names in telemetry.csv: what is measured, what is a state, what counts again what another counter counts,
# and what rises in health.
GAUGES = ("_c", "_w", "_mhz", "_v", "_ratio", "_rpm", "_mw_l{0}", "_per_s", "_gts", "_gen", "_width")
STATES = {
    "throttle_reasons", "recovery_action", "fabric_manager_error", "fabric_health_mask", "xid_last", "sxid_fatal_last",
    "sxid_non_fatal_last", "reset_required", "healthy", "network_healthy", "link_up", "link_up_count", "link_speed",
    "error_code", "error_code_{0}", "optical_present", "optical_present_l{link}", "driver_running", "heartbeat",
    "link_status_l{link}", "link_cable_l{link}", "state_id", "physical_state_id", "live", "{sensor}_crit_alarm",
    "{sensor}_alarm", "{sensor}_fault", "afid_{severity}_{afid_index}", "xid_active_{xid}", "bmc_up",
    "boot_time_s", "node_time_s", "chassis_power_state", "mlu_xid_last",
}  # fmt: skip
COUNTED_ALREADY = {
    "ecc_error",
    "ecc_sbe_{0}",
    "ecc_dbe_{0}",
    "ecc_deferred_{0}",
    "mac_rx_bad_octet",
    "mac_tx_bad_octet",
}
DEVICES = ("gpu", "hca", "cpu", "dimm", "nvswitch", "npu", "node", "nic")
HEALTHY = {
    "power_violation", "board_limit_violation", "power_violation_residency", "pfc_rx", "pfc_tx", "xmit_wait",
}  # fmt: skip


def test_every_measure_is_a_counter_or_known_not_to_be_one() -> None:
    """A counter that the catalogue gains must not be forgotten here."""
    names = {(row["exporter"], row["name"]) for row in rows("telemetry") if row["name"]}
    for exporter, name in sorted(names):
        written = name.replace("{0}", "3").replace("{nvlink}", "3").replace("{link}", "3").replace("{xid}", "31")
        is_counter = any(counter(written, device) for device in DEVICES)
        known = name.endswith(GAUGES) or name in STATES | COUNTED_ALREADY | HEALTHY or "_lifetime" in name
        assert is_counter != known, (exporter, name)


def test_every_counter_s_kind_is_known() -> None:
    """The table of kinds tells people what it means; no name stands twice."""
    table = list(rows("counters"))
    assert {row["kind"] for row in table} <= {kind for kind, _variant in kind_meanings()}
    assert len({(row["name"], row["devices"]) for row in table}) == len(table)
    for row in table:
        assert counter(row["name"].replace("*", "3"), row["devices"] or "gpu") is not None


def test_every_counter_of_an_archive_has_a_meaning() -> None:
    """But the last Xid: a gauge that stays until the driver is loaded anew."""
    assert {name for name in COUNTERS.values() if counter(name, "gpu") is None} == {"xid_last"}


def test_the_type_of_a_device_tells_counters_of_one_name_apart() -> None:
    """A corrected error of the host's memory is an edac."""
    assert [counter("ecc_sbe", device).kind for device in ("gpu", "npu", "dimm")] == ["ecc_sbe", "ecc_sbe", "edac"]  # type: ignore[union-attr]  # the table has it
    assert counter("gpu_temp_c", "gpu") is None
    assert counter("nvlink_crc_l17", "gpu").kind == counter("nvlink_crc", "gpu").kind  # type: ignore[union-attr]


@pytest.mark.parametrize("row", list(rows("counters")), ids=lambda row: row["name"] + row["devices"])
def test_a_rise_is_said_in_the_trade_s_words(row: dict[str, str]) -> None:
    """No metric's name, no mark of a plural, no placeholder is left; one is not many."""
    known = counter(row["name"].replace("*", "3"), row["devices"] or "gpu")
    assert known is not None
    said = [known.rise(count) for count in (1, 2)]
    assert not [text for text in said if re.search(r"[_*(){}]", text)], said
    assert said[0] != said[1]


@pytest.mark.parametrize(
    ("name", "count", "said"),
    [
        ("row_remap_correctable", 1, "1 more memory row remapped for corrected errors"),
        ("nvlink_crc_l17", 12, "12 more NVLink CRC errors on link 17"),
        ("oom_kill", 2, "2 more processes killed for memory"),
        ("thermal_violation", 2.5e9, "slowed down by heat for 2.5 s"),
    ],
)
def test_what_a_rise_says(name: str, count: float, said: str) -> None:
    """Of a GPU, of one of its links, of a node, and of time that is counted in nanoseconds."""
    known = counter(name, "node" if name == "oom_kill" else "gpu")
    assert known is not None
    assert known.rise(count) == said


def test_a_total_is_told_by_its_links() -> None:
    """By the name alone."""
    assert link_counters(["nvlink_crc_l3", "ecc_sbe"]) == {"nvlink_crc"}

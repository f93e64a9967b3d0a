"""Ascend's fault codes."""

import json
from pathlib import Path

import pytest

from store.catalog_rows import rows
from store.records.event import Device, Event
from store.records.fault_catalog import ascend_handling, kind_meanings, named_kind, with_ascend_code

VENDORS = Path(__file__).parents[2] / ".." / "shared" / "data" / "vendors"
HANDLINGS = {
    "NotHandle": "not_handled",
    "SubHealth": "sub_health",
    "RestartRequest": "restart_request",
    "RestartBusiness": "restart_business",
    "FreeRestartNPU": "free_restart",
    "RestartNPU": "restart_npu",
    "PreSeparateNPU": "pre_separate",
    "SeparateNPU": "separate",
    "Separate": "separate",
}
EVENT = Event(None, None, "ascend", "", device=Device(type="npu", index=3))


@pytest.mark.parametrize(
    ("code", "severity", "action"),
    [
        ("80E18005", "error", "reset_gpu"),
        ("80e18005", "error", "reset_gpu"),
        ("8F180200", "fatal", "drain_node"),
        ("80E21007", "info", "none"),
        ("110001024", "error", "drain_node"),
        ("A2301001", "fatal", "drain_node"),
        ("FFFFFFFF", "warning", "run_diagnostics"),
    ],
)
def test_a_code_is_judged_by_its_handling(code: str, severity: str, action: str) -> None:
    """The graver of two; unknown codes are kept, to be looked at."""
    event = with_ascend_code(EVENT, code)
    assert (event.kind, event.code, event.severity, event.action) == ("ascend_fault", int(code, 16), severity, action)
    assert event.attributes == {"fault_code": code.upper()}
    assert event.message


def test_the_end_of_a_fault_is_news_and_no_fault() -> None:
    """By the same code."""
    event = with_ascend_code(EVENT, "8F180200", over=True)
    assert (event.kind, event.severity, event.code) == ("ascend_fault_cleared", "info", 0x8F180200)


@pytest.mark.parametrize(
    ("code", "severity"),
    [
        ("0x00f1fef5,155912,npu,na", "fatal"),
        ("0x00f1ff06, 155910, na, na", "warning"),
        ("0x00f1ff09,1,npu,na", "warning"),
    ],
)
def test_a_switchs_code_has_four_parts(code: str, severity: str) -> None:
    """Its number is the alarm's."""
    event = with_ascend_code(EVENT, code, "switch")
    assert (event.severity, event.cause, event.code) == (severity, "fabric", int(code[:10], 16))


def test_a_hosts_codes_are_not_an_npus() -> None:
    """The same digits mean something else."""
    assert (
        with_ascend_code(EVENT, "2C000031", "node").severity,
        with_ascend_code(EVENT, "2C000031", "node").cause,
    ) == ("fatal", "host")
    assert ascend_handling("2C000031") == ""


def test_every_handling_is_a_judged_kind() -> None:
    """No code is met without its severity, cause and action."""
    used = {row["handling"] for row in rows("ascend")} | {"", "switch", "node"}
    assert used == {variant for kind, variant in kind_meanings() if kind == "ascend_fault"}


def test_a_rule_of_frequency_is_so_many_times_in_so_many_seconds() -> None:
    """For whoever takes an NPU out of use."""
    again = {row["code"]: row["again"] for row in rows("ascend") if row["again"]}
    assert (len(again), again["80E18005"], again["81078603"]) == (43, "3/86400", "5/86400")


@pytest.mark.skipif(not VENDORS.is_dir(), reason="the vendors' tables (../shared/data/vendors) are not on this machine")
@pytest.mark.parametrize(
    ("table", "of"),
    [("ascend_faultCode.json", "npu"), ("ascend_SwitchFaultCode.json", "switch")],
    ids=["npu", "switch"],
)
def test_every_code_of_the_vendor_is_handled_as_it_says(table: str, of: str) -> None:
    """A code that stands in two classes has the graver one."""
    classes = json.loads((VENDORS / table).read_text())
    graver = {"A2301001": "separate"}
    prefix = "switch_" if of == "switch" else ""
    for name, codes in classes.items():
        for code in codes:
            word = HANDLINGS[name.removesuffix("Codes").removesuffix("Fault")]
            assert ascend_handling(code.strip("[]"), of) == graver.get(code, prefix + word)  # type: ignore[arg-type]  # one of two


@pytest.mark.parametrize(
    ("kind", "code", "words"),
    [
        ("xid", 79, "xid 79"),
        ("link_down", None, "link_down"),
        ("ascend_fault", 0x80818C00, "ascend_fault 80818C00"),
        ("ascend_fault", 0x1D, "ascend_fault 0000001D"),
        ("mlu_xid", 14, "mlu_xid 14"),
    ],
)
def test_a_code_is_written_as_its_maker_writes_it(kind: str, code: int | None, words: str) -> None:
    """MindCluster, npu-smi and the manuals: hexadecimal."""
    assert named_kind(kind, code) == words

"""The JSON of `dcgmi diag`: what failed, of which GPU, how grave; settings are told and blame nobody."""

import json
from typing import Any

import pytest

from parsers.formats.dcgmi import DcgmiParser
from parsers.text.parser import Context, parse
from store.catalog_rows import rows
from store.records.event import Device, Event


def decoded(document: Any) -> list[Event]:
    """The events of a report."""
    return list(parse(DcgmiParser(Context(node="gpu-017")), json.dumps(document, indent=1).splitlines()))


def report(*results: Any, root: str = "DCGM Diagnostic", **test: Any) -> dict[str, Any]:
    """A report of one test."""
    tests = [{"name": "memory", "results": list(results), **test}]
    return {root: {"test_categories": [{"category": "Hardware", "tests": tests}]}}


def warning(error: int, severity: int, text: str = "it is bad") -> dict[str, Any]:
    """A warning as DCGM 4 writes it."""
    return {"error_id": error, "error_category": 10, "error_severity": severity, "warning": text}


def failed(*warnings: Any, status: str = "Fail", entity: int = 3) -> dict[str, Any]:
    """A result of one GPU."""
    return {"entity_group": "GPU", "entity_id": entity, "status": status, "warnings": list(warnings)}


@pytest.mark.parametrize(
    ("severity", "expected"),
    [
        (1, ("warning", "watch")),
        (2, ("error", "drain_node")),
        (4, ("error", "run_diagnostics")),
        (6, ("error", "reset_gpu")),
        (99, ("error", "run_diagnostics")),
    ],
)
def test_dcgm_says_how_grave_a_failed_test_is(severity: int, expected: tuple[str, str]) -> None:
    """Its words: monitor, isolate, triage, reset; a new one is looked into."""
    (event,) = decoded(report(failed(warning(52, severity))))
    assert (event.kind, event.cause, event.device) == ("health_check_failed", "hardware", Device("gpu", index=3))
    assert (event.severity, event.action) == expected
    assert event.attributes["error"] == "DCGM_FR_FAULTY_MEMORY"


@pytest.mark.parametrize("error", [29, 55, 15])
def test_a_setting_blames_no_hardware(error: int) -> None:
    """Persistence mode is off on every GPU of a fleet: real reports call that a failure."""
    (event,) = decoded(report(failed(warning(error, 5))))
    assert (event.kind, event.severity, event.action, event.cause) == ("health_event", "info", "none", "unknown")


def test_what_passed_or_was_left_out_tells_nothing() -> None:
    """Whatever it says beside."""
    assert decoded(report(failed(status="Pass"), failed(status="Skip"), {"gpu_ids": "0,1", "status": "PASS"})) == []


def test_an_xid_is_one() -> None:
    """Judged by our table, as if the kernel had told it."""
    (event,) = decoded(report(failed(warning(101, 2, "Detected XID 79 for GPU 3."))))
    assert (event.kind, event.code, event.severity) == ("xid", 79, "fatal")


def test_a_summary_adds_what_no_result_said() -> None:
    """DCGM 4.5 says each warning twice; what concerns no GPU stands in the summary alone."""
    twice, alone = warning(52, 2), warning(108, 4, "the fabric manager is not there")
    events = decoded(report(failed(twice), test_summary={"status": "Fail", "warnings": [twice, alone]}))
    assert [(event.kind, event.device.type) for event in events] == [
        ("health_check_failed", "gpu"),
        ("node_service", "node"),
    ]


@pytest.mark.parametrize(
    ("gpus", "expected"), [("0,1", [0, 1]), ("7", [7]), (2, [2]), ("1, 1", [1]), ("", [None]), (None, [None])]
)
def test_dcgm_3_names_gpus_in_a_list(gpus: Any, expected: list[int | None]) -> None:
    """And its warnings are texts."""
    events = decoded(report({"gpu_ids": gpus, "status": "FAIL", "warnings": "bad"}, root="DCGM GPU Diagnostic"))
    assert [event.device.index for event in events] == expected
    assert {event.severity for event in events} == {"error"}


def test_a_run_that_could_not_be_made_is_no_fault_of_the_gpus() -> None:
    """The engine was away."""
    (event,) = decoded({"DCGM Diagnostic": {"runtime_error": "Host engine connection invalid."}})
    assert (event.severity, event.device.type) == ("warning", "node")


def test_serial_numbers_come_along() -> None:
    """A ticket needs them; what the GPU does not tell is none."""
    groups = [
        {"entity_group": "GPU", "entities": [{"entity_id": 3, "serial_num": "165"}]},
        {"entity_group": "GPU", "entities": [{"entity_id": 4, "serial_num": "<<<NOT_SUPPORTED>>>"}]},
    ]
    found = decoded(report(failed(warning(52, 2)), failed(warning(52, 2), entity=4)) | {"entity_groups": groups})
    assert [event.attributes.get("serial") for event in found] == ["165", None]


def test_a_report_is_bounded() -> None:
    """Somebody may write one of any length."""
    assert len(decoded(report(*(failed(warning(52, 2), entity=at) for at in range(3000))))) == 2000


def test_every_error_that_is_judged_is_one_of_dcgm_s() -> None:
    """A name that is misspelt would never fit; numbers are without gaps, as in the header."""
    names = [row["name"] for row in rows("dcgm_errors")]
    assert [int(row["code"]) for row in rows("dcgm_errors")] == list(range(len(names)))
    assert {row["check"] for row in rows("detectors") if row["detector"] == "dcgmi"} <= set(names)

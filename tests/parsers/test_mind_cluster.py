"""MindCluster's ConfigMaps, as `kubectl get configmap -o json` prints them."""

import json
from typing import Any

import pytest

from parsers.formats.kubernetes import FORMAT
from parsers.text.parser import Context, parse
from store.records.event import Event

FAULT = {"npu_name": "Ascend910-5", "fault_level": "SubHealthFault", "fault_code": "80818C00"}


def config_map(*faults: Any, name: str = "mindx-dl-deviceinfo-npu-01", key: str = "huawei.com/Ascend910-Fault") -> str:
    """One map with the faults of its NPUs."""
    inner = {"DeviceInfo": {"DeviceList": {key: json.dumps(faults)}}}
    return json.dumps({"kind": "ConfigMap", "metadata": {"name": name}, "data": {"DeviceInfoCfg": json.dumps(inner)}})


def read(*texts: str) -> list[Event]:
    """The events of maps, one after the other."""
    return list(parse(FORMAT.make(Context()), list(texts)))


def test_the_level_that_the_site_set_holds() -> None:
    """The table takes this code for the loss of the NPU."""
    (event,) = read(config_map(FAULT))
    assert (event.node, event.kind, event.severity, event.action) == ("npu-01", "ascend_fault", "warning", "watch")
    assert (event.device.type, event.device.index) == ("npu", 5)
    assert event.attributes == {"fault_code": "80818C00", "level": "SubHealthFault"}


def test_a_level_that_nobody_knows_leaves_it_to_the_table() -> None:
    """A newer release's."""
    (event,) = read(config_map({**FAULT, "fault_level": "Odd"}))
    assert (event.severity, event.action) == ("fatal", "drain_node")


def test_a_fault_is_told_once_with_its_end() -> None:
    """The device plugin writes its map again and again."""
    found = read(config_map(FAULT), config_map(FAULT), config_map(), config_map())
    assert [(one.kind, one.device.index, one.line) for one in found] == [
        ("ascend_fault", 5, 1),
        ("ascend_fault_cleared", 5, 3),
    ]


def test_each_code_has_its_own_time() -> None:
    """In milliseconds."""
    dated = {"80818C00": {"fault_time": 1772323506250, "fault_level": "SeparateNPU"}}
    (event,) = read(config_map({**FAULT, "fault_time_and_level_map": dated}))
    assert event.time is not None
    assert event.time.isoformat() == "2026-03-01T00:05:06.250000+00:00"
    assert event.severity == "fatal"


@pytest.mark.parametrize(
    "text",
    [
        config_map(FAULT, name="kube-root-ca.crt"),
        config_map({**FAULT, "npu_name": "x"}),
        config_map({**FAULT, "fault_code": "no code"}),
        config_map("x", 3, None),
        config_map(FAULT, key="huawei.com/Ascend910"),
        json.dumps(
            {"kind": "ConfigMap", "metadata": {"name": "mindx-dl-deviceinfo-a"}, "data": {"DeviceInfoCfg": "{"}}
        ),
        json.dumps({"kind": "ConfigMap", "metadata": {"name": "mindx-dl-nodeinfo-a"}, "data": {"NodeInfo": "[1]"}}),
        json.dumps({"kind": "ConfigMap", "metadata": {"name": "mindx-dl-nodeinfo-a"}, "data": "x"}),
        json.dumps({"kind": "ConfigMap", "data": {"DeviceInfoCfg": 3}}),
    ],
)
def test_what_is_no_fault_of_an_npu_is_nothing(text: str) -> None:
    """Other maps, and broken ones."""
    assert read(text) == []

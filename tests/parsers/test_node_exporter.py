"""node_exporter's pages."""

import pytest

from parsers.formats.node_exporter import FORMAT
from parsers.text.parser import Context, parse
from store.records.event import Attribute


def found(*lines: str) -> list[tuple[str, int | None, int | None, dict[str, Attribute]]]:
    """Device type, index, port and attributes of each event."""
    events = list(parse(FORMAT.make(Context(node="gpu-017")), lines))
    assert {event.node for event in events} <= {"gpu-017"}
    assert {event.kind for event in events} <= {"telemetry"}
    return [(event.device.type, event.device.index, event.device.port, dict(event.attributes)) for event in events]


def test_each_infiniband_port_has_its_counters() -> None:
    """By device and port; what carries no error is left out."""
    lines = [
        'node_infiniband_link_downed_total{device="mlx5_0",port="1"} 3',
        'node_infiniband_port_data_received_bytes_total{device="mlx5_0",port="1"} 9',
        'node_infiniband_symbol_error_total{device="mlx5_0",port="2"} 12',
        'node_infiniband_link_downed_total{device="mlx5_1",port="1"} 0',
    ]
    assert found(*lines) == [
        ("hca", None, 1, {"name": "mlx5_0", "link_downed": 3.0}),
        ("hca", None, 2, {"name": "mlx5_0", "symbol_error": 12.0}),
        ("hca", None, 1, {"name": "mlx5_1", "link_downed": 0.0}),
    ]


def test_a_controller_its_csrows_and_their_dimms_are_not_added_up() -> None:
    """They count the same errors."""
    lines = [
        'node_edac_correctable_errors_total{controller="0"} 4',
        'node_edac_csrow_correctable_errors_total{controller="0",csrow="2"} 4',
        'node_edac_channel_uncorrectable_errors_total{channel="1",controller="0",csrow="2",dimm_label="A1"} 1',
    ]
    assert found(*lines) == [
        ("dimm", None, None, {"name": "mc0", "ecc_sbe": 4.0}),
        ("dimm", None, None, {"name": "mc0/csrow2", "ecc_sbe": 4.0}),
        ("dimm", None, None, {"name": "mc0/csrow2/ch1", "dimm": "A1", "ecc_dbe": 1.0}),
    ]


@pytest.mark.parametrize(("state", "live"), [("live", 1.0), ("dead", 0.0), ("resetting", 0.0)])
def test_an_nvme_disk_tells_its_state_in_a_label(state: str, live: float) -> None:
    """Its value is always 1."""
    line = f'node_nvme_info{{device="nvme0",model="PRO",serial="S1",state="{state}"}} 1'
    attributes = {"name": "nvme0", "model": "PRO", "serial": "S1", "state": state, "live": live}
    assert found(line) == [("disk", None, None, attributes)]


def test_an_nvme_disks_sensor_is_the_disks() -> None:
    """One event."""
    lines = ['node_hwmon_temp_celsius{chip="nvme_nvme0",sensor="temp1"} 41.8', 'node_nvme_info{device="nvme0"} 1']
    assert found(*lines) == [("disk", None, None, {"name": "nvme0", "temp1_c": 41.8, "live": 0.0})]


def test_throttled_cores_of_a_package_are_added_up() -> None:
    """A sum with a part that nobody knows is unknown."""
    lines = [f'node_cpu_core_throttles_total{{core="{core}",package="0"}} {core + 5}' for core in range(3)]
    assert found(*lines) == [("cpu", 0, None, {"core_throttles": 18.0})]
    unknown = 'node_cpu_core_throttles_total{core="3",package="0"} NaN'
    package = 'node_cpu_package_throttles_total{package="0"} 2'
    assert found(*lines, unknown, package) == [("cpu", 0, None, {"package_throttles": 2.0})]


def test_a_second_scrape_in_the_same_file_is_a_second_event() -> None:
    """The page bears no times: a series that comes again begins it."""
    lines = [f'node_cpu_core_throttles_total{{core="{core}",package="0"}} {n}' for n in (1, 2) for core in (0, 1)]
    assert [attributes for *_, attributes in found(*lines)] == [{"core_throttles": 2.0}, {"core_throttles": 4.0}]


@pytest.mark.parametrize(
    "line",
    [
        'node_infiniband_link_downed_total{device="mlx5_0"} 3',
        'node_infiniband_info{device="mlx5_0"} 1',
        "node_edac_correctable_errors_total 4",
        'node_cpu_core_throttles_total{core="1"} 4',
        'node_hwmon_temp_celsius{sensor="temp1"} 4',
        'node_hwmon_chip_names{chip="a",chip_name="b"} 1',
        'node_nvme_info{state="live"} 1',
        "node_load1 0.4",
        'node_disk_read_bytes_total{device="nvme0n1"} 3',
    ],
)
def test_what_tells_no_device_or_nothing_of_it_is_passed_by(line: str) -> None:
    """Most of the page."""
    assert found(line) == []

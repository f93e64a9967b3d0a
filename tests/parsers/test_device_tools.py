"""What npu-smi, rocm-smi and amd-smi show: values, health, memory errors; what is missing is; no hostile line costs."""

import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from parsers.registry import PARSERS, detect, make_parser
from parsers.reports.tool_reading import MOST_OPEN, number_of
from parsers.text.parser import Context, ParseError, clean, parse
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures"
TOOLS = ("npu_smi", "rocm_smi", "amd_smi")


def read(name: str, *lines: str, node: str | None = None) -> list[Event]:
    """The events of some lines."""
    return list(parse(make_parser(name, Context(node=node)), lines))


def of_fixture(path: str) -> list[Event]:
    """The events of a fixture."""
    return read(path.partition("/")[0], *(FIXTURES / path).read_text().splitlines())


@pytest.mark.parametrize(
    ("health", "severity", "action"),
    [
        ("Warning", "warning", "watch"),
        ("Alarm", "error", "run_diagnostics"),
        ("Critical", "error", "run_diagnostics"),
        ("UNKNOWN", "warning", "run_diagnostics"),
    ],
)
def test_an_npu_that_is_not_ok_is_a_fault_of_its_bus(health: str, severity: str, action: str) -> None:
    """As grave as the tool says; never so grave that a paste takes a node out of service."""
    rows = (
        f"| 3     910B3    | {health}  | 98.1   43    0    / 0   |",
        "| 0    | 0000:C1:00.0  | 0   0 / 0   34 / 65536 |",
    )
    reading, fault = read("npu_smi", *rows, node="npu-1")
    assert (reading.kind, reading.severity, reading.attributes["health"]) == ("accelerator_reading", "info", health)
    assert (fault.kind, fault.severity, fault.action, fault.node) == ("accelerator_health", severity, action, "npu-1")
    assert (fault.device.type, fault.device.pci, fault.device.index) == ("npu", "0000:c1:00.0", 3)


def test_an_npu_that_is_ok_is_no_fault() -> None:
    """Its values are told, for information."""
    assert {event.kind for event in of_fixture("npu_smi/info.txt")[:1]} == {"accelerator_reading"}
    (event,) = read(
        "npu_smi", "| 0   910B3  | OK  | NA   NA    0 / 0   |", "| 0  | 0000:C1:00.0  | 0   0 / 0   0 / 65536 |"
    )
    assert "power_w" not in event.attributes
    assert "gpu_temp_c" not in event.attributes


def test_the_mcu_of_a_card_is_no_npu() -> None:
    """Its temperature and power are its own."""
    (event,) = of_fixture("npu_smi/pages.txt")[:1]
    assert event.attributes == {"chip": 0, "gpu_temp_c": 43, "power_w": 69}


def test_the_chips_of_one_page_are_told_apart() -> None:
    """Whether the chip is named before its values or after them."""
    before = ("NPU ID    : 4", "Chip ID    : 0", "Temperature(C)   : 41", "Chip ID    : 1", "Temperature(C)   : 42")
    after = ("NPU ID    : 4", "Temperature(C)   : 41", "Chip ID    : 0", "Temperature(C)   : 42", "Chip ID    : 1")
    for lines in (before, after):
        found = read("npu_smi", *lines)
        assert [(one.device.index, one.attributes) for one in found] == [
            (4, {"chip": 0, "gpu_temp_c": 41}),
            (4, {"chip": 1, "gpu_temp_c": 42}),
        ]


@pytest.mark.parametrize("path", ["amd_smi/metric.txt", "amd_smi/metric_json.json", "amd_smi/metric_csv.txt"])
def test_uncorrected_errors_warn_whatever_the_output_form(path: str) -> None:
    """Text, JSON and CSV tell the same; of counts that are zero, corrected or not there, nothing is said."""
    found = of_fixture(path)
    (fault,) = [event for event in found if event.kind == "accelerator_ecc"]
    assert (fault.severity, fault.action, fault.device.index) == ("warning", "run_diagnostics", 0)
    assert fault.attributes["ecc_dbe"] in (1, 2)
    first = found[0].attributes
    assert (first["power_w"], first["gpu_temp_c"], first["memory_temp_c"]) == (158, 45, 38)
    assert "edge_temp_c" not in first


def test_npu_pages_of_errors_warn() -> None:
    """HBM's double-bit errors."""
    (fault,) = [event for event in of_fixture("npu_smi/pages.txt") if event.kind == "accelerator_ecc"]
    assert (fault.attributes["ecc_dbe"], fault.attributes["ecc_sbe"], fault.severity) == (1, 12, "warning")
    assert not [
        one for one in read("npu_smi", "NPU ID  : 0", "HBM Double Bit Error Count : 0") if one.severity != "info"
    ]


def test_a_tables_head_says_which_sensor_it_shows() -> None:
    """The junction's temperature and the edge's are two."""
    new, hot, old = of_fixture("rocm_smi/concise.txt")
    assert (new.attributes["gpu_temp_c"], new.attributes["power_w"], new.attributes["power_cap_w"]) == (43, 142, 750)
    assert "power_w" not in hot.attributes
    assert (old.attributes["edge_temp_c"], old.attributes["power_w"]) == (35, 150)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("158 W", 158),
        ("45 °C", 45),
        ("98.1", 98.1),
        ({"value": 3, "unit": "W"}, 3),
        ("N/A", None),
        ("-", None),
        ("0x1", None),
        (True, None),
        (float("nan"), None),
        (2**70, None),
        ("9" * 40, None),
        ({"value": {"value": 1}}, None),
    ],
)
def test_a_value_is_a_number_or_missing(text: object, number: float | None) -> None:
    """With its unit, or without; what no record holds is missing."""
    assert number_of(text) == number


@pytest.mark.parametrize("path", sorted(FIXTURES.glob("*_smi/*.txt")) + sorted(FIXTURES.glob("*_smi/*.json")), ids=str)
def test_auto_knows_a_tools_output(path: Path) -> None:
    """A paste names itself."""
    assert detect([clean(line) for line in path.read_bytes().split(b"\n")]) == path.parent.name


HOSTILE = {
    "npu_smi": (
        "| 0 " + " " * 30_000 + "|",
        "| " + "9" * 30_000 + " a | OK | 1 |",
        "NPU ID" + " " * 30_000 + ": 1",
        "HBM Double Bit Error Count : " + "9" * 30_000,
        "|" * 30_000,
        "| 0 a | OK | " + "1 / 1 " * 5_000 + "|",
    ),
    "rocm_smi": (
        "GPU[0]" + "\t" * 30_000 + ": Temperature (Sensor edge) (C): 1",
        "0  " + "a " * 15_000 + "43.0°C  1.0W ",
        "GPU[0] : " + "Temperature (" * 3_000,
        '{"card0": ' * 5_000,
    ),
    "amd_smi": (
        "GPU: " + "0" * 30_000,
        "    " * 8_000 + "A: 1",
        "gpu," + "a," * 20_000,
        "gpu," + "hotspo" * 8_000,
        '[{"gpu": 0, "ecc": ' * 2_000,
        '0,"' + '""' * 10_000,
    ),
}


@pytest.mark.parametrize("name", TOOLS)
def test_hostile_lines_cost_little(name: str) -> None:
    """Time that grows with the line alone: no search goes back and forth."""
    parser, searched = make_parser(name, Context()), PARSERS[name].recognises
    began = time.process_time()
    for number in range(1, 41):
        for text in HOSTILE[name]:
            searched.search(text)
            with suppress(ParseError):
                list(parser.feed(text, number))
    with suppress(ParseError):
        list(parser.flush())
    assert time.process_time() - began < 5.0


def test_invented_nodes_fill_no_memory() -> None:
    """Rows of ever other nodes that are never completed: the oldest are told, none is lost."""
    parser = make_parser("npu_smi", Context())
    nodes = [f"n{number}" for number in range(5 * MOST_OPEN)]
    told = [
        event
        for number, node in enumerate(nodes)
        for event in parser.feed(f"{node}: | 0  910B3  | OK  | 98.1  43  0 / 0  |", number + 1)
    ]
    assert len(told) == 4 * MOST_OPEN
    assert [event.node for event in (*told, *parser.flush())] == nodes


@pytest.mark.parametrize("name", ["nvidia_smi", "npu_smi", "rocm_smi", "amd_smi"])
def test_a_moment_that_is_none_dates_nothing(name: str) -> None:
    """A day that no calendar has, and one that the zone moves out of all calendars."""
    parser = make_parser(name, Context())
    for line, text in enumerate(("2026-02-31 10:00:00", "0001-01-01T00:00:00+05:00"), start=1):
        assert list(parser.feed(text, line)) == []
    assert list(parser.flush()) == []


def test_a_line_of_date_and_time_dates_what_follows() -> None:
    """`date -Is` before each sweep; without one the time is not known."""
    first, _, second, mapped = read(
        "amd_smi", "GPU: 0", "    BDF: 0000:01:00.0", "2026-09-05T12:00:00+02:00", "GPU: 0", "    BDF: 0000:01:00.0"
    )
    assert first.time is None
    assert second.time is not None
    assert second.time.isoformat() == "2026-09-05T10:00:00+00:00"
    assert (mapped.kind, mapped.message) == ("gpu_map", "GPU 0 is 0000:01:00.0")


def test_a_page_of_health_tells_what_the_npu_has() -> None:
    """The NPU is that of the command above it, else not known; the code with mind-cluster's way to handle it."""
    well, alarm, fault, warning, *_ = of_fixture("npu_smi/health.txt")
    assert (well.kind, well.device.index, well.attributes) == ("accelerator_reading", 0, {"health": "OK"})
    assert (alarm.device.index, fault.device.index, warning.device.index) == (5, 5, None)
    assert (fault.kind, fault.severity, fault.action) == ("accelerator_health", "error", "run_diagnostics")
    assert (fault.attributes["fault_code"], fault.attributes["handling"]) == ("80E01801", "restart_business")
    assert fault.message.startswith("health of npu 5: Alarm: 80E01801: node type=SOC")


def test_a_page_of_health_is_not_that_of_the_npu_before() -> None:
    """A page of another kind that names its NPU says nothing of whose health is asked next."""
    found = read("npu_smi", "NPU ID    : 3", "HBM Double Bit Error Count   : 0", "Health Status    : Alarm")
    assert [event.device.index for event in found] == [3, None, None]


def test_the_errors_of_an_amd_gpu_s_blocks_are_added_up() -> None:
    """Those that it could not correct warn; a block that does not count and a bogus count of the driver are missing."""
    found = of_fixture("rocm_smi/ras.txt")
    assert [(event.kind, event.device.index) for event in found] == [
        ("accelerator_reading", 0), ("accelerator_ecc", 0), ("accelerator_reading", 2)
    ]  # fmt: skip
    assert found[0].attributes == {"ecc_sbe": 5, "ecc_dbe": 2, "ecc_sbe_df": 5, "ecc_dbe_df": 2}
    assert found[2].attributes == {"ecc_sbe": 12, "ecc_sbe_umc": 12, "ecc_dbe": 0}
    bogus = ("GPU[0]: \tRAS INFO", "           UMC        ENABLED            3145680              1048560")
    assert read("rocm_smi", *bogus) == []


def test_a_second_table_of_blocks_begins_the_next_sweep() -> None:
    """Counts of two sweeps are not added."""
    table = ("GPU[0]: \tRAS INFO", "           UMC        ENABLED                  7                    0")
    assert [event.attributes["ecc_sbe"] for event in read("rocm_smi", *table, *table)] == [7, 7]


def test_amd_s_monitor_is_read_by_the_heads_of_its_columns() -> None:
    """Of any version; its table of processes and the partitions but the first tell nothing of a GPU."""
    found = of_fixture("amd_smi/monitor.txt")
    assert [(event.line, event.kind, event.device.index) for event in found] == [
        (2, "accelerator_reading", 0),
        (9, "accelerator_reading", 0),
        (10, "accelerator_reading", 1),
        (12, "accelerator_reading", 0),
        (12, "accelerator_ecc", 0),
        (15, "accelerator_reading", 3),
    ]
    assert found[0].attributes == {
        "power_w": 199,
        "gpu_temp_c": 103,
        "memory_temp_c": 84,
        "ecc_sbe": 0,
        "ecc_dbe": 0,
        "pcie_replay": 3,
    }
    assert found[-1].time == datetime(2025, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("space", [" ", ""])
@pytest.mark.parametrize("state", ["GPU is lost", "Unknown Error"])
def test_a_gpu_that_nvidia_smi_does_not_reach_is_told_by_its_bus(space: str, state: str) -> None:
    """Of older and newer releases; an error at most, for anybody may paste it."""
    text = f"Unable to determine the device handle for GPU{space}0000:07:00.0: {state}"
    (event,) = read("nvidia_smi", f"gpu-017: {text}.  Reboot the system to recover this GPU")
    assert (event.kind, event.severity, event.node) == ("gpu_unhealthy", "error", "gpu-017")
    assert (event.device.pci, event.attributes["state"]) == ("0000:07:00.0", state)
    assert detect([text]) == "nvidia_smi"
    assert detect([f"RuntimeError: {text}"]) != "nvidia_smi"


QUERY = "timestamp, index, pci.bus_id, temperature.gpu, power.draw [W], ecc.errors.uncorrected.volatile.total"


def test_a_query_of_nvidia_smi_is_read_by_the_names_of_its_columns() -> None:
    """Whatever was asked for, in whatever order, with or without units; an old count warns, as other tools' does."""
    rows = (
        "2026/03/01 04:05:06.123, 1, 00000000:0F:00.0, 91, 251.20 W, 3",
        "2026/03/01 04:05:07.123, 1, x, 9, 9, 9, 9",
    )
    reading, ecc = read("nvidia_smi", QUERY, *rows, node="n1")
    assert reading.attributes == {"gpu_temp_c": 91, "power_w": 251.2, "ecc_dbe": 3}
    assert (ecc.kind, ecc.severity, ecc.device.pci, ecc.device.index) == (
        "accelerator_ecc",
        "warning",
        "0000:0f:00.0",
        1,
    )
    assert (ecc.node, ecc.time) == ("n1", datetime(2026, 3, 1, 4, 5, 6, 123000, tzinfo=UTC))
    assert detect([QUERY]) == "nvidia_smi"


def test_a_gpu_that_is_sampled_each_second_is_told_each_minute() -> None:
    """A state of it once, and again after it was over in between."""
    head = "timestamp, index, temperature.gpu, clocks_throttle_reasons.hw_slowdown"
    rows = [f"2026/03/01 04:{at // 60:02}:{at % 60:02}.000, 0, 45, Active" for at in range(130)]
    found = [event.kind for event in read("nvidia_smi", head, *rows)]
    assert found.count("accelerator_reading") == 3
    assert found.count("gpu_throttled") == 1


@pytest.mark.parametrize(
    ("row", "kinds"),
    [
        ("GPU-0aa0aa0a, 0, No, No", []),
        ("GPU-0aa0aa0a, 1, Yes, No", ["row_remap"]),
        ("GPU-0aa0aa0a, 9, No, Yes", ["row_remap_failure"]),
        ("GPU-0aa0aa0a, [GPU is lost], [GPU is lost], [GPU is lost]", ["gpu_missing"]),
        ("GPU-0aa0aa0a, [N/A], [N/A], [N/A]", []),
        ("nobody, 1, Yes, Yes", []),
    ],
)
def test_rows_of_memory_and_gpus_that_are_lost(row: str, kinds: list[str]) -> None:
    """A row that names no GPU says nothing."""
    head = "gpu_uuid, remapped_rows.uncorrectable, remapped_rows.pending, remapped_rows.failure"
    assert [event.kind for event in read("nvidia_smi", head, row)] == kinds


def test_a_csv_of_anything_else_is_no_query() -> None:
    """Its head names no column of nvidia-smi's."""
    assert detect(["name, age, city", "a, 1, b"]) is None
    assert read("nvidia_smi", "name, age, city", "GPU-0aa0aa0a, 1, b") == []


@pytest.mark.parametrize("path", ["amd_smi/monitor_json.json", "amd_smi/monitor_csv.txt"])
def test_amd_s_monitor_is_read_in_each_of_its_forms(path: str) -> None:
    """Of a partition but the first nothing is taken: its counts are the GPU's."""
    found = of_fixture(path)
    assert [event.kind for event in found].count("accelerator_ecc") == 1
    assert {event.attributes.get("power_w") for event in found} <= {251, 258, None}
    assert detect((FIXTURES / path).read_text().splitlines()) == "amd_smi"

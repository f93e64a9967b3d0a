"""Event logs of management controllers, by both programs that print them, and read from a simulated controller."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from time import perf_counter
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as some
from real.bmc import bmc
from real.foreshock import serve, sidecar
from real.programs import wait_for

from parsers.formats.ipmi_sel import FORMAT, IpmiSelParser
from parsers.registry import detect
from parsers.text.parser import Context, parse
from store.records.event import Event

FIXTURES = Path(__file__).parents[2] / "fixtures/ipmi_sel"
WHEN = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)


def decode(*lines: str, zone: str = "UTC") -> list[Event]:
    """The events of some lines of node n1."""
    return list(parse(IpmiSelParser(Context(node="n1", zone=ZoneInfo(zone))), lines))


def told(log: str) -> list[tuple[object, ...]]:
    """Of each event of a fixture what does not depend on the program's words."""
    events = decode(*(FIXTURES / log).read_text().splitlines())
    return [(event.kind, event.severity, event.action, event.device.type) for event in events]


def test_both_programs_tell_the_same_of_one_log() -> None:
    """FreeIPMI gives no words for a chip set's sensor and leaves a vendor's panic as bytes: those two alone differ."""
    ipmitool = told("ipmitool.txt")
    chip_set = ipmitool.index(("thermal_shutdown", "fatal", "drain_node", "cpu"), 20)
    assert ipmitool[-1][0] == "kernel_panic"
    undated = ("health_event", "warning", "watch", "node")  # the firmware's error, of before the clock was set
    assert told("freeipmi.txt") == ipmitool[:chip_set] + ipmitool[chip_set + 1 : -1]
    assert undated in told("freeipmi.txt")
    assert told("ipmitool_csv.txt") == ipmitool


@pytest.mark.parametrize(
    ("sensor", "words", "kind", "severity"),
    [
        ("Power Supply #0x51", "Power Supply AC lost", "power_supply", "error"),
        ("Memory #0x87", "Uncorrectable ECC", "edac", "error"),
        ("Memory #0x87", "Correctable ECC", "edac", "warning"),
        ("Processor #0x60", "IERR", "mce", "fatal"),
        ("Processor CATERR", "State Asserted", "mce", "fatal"),
        ("Processor #0x60", "Uncorrectable machine check exception", "mce", "error"),
        ("Critical Interrupt #0x30", "Bus Fatal Error", "pcie_aer", "fatal"),
        ("Temperature CPU1 Temp", "Upper Critical going high", "node_hot", "error"),
        ("Temperature CPU1 Temp", "Upper Non-critical going high", "node_hot", "warning"),
        ("Temperature CPU1 Temp", "Upper Critical going low ", "node_hot", "info"),
        ("Fan #0x41", "Lower Critical going low ", "node_fan", "error"),
        ("Fan #0x41", "Predictive Failure Deasserted", "node_fan", "info"),
        ("Voltage #0x11", "Lower Critical going low ", "health_event", "error"),
        ("OEM Leak_Rope_1", "State Asserted", "coolant_leak", "error"),
    ],
)
def test_an_entry_is_as_grave_as_the_same_fault_told_by_others(
    sensor: str, words: str, kind: str, severity: str
) -> None:
    """Its time bears its zone, and the node is the context's."""
    line = f"  1a | 03/01/25 | 05:05:06 CET | {sensor} | {words} | Asserted"
    (event,) = decode(line, zone="Europe/Berlin")
    assert (event.kind, event.severity, event.node, event.time) == (kind, severity, "n1", WHEN)
    assert event.attributes["record"] == "1a"
    assert detect([line]) == "ipmi_sel"


@pytest.mark.parametrize(
    ("words", "severity"),
    [("Power Supply AC lost", "info"), ("Failure detected", "info"), ("Presence detected", "warning")],
)
def test_the_end_of_a_state_is_told_as_its_end(words: str, severity: str) -> None:
    """A supply that was pulled out is no longer present."""
    (event,) = decode(f"   2 | 03/01/25 | 04:05:06 UTC | Power Supply #0x51 | {words} | Deasserted")
    assert (event.kind, event.severity) == ("power_supply", severity)
    assert event.message.endswith("it is over")


@pytest.mark.parametrize(
    "line",
    [
        "   3 | 03/01/25 | 04:05:06 UTC | Memory #0x87 | Correctable ECC | Deasserted",
        "   3 | 03/01/25 | 04:05:06 UTC | Power Supply #0x51 | Presence detected | Asserted",
        "   3 | 03/01/25 | 04:05:06 UTC | Temperature #0x23 | Lower Non-critical going low  | Asserted",
        "   3 | 03/01/25 | 04:05:06 UTC | System Boot Initiated #0x84 | Initiated by power up | Asserted",
        "   3 | 03/01/25 | 04:05:06 UTC | Unknown #0x10 |  | Asserted",
        "  37 | 03/01/25 | 05:00:00 UTC | OEM record c1 | 000157 | 010203040506",
        "  38 | OEM record e0 | 000102030405060708090a0b0c",
        "ID | Date        | Time     | Name             | Type                     | Event",
        "SEL has no entries",
        "   3 |",
        "3,,,,",
        "",
    ],
)
def test_what_is_no_fault_gives_nothing(line: str) -> None:
    """Boots, presence, vendors' bytes, headings, broken rows."""
    assert decode(line) == []


@pytest.mark.parametrize(
    ("date", "clock", "zone", "time"),
    [
        ("03/01/25", "04:05:06 UTC", "Asia/Tokyo", WHEN),
        ("03/01/2025", "04:05:06", "UTC", WHEN),
        ("31/03/2025", "04:05:06 AM UTC", "UTC", WHEN + timedelta(days=30)),
        ("03/01/2025", "04:05:06 PM", "UTC", WHEN + timedelta(hours=12)),
        ("2025-03-01", "09:35:06 +0530", "UTC", WHEN),
        ("03/01/25", "12:05:06 CST", "Asia/Shanghai", WHEN),
        ("13/13/2025", "04:05:06", "UTC", None),
        ("03/01/25", "24:05:06", "UTC", None),
        ("01/01/0001", "00:00:00 AEDT", "Australia/Sydney", None),
    ],
)
def test_times_are_read_as_ipmitool_writes_them(date: str, clock: str, zone: str, time: datetime | None) -> None:
    """A zone's letters other than UTC are the context's; no time that there is leaves a warning without one."""
    (event,) = decode(f"   1 | {date} | {clock} | Processor #0x60 | IERR | Asserted", zone=zone)
    assert (event.time, event.severity) == (time, "warning" if time is None else "fatal")


def test_an_entry_of_before_the_clock_has_the_time_of_the_one_before() -> None:
    """The log is in order. A panic of nobody knows when drains no node today."""
    undated = "  25 |  Pre-Init  |0000003600| Processor #0x60 | IERR | Asserted"
    (first,) = decode(undated)
    assert (first.time, first.severity, first.action) == (None, "warning", "watch")
    boot = "  24 | 03/01/25 | 04:05:06 UTC | System Boot Initiated #0x84 | Initiated by power up | Asserted"
    (event,) = decode(boot, undated)
    assert (event.time, event.severity, event.attributes["time_assumed"]) == (WHEN, "fatal", True)


def test_lines_of_several_nodes_keep_their_times_apart() -> None:
    """As `pdsh` prints them: each with its node before it."""
    fault = "Power Supply #0x51 | Failure detected | Asserted"
    found = decode(
        f"gpu-1:    1 | 03/01/25 | 04:05:06 UTC | {fault}",
        f"gpu-2:    1 |  Pre-Init  |0000003600| {fault}",
        f"gpu-1:    2 |  Pre-Init  |0000003600| {fault}",
    )
    assert [(event.node, event.time) for event in found] == [("gpu-1", WHEN), ("gpu-2", None), ("gpu-1", WHEN)]


@pytest.mark.parametrize(
    ("sensor", "words", "told"),
    [
        ("Temperature P1 VRD Hot", "Limit Not Exceeded", [("node_hot", "info")]),
        ("Temperature SSB Therm Trip", "State Asserted", [("thermal_shutdown", "fatal")]),
        ("Voltage P3V3", "Lower Critical going high", []),  # it is well again
        ("Voltage P3V3", "Upper Critical going low ", []),
        ("Memory Mem ECC Warning", "Transition to Critical from less severe", [("edac", "warning")]),
        ("Memory Mem ECC Warning", "Transition to Non-critical from more severe", []),
        ("Processor CPU_CATERR", "State Asserted", [("mce", "fatal")]),
        ("Processor CATERR", "Presence detected", []),
        ("OEM Leak_Rope_1", "Device Present", []),
        ("OEM Leak_Rope_1", "Transition to OK", [("coolant_leak", "info")]),
        ("OEM Leak_Rope_1", "", [("coolant_leak", "error")]),
        ("Power Unit #0x01", "240VA power down", [("health_event", "error")]),
        ("Drive Slot / Bay Default", "Drive Present", []),
        ("Drive Slot / Bay Drive 3", "Rebuild/Remap Aborted (was not completed normally)", [("health_event", "error")]),
        ("Power Supply PS1", "Transition to Non-critical from OK", [("power_supply", "warning")]),
    ],
)
def test_a_sensor_s_name_says_something_where_the_state_alone_says_little(
    sensor: str, words: str, told: list[tuple[str, str]]
) -> None:
    """No presence of a part is a fault, whatever its sensor is called; what goes back is none either."""
    found = decode(f"   1 | 03/01/25 | 04:05:06 UTC | {sensor} | {words} | Asserted")
    assert [(event.kind, event.severity) for event in found] == told


@pytest.mark.parametrize(
    ("words", "dimm"),
    [
        ("Correctable ECC (@DIMMG1(CPU2)) | Asserted", "DIMMG1(CPU2)"),
        ("Correctable ECC ( DIMM_A1) | Asserted", "DIMM_A1"),
        ("Correctable ECC | Asserted | CPU 1 DIMM 2", "CPU 1 DIMM 2"),
    ],
)
def test_a_module_of_memory_is_named_as_its_maker_names_it(words: str, dimm: str) -> None:
    """A processor in brackets is no module."""
    (event,) = decode(f"   1 | 03/01/25 | 04:05:06 UTC | Memory #0x53 | {words}")
    assert event.attributes["dimm"] == dimm


def test_a_year_of_two_digits_is_none_of_the_far_future() -> None:
    """A controller whose clock was never set counts from 1990, say."""
    (event,) = decode("   1 | 01/01/90 | 00:00:00 UTC | Processor #0x60 | IERR | Asserted")
    assert event.time == datetime(1990, 1, 1, tzinfo=UTC)


def test_a_table_of_somebody_s_own_is_no_event_log() -> None:
    """A number, a date and a time alone: a training program's, say."""
    assert detect(["  1 | 03/01/25 | 04:05:06 | loss 3.2 | lr 1e-4"]) is None


def test_a_line_of_blanks_behind_a_name_is_looked_at_once() -> None:
    """Its blanks are not tried against one another: that took seconds."""
    began = perf_counter()
    assert FORMAT.recognises.search("a:" + " " * 60_000) is None
    assert perf_counter() - began < 1


FIELDS = ["1a", "03/01/25", "Mar-01-2025", "Pre-Init", "04:05:06 UTC", "Memory", "Fan", "leak", "IERR", "N/A", "", "\0"]
WORDS = ["Asserted", "Deasserted", "Assertion Event", "Critical", "Linux kernel panic: x", "Lower Critical going low"]
ROW = some.lists(some.sampled_from([*FIELDS, *WORDS]), max_size=9)


@given(ROW, some.sampled_from([" | ", ",", "|"]), some.sampled_from(["", "gpu-2: ", "   "]))
def test_rows_in_any_disorder_end_in_events_or_in_nothing(fields: list[str], mark: str, before: str) -> None:
    """Never in a failure."""
    for event in decode(before + mark.join(fields)):
        assert event.kind
        assert len(event.message) <= 500


@pytest.mark.integration
def test_a_sidecar_reads_the_log_of_a_controller(tmp_path: Path) -> None:
    """By ipmitool as it is installed here, and ipmi-sel beside it; the next run tells what came since alone."""
    for name in ("bmc", "server", "agent"):
        (tmp_path / name).mkdir()
    with bmc(tmp_path / "bmc") as controller, serve(f"sqlite:///{tmp_path}/x.db", tmp_path / "server") as server:
        controller.add(0x08, 0x51, 0x6F, (0x03, 0xFF, 0xFF), at=WHEN)
        controller.add(0x08, 0x51, 0x6F, (0x03, 0xFF, 0xFF), at=WHEN + timedelta(minutes=1), ends=True)
        by_free_ipmi = decode(*controller.ipmi_sel("-v").splitlines())
        assert [(event.kind, event.severity) for event in by_free_ipmi] == [
            ("power_supply", "error"),
            ("power_supply", "info"),
        ]
        place = f"-I lanplus -C 3 -H 127.0.0.1 -p {controller.port} -U operator -P test"
        config = tmp_path / "sidecar.yaml"
        config.write_text(f"source: [{{source: 'exec:ipmi_sel:ipmitool {place} sel list', interval_s: 1}}]\n")
        with sidecar(server, tmp_path / "agent", more=["--config", str(config)]):

            def kinds() -> list[tuple[str, str, str]]:
                items = server.get("/api/v1/events?node=gpu-017")["items"]
                # To the minute: the controller's clock goes on between its setting and the entry.
                return [(item["time"][:16], item["kind"], item["severity"]) for item in items]

            wait_for("both entries are there", lambda: len(kinds()) == 2)
            controller.add(0x07, 0x60, 0x6F, (0x00, 0xFF, 0xFF), at=WHEN + timedelta(minutes=2))
            wait_for("the third is, too", lambda: len(kinds()) >= 3)
            assert kinds() == [
                ("2025-03-01T04:05", "power_supply", "error"),
                ("2025-03-01T04:06", "power_supply", "info"),
                ("2025-03-01T04:07", "mce", "fatal"),
            ]

"""UFM's event log."""

import csv
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from parsers.formats.ufm import UfmParser, codes
from parsers.text.parser import Context, parse
from store.records.event import Event
from store.records.fault_catalog import kind_meanings

FACTS = Path(__file__).parents[2] / ".." / "shared" / "data" / "fabric" / "ufm_event_codes.csv"
NEAR, FAR = "9c05910300a0b0c0", "fc6a1c0300d0e0f0"
LINK = f"Link [{NEAR}_33: {FAR}_8]"
ENDS = f"(Switch:leaf03:1/17/1){NEAR}:33 - (Computer:gpu-017 mlx5_2:1){FAR}:1"


def entry(code: int, text: str, word: str = "WARNING", site: str = "") -> str:
    """One entry of the log."""
    return f"2023-12-20 07:46:24.442 [1287] [{code}] {word} {site}[Link] {text}"


def decode(*lines: str, context: Context | None = None) -> tuple[list[Event], list[str]]:
    """The events and errors of some lines."""
    errors: list[str] = []
    return list(parse(UfmParser(context or Context()), lines, lambda n, error: errors.append(f"{n}: {error}"))), errors


def one(*lines: str) -> Event:
    """The one event of some lines."""
    events, errors = decode(*lines)
    assert errors == []
    assert len(events) == 1
    return events[0]


def test_a_link_that_went_down_names_both_ends_and_the_cable() -> None:
    """The host is the node, its switch's port the device, the serial the part to replace."""
    event = one(entry(329, f"{LINK}: Link went down: {ENDS}, cable S/N: MT2400FT00001"))
    assert (event.kind, event.code, event.severity, event.cause) == ("link_down", 329, "error", "fabric")
    assert (event.node, event.device.type, event.device.uuid, event.device.port) == ("gpu-017", "port", f"0x{NEAR}", 33)
    attributes = event.attributes
    assert (attributes["switch"], attributes["name"], attributes["cable_serial"]) == (
        "leaf03",
        "1/17/1",
        "MT2400FT00001",
    )
    assert (attributes["peer"], attributes["peer_port"], attributes["peer_uuid"]) == ("gpu-017", 1, f"0x{FAR}")


def test_the_switch_is_the_near_end_whichever_is_named_first() -> None:
    """A host's cable ends at its leaf's port: one device, from either side."""
    first, second = ENDS.split(" - ")
    event = one(entry(329, f"{LINK}: Link went down: {second} - {first}"))
    assert (event.node, event.device.uuid, event.device.port) == ("gpu-017", f"0x{NEAR}", 33)
    assert "cable_serial" not in event.attributes


def test_a_link_between_switches_names_no_node() -> None:
    """Nobody's host is at fault."""
    event = one(
        entry(328, f"{LINK}: Link went up: {ENDS.replace('Computer:gpu-017 mlx5_2', 'Switch:spine01')}", "INFO")
    )
    assert (event.kind, event.severity, event.node, event.attributes["peer"]) == ("link_up", "info", None, "spine01")


def test_a_link_is_told_by_its_object_where_the_message_names_no_ends() -> None:
    """Two GUIDs with their ports."""
    event = one(entry(329, f"{LINK}: Link went down, None"))
    assert (event.device.uuid, event.device.port) == (f"0x{NEAR}", 33)
    assert (event.attributes["peer"], event.attributes["peer_port"]) == (f"0x{FAR}", 8)


@pytest.mark.parametrize(
    ("named", "node", "uuid", "port", "switch"),
    [
        (f"IBPort [default / Switch: leaf03 / 1/17/1] [dev_id: {NEAR}]", None, f"0x{NEAR}", None, "leaf03"),
        ("IBPort [default / Switch: leaf03 / 12]", None, "leaf03/12", 12, "leaf03"),
        ("IBPort [default / Computer: gpu-017 HCA-1 / 1]", "gpu-017", "gpu-017 HCA-1/1", 1, None),
        ("IBPort [my site / Computer: gpu-017 / 1]", "gpu-017", "gpu-017/1", 1, None),
    ],
)
def test_a_port_is_told_by_its_object(
    named: str, node: str | None, uuid: str, port: int | None, switch: str | None
) -> None:
    """With or without the device's GUID, as a cage or a number."""
    event = one(entry(110, f"{named}: Symbol error counter rate threshold exceeded."))
    assert (event.node, event.device.uuid, event.device.port) == (node, uuid, port)
    assert event.attributes.get("switch") == switch
    assert (event.kind, event.attributes["counter"]) == ("counter", "SymbolErrorCounter")


def test_a_switch_and_a_node_are_told_by_their_objects() -> None:
    """A switch is a device, a computer a node."""
    switch = one(entry(907, "Switch [default / Switch: leaf03]: Switch is Down", "CRITICAL"))
    node = one(entry(331, "Computer [default / Computer: gpu-017]: Node is Down", "CRITICAL"))
    assert (switch.kind, switch.node, switch.device.type, switch.device.uuid) == (
        "switch_down",
        None,
        "switch",
        "leaf03",
    )
    assert (node.kind, node.node, node.device.type) == ("node_down", "gpu-017", "node")


@pytest.mark.parametrize("site", ["", "Site [eu-1] ", "Site [] ", "[Site eu-1] "])
def test_a_site_may_stand_before_the_category(site: str) -> None:
    """A multi-site installation; its name may be empty."""
    assert one(entry(907, "Switch [default / Switch: leaf03]: Switch is Down", site=site)).device.uuid == "leaf03"


def test_a_port_that_an_operator_marked_is_no_fault() -> None:
    """The reason is the last word."""
    text = (
        "IBPort [default / Switch: leaf03 / 12]: Peer Port gpu-017 mlx5_0:1 is considered by SM as unhealthy due to {}."
    )
    flapping, manual = one(entry(702, text.format("FLAPPING"))), one(entry(702, text.format("MANUAL")))
    assert (flapping.severity, flapping.attributes["reason"], flapping.attributes["peer"]) == (
        "error",
        "FLAPPING",
        "gpu-017",
    )
    assert (manual.severity, manual.attributes["reason"]) == ("info", "MANUAL")


def test_a_guid_that_left_is_a_port_that_was_removed() -> None:
    """Its GUID is the GID's lower half; as grave as UFM says, at most a warning."""
    text = "Grid [Grid]: GID Address Out of Service: fe80:0000:0000:0000:b83f:d203:0020:0061"
    event = one(entry(65, text, "CRITICAL"))
    assert (event.kind, event.device.uuid, event.severity) == ("port_removed", "0xb83fd20300200061", "warning")
    assert one(entry(65, text, "INFO")).severity == "info"


@pytest.mark.parametrize("word", ["INFO", "MINOR", "WARNING", "CRITICAL"])
def test_what_is_no_sign_of_a_fault_is_information_whatever_ufm_says(word: str) -> None:
    """A switch that is up again, logged as a warning."""
    event = one(entry(908, "Switch [default / Switch: leaf03]: Switch is Up", word))
    assert (event.kind, event.severity, event.attributes["ufm_severity"]) == ("switch_up", "info", word)


@pytest.mark.parametrize(
    ("word", "severity"), [("INFO", "info"), ("MINOR", "warning"), ("WARNING", "warning"), ("CRITICAL", "error")]
)
def test_a_code_that_nobody_knows_is_kept_as_grave_as_ufm_says(word: str, severity: str) -> None:
    """It is never dropped."""
    event = one(entry(4711, "Grid [Grid]: Something new", word))
    assert (event.kind, event.code, event.severity, event.message) == ("fabric_event", 4711, severity, "Something new")


def test_dropped_events_are_told() -> None:
    """From then on silence is not health."""
    assert one(entry(603, "Grid [Grid]: Events suppression")).kind == "events_suppressed"


def test_times_are_in_the_contexts_zone() -> None:
    """UFM prints none."""
    events, _ = decode(entry(603, "Grid [Grid]: x"), context=Context(zone=ZoneInfo("Europe/Berlin")))
    assert events[0].time == datetime(2023, 12, 20, 6, 46, 24, 442000, tzinfo=UTC)


def test_an_entry_goes_on_until_a_line_begins_with_a_time() -> None:
    """Lines after a message are passed by; a head may be broken over lines."""
    events, errors = decode(
        entry(603, "Grid [Grid]: Events suppression,"),
        " None",
        "",
        entry(917, "IBPort [default / Switch: a"),
        "b / 3]: Symbol BER",
    )
    assert errors == []
    assert [(e.line, e.kind, e.device.uuid) for e in events] == [
        (1, "events_suppressed", None),
        (4, "bit_errors", "a b/3"),
    ]


def test_an_entry_without_a_message_is_an_error_and_the_next_is_read() -> None:
    """Cut short in the middle of a file, at its end, or never ended."""
    cut, whole = entry(917, "IBPort [default / Sw"), entry(603, "Grid [Grid]: x")
    events, errors = decode(cut, whole, cut)
    assert ([event.line for event in events], [text[:2] for text in errors]) == ([2], ["2:", "3:"])
    events, errors = decode(cut, *"abcd", whole)
    assert ([event.line for event in events], [text[:2] for text in errors]) == ([6], ["5:"])


def test_an_impossible_date_is_an_error() -> None:
    """It is quoted."""
    assert decode(entry(603, "Grid [Grid]: x").replace("-12-", "-13-"))[1] == [
        "1: '2023-13-20 07:46:24.442' is no date"
    ]


@pytest.mark.parametrize(
    "text",
    [
        "2023-12-20 07:46:24.442 [1287] [329] NOTICE [Link] Link [x]: y",
        "2023-12-20 07:46:24.442 INFO ufm started",
        "Link went down: " + ENDS,
    ],
)
def test_lines_of_other_forms_give_nothing(text: str) -> None:
    """Other words, other logs, a message alone."""
    assert decode(text) == ([], [])


def test_every_code_has_a_kind_that_is_known() -> None:
    """The table agrees with the table of kinds, and says whether it is a fault."""
    for number, code in codes().items():
        assert (code.kind, code.variant) in kind_meanings(), number
        assert code.fault in ("yes", "no", "maybe"), number
        assert (kind_meanings()[code.kind, code.variant].severity == "info") == (code.fault == "no"), number


@pytest.mark.skipif(not FACTS.is_file(), reason="the facts (../shared/data) are not on this machine")
def test_every_code_of_the_facts_is_in_the_table() -> None:
    """What is no sign of a fault is information, what is one is more; suppression alone is told without one."""
    for row in csv.DictReader(FACTS.read_text().splitlines()):
        code = codes()[int(row["code"])]
        if row["sign_of_fault"] == "no" and row["code"] != "603":
            assert code.fault == "no", row
        if row["sign_of_fault"] == "yes":
            assert code.fault == "yes", row

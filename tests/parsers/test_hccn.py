"""What hccn_tool shows of an NPU's port."""

from parsers.formats.hccn import FORMAT
from parsers.text.parser import Context, parse
from store.records.event import Event

DOWN = "[devid 0]    Sun Oct  5 10:13:50 2025    LINK DOWN"


def read(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(FORMAT.make(Context(node="npu-1")), lines))


def test_each_change_of_a_port_has_its_own_time() -> None:
    """The history that the tool keeps, newest first."""
    found = read("[devid 0]    Sun Oct  5 10:13:51 2025    LINK UP", DOWN)
    assert [(one.kind, one.severity, one.time and one.time.isoformat()) for one in found] == [
        ("link_up", "info", "2025-10-05T10:13:51+00:00"),
        ("link_down", "error", "2025-10-05T10:13:50+00:00"),
    ]
    assert {(one.node, one.device.type, one.device.index) for one in found} == {("npu-1", "npu", 0)}


def test_a_day_that_does_not_exist_is_no_event() -> None:
    """It would be dated as it is read."""
    assert read(DOWN.replace("Oct  5", "Oct 45")) == []


def test_a_port_that_is_down_now_is_that_of_the_command_above() -> None:
    """The page names no NPU; one that nobody asked for is nobody's."""
    (event,) = read("$ hccn_tool -i 3 -link -g", "link status: DOWN", "link status: DOWN")
    assert (event.kind, event.device.index, event.time) == ("link_down", 3, None)
    assert read("hccn_tool -i 3 -link -g", "link status: UP", "hccn_tool -i 3 -speed -g", "link status: DOWN") == []

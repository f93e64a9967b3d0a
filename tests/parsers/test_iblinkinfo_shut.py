"""A port that somebody has shut is told from one that failed: in both forms of iblinkinfo, of a real run."""

from datetime import UTC, datetime, timedelta

from diagnosis.graph.device_graph import DeviceGraph
from diagnosis.graph.place import Place
from diagnosis.symptoms.folding import SymptomFold
from parsers.formats import iblinkinfo
from parsers.text.parser import Context, parse
from store.records.event import Device, Event

T0 = datetime(2026, 5, 4, 12, tzinfo=UTC)
LINE = (
    '0xb83fd20300100000 "         MF0;leaf01:MQM8700/U1"      2    1[  ] ==( 4X        53.125 Gbps Active/Disabled)==>'
    '      "Port not available"'
)
BLOCK = """Switch: 0xb83fd20300100000 MF0;leaf01:MQM8700/U1:
           2    1[  ] ==( 4X        53.125 Gbps Active/Disabled)==>      "Port not available"
           2    2[  ] ==(                Down/ Polling)==>             [  ] "" ( )
"""


def printed(text: str) -> list[Event]:
    """The events of the tool's output."""
    return list(parse(iblinkinfo.FORMAT.make(Context()), text.splitlines()))


def test_both_forms_name_the_port_that_was_shut() -> None:
    """And nothing of the port that is merely down."""
    for text in (LINE, BLOCK):
        (event,) = printed(text)
        assert (event.kind, event.severity, event.device.uuid, event.device.port) == (
            "port_disabled",
            "info",
            "0xb83fd20300100000",
            1,
        )


def test_a_link_whose_port_was_shut_is_no_fault_that_stands() -> None:
    """The manager told its loss, a look at the port tells the reason."""
    graph, nic, port = DeviceGraph(), Place("nic", "gpu-001/mlx5_0"), Place("port", "leaf01/1")
    graph.add(Place("switch", "leaf01"), ["0xb83fd20300100000"])
    graph.hang(port, Place("switch", "leaf01"))
    graph.hang(nic, Place("node", "gpu-001"))
    graph.join(port, nic)
    lost = Event(
        T0,
        "gpu-001",
        "opensm",
        "port_removed",
        severity="error",
        attributes={"hca": "mlx5_0"},
        id="lost",
        device=Device(type="port"),
    )
    (shut,) = printed(LINE)
    look = Event(
        T0 + timedelta(seconds=20),
        None,
        "iblinkinfo",
        shut.kind,
        device=shut.device,
        attributes=shut.attributes,
        id="shut",
    )
    fold = SymptomFold(graph)
    fold.take([lost])
    assert [one.cured for one in fold.symptoms()] == [None]
    fold.take([look])
    assert [(one.place, one.cured) for one in fold.symptoms()] == [(nic, look.time)]

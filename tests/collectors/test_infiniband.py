"""The node's RDMA ports, read from a folder in the form of /sys/class/infiniband."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson
import pytest
from rdma_tree import RdmaTree

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources.infiniband import InfinibandCollector, Rates
from collectors.telemetry.ports import read_ports
from store.records.event import Event
from store.records.fault_catalog import counter, kind_description

SETTINGS = SourceSettings(node="gpu-017", interval_s=0.01, rollup_interval_s=0.0)
NOW = datetime(2025, 3, 1, 4, 5, 6, tzinfo=UTC)


@pytest.fixture
def tree(tmp_path: Path) -> RdmaTree:
    """Two adapters of one port."""
    tree = RdmaTree(tmp_path)
    tree.add("mlx5_0", "0000:0f:00.0")
    tree.add("mlx5_1", "0000:1a:00.0")
    return tree


class Looker:
    """Looks once a turn; starts anew where it is told to."""

    def __init__(self, tree: RdmaTree) -> None:
        self.spec = f"{tree.root}"
        self.position: Any = None
        self.last = CollectorTurn()
        self.start()

    def start(self) -> None:
        """As after a restart, from what was saved."""
        self.collector = InfinibandCollector(self.spec, SETTINGS)
        self.collector.open(self.position)

    def look(self) -> list[Event]:
        """One look, and what happened; its position goes through JSON, as the spool's does."""
        self.last = self.collector.collect(1.0)
        self.position = orjson.loads(orjson.dumps(self.last.position))
        return [event for event in self.last.events if event.kind != "adapter_port"]

    def named(self) -> list[Event]:
        """What the last look said that ports are called."""
        return [event for event in self.last.events if event.kind == "adapter_port"]


@pytest.fixture
def looker(tree: RdmaTree) -> Iterator[Looker]:
    """One that has looked once."""
    looker = Looker(tree)
    assert looker.look() == []
    yield looker
    looker.collector.close()


def test_a_port_is_read_as_linux_shows_it(tree: RdmaTree) -> None:
    """States, rate, place on the bus; words of four bytes are bytes."""
    tree.count("mlx5_0", 1, symbol_error=7, port_xmit_data=1000)
    port = read_ports(tree.root)[0]
    assert (port.device, port.number, port.pci, port.guid) == ("mlx5_0", 1, "0000:0f:00.0", "0xb83fd20300200000")
    assert (port.state, port.state_id, port.physical, port.physical_id) == ("ACTIVE", 4, "LinkUp", 5)
    assert (port.gb_per_s, port.width, port.speed, port.ethernet) == (400.0, "4X", "NDR", False)
    assert (port.counters["symbol_error"], port.counters["xmit_bytes"]) == (7.0, 4000.0)
    assert "lifespan" not in port.counters


def test_what_cannot_be_read_is_left_out_and_the_rest_counts(tree: RdmaTree) -> None:
    """A port without performance management, a file that is a folder, texts that are none of ours."""
    tree.count("mlx5_0", 1, port_rcv_errors="N/A (no PMA)", link_downed=3, symbol_error="-1")
    broken = tree.path("mlx5_0", 1) / "counters" / "VL15_dropped"
    broken.unlink()
    broken.mkdir()
    tree.set("mlx5_0", 1, state="who knows", rate="")
    port = read_ports(tree.root)[0]
    assert not {"rcv_errors", "vl15_dropped", "symbol_error"} & port.counters.keys()
    assert port.counters["link_downed"] == 3
    assert (port.state_id, port.gb_per_s) == (None, None)
    assert read_ports(tree.root / "not there") == []


@pytest.mark.parametrize("restart", [False, True])
def test_a_link_that_goes_down_and_comes_up_is_told_with_its_place(
    tree: RdmaTree, looker: Looker, restart: bool
) -> None:
    """Once each, as the kernel log's and the fabric's events are; also where it happened during a restart."""
    tree.set("mlx5_1", 1, state="1: DOWN", phys_state="2: Polling", rate="10 Gb/sec (4X SDR)")
    if restart:
        looker.start()
    [down] = looker.look()
    assert (down.kind, down.severity, down.node, down.source) == ("link_down", "error", "gpu-017", "infiniband")
    assert (down.device.type, down.device.pci, down.device.port) == ("hca", "0000:1a:00.0", 1)
    assert (down.name(), down.attributes["physical_state"]) == ("mlx5_1", "Polling")
    assert looker.look() == []
    tree.set("mlx5_1", 1, state="2: INIT", phys_state="5: LinkUp", rate="400 Gb/sec (4X NDR)")
    assert [event.kind for event in looker.look()] == ["link_inactive"]
    tree.set("mlx5_1", 1, state="4: ACTIVE")
    [up] = looker.look()
    assert (up.kind, up.severity) == ("link_up", "info")
    assert up.id != down.id


def test_what_a_port_is_called_is_told_once_and_when_it_changes(tree: RdmaTree) -> None:
    """Its GUIDs, LID, interface and place on the bus: at the first look, with a new LID, and not while it has none."""
    tree.call("mlx5_1", 1, lid="0x1a", gid="fe80:0000:0000:0000:b83f:d203:0020:0011", netdev="ib1")
    looker = Looker(tree)
    assert looker.look() == []
    named = {event.name(): event for event in looker.named()}
    assert {name: (event.device.pci, event.device.uuid) for name, event in named.items()} == {
        "mlx5_0": ("0000:0f:00.0", "0xb83fd20300200000"),
        "mlx5_1": ("0000:1a:00.0", "0xb83fd20300200001"),
    }
    told = named["mlx5_1"].attributes
    assert (told["lid"], told["port_guid"], told["netdev"]) == (26, "0xb83fd20300200011", "ib1")
    assert told["firmware"] == "28.39.1002"
    looker.look()
    assert looker.named() == []
    tree.set("mlx5_1", 1, lid="0x0", state="1: DOWN", phys_state="2: Polling")
    looker.look()
    assert looker.named() == []
    tree.set("mlx5_1", 1, lid="0x1b", state="4: ACTIVE", phys_state="5: LinkUp")
    looker.look()
    assert [event.attributes["lid"] for event in looker.named()] == [27]
    (tree.root / "mlx5_0" / "fw_ver").write_text("28.45.1200\n")
    looker.look()
    assert [(event.name(), event.attributes["firmware"]) for event in looker.named()] == [("mlx5_0", "28.45.1200")]


def test_a_port_that_was_disabled_on_purpose_informs(tree: RdmaTree, looker: Looker) -> None:
    """Its physical state says so."""
    tree.set("mlx5_0", 1, state="1: DOWN", phys_state="3: Disabled")
    [event] = looker.look()
    assert (event.kind, event.severity) == ("link_down", "info")


def test_a_port_that_was_never_up_is_no_event(tree: RdmaTree) -> None:
    """It may have no cable."""
    tree.set("mlx5_0", 1, state="1: DOWN", phys_state="2: Polling")
    looker = Looker(tree)
    assert looker.look() == []
    tree.set("mlx5_0", 1, state="4: ACTIVE", phys_state="5: LinkUp")
    assert [event.kind for event in looker.look()] == ["link_up"]


@pytest.mark.parametrize(
    ("counter_file", "name", "severity"),
    [
        ("symbol_error", "symbol_error", "warning"),
        ("link_downed", "link_downed", "warning"),
        ("port_rcv_errors", "rcv_errors", "warning"),
        ("excessive_buffer_overrun_errors", "buffer_overrun", "warning"),
        ("packet_seq_err", "sequence_error", "warning"),
        ("rx_icrc_encapsulated", "icrc_error", "warning"),
        ("VL15_dropped", "vl15_dropped", "info"),
        ("roce_adp_retrans", "roce_retransmission", "info"),
    ],
)
def test_an_error_counter_that_rises_is_an_event_with_the_increase(
    tree: RdmaTree, looker: Looker, counter_file: str, name: str, severity: str
) -> None:
    """Of the kind that the fabric's tools give; across a restart too."""
    tree.count("mlx5_0", 1, **{counter_file: 5})
    looker.start()
    [event] = looker.look()
    assert (event.kind, event.severity, event.attributes["counter"], event.attributes["count"]) == (
        *("counter", severity, name),
        5,
    )
    assert (event.device.type, event.device.port, event.name()) == ("hca", 1, "mlx5_0")
    assert looker.look() == []


@pytest.mark.parametrize("file", ["np_cnp_sent", "port_xmit_wait", "port_xmit_data", "np_ecn_marked_roce_packets"])
def test_load_and_congestion_are_telemetry_alone(tree: RdmaTree, looker: Looker, file: str) -> None:
    """They rise in health."""
    tree.count("mlx5_0", 1, **{file: 10**9})
    assert looker.look() == []


def test_a_counter_that_stands_at_its_most_tells_nothing_more(tree: RdmaTree, looker: Looker) -> None:
    """32 bits, or 16: it sticks there. Cleared, what it shows is new."""
    tree.count("mlx5_0", 1, symbol_error=0xFFFFFFFF)
    assert [event.attributes["count"] for event in looker.look()] == [0xFFFFFFFF]
    assert looker.look() == []
    tree.count("mlx5_0", 1, symbol_error=4)
    assert {event.kind: event.attributes.get("count") for event in looker.look()} == {
        "counter": 4,
        "counter_reset": None,
    }


def test_a_link_that_comes_back_narrower_or_slower_is_degraded_until_it_is_not(tree: RdmaTree, looker: Looker) -> None:
    """Told once for each rate, and once when it is over."""
    tree.set("mlx5_0", 1, rate="200 Gb/sec (4X HDR)")
    [event] = looker.look()
    assert (event.kind, event.severity, event.attributes["gb_per_s_capable"]) == ("link_degraded", "warning", 400.0)
    assert event.message == "mlx5_0 port 1 runs at 200 Gb/s (4X HDR) and could do 400 Gb/s"
    looker.start()
    assert looker.look() == []
    tree.set("mlx5_0", 1, rate="100 Gb/sec (1X NDR)")
    assert [event.attributes["width_now"] for event in looker.look()] == ["1X"]
    tree.set("mlx5_0", 1, rate="400 Gb/sec (4X NDR)")
    [over] = looker.look()
    assert (over.kind, over.severity) == ("link_restored", "info")
    assert (
        kind_description(over.kind, None, over.severity, over.cause) == "A link runs as wide and fast again as it did"
    )


@pytest.mark.parametrize(("layer", "told"), [("InfiniBand", ["link_degraded"]), ("Ethernet", [])])
def test_one_lane_of_infiniband_is_degraded_from_the_first_look(tree: RdmaTree, layer: str, told: list[str]) -> None:
    """A 25 Gb/s Ethernet port has one lane by nature."""
    tree.set("mlx5_0", 1, rate="25 Gb/sec (1X EDR)", link_layer=layer)
    assert [event.kind for event in Looker(tree).look()] == told


def test_an_adapter_that_vanishes_is_missing_and_then_returned(tree: RdmaTree, looker: Looker) -> None:
    """After two looks: one may be a driver that is loaded again."""
    tree.remove("mlx5_1")
    assert looker.look() == []
    looker.start()
    [gone] = looker.look()
    assert (gone.kind, gone.severity, gone.device.pci, gone.name()) == (
        *("device_missing", "warning", "0000:1a:00.0"),
        "mlx5_1",
    )
    tree.bring_back("mlx5_1", "0000:1a:00.0")
    assert [event.kind for event in looker.look()] == ["device_returned"]


def test_all_of_them_may_vanish(tree: RdmaTree, looker: Looker) -> None:
    """The driver was unloaded: the folder is gone, and each port is missing."""
    for device in ("mlx5_0", "mlx5_1"):
        tree.remove(device)
    tree.root.rmdir()
    looker.look()
    assert [event.kind for event in looker.look()] == ["device_missing"] * 2
    looker.start()
    assert looker.look() == [], "a source that was read before waits for its folder"


def test_values_go_into_the_node_hours_and_bytes_as_rates(tree: RdmaTree, looker: Looker) -> None:
    """By the name that every source gives a port."""
    tree.count("mlx5_0", 1, symbol_error=2, port_rcv_data=10**6)
    looker.look()
    [rollup] = [rollup for rollup in looker.last.rollups if rollup.devices]
    assert rollup.devices is not None
    port = rollup.devices["nic:mlx5_0/1"]
    assert tuple(port["symbol_error"]) == (0, 2, 1, 2, 1)
    assert port["rate_bytes_per_s"][3] == 50e9
    assert (port["rcv_bytes_per_s"][1] or 0.0) > 0
    assert "rcv_bytes" not in port
    assert rollup.gpus_seen == 0


def test_a_rate_needs_two_looks_and_no_step_back() -> None:
    """A counter that began anew, or a clock that was set back, gives none."""
    rates = Rates()
    start = NOW.timestamp()
    assert rates.rate("a", 100.0, start) is None
    rates = Rates(orjson.loads(orjson.dumps(rates.state())))
    assert rates.rate("a", 400.0, start + 30) == 10.0
    assert rates.rate("a", 50.0, start + 60) is None
    assert rates.rate("a", 90.0, (NOW - timedelta(hours=1)).timestamp()) is None


def test_a_node_without_rdma_is_told_the_remedy(tmp_path: Path) -> None:
    """It may be that the driver is loaded later: the runner tries again."""
    with pytest.raises(SourceError, match="mlx5_ib"):
        InfinibandCollector(str(tmp_path / "infiniband"), SETTINGS).open(None)


def test_every_error_counter_that_is_read_has_a_meaning() -> None:
    """In the table of counters, but for those that rise in health."""
    from collectors.telemetry.ports import _FIELDS

    healthy = {"xmit_wait", "xmit_words", "rcv_words", "cnp_sent", "cnp_handled", "ecn_marked"}
    assert {name for name in _FIELDS.values() if counter(name, "hca") is None} == healthy


def test_its_spec_names_its_root(tree: RdmaTree) -> None:
    """So that a container's and the host's are told apart."""
    assert InfinibandCollector("", SETTINGS).spec == "infiniband"
    assert InfinibandCollector(str(tree.root), SETTINGS).spec == f"infiniband:{tree.root}"

"""The real binding on a stand-in for the driver's library, built here: see fake_nvml.c. Sources `nvml` and `rings`."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from rdma_tree import RdmaTree
from real.nvml import nvml_library

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources.nvml import NvmlCollector
from collectors.sources.rings import RingsCollector
from store.records.event import Event

pynvml = pytest.importorskip("pynvml", reason="pip install 'foreshock[nvml]'")

GPU = """0.temp 61
0.power_mw 512500
0.util 97
0.memory_used 40
0.sm_clock 1980
0.memory_clock 2619
0.throttle 4
0.ecc00 5
0.ecc10 0
0.ecc01 50
0.ecc11 1
0.retired0 2
0.retired1 0
0.pcie_replay 7
0.pcie_gen 5
0.pcie_width 16
0.violation1 5000000000
0.remapped 3
0.link0 1
0.link1 0
0.link0.2 9
0.field215.1 505
0.fabric 3
0.field82 77
"""


class Script:
    """What the stand-in says."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.say("count 2\n" + GPU + "1.temp 50\n")

    def say(self, text: str) -> None:
        """Everything anew; a reader sees the old text or the new one."""
        new = self.path.with_suffix(".new")
        new.write_text(text)
        new.rename(self.path)


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stand-in, compiled. Loaded under the driver's name, it is what the binding finds."""
    return nvml_library(tmp_path_factory.mktemp("nvml"))


@pytest.fixture
def script(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Script:
    """A fresh instance of the stand-in, and its script."""
    own = tmp_path / "own.so"
    shutil.copy(library, own)
    monkeypatch.setenv("FAKE_NVML", str(tmp_path / "script"))
    monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(own)))
    monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})
    return Script(tmp_path / "script")


@pytest.fixture
def collector(script: Script) -> Iterator[NvmlCollector]:
    """One that samples at every turn."""
    collector = NvmlCollector("", SourceSettings("n1", scrape_interval_s=1e-6, rollup_interval_s=0.0))
    collector.open(None)
    yield collector
    collector.close()


def turn(collector: NvmlCollector) -> CollectorTurn:
    """The next turn that samples."""
    while not (collected := collector.collect(0.001)).position:
        pass
    return collected


def kinds(events: tuple[Event, ...]) -> list[tuple[str, str, int | None]]:
    """Source, kind and GPU."""
    return [(event.source, event.kind, event.device.index) for event in events]


def test_the_binding_finds_the_library_by_the_driver_s_name(library: Path, tmp_path: Path) -> None:
    """As it is found on a node: by the loader's path alone."""
    (tmp_path / "script").write_text("count 3\n")
    code = "import pynvml; pynvml.nvmlInit(); print(pynvml.nvmlDeviceGetCount())"
    environment = {"LD_LIBRARY_PATH": str(library.parent), "FAKE_NVML": str(tmp_path / "script")}
    python = Path(__import__("sys").executable)
    done = subprocess.run([python, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "3\n"


def test_gpus_are_sampled_in_the_words_of_an_exporter(collector: NvmlCollector) -> None:
    """What a GPU does not support is missing."""
    turn(collector)
    [rollup] = turn(collector).rollups
    assert (rollup.gpus_seen, rollup.gpu_temp_max_c, rollup.power_max_w) == (2, 61.0, 512.5)
    assert rollup.devices is not None
    assert {name: values[3] for name, values in rollup.devices["gpu:0"].items()} == {
        "gpu_temp_c": 61,
        "memory_temp_c": 77,
        "power_w": 512.5,
        "gpu_util_ratio": 0.97,
        "memory_used_ratio": 0.4,
        "sm_clock_mhz": 1980,
        "memory_clock_mhz": 2619,
        "throttle_reasons": 4,
        "pcie_replay": 7,
        "ecc_sbe": 5,
        "ecc_dbe": 0,
        "ecc_sbe_lifetime": 50,
        "ecc_dbe_lifetime": 1,
        "page_retired_sbe": 2,
        "page_retired_dbe": 0,
        "pcie_link_gen": 5,
        "pcie_link_width": 16,
        "thermal_violation": 5_000_000_000,
        "row_remap_correctable": 3,
        "row_remap_uncorrectable": 4,
        "row_remap_pending": 0,
        "row_remap_failure": 0,
        "nvlink_up": 1,
        "nvlink_crc_l0": 9,
        "nvlink_recovery_event_l1": 505,
        "fabric_state": 3,
        "fabric_health_mask": 2,
    }
    assert list(rollup.devices["gpu:1"]) == ["gpu_temp_c"]


RECORDED = Path(__file__).parents[2] / "fixtures" / "nvml"
# As nvidia-smi showed it.
PRINTED: dict[str, dict[str, float]] = {
    "h100_idle": {"gpu_temp_c": 47, "power_w": 130.158, "memory_used_ratio": 0, "power_violation": 15_829_272_768},
    "h100_load": {
        "gpu_temp_c": 60,
        "power_w": 697.527,
        "memory_used_ratio": 0.0139631,
        "power_violation": 21_557_695_040,
        "sm_clock_mhz": 1320,
        "throttle_reasons": 4,
        "pcie_link_gen": 5,
    },
}


@pytest.mark.parametrize("recorded", PRINTED)
def test_what_a_real_h100_answered_is_no_event(recorded: str, collector: NvmlCollector, script: Script) -> None:
    """Without a fabric, without retired pages, slowed down by its power limit alone."""
    script.say((RECORDED / f"{recorded}.txt").read_text())
    turns = [turn(collector) for _ in range(3)]
    assert [event.kind for one in turns[1:] for event in one.events if event.device.index == 0] == []
    [rollup] = turns[-1].rollups
    assert rollup.devices is not None
    values = {name: one[3] for name, one in rollup.devices["gpu:0"].items()}
    assert {name: values[name] for name in PRINTED[recorded]} == PRINTED[recorded]
    assert {"fabric_state", "fabric_health_mask", "nvlink_up", "page_retired_sbe"}.isdisjoint(values)
    assert values["thermal_violation"] == values["recovery_action"] == values["row_remap_uncorrectable"] == 0


def test_an_old_driver_counts_what_it_holds_back_as_used(collector: NvmlCollector, script: Script) -> None:
    """Before 510 nothing told the two apart."""
    script.say("count 1\nold_driver 1\n0.memory_used 40\n")
    turn(collector)
    [rollup] = turn(collector).rollups
    assert rollup.devices is not None
    assert rollup.devices["gpu:0"]["memory_used_ratio"][3] == 0.4


def test_a_counter_that_rises_is_an_event_over_a_restart_too(collector: NvmlCollector, script: Script) -> None:
    """With where the GPU is."""
    position = turn(collector).position
    collector.close()
    script.say("count 2\n" + GPU.replace("0.pcie_replay 7", "0.pcie_replay 9") + "1.temp 50\n")
    collector.open(position)
    [event] = turn(collector).events
    assert (event.source, event.kind, event.attributes["count"]) == ("nvml", "pcie_replay", 2)
    assert (event.device.pci, event.device.uuid, event.device.index) == ("0000:0f:00.0", "GPU-0", 0)


def test_a_gpu_that_the_driver_lost_is_told_once_and_is_then_missing(collector: NvmlCollector, script: Script) -> None:
    """Its neighbours are sampled as before; it may come back after a reset."""
    turn(collector)
    script.say("count 2\n" + GPU + "1.lost 1\n")
    found = [event for _ in range(4) for event in turn(collector).events]
    assert kinds(tuple(found)) == [("nvml", "gpu_lost", 1), ("nvml", "gpu_missing", 1)]
    assert (found[0].severity, found[0].device.pci) == ("fatal", "0000:10:00.0")
    script.say("count 2\n" + GPU + "1.temp 50\n")
    assert kinds(turn(collector).events) == [("nvml", "gpu_returned", 1)]


def test_an_xid_is_a_hint_at_once(script: Script) -> None:
    """Between two samples; the kernel log is the witness."""
    collector = NvmlCollector("", SourceSettings("n1", scrape_interval_s=60.0))
    collector.open(None)
    turn(collector)
    script.say("count 2\n" + GPU + "1.temp 50\nxid1 1:79\nxid2 0:31\n")
    hints = collector.collect(5.0).events
    assert [(one.kind, one.code, one.severity, one.device.index) for one in hints] == [
        ("xid_hint", 79, "info", 1),
        ("xid_hint", 31, "info", 0),
    ]
    assert len({one.id for one in hints}) == 2
    assert collector.collect(0.001) == CollectorTurn()
    collector.close()


def test_a_driver_that_tells_no_xids_is_sampled_all_the_same(script: Script) -> None:
    """A virtual machine's."""
    script.say("count 1\n0.temp 40\nno_events 1\n")
    collector = NvmlCollector("", SourceSettings("n1", scrape_interval_s=60.0))
    collector.open(None)
    assert turn(collector).lines == 1
    assert collector.collect(0.001) == CollectorTurn()


@pytest.mark.parametrize(("said", "interval_s"), [("count 1\nevent_error 1\n", 60.0), ("no_driver 1\n", 1e-6)])
def test_a_driver_that_goes_away_is_a_source_that_failed(script: Script, said: str, interval_s: float) -> None:
    """The runner opens it again; meanwhile nothing is said of the GPUs."""
    collector = NvmlCollector("", SourceSettings("n1", scrape_interval_s=interval_s))
    collector.open(None)
    turn(collector)
    script.say(said)
    with pytest.raises(SourceError, match="nvidia-smi"):
        collector.collect(0.001)


def test_without_a_driver_the_remedy_is_told(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    """No library; a library without a driver; no module."""
    script.say("no_driver 1\n")
    collector = NvmlCollector("", SourceSettings("n1"))
    with pytest.raises(SourceError, match="install the NVIDIA driver"):
        collector.open(None)

    def no_library(_name: str) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", no_library)
    with pytest.raises(SourceError, match=r"Shared Library Not Found.*install the NVIDIA driver"):
        collector.open(None)
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(SourceError, match=r"pip install 'foreshock\[nvml\]'"):
        collector.open(None)
    collector.close()


def test_nvml_takes_no_address() -> None:
    """It reads this node's GPUs."""
    with pytest.raises(SourceError, match="no address"):
        NvmlCollector("gpu-1", SourceSettings("n1"))


class Seconds:
    """Rings of two GPUs and one port, whose seconds pass at once."""

    def __init__(self, script: Script, tree: RdmaTree) -> None:
        self.script, self.tree, self.retransmitted = script, tree, 0
        self.collector = RingsCollector(str(tree.root), SourceSettings("n1", interval_s=1e-6, rollup_interval_s=0.0))
        self.collector.open(None)

    def gpu(self, clock: int = 1980, reasons: int = 0, width: int = 16) -> None:
        """What GPU 1 shows; GPU 0 is well."""
        one = "{0}.power_mw 500000\n{0}.sm_clock {1}\n{0}.throttle {2}\n{0}.pcie_gen 5\n{0}.pcie_width {3}\n"
        self.script.say("count 2\n" + one.format(0, 1980, 0, 16) + one.format(1, clock, reasons, width))

    def windows(self, count: int, retransmits: int = 0) -> list[CollectorTurn]:
        """So many windows."""
        found: list[CollectorTurn] = []
        while len(found) < count:
            self.retransmitted += retransmits
            self.tree.count("mlx5_0", 1, roce_adp_retrans=self.retransmitted)
            while not (turn := self.collector.collect(5.0)).position:
                pass
            found.append(turn)
        return found


@pytest.fixture
def seconds(script: Script, tmp_path: Path) -> Iterator[Seconds]:
    """After ten minutes in which all was well."""
    tree = RdmaTree(tmp_path)
    tree.add("mlx5_0", "0000:10:00.0")
    one = Seconds(script, tree)
    one.gpu()
    assert [turn.events for turn in one.windows(10)] == [()] * 10
    yield one
    one.collector.close()


def told(turns: list[CollectorTurn]) -> list[tuple[str, object, object, int | None]]:
    """Kind, device, measure and GPU of every event."""
    events = [event for turn in turns for event in turn.events]
    return [(event.kind, event.attributes["of"], event.attributes["measure"], event.device.index) for event in events]


def test_a_gpu_that_is_slowed_down_by_heat_has_shifted_within_45_seconds(seconds: Seconds) -> None:
    """Its clock, and the time that the hardware held it back; then it is well again."""
    seconds.gpu(clock=1155, reasons=0x40 | 0x8)
    turns = seconds.windows(3)
    assert [len(turn.events) for turn in turns] == [0, 0, 2]
    assert sorted(told(turns)) == [
        ("measure_shift", "gpu:1", "hw_thermal_slowdown_ns", 1),
        ("measure_shift", "gpu:1", "sm_clock_mhz", 1),
    ]
    clock = next(one for one in turns[-1].events if one.attributes["measure"] == "sm_clock_mhz")
    assert (clock.attributes["value"], clock.attributes["usual"], clock.severity) == (1155, 1980, "info")
    assert (clock.node, clock.device.uuid) == ("n1", "GPU-1")
    seconds.gpu()
    assert {kind for kind, *_ in told(seconds.windows(4))} == {"measure_usual"}


def test_an_idle_gpu_at_a_low_clock_and_a_slow_link_is_no_shift(seconds: Seconds) -> None:
    """It saves power: bit 0x1 of its reasons."""
    seconds.gpu(clock=345, reasons=0x1, width=4)
    assert told(seconds.windows(8)) == []


def test_a_link_of_fewer_lanes_and_an_adapter_that_sends_again_are_told(seconds: Seconds) -> None:
    """Both are read once a window."""
    seconds.gpu(width=8)
    assert told(seconds.windows(4, retransmits=5_000)) == [
        ("measure_shift", "gpu:1", "pcie_link_width", 1),
        ("measure_shift", "nic:mlx5_0/1", "roce_retransmission", None),
    ]


def test_the_windows_go_into_the_node_s_hours(seconds: Seconds) -> None:
    """Minimum and maximum are of windows: what lasted. Peers are compared by them."""
    seconds.gpu(clock=1500)
    [rollup, *_] = seconds.windows(1)[-1].rollups
    assert rollup.devices is not None
    low, high, _mean, last, _changes = rollup.devices["gpu:1"]["sm_clock_mhz"]
    assert (low, high, last) == (1500, 1980, 1500)
    assert rollup.devices["gpu:0"]["hw_thermal_slowdown_ns"] == (0, 0, 0, 0, 0)
    assert "roce_retransmission" in rollup.devices["nic:mlx5_0/1"]


def test_a_gpu_that_is_lost_takes_no_other_s_seconds(seconds: Seconds) -> None:
    """Other sources tell that it is gone."""
    seconds.script.say("count 2\n1.lost 1\n0.power_mw 500000\n0.sm_clock 990\n0.throttle 0\n")
    assert told(seconds.windows(4)) == [("measure_shift", "gpu:0", "sm_clock_mhz", 0)]


def test_a_gpu_that_comes_back_is_read_again(seconds: Seconds) -> None:
    """Its seconds count as those before it was lost."""
    seconds.script.say("count 2\n1.lost 1\n0.power_mw 500000\n0.sm_clock 1980\n0.throttle 0\n")
    seconds.windows(2)
    seconds.gpu(clock=990)
    assert told(seconds.windows(4)) == [("measure_shift", "gpu:1", "sm_clock_mhz", 1)]


def test_a_node_with_neither_gpus_nor_ports_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The remedy is named."""
    monkeypatch.setitem(__import__("sys").modules, "pynvml", None)
    with pytest.raises(SourceError, match="leave the source rings out"):
        RingsCollector(str(tmp_path / "none"), SourceSettings("n1")).open(None)

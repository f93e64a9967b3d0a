"""The real binding on a stand-in for the driver's library, built here: see fake_nvml.c."""

import ctypes
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from real.programs import missing

from collectors.collector import CollectorTurn, SourceError, SourceSettings
from collectors.sources.nvml import NvmlCollector
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
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        missing("gcc is not installed: apt-get install gcc libc6-dev")
    path = tmp_path_factory.mktemp("nvml") / "libnvidia-ml.so.1"
    source = Path(__file__).with_name("fake_nvml.c")
    command = [str(compiler), "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    subprocess.run([*command, "-o", str(path), str(source)], check=True)
    return path


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

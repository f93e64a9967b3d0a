"""Pages as a sidecar scrapes them, through the same watch."""

from datetime import UTC, datetime, timedelta

from collectors.telemetry.device_watch import DeviceWatch
from parsers.pages import devices_of
from parsers.text.parser import Context
from store.records.event import Event

NOON = datetime(2025, 3, 1, 12, tzinfo=UTC)
HOST = """node_boot_time_seconds {boot}
node_time_seconds 1.7408304e+09
node_vmstat_oom_kill {oom}
node_network_carrier_changes_total{{device="eno1"}} 2
node_network_carrier_changes_total{{device="eno2"}} 1
"""
BMC = """ipmi_up{{collector="ipmi"}} {up}
ipmi_up{{collector="dcmi"}} 0
ipmi_chassis_power_state {power}
ipmi_temperature_celsius{{id="7",name="Inlet Temp"}} {inlet}
ipmi_temperature_celsius{{id="9",name="CPU1 Temp"}} 70
"""
GPU = 'DCGM_FI_DEV_XID_ERRORS{{gpu="0",UUID="GPU-a"{instance}}} {xid}\n'


def told(*pages: str) -> list[Event]:
    """The events of pages that are scraped fifteen seconds apart."""
    watch = DeviceWatch("http://127.0.0.1:9400/metrics")
    events: list[Event] = []
    for number, page in enumerate(pages):
        now = NOON + timedelta(seconds=15 * number)
        events += watch.add(devices_of(page, Context(node="n1", until=now)), now)
    return events


def test_a_page_of_a_host_tells_of_its_reboot() -> None:
    """And of processes that were killed for lack of memory; of the same minute nothing twice."""
    before = HOST.format(boot="1.7400000e+09", oom=0)
    after = HOST.format(boot="1.7408305e+09", oom=1).replace("1.7408304e+09", "1.7408306e+09")
    found = told(before, before, after, after)
    assert {(one.kind, one.severity) for one in found} == {("node_reboot", "warning"), ("oom_kill", "info")}
    assert len(found) == 2


def test_a_boot_time_that_drifts_or_a_clock_that_is_set_is_no_reboot() -> None:
    """The kernel's boot time moves with its clock."""
    at = [HOST.format(boot=boot, oom=0) for boot in ("1.7400000e+09", "1.7400000e+09", "1.740000003e+09")]
    assert told(*at) == []
    later = HOST.format(boot="1.7400036e+09", oom=0).replace("1.7408304e+09", "1.7408340e+09")
    assert [one.kind for one in told(*at, later)] == ["clock_jump"]


def test_a_page_of_a_bmc_tells_of_power_and_the_air_that_comes_in() -> None:
    """A processor may be as hot as it likes."""
    well, ill = BMC.format(up=1, power=1, inlet=24), BMC.format(up=1, power=0, inlet=38)
    found = told(well, ill, ill)
    assert sorted((one.kind, one.severity) for one in found) == [("inlet_hot", "warning"), ("node_power", "info")]
    assert [one.name() for one in found if one.kind == "inlet_hot"] == ["Inlet Temp"]


def test_each_mig_instance_s_xid_is_told_whatever_the_order() -> None:
    """The rows of one GPU's instances come in any order; the second one's Xid counts as much as the first's."""
    quiet = [GPU.format(instance=f',GPU_I_ID="{number}"', xid=0) for number in (1, 7)]
    ill = [quiet[0], GPU.format(instance=',GPU_I_ID="7"', xid=95)]
    for first, second in ((quiet, ill), (quiet[::-1], ill[::-1]), (quiet, ill[::-1])):
        [xid] = told("".join(first), "".join(second), "".join(second))
        assert (xid.kind, xid.code, xid.device.index) == ("xid", 95, 0)


def test_an_active_xid_s_code_is_in_its_label() -> None:
    """By both names that dcgm-exporter has for it."""
    for name in ("DCGM_FI_DEV_XID_ERRORS_ACTIVE", "DCGM_EXP_XID_ERRORS_COUNT"):
        temperature = 'DCGM_FI_DEV_GPU_TEMP{gpu="0",UUID="GPU-a"} 40\n'
        active = f'{name}{{gpu="0",UUID="GPU-a",xid="79",window_size_in_ms="300000"}} 1\n'
        [xid] = told(temperature, temperature + active, temperature + active, temperature)
        assert (xid.kind, xid.code, xid.severity) == ("xid", 79, "fatal")


def test_all_gpus_gone_from_a_page_that_goes_on_is_one_exporter_down() -> None:
    """A proxy's page of several exporters: the GPUs' one is gone; of its GPUs nothing is known."""
    host = HOST.format(boot="1.7400000e+09", oom=0)
    gpus = "".join(f'DCGM_FI_DEV_GPU_TEMP{{gpu="{gpu}",UUID="GPU-{gpu}"}} 40\n' for gpu in range(4))
    found = told(host + gpus, host + gpus, host, host, host)
    assert [(one.kind, one.severity, one.source) for one in found if one.severity != "info"] == [
        ("exporter_down", "warning", "dcgm")
    ]
    assert [one.device.index for one in found if one.kind == "gpu_missing"] == [0, 1, 2, 3]
    back = told(host + gpus, host, host, host, host + gpus)[-5:]
    assert {one.kind for one in back} == {"exporter_up", "gpu_returned"}

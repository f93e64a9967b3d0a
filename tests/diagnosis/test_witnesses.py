"""Several witnesses of one fault, from the lines that they really write: one incident, called by its root."""

from dataclasses import replace
from datetime import UTC, datetime

import orjson
import pytest

from diagnosis.incidents.incident import coalesce, fault_of, is_fault
from parsers.registry import make_parser
from parsers.text.parser import Context, parse
from store.records.event import Device, Event, kind_key
from store.records.incident import Incident

NODE = "gpu-017"
UNTIL = datetime(2025, 3, 2, tzinfo=UTC)
UUID = "GPU-11111111-2222-3333-4444-555555555555"


def decoded(form: str, *lines: str, node: str | None = NODE) -> list[Event]:
    """The events of a log, each with an id."""
    parser = make_parser(form, Context(node=node, year=2025, until=UNTIL), None)
    events = parse(parser, lines, lambda line, error: pytest.fail(f"{line}: {error}"))
    return [replace(event, id=event.id or f"{form}-{n}") for n, event in enumerate(events)]


def kernel(*messages: str, minute: str = "05") -> list[Event]:
    """Kernel lines of one node, a tenth of a second apart, from 04:05:06.789 on."""
    stamps = [
        f"2025-03-01T04:{minute}:{6 + (789 + 100 * n) // 1000:02}.{(789 + 100 * n) % 1000:03}000+00:00"
        for n in range(40)
    ]
    return decoded("kernel", *(f"{stamps[n]} {NODE} kernel: {message}" for n, message in enumerate(messages)))


def xid(code: int, words: str = "x", pci: str = "0000:0f:00") -> str:
    """The driver's line."""
    return f"NVRM: Xid (PCI:{pci}): {code}, pid=1234, name=python, {words}"


def gpud(code: int) -> list[Event]:
    """An Xid as gpud repeats it: to the second, so that it seems to come before the kernel's line."""
    value = {
        "component": "accelerator-nvidia-error-xid",
        "time": "2025-03-01T04:05:06Z",
        "name": "error_xid",
        "type": "Fatal",
        "message": f"XID {code} detected on GPU PCI:0000:0f:00 UUID:{UUID}",
        "extra_info": {"data": str(code), "device_uuid": "PCI:0000:0f:00"},
    }
    return decoded("gpud", orjson.dumps(value).decode())


def alert(code: int) -> list[Event]:
    """The same as a site's rule on dcgm-exporter's gauge alerts of it."""
    value = {
        "status": "firing",
        "labels": {"alertname": "GpuXid", "node": NODE, "gpu": "3", "severity": "critical", "xid": str(code)},
        "annotations": {},
        "startsAt": "2025-03-01T04:05:30Z",
        "endsAt": "0001-01-01T00:00:00Z",
        "fingerprint": "37036cd9ece3543d",
    }
    return decoded("alertmanager", orjson.dumps({"version": "4", "alerts": [value]}).decode())


def nvsentinel(code: int) -> list[Event]:
    """The same as NVSentinel's syslog monitor tells it."""
    value = {
        "version": 1,
        "agent": "syslog-health-monitor",
        "componentClass": "GPU",
        "checkName": "SysLogsXIDError",
        "isFatal": True,
        "isHealthy": False,
        "message": "ROBUST_CHANNEL",
        "recommendedAction": "RESTART_BM",
        "errorCode": [str(code)],
        "entitiesImpacted": [{"entityType": "PCI", "entityValue": "0000:0f:00.0"}],
        "generatedTimestamp": "2025-03-01T04:05:06Z",
        "nodeName": NODE,
    }
    return decoded("nvsentinel", orjson.dumps(value).decode())


def only(*events: Event) -> Incident:
    """The one incident of these events, whatever their order."""
    (incident,) = coalesce(events)
    assert coalesce(events[::-1]) == [incident]
    return incident


def named(*events: Event) -> str:
    """What the one incident is called by."""
    incident = only(*events)
    return kind_key(incident.kind, incident.code)


@pytest.mark.parametrize("code", [79, 48, 94, 63, 31, 999])
def test_what_four_detectors_tell_is_one_incident_called_by_the_kernels_line(code: int) -> None:
    """A known fault, a warning that an alert calls critical, a program's, an unknown one: with process and message."""
    incident = only(*kernel(xid(code, "as the driver says")), *gpud(code), *alert(code), *nvsentinel(code))
    assert (incident.kind, incident.code, incident.source) == ("xid", code, "kernel")
    assert incident.message == "as the driver says"
    assert incident.device == Device("gpu", pci="0000:0f:00.0")
    assert incident.kinds == {f"alert:{code}": 1, f"xid:{code}": 3}


def test_a_gpu_that_fell_off_the_bus_is_one_incident_for_everybody() -> None:
    """The driver's two lines, the torn-down channels, a Kubernetes event, an exporter's sticky hint."""
    lines = kernel(
        xid(79, "GPU has fallen off the bus."),
        "NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus.",
        xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
        xid(45, "Ch 00000008", pci="0000:3b:00"),
    )
    incident = only(*lines, *nvsentinel(79))
    assert (incident.kind, incident.code, incident.action) == ("xid", 79, "reboot_node")
    assert incident.kinds == {"gpu_lost:79": 1, "xid:154": 1, "xid:45": 1, "xid:79": 2}


def test_of_two_faults_as_grave_the_witness_s_own_line_names_the_incident() -> None:
    """The detector's other words for it bear an earlier second, and no process."""
    incident = only(*kernel("NVRM: GPU 0000:0f:00.0: GPU has fallen off the bus."), *nvsentinel(79))
    assert (incident.kind, incident.source) == ("gpu_lost", "kernel")


def test_a_detector_alone_makes_the_incident() -> None:
    """Where nobody reads the kernel log; the kernel's line, when it comes late, takes the name over."""
    (incident,) = coalesce(gpud(79))
    assert (incident.source, incident.code) == ("gpud", 79)
    fault = fault_of(gpud(79))
    fault.join(fault_of(kernel(xid(79))))
    assert (fault.incident().source, fault.incident().code) == ("kernel", 79)
    fault.join(fault_of(alert(79)))
    assert fault.incident().source == "kernel"


AER = (
    "pcieport 0000:00:01.0: AER: Uncorrected (Fatal) error received: 0000:00:01.0",
    "pcieport 0000:00:01.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, (Requester ID)",
    "pcieport 0000:00:01.0:   device [8086:1901] error status/mask=00004000/00000000",
    "pcieport 0000:00:01.0:    [14] CmpltTO                (First)",
)


def test_a_fatal_pcie_error_is_the_root_of_what_the_gpus_say_then() -> None:
    """GPU lost, its system processor silent, channels torn down."""
    after = (xid(79), xid(119, "Timeout waiting for RPC from GSP0!"), xid(45))
    incident = only(*kernel(*AER, *after))
    assert (incident.kind, incident.severity, incident.device.pci) == ("pcie_aer", "fatal", "0000:00:01.0")
    assert incident.kinds["xid:79"] == incident.kinds["xid:119"] == incident.kinds["xid:45"] == 1


@pytest.mark.parametrize("order", [(79, 119, 45), (119, 79, 45), (45, 119, 79)])
def test_a_gpu_off_the_bus_names_what_its_system_processor_says(order: tuple[int, ...]) -> None:
    """Whatever is printed first: the part is off the bus."""
    assert named(*kernel(*(xid(code) for code in order))) == "xid:79"


def test_corrected_pcie_errors_before_are_not_the_root() -> None:
    """They are a warning; what they led to is the fault."""
    corrected = (
        "nvidia 0000:0f:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)",
        "nvidia 0000:0f:00.0:   device [10de:2330] error status/mask=00000001/0000a000",
    )
    assert named(*kernel(*corrected, xid(119))) == "xid:119"


def test_a_panic_after_a_machine_check_is_called_by_the_machine_check() -> None:
    """The hardware is to be replaced, not the kernel."""
    lines = kernel(
        "mce: [Hardware Error]: CPU 12: Machine Check Exception: 5 Bank 7: be00000000800400",
        "Kernel panic - not syncing: Fatal machine check",
    )
    assert named(*lines) == "mce"


def test_a_lost_link_is_one_incident_for_host_and_subnet_manager() -> None:
    """The adapter's driver, opensm and UFM, each in its words."""
    host = kernel("mlx5_core 0000:ab:00.0 mlx5_5: Port: 1 Link DOWN")
    manager = decoded(
        "opensm",
        "Mar 01 04:05:09 928774 [8EAC6C0] 0x02 -> drop_mgr_remove_port: Removed port with GUID:0xb83fd20300200061 "
        f"LID range [17, 17] of node:{NODE} mlx5_5",
        node=None,
    )
    ufm = decoded(
        "ufm",
        "2025-03-01 04:05:08.442 [1298] [329] WARNING [Link] Link [fc6a1c0300d0e0f0_1: 9c6a1c0300d0e0f0_8]: Link went "
        f"down: (Computer:{NODE}:1)fc6a1c0300d0e0f0:1 - (Switch:leaf-b04:1/4/2)9c6a1c0300d0e0f0:8, cable S/N: X",
        node=None,
    )
    incident = only(*host, *manager, *ufm)
    assert (incident.kind, incident.device.pci, incident.name) == ("ib_port", "0000:ab:00.0", "mlx5_5")
    assert incident.kinds == {"ib_port": 1, "link_down:329": 1, "port_removed": 1}


def test_two_disks_of_a_node_are_told_apart_in_words() -> None:
    """A disk has no address in the kernel's line: its name is its own."""
    first, second = (
        only(*kernel(f"nvme {disk}: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"))
        for disk in ("nvme0", "nvme1")
    )
    assert [one.device.words(one.name) for one in (first, second)] == ["disk nvme0", "disk nvme1"]
    both = only(
        *kernel(
            "nvme nvme1: I/O 24 QID 5 timeout, aborting",
            "nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff",
        )
    )
    assert both.name == "nvme0"


def test_disks_of_an_unknown_node_make_incidents_of_their_own() -> None:
    """Where the log names no host, the name alone tells devices apart."""
    lines = [f"nvme nvme{n}: Removing after probe failure status: -19" for n in (0, 1, 0)]
    events = [
        replace(event, time=UNTIL, node=None, id=f"{n}") for n, event in enumerate(decoded("kernel", *lines, node=None))
    ]
    assert sorted((one.name, one.count) for one in coalesce(events)) == [("nvme0", 2), ("nvme1", 1)]


@pytest.mark.parametrize(
    ("form", "kind", "counts"),
    [
        ("training", "training_error", False),  # the program's word
        ("dlrover", "training_error", False),
        ("dlrover", "pod_failed", False),
        ("nvrx", "cycle_start", False),
        ("sacct", "job", False),  # the scheduler's books
        ("sacctmgr", "outage", False),
        ("sinfo", "node_state", False),
        ("scontrol", "node_state", False),
        ("alertmanager", "alert", True),  # may be the only witness
        ("kubernetes", "node_not_ready", True),
        ("gpud", "xid", True),
        ("nvsentinel", "xid", True),
        ("nhc", "health_check_failed", True),
        ("switch", "link_down", True),
        ("ufm", "link_down", True),
        ("fabricmanager", "fabricmanager_failed", True),
        ("ascend", "ascend_fault", True),
        ("ibqueryerrors", "counter", True),
    ],
)
def test_which_sources_report_faults(form: str, kind: str, counts: bool) -> None:
    """Work and a scheduler's books do not; whoever looks at the machine does."""
    assert is_fault(Event(UNTIL, NODE, form, kind, severity="error", cause="hardware")) is counts

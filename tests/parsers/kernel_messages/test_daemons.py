"""Daemons that speak of disks, GPUs and services in the system log."""

import json

import pytest

from parsers.formats.kernel import KernelParser
from parsers.text.parser import Context, parse
from parsers.trust import RefusedLineError
from store.records.event import Event

AT = "Jul 24 03:12:46 n7 "


def decode(*lines: str) -> list[Event]:
    """The events of some lines."""
    return list(parse(KernelParser(Context(year=2026)), lines))


@pytest.mark.parametrize(
    ("said", "severity", "name"),
    [
        ("Device: /dev/sda, 1 Currently unreadable (pending) sectors", "warning", "sda"),
        ("Device: /dev/sdb [SAT], 2 Offline uncorrectable sectors", "warning", "sdb"),
        ("Device: /dev/sdc [SAT], FAILED SMART self-check. BACK UP DATA NOW!", "error", "sdc"),
        ("Device: /dev/bus/0 [megaraid_disk_07] [SAT], unable to open SCSI device", None, None),
        ("Device: /dev/nvme1, Critical Warning (0x04): Reliability", "error", "nvme1"),
        ("Device: /dev/nvme1, Critical Warning (0x02): Temperature", "warning", "nvme1"),
        ("Device: /dev/sda [SAT], Failed SMART usage Attribute: 5 Reallocated_Sector_Ct.", "warning", "sda"),
        ("Device: /dev/sda [SAT], ATA error count increased from 0 to 1", "warning", "sda"),
        ("Device: /dev/nvme0, number of Error Log entries increased from 1181 to 1183", None, None),
        ("Device: /dev/sda [SAT], SMART Usage Attribute: 194 Temperature_Celsius changed from 66 to 65", None, None),
        ("Device: /dev/sda [SAT], previous self-test completed without error", None, None),
    ],
)
def test_smartd_tells_how_a_disk_is(said: str, severity: str | None, name: str | None) -> None:
    """What fails is an error; what grew is a warning; commands that a drive does not know are nothing."""
    found = [(event.kind, event.severity, event.attributes["name"]) for event in decode(f"{AT}smartd[14]: {said}")]
    assert found == ([] if severity is None else [("disk_health", severity, name)])


@pytest.mark.parametrize(
    ("said", "kind", "pci"),
    [
        ("Failed to query NVIDIA devices. Please ensure that the NVIDIA device files exist", "node_service", None),
        ("Unable to find any NVIDIA devices", "gpu_missing", None),
        ("Failed to open libnvidia-cfg.so.1: cannot open shared object file", "node_service", None),
        ("device 0000:3d:00.0 - failed to open.", "nvrm_init_failure", "0000:3d:00.0"),
        ("device 0000:3d:00.0 - registered", None, None),
        ("Shutdown (19176)", None, None),
    ],
)
def test_the_persistence_daemon_tells_which_gpu_it_cannot_open(said: str, kind: str | None, pci: str | None) -> None:
    """Or that it has no driver, or no GPU."""
    found = [(event.kind, event.device.pci) for event in decode(f"{AT}nvidia-persistenced[520]: {said}")]
    assert found == ([] if kind is None else [(kind, pci)])


@pytest.mark.parametrize(
    ("unit", "result"),
    [("slurmd", "oom-kill"), ("nvidia-fabricmanager", "signal"), ("kubelet", "exit-code"), ("containerd", "timeout")],
)
def test_a_unit_that_ended_is_a_service_that_fails(unit: str, result: str) -> None:
    """Of those without which a node does no work."""
    [event] = decode(f"{AT}systemd[1]: {unit}.service: Failed with result '{result}'.")
    assert (event.kind, event.attributes) == ("node_service", {"name": unit, "state": result})


def test_any_other_unit_and_any_other_program_tell_nothing() -> None:
    """What a program says that is not the daemon is not the daemon's word."""
    assert decode(f"{AT}systemd[1]: apt-daily.service: Failed with result 'exit-code'.") == []
    assert decode(f"{AT}app[1]: slurmd.service: Failed with result 'exit-code'.") == []
    assert decode(f"{AT}app[1]: Device: /dev/sda, 1 Currently unreadable (pending) sectors") == []


def test_what_systemd_kills_for_memory_is_told() -> None:
    """As the kernel's own killing is."""
    said = "Killed /system.slice/job_7 due to memory pressure for /system.slice being 71.43% > 50.00% for > 20s"
    [event] = decode(f"{AT}systemd-oomd[811]: {said}")
    assert (event.kind, event.severity, event.attributes["name"]) == ("oom_kill", "error", "/system.slice/job_7")


def record(**fields: str) -> str:
    """A record of journald that the persistence daemon's user wrote."""
    own = {
        "_TRANSPORT": "syslog",
        "_UID": "116",
        "_COMM": "nvidia-persiste",
        "_SYSTEMD_UNIT": "nvidia-persistenced.service",
    }
    said = {"SYSLOG_IDENTIFIER": "nvidia-persistenced", "MESSAGE": "Unable to find any NVIDIA devices"}
    return json.dumps({**own, **said, **fields})


def test_a_daemon_without_roots_rights_is_known_by_its_unit() -> None:
    """systemd alone puts a process there."""
    assert [event.kind for event in decode(record())] == ["gpu_missing"]


@pytest.mark.parametrize(
    "fields",
    [
        {"_SYSTEMD_UNIT": "user@1000.service", "_SYSTEMD_USER_UNIT": "nvidia-persistenced.service"},
        {"_SYSTEMD_UNIT": "slurmd.service"},
        {"_COMM": "logger"},
        {"_COMM": "smartd", "SYSLOG_IDENTIFIER": "smartd", "_SYSTEMD_UNIT": "smartd.service"},
    ],
)
def test_a_users_program_is_not_a_daemon(fields: dict[str, str]) -> None:
    """Another unit, another program, a daemon that runs as root only: each refused."""
    message = "Device: /dev/sda, 1 Currently unreadable (pending) sectors"
    more = {"MESSAGE": message} if fields.get("_COMM") == "smartd" else {}
    with pytest.raises(RefusedLineError, match="writer"):
        list(KernelParser(Context()).feed(record(**fields, **more), 1))

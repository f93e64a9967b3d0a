"""Daemons of a node that speak of its disks, its GPUs and its services in the system log, and systemd of their end.

    smartd[1443]: Device: /dev/nvme1, Critical Warning (0x04): Reliability
    -> Event(kind="disk_health", severity="error", device=Device("disk"), attributes={"name": "nvme1", ...})
    systemd[1]: slurmd.service: Failed with result 'exit-code'.
    -> Event(kind="node_service", attributes={"name": "slurmd", "state": "exit-code"})

Of systemd's units only those count without which a node does no work of a cluster. An NVMe drive counts commands that
it does not know among its errors: that their number grew says nothing. Forms: smartd.cpp of smartmontools 5 to 7,
nvidia-persistenced.c, systemd's core/unit.c and oom/oomd-manager.c, public logs.
"""

from parsers.kernel_messages.family import MessageFamily, MessageForm, decoder, signs

TAGS = ("smartd", "nvidia-persistenced", "systemd", "systemd-oomd")

_DISK = r"Device: /dev/(?P<name>[\w/-]{1,40})(?: \[[^\]]{1,40}\])?, "
_UNIT = (
    r"(?P<name>nvidia-(?:persistenced|fabricmanager|dcgm|imex)|dcgm|slurmd|munge|kubelet|containerd|docker|crio|openibd"
    r"|gpfs|weka-agent|beegfs-client|lnet)\.service"
)

DAEMON_FORMS = (
    MessageForm("SMART self-check", rf"{_DISK}FAILED SMART self-check", "disk_health", "disk", variant="failing"),
    MessageForm(
        "Critical Warning (0x",
        rf"{_DISK}Critical Warning \((?P<status>0x02)\): (?P<reason>.{{1,80}})",
        "disk_health",
        "disk",
    ),
    MessageForm(
        "Critical Warning (0x",
        rf"{_DISK}Critical Warning \((?P<status>0x(?!00)[0-9a-fA-F]{{2}})\): (?P<reason>.{{1,80}})",
        "disk_health",
        "disk",
        variant="failing",
    ),
    MessageForm(
        "Currently unreadable (pending)",
        rf"{_DISK}(?P<count>\d{{1,12}}) (?P<reason>Currently unreadable \(pending\) sectors)",
        "disk_health",
        "disk",
    ),
    MessageForm(
        "Offline uncorrectable sectors",
        rf"{_DISK}(?P<count>\d{{1,12}}) (?P<reason>Offline uncorrectable sectors)",
        "disk_health",
        "disk",
    ),
    MessageForm(
        "Failed SMART usage Attribute",
        rf"{_DISK}Failed SMART usage Attribute: (?P<reason>\d{{1,3}} [\w-]{{1,60}})",
        "disk_health",
        "disk",
    ),
    MessageForm(
        "error count increased from",
        rf"{_DISK}(?P<reason>(?:Self-Test Log|ATA|SCSI) error count increased) from \d{{1,12}} to "
        r"(?P<count>\d{1,12})",
        "disk_health",
        "disk",
    ),
    MessageForm(
        "new Self-Test Log error",
        rf"{_DISK}(?P<reason>new Self-Test Log error) at hour",
        "disk_health",
        "disk",
    ),
    MessageForm(
        ", unable to open ",
        rf"{_DISK}(?P<reason>unable to open (?:ATA|SCSI|NVMe) device)",
        "disk_health",
        "disk",
    ),
    MessageForm("Failed to query NVIDIA devices", r"Failed to query NVIDIA devices", "node_service", variant="driver"),
    MessageForm("find any NVIDIA devices", r"Unable to find any NVIDIA devices", "gpu_missing", "gpu"),
    MessageForm(
        "Failed to open libnvidia-cfg", r"Failed to open libnvidia-cfg\.so\S{0,20}: ", "node_service", variant="driver"
    ),
    MessageForm(
        "- failed to open",
        r"device (?P<pci>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) - failed to open",
        "nvrm_init_failure",
        "gpu",
    ),
    MessageForm(
        ".service: Failed with result", rf"{_UNIT}: Failed with result '(?P<state>[\w-]{{1,40}})'", "node_service"
    ),
    MessageForm(".service entered failed state", rf"Unit {_UNIT} entered failed state", "node_service"),
    MessageForm(
        " due to memory pressure for ",
        r"Killed (?P<name>/\S{1,300}) due to memory pressure for (?P<reason>.{1,120})",
        "oom_kill",
    ),
    MessageForm(
        " due to memory used (", r"Killed (?P<name>/\S{1,300}) due to (?P<reason>memory used \(.{1,160})", "oom_kill"
    ),
)
DAEMONS = MessageFamily("daemons", signs(DAEMON_FORMS), decoder(DAEMON_FORMS), tags=frozenset(TAGS))

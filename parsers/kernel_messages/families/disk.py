"""Disks and what is built of them: NVMe, SCSI, ATA, their controllers, md, multipath.

    nvme nvme0: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff
    -> Event(kind="nvme_reset", device=Device("disk"), attributes={"name": "nvme0", "csts": "0xffffffff", ...})

Forms: drivers/nvme/host/{core,pci}.c, block/blk-core.c, fs/buffer.c, drivers/scsi (megaraid, mpt3sas), drivers/ata,
drivers/md of Linux 3.10 to 6.16.
"""

from parsers.kernel_messages.family import PCI, MessageFamily, MessageForm, decoder, signs

_NVME = r"nvme (?P<name>nvme\d{1,5})(?:: | )"
# Floppies, optical and virtual drives: their errors are an empty drive.
_REMOVABLE = r"(?:fd|sr|nbd|loop)\d{1,3}\b"

DISK_FORMS = (
    MessageForm(
        " QID ",
        rf"{_NVME}I/O (?:tag )?(?P<tag>\d{{1,9}}) .{{0,80}}?QID (?P<queue>\d{{1,6}}) timeout, (?P<state>aborting"
        r"|reset controller|disable controller|completion polled)",
        "nvme_timeout",
        device="disk",
    ),
    MessageForm(
        "controller is down; will reset",
        rf"{_NVME}controller is down; will reset: CSTS=(?P<csts>0x[0-9a-f]{{1,8}})(?:, PCI_STATUS=?"
        r"(?P<pci_status>0x[0-9a-f]{1,8})?)?",
        "nvme_reset",
        device="disk",
    ),
    MessageForm(
        "frozen state error detected",
        rf"{_NVME}frozen state error detected, reset controller",
        "nvme_reset",
        device="disk",
    ),
    MessageForm(
        "Device not ready; aborting",
        rf"{_NVME}Device not ready; aborting (?P<operation>\w{{1,20}})(?:, CSTS=(?P<csts>0x[0-9a-f]{{1,8}}))?",
        "nvme_not_ready",
        device="disk",
    ),
    MessageForm(
        "Identify Controller failed",
        rf"{_NVME}Identify Controller failed \((?P<err>-?\d{{1,6}})\)",
        "nvme_not_ready",
        device="disk",
    ),
    MessageForm(
        "failure status: -",
        rf"{_NVME}Removing after probe failure status: (?P<err>-\d{{1,6}})",
        "nvme_lost",
        device="disk",
    ),
    MessageForm(
        "driver nvme failed",
        rf"nvme {PCI}: probe with driver nvme failed with error (?P<err>-\d{{1,6}})",
        "nvme_lost",
        device="disk",
    ),
    MessageForm(
        "nvme: probe of ", rf"nvme: probe of {PCI} failed with error (?P<err>-\d{{1,6}})", "nvme_lost", device="disk"
    ),
    MessageForm(
        "after reset failure: -",
        rf"{_NVME}Disabling device after reset failure: (?P<err>-\d{{1,6}})",
        "nvme_lost",
        device="disk",
    ),
    MessageForm(
        " (sct 0x",
        r"(?P<name>nvme\w{1,24}): (?P<operation>[\w /]{1,40})\(0x[0-9a-f]{1,4}\) @ LBA (?P<sector>\d{1,18}), \d{1,9} "
        r"blocks, (?P<error>.{1,80}?) \(sct (?P<sct>0x[0-9a-f]{1,4}) / sc (?P<sc>0x[0-9a-f]{1,4})\)",
        "disk_error",
        device="disk",
    ),
    MessageForm(
        "starting error recovery",
        rf"{_NVME}starting error recovery",
        "nvme_path",
        device="disk",
    ),
    MessageForm(
        "no available path - failing I/O",
        r"block (?P<name>nvme\w{1,24}): no available path - failing I/O",
        "nvme_path",
        device="disk",
        variant="none_left",
    ),
    MessageForm(
        "beyond end of device",
        r"(?:(?P<process>[^\s:]{1,64}(?::\d{1,4})?): )?attempt to access beyond end of device",
        "disk_error",
        device="disk",
        variant="beyond_end",
    ),
    MessageForm(
        "Failed reconnect attempt",
        rf"{_NVME}Failed reconnect attempt (?P<attempt>\d{{1,6}})",
        "nvme_path",
        device="disk",
    ),
    MessageForm(" error, dev ", rf".{{0,40}}?error, dev {_REMOVABLE}", ""),
    MessageForm(
        " error, dev ",
        r"(?:(?:blk_update_request|print_req_error|end_request): )?(?P<error>I/O|critical (?:medium|target|nexus"
        r"|space allocation)|timeout|protection|device offline|recoverable transport|zone resource) error, dev "
        r"(?P<name>[\w!-]{1,40}), sector (?P<sector>\d{1,18})(?: op (?P<operation>0x[0-9a-f]{1,4}:\(\w{1,24}\)))?",
        "disk_error",
        device="disk",
        by="error",
    ),
    MessageForm("I/O error", rf"Buffer I/O error on (?:dev|device) {_REMOVABLE}", ""),
    MessageForm(
        "I/O error",
        r"Buffer I/O error on (?:dev|device) (?P<name>[\w!-]{1,40}), logical block (?P<block>\d{1,20})(?:, "
        r"(?P<operation>[\w ]{1,60}))?",
        "buffer_io_error",
        device="disk",
    ),
    MessageForm(
        "I/O error", r"lost page write due to I/O error on (?P<name>[\w!-]{1,40})", "buffer_io_error", device="disk"
    ),
    MessageForm(
        "Sense Key : ",
        r"sd (?P<address>[\d:]{3,20}): \[(?P<name>\w{1,24})\] (?:tag#\d{1,6} )?Sense Key : (?P<error>Medium "
        r"Error|Hardware Error|Aborted Command)",
        "disk_error",
        device="disk",
    ),
    # What the disk itself answers (DID_OK) is told by its sense key; DID_REQUEUE and the like are tried again.
    MessageForm(
        "FAILED Result: hostbyte=",
        r"sd (?P<address>[\d:]{3,20}): \[(?P<name>\w{1,24})\] (?:tag#\d{1,6} )?FAILED Result: hostbyte="
        r"(?P<error>DID_(?:NO_CONNECT|BUS_BUSY|TIME_OUT|BAD_TARGET|ABORT|PARITY|ERROR|RESET|SOFT_ERROR"
        r"|TRANSPORT_(?:DISRUPTED|FAILFAST|MARGINAL)))\b",
        "disk_error",
        device="disk",
        variant="transport",
    ),
    MessageForm(
        "FW in FAULT state",
        rf"(?P<driver>megaraid_sas) {PCI}: (?:Found )?FW in FAULT state(?:, Fault code:"
        r"(?P<fault_code>0x[0-9a-f]{1,8}) subcode:(?P<subcode>0x[0-9a-f]{1,8}))?",
        "disk_controller",
        device="disk",
    ),
    # The controller's own events above a warning: a volume gone offline, cached writes that no volume takes.
    MessageForm(
        "/FATAL) - ",
        rf"(?P<driver>megaraid_sas) {PCI}: \d{{1,10}} \(\d{{1,12}}s/0x[0-9a-f]{{4}}/FATAL\) - (?P<error>.{{1,200}})",
        "disk_controller",
        device="disk",
        variant="event",
    ),
    MessageForm(
        "killing adapter scsi",
        rf"(?P<driver>megaraid_sas) {PCI}: Reset (?:failed|not supported), killing adapter (?P<name>scsi\d{{1,4}})",
        "disk_controller",
        device="disk",
        variant="lost",
    ),
    MessageForm(
        "Reset successful for scsi",
        rf"(?P<driver>megaraid_sas) {PCI}: Reset successful for (?P<name>scsi\d{{1,4}})",
        "disk_controller",
        device="disk",
        variant="recovered",
    ),
    MessageForm(
        "fault_state(0x",
        r"(?P<name>(?P<driver>mpt[23]sas)_cm\d{1,3}): fault_state\((?P<fault_code>0x[0-9a-f]{1,8})\)!",
        "disk_controller",
        device="disk",
    ),
    MessageForm(
        "SAS host is non-operational",
        r"(?P<name>(?P<driver>mpt[23]sas)_cm\d{1,3}): SAS host is non-operational",
        "disk_controller",
        device="disk",
    ),
    MessageForm(
        "diag reset: FAILED",
        r"(?P<name>(?P<driver>mpt[23]sas)_cm\d{1,3}): diag reset: FAILED",
        "disk_controller",
        device="disk",
        variant="lost",
    ),
    MessageForm(
        "rejecting I/O to ",
        r"sd (?P<address>[\d:]{3,20}): (?:\[(?P<name>\w{1,24})\] )?rejecting I/O to (?P<state>offline|dead) device",
        "disk_lost",
        device="disk",
    ),
    MessageForm(
        "Device offlined - not ready",
        r"(?:sd|scsi) (?P<address>[\d:]{3,20}): (?:\[(?P<name>\w{1,24})\] )?Device offlined - not ready after error "
        r"recovery",
        "disk_lost",
        device="disk",
    ),
    MessageForm(
        "Offlining disk!",
        r"sd (?P<address>[\d:]{3,20}): \[(?P<name>\w{1,24})\] Medium access timeout failure\. Offlining disk!",
        "disk_lost",
        device="disk",
    ),
    MessageForm(
        ": exception Emask",
        r"(?P<name>ata\d{1,4}(?:\.\d{2})?): exception Emask (?P<emask>0x[0-9a-f]{1,8}) SAct (?P<sact>0x[0-9a-f]{1,8})",
        "disk_error",
        device="disk",
        variant="ata",
    ),
    MessageForm(
        "COMRESET failed",
        r"(?P<name>ata\d{1,4}): COMRESET failed \(errno=(?P<err>-\d{1,6})\)",
        "disk_error",
        device="disk",
        variant="ata",
    ),
    MessageForm(
        "reset failed, giving up", r"(?P<name>ata\d{1,4}): reset failed, giving up", "disk_lost", device="disk"
    ),
    MessageForm(
        "Disk failure on ",
        r"md/raid(?P<level>\d{0,2}):?(?P<name>[a-z][\w-]{0,39}): Disk failure on (?P<disk>[\w-]{1,40})(?: detected)?, "
        r"(?P<state>failing array)",
        "raid_failed",
        device="disk",
    ),
    MessageForm(
        "Disk failure on ",
        r"md/raid(?P<level>\d{0,2}):?(?P<name>[a-z][\w-]{0,39}): Disk failure on (?P<disk>[\w-]{1,40}), disabling",
        "raid_degraded",
        device="disk",
    ),
    MessageForm(
        "kicking non-fresh ", r"md: kicking non-fresh (?P<disk>[\w-]{1,40}) from array", "raid_degraded", device="disk"
    ),
    # A whole array says the same with equal numbers.
    MessageForm(
        " active with ",
        r"md/raid(?P<level>\d{0,2}):(?P<name>[\w-]{1,40}): (?:raid level \d{1,2} )?active with (?P<working>\d{1,4}) "
        r"out of (?!(?P=working)\b)(?P<disks>\d{1,4}) (?:mirrors|devices)",
        "raid_degraded",
        device="disk",
    ),
    MessageForm(
        "multipath: ",
        r"device-mapper: multipath: (?P<map>[\d:]{3,16}): (?P<state>Failing|Reinstating) path "
        r"(?P<name>[\w:.-]{1,40}?)\.?$",
        "multipath_path",
        device="disk",
        by="state",
        words={"failing": "down", "reinstating": "up"},
    ),
)

DISK = MessageFamily("disk", signs(DISK_FORMS), decoder(DISK_FORMS))

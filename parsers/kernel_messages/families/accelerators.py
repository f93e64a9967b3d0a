"""Accelerators of AMD, Huawei, Cambricon, Intel (GPUs, Gaudi) and MetaX: memory errors, dead firmware, resets.

    habanalabs hl3: HBM0_MC0_DERR: ECC error detected. address: 0x1001. Syndrome: 0x3. wrapper id 2. block id 0x41.
    critical 1.
    -> Event(kind="habana_ecc", severity="fatal", device=Device("hpu", index=3), attributes={"unit": "HBM0_MC0_DERR",
    "critical": 1})

Forms: the kernel's drivers/accel/habanalabs (common/device.c, gaudi2/gaudi2.c, gaudi/gaudi.c). The device is named by
its character device (hl3, accel3) or its PCI address.
"""

import re

from parsers.kernel_messages.family import PCI, MessageFamily, MessageForm, decoder, signs
from store.records.event import Attribute, Device, Event, canonical_pci
from store.records.fault_catalog import with_ascend_code, with_kind_meaning, with_mlu_xid

# AMD's GPU driver: memory and link errors (RAS), retired pages, resets, hung rings, page faults, heat, GPUs gone.
#
#     amdgpu 0000:0b:00.0: amdgpu: {41} socket: 0, die: 1, 3 new uncorrectable hardware errors detected in umc block
#     -> Event(kind="gpu_ras", severity="error", device=Device("gpu", pci="0000:0b:00.0"),
#              attributes={"socket": 0, "die": 1, "count": 3, "block": "umc"})
#
# Forms: the kernel's drivers/gpu/drm/amd (amdgpu_ras.c, amdgpu_ras_eeprom.c, ras/rascore, amdgpu_xgmi.c,
# amdgpu_device.c, amdgpu_job.c, gmc_v*.c, smu_cmn.c, smu_v1*_0.c, kfd_device_queue_manager.c, mes_v1*.c).
# The all-clear says "no uncorrectable hardware errors detected": only a count before the words is a fault. Totals say
# again what the count of the new ones said. 1,048,560 corrected errors (0xFFFF0) are a register that nobody filled.

BOGUS_COUNT = 1_048_560

_AMDGPU_HEAD = re.compile(
    r"(?:kfd kfd: )?(?:amdgpu (?P<pci>[0-9a-fA-F:.]{7,16}): )?(?:amdgpu: )?(?:\[drm(?::[\w.]{1,80} \[amdgpu\])?\] ?)?"
    r"(?:\*ERROR\* )?(?:amdgpu: )?(?:\{\d{1,20}\} ?)?",
    re.ASCII,
)
_CHIPLET = r"(?:socket: (?P<socket>\d{1,4}), die: (?P<die>\d{1,4}),? )?"
_FAULT = (r"(?P<count>\d{1,18}) (?:new )?", r" hardware errors detected in {1,2}(?P<block>\w{1,32}) [Bb]lock")
# Kind, variant, and how the text begins. A text that none of them fits tells no fault.
_AMDGPU_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, variant, re.compile(pattern, re.ASCII))
    for kind, variant, pattern in (
        ("gpu_ras", "correctable", _CHIPLET + "correctable".join(_FAULT)),
        ("gpu_ras", "uncorrectable", _CHIPLET + "uncorrectable".join(_FAULT)),
        ("gpu_ras", "deferred", _CHIPLET + "deferred".join(_FAULT)),
        (
            "gpu_ras",
            "poison_consumed",
            _CHIPLET + r"(?P<count>\d{1,18}) new poison consumption detected in (?P<block>\w{1,32}) block",
        ),
        ("gpu_ras", "poison_consumed", r"poison is consumed by client (?P<client>\d{1,9})"),
        ("gpu_ras", "poison_consumed", r"RAS poison consumption,? .{0,80}client id (?P<client>\d{1,9})"),
        ("gpu_ras", "poison_consumed", r"GPU reset for (?P<block>\w{1,32}) RAS poison consumption is issued"),
        ("gpu_ras", "poison_created", r"(?:RAS )?[Pp]oison is created"),
        ("gpu_ras", "fatal", r"[Uu]ncorrectable hardware error ?\(ERREVENT_ATHUB_INTERRUPT\) detected"),
        (
            "gpu_bad_pages",
            "threshold",
            r"Saved bad pages ?\(?(?P<count>\d{1,9})\)? reaches threshold value ?\(?(?P<limit>\d{1,9})",
        ),
        ("gpu_bad_pages", "near", r"RAS records: ?(?P<count>\d{1,9}) exceeds 90% of threshold: ?(?P<limit>\d{1,9})"),
        (
            "gpu_bad_pages",
            "refused",
            r"RAS records: ?(?P<count>\d{1,9}) exceed threshold: ?(?P<limit>\d{1,9}), GPU will not be initialized",
        ),
        ("gpu_bad_pages", "threshold", r"RAS records: ?(?P<count>\d{1,9}) exceed threshold: ?(?P<limit>\d{1,9})"),
        ("gpu_bad_pages", "refused", r"GPU will not be initialized\. Replace this GPU"),
        ("gpu_bad_pages", "near", r"RAS WARN: reserve vram for retired page (?P<page>(?:0x)?[0-9a-f]{1,16}) fail"),
        ("gpu_bad_pages", "near", r"Bad page (?:at |found |detected )?.{0,20}?(?P<page>0x[0-9a-f]{1,16})"),
        ("gpu_reset", "begin", r"GPU reset begin!(?:\. Source: {1,3}(?P<reset_source>\d{1,4}))?"),
        ("gpu_reset", "succeeded", r"GPU reset ?\((?P<count>\d{1,9})\) succeeded"),
        ("gpu_reset", "failed", r"GPU reset ?(?:\((?P<count>\d{1,9})\) )?failed"),
        ("gpu_reset", "failed", r"GPU reset end with ret = (?P<error>-\d{1,9})"),
        ("gpu_reset", "failed", r"GPU Recovery Failed: (?P<error>-?\d{1,9})"),
        ("gpu_reset", "failed", r"(?:ASIC reset failed with error, (?P<error>-?\d{1,9})|[Mm]ode[12] reset failed)"),
        ("gpu_ring_timeout", "recovered", r"ring (?P<ring>[\w.]{1,32}) timeout, but soft recovered"),
        ("gpu_ring_timeout", "", r"ring (?P<ring>[\w.]{1,32}) timeout, signaled seq="),
        (
            "gpu_page_fault",
            "",
            r"\[(?P<hub>\w{1,16})\] (?:(?:no-)?retry )?page fault \(src_id:\d{1,9} ring:\d{1,9} vmid:(?P<vmid>\d{1,9}) "
            r"pasid:\d{1,9}(?:, for process (?P<process>.{0,64}?) pid (?P<pid>\d{1,9}) thread)?",
        ),
        ("xgmi_error", "", r"(?P<error_name>(?:XGMI3X16|XGMI|WAFL) PCS \w{1,40}) detected"),
        ("xgmi_error", "topology", r"XGMI: (?:Set topology failure|Failed to|Get topology)"),
        ("gpu_smu_hang", "", r"SMU: I'm not done with your previous command"),
        ("gpu_smu_hang", "", r"SMU is in hanged state"),
        ("gpu_smu_hang", "", r"SMU: response:0xFFFFFFFF for index"),
        ("gpu_over_temperature", "", r"ERROR: GPU over temperature range ?\(SW CTF\) detected"),
        ("gpu_over_temperature", "critical", r"ERROR: GPU HW Critical Temperature Fault ?\(aka CTF\) detected"),
        ("gpu_over_temperature", "shutdown", r"ERROR: System is going to shutdown due to GPU [SH]W CTF"),
        ("gpu_throttled", "", r"WARN: GPU is throttled"),
        ("gpu_lost", "", r"device lost from bus!"),
        ("gpu_init_failure", "", r"Fatal error during GPU init"),
        ("gpu_init_failure", "", r"probe with driver amdgpu failed with error (?P<error>-?\d{1,9})"),
        ("gpu_init_failure", "", r"probe of (?P<of>[0-9a-f:.]{7,16}) failed with error (?P<error>-?\d{1,9})"),
        ("gpu_queue_hang", "", r"qcm fence wait loop timeout expired"),
        ("gpu_queue_hang", "", r"The cp might be in an unrecoverable state"),
        ("gpu_queue_hang", "", r"MES ?(?:\(\d{1,4}\) ?)?(?:ring buffer is full|failed to respon(?:d to|se) msg)"),
        ("gpu_queue_hang", "", r"MES might be in unrecoverable state"),
        ("gpu_queue_hang", "", r"IP block:(?P<block>\w{1,32}) is hung!"),
        ("gpu_reset", "given_up", r"device wedged, needs recovery"),
    )
)
_AMDGPU_NUMBERS = frozenset({"socket", "die", "count", "limit", "client", "error", "pid", "vmid", "reset_source"})


def decode_amdgpu(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    head = _AMDGPU_HEAD.match(message)
    start = head.end() if head else 0
    for kind, variant, pattern in _AMDGPU_FORMS:
        if not (match := pattern.match(message, start)):
            continue
        if "amdgpu" not in message and kind != "gpu_ras":
            return None  # another driver's ring, reset or probe
        found = {name: value for name, value in match.groupdict().items() if value}
        pci = found.pop("of", None) or (head and head["pci"])
        attributes: dict[str, Attribute] = {
            name: int(value) if name in _AMDGPU_NUMBERS else value for name, value in found.items()
        }
        if attributes.get("count") in (0, BOGUS_COUNT):
            return None
        if attributes.get("pid") == 0:
            del attributes["pid"]
        return with_kind_meaning(
            Event(
                time=None,
                node=None,
                source="kernel",
                kind=kind,
                device=Device(type="gpu", pci=canonical_pci(pci) if pci else None),
                message=message[start:].strip(),
                attributes=attributes,
            ),
            _of_kernel(attributes) if kind == "gpu_page_fault" else variant,
        )
    return None


def _of_kernel(attributes: dict[str, Attribute]) -> str:
    """A fault in the driver's own address space (0) is no program's."""
    return "driver" if attributes.get("vmid") == 0 else ""


AMDGPU = MessageFamily(
    name="amdgpu",
    signs=(
        " hardware errors detected in ",
        "oison is c",
        "oison consumption",
        "ERREVENT_ATHUB_INTERRUPT",
        "reaches threshold value",
        "RAS records:",
        "RAS WARN: reserve",
        "GPU will not be initialized",
        "Bad page ",
        "GPU reset begin",
        "GPU reset for ",
        "GPU reset end with",
        "GPU reset failed",
        "GPU reset(",
        "GPU reset (",
        "GPU Recovery Failed",
        "ode1 reset failed",
        "ode2 reset failed",
        "ASIC reset failed",
        " timeout, signaled seq=",
        " timeout, but soft recovered",
        " page fault (src_id:",
        "XGMI PCS ",
        "XGMI3X16 PCS ",
        "WAFL PCS ",
        "XGMI: ",
        "SMU: I'm not done",
        "SMU is in hanged state",
        "SMU: response:0xFFFFFFFF",
        "(SW CTF)",
        "GPU HW Critical Temperature",
        "shutdown due to GPU",
        "WARN: GPU is throttled",
        "device lost from bus!",
        "Fatal error during GPU init",
        "driver amdgpu failed",
        "amdgpu: probe of",
        "qcm fence wait loop timeout",
        "The cp might be in an unrecoverable",
        "failed to respond to msg=",
        "failed to response msg=",
        "MES might be in unrecoverable",
        "amdgpu: IP block:",
        "device wedged, needs",
        "ring buffer is full",
    ),
    decode=decode_amdgpu,
)


# The Ascend driver: exceptions of an NPU's task scheduler by code, NPUs that the driver cannot talk to.
#
#     [ascend] [ERROR] [tsdrv] [tsdrv_hb_cq_callback 319] <swapper/30:0> receive ts exception msg, call
# excep_code=0xb4060007, ... devid=1 tsid=0
#     -> Event(kind="ascend_fault", code=0xB4060007, severity="error", action="restart_app", device=Device("npu",
# index=1),
#              attributes={"fault_code": "B4060007"})
#
# Forms: the driver's messages in the tests of Ascend mind-cluster's fault diagnosis, and public write-ups.
# Most of the driver's messages are steps of one fault (pointers, registers): they give nothing.

_ASCEND_HEAD = re.compile(
    r"\[ascend\] (?:\[(?:ERROR|WARN|WARNING|EVENT|INFO)\] ?)?\[\w{1,40}\] ?\[\w{1,120} \d{1,6}\] ?(?:<[^>]{0,80}> ?)?",
    re.ASCII,
)
_ASCEND_CODE = re.compile(r"(?:excep_code=|call mntn_system_error: )0x(?P<code>[0-9a-fA-F]{1,9})\b", re.ASCII)
_ASCEND_DEVICE = re.compile(r"\bdev(?:_|ice_)?id[-=: ]{1,2}(?P<index>\d{1,4})\b", re.ASCII)


def decode_ascend(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    head = _ASCEND_HEAD.match(message)
    if not head:
        return None
    text = message[head.end() :].strip()
    device = _ASCEND_DEVICE.search(text)
    event = Event(
        time=None,
        node=None,
        source="kernel",
        kind="npu_abnormal",
        device=Device(type="npu", index=int(device["index"]) if device else None),
        message=text,
    )
    if code := _ASCEND_CODE.search(text):
        return with_ascend_code(event, code["code"])
    return with_kind_meaning(event) if text.startswith("Device is abnormal") else None


ASCEND = MessageFamily(
    name="ascend",
    signs=("call excep_code=0x", "call mntn_system_error: 0x", "> Device is abnormal"),
    decode=decode_ascend,
)


# Cambricon's driver: Xids of its own numbers, which have nothing to do with NVIDIA's.
#
#     CNRM: Xid [Card3]: 15, mc[2] ECC multiple error
#     -> Event(kind="mlu_xid", code=15, severity="error", device=Device("mlu", index=3))
#
# Forms: Cambricon's driver, include/cndrv_xid.h (`cn_xid_err`) and core (`Card%d`, `Card%d-MI%d` of an instance; N/A
# where the driver has no card yet). The numbers: cndev.h, cndevXidEnum_t.

_CNRM = re.compile(
    r"CNRM: Xid \[(?:Card(?P<index>\d{1,4})(?:-MI(?P<instance>\d{1,4}))?|[^\]]{1,40})\]: (?P<code>\d{1,9}),? ?",
    re.ASCII,
)


def decode_cambricon(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    if not (match := _CNRM.match(message)):
        return None
    attributes: dict[str, Attribute] = {"instance": int(match["instance"])} if match["instance"] else {}
    event = Event(
        time=None,
        node=None,
        source="kernel",
        kind="mlu_xid",
        device=Device(type="mlu", index=int(match["index"]) if match["index"] else None),
        message=message[match.end() :].strip(),
        attributes=attributes,
    )
    return with_mlu_xid(event, int(match["code"]))


CAMBRICON = MessageFamily(name="cambricon", signs=("CNRM: Xid [",), decode=decode_cambricon)


_HABANALABS_HEAD = re.compile(
    r"(?:habanalabs: (?=Failed to init)|(?:habanalabs|accel) (?:(?:hl|accel)(?P<index>\d{1,4})"
    r"|(?P<pci>[0-9a-fA-F:.]{7,16})): )"
    r"(?:(?P<unit>[A-Z][A-Z0-9_]{2,80}): )?",
    re.ASCII,
)
_HABANALABS_UNUSABLE = (
    r"Failed to initialize (?:hl|accel)(?P<index>\d{1,4})\. Device (?:(?P<pci>[0-9a-f:.]{7,16}) )?is NOT usable"
)
_HABANALABS_FORMS: tuple[tuple[str, str, re.Pattern[str]], ...] = tuple(
    (kind, variant, re.compile(pattern, re.ASCII))
    for kind, variant, pattern in (
        ("habana_ecc", "critical", r"ECC error detected\..{0,200}critical (?P<critical>[1-9])"),
        ("habana_ecc", "uncorrectable", r"ECC error detected\."),
        ("habana_hbm", "", r"System Error Interrupt - HBM\((?P<hbm>\d{1,4})\) MC\((?P<mc>\d{1,4})\)"),
        ("habana_heartbeat_lost", "link", r"Device heartbeat failed! PCI link is broken"),
        ("habana_heartbeat_lost", "", r"Device heartbeat failed!"),
        ("gpu_reset", "begin", r"Going to (?:reset|RESET) device(?:!|$|\n)"),
        ("gpu_reset", "succeeded", r"Successfully finished resetting the"),
        ("gpu_reset", "failed", r"(?:(?P<pci>[0-9a-f:.]{7,16}) )?Failed to reset! Device is NOT usable"),
        ("gpu_init_failure", "", _HABANALABS_UNUSABLE),
    )
)
_HABANALABS_NUMBERS = frozenset({"critical", "hbm", "mc"})


def decode_habanalabs(message: str) -> Event | None:
    """The event of the driver's message, without time and node; None where it tells no fault."""
    head = _HABANALABS_HEAD.match(message)
    if not head:
        return None
    for kind, variant, pattern in _HABANALABS_FORMS:
        if match := pattern.match(message, head.end()):
            attributes: dict[str, Attribute] = {"unit": head["unit"]} if head["unit"] else {}
            attributes |= {name: int(value) for name, value in match.groupdict().items() if name in _HABANALABS_NUMBERS}
            corrected = variant == "uncorrectable" and (head["unit"] or "").endswith("SERR")
            named = match.groupdict()
            pci, index = (head[name] or named.get(name) for name in ("pci", "index"))
            event = Event(
                time=None,
                node=None,
                source="kernel",
                kind=kind,
                device=Device(
                    type="hpu",
                    pci=canonical_pci(pci) if pci else None,
                    index=int(index) if index else None,
                ),
                message=message[head.end() :].strip(),
                attributes=attributes,
            )
            return with_kind_meaning(event, "correctable" if corrected else variant)
    return None


HABANALABS = MessageFamily(
    name="habanalabs",
    signs=(
        "ECC error detected. address",
        "System Error Interrupt - HBM",
        "Device heartbeat failed!",
        "Going to reset device",
        "Going to RESET device",
        "Successfully finished resetting the",
        "is NOT usable",
    ),
    decode=decode_habanalabs,
)


# MetaX: a queue of work that the driver cannot make; its library tries again every ten seconds, and programs wait.
#
#     [MXKW][E]queues.c:826: [mxkwCreateQueueBlock][Hint]ioctl create queue block timeout, gpu_id:40963 type:21.
#     -> Event(kind="gpu_queue_hang", device=Device("gpu"), attributes={"gpu_id": "40963", "type": "21", ...})
#
# Form: public notes of MetaX's users; no other line of the driver was found. `gpu_id` is the driver's own number.

METAX_FORMS = (
    MessageForm(
        "create queue block timeout",
        r"\[MXKW\]\[E\] ?(?:(?P<where>\w{1,40}\.c:\d{1,6}):? ?)?(?:\[?(?P<function>\w{1,60})\]?(?:\[Hint\])? ?)?"
        r"ioctl create queue block timeout(?:, gpu_id:(?P<gpu_id>\d{1,10}) type:(?P<type>\d{1,4}))?",
        "gpu_queue_hang",
        device="gpu",
    ),
)

METAX = MessageFamily("metax", signs(METAX_FORMS), decoder(METAX_FORMS))


# Intel's GPUs: jobs that do not end, engines that are reset, a GPU that the driver gives up.
#
#     xe 0000:03:00.0: [drm] Tile0: GT0: Engine reset: engine_class=ccs, logical_mask: 0x1, guc_id=2
#     -> Event(kind="gpu_reset", severity="warning", device=Device("gpu", pci="0000:03:00.0"),
#              attributes={"engine": "ccs"})
#
# Forms: drivers/gpu/drm/xe (xe_guc_submit.c, xe_gt.c, xe_device.c) of Linux 6.8 to 6.16.

_XE = rf"(?P<driver>xe) {PCI}: \[drm\] (?:\*ERROR\* )?(?:Tile\d{{1,2}}: )?"
XE_FORMS = (
    MessageForm(
        "Engine reset: engine_class",
        rf"{_XE}GT(?P<gt>\d{{1,2}}): Engine reset: engine_class=(?P<engine>\w{{1,16}})",
        "gpu_reset",
        device="gpu",
        variant="engine",
    ),
    MessageForm(
        "Timedout job: seqno",
        rf"{_XE}GT(?P<gt>\d{{1,2}}): Timedout job: seqno=\d{{1,12}}(?:.{{0,120}}? in (?P<process>[^\[\]]{{1,64}}?) "
        r"\[(?P<pid>\d{1,10})\])?",
        "gpu_ring_timeout",
        device="gpu",
    ),
    MessageForm(
        ": reset failed (",
        rf"{_XE}GT(?P<gt>\d{{1,2}}): reset failed \((?P<error>-?\w{{1,24}})\)",
        "gpu_reset",
        device="gpu",
        variant="failed",
    ),
    MessageForm(
        "Xe has declared device",
        rf"{_XE}CRITICAL: Xe has declared device \S{{1,40}} as wedged",
        "gpu_reset",
        device="gpu",
        variant="given_up",
    ),
    # Of the common part of drivers since 6.15; after a reset that helped it says so.
    MessageForm(
        "device wedged, needs recovery",
        rf"(?P<driver>xe|amdgpu) {PCI}: \[drm\] device wedged, needs recovery",
        "gpu_reset",
        device="gpu",
        variant="given_up",
    ),
)

XE = MessageFamily("xe", signs(XE_FORMS), decoder(XE_FORMS))

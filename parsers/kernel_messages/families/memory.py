"""Memory: EDAC by DIMM, machine checks, the firmware's reports (APEI), offline pages, and memory that ran out.

    EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x5d8 offset:0x0 ...)
    -> Event(kind="edac", severity="warning", device=Device("dimm"),
             attributes={"severity": "ce", "dimm": "CPU_SrcID#0_MC#0_Chan#1_DIMM#0", "count": 1, "mc": 0, ...})

Forms: drivers/edac/edac_mc.c, edac_device.c and mce_amd.c, arch/x86/kernel/cpu/mce, drivers/firmware/efi/cper*.c,
drivers/acpi/apei/ghes.c and mm/memory-failure.c of Linux 2.6.32 to 6.16.
"""

from dataclasses import replace

from parsers.kernel_messages.family import MessageFamily, MessageForm, decoder, signs
from store.records.event import Device, Event
from store.records.fault_catalog import with_kind_meaning

_HARDWARE = r"(?:mce: )?(?:\{\d{1,9}\})?\[Hardware Error\]: "
_STATUS = r"(?P<status>(?:0x)?[0-9a-f]{8,16})"
# Bits of an x86 machine-check status register (Intel SDM volume 3, IA32_MCi_STATUS; AMD APM volume 2, MCA_STATUS).
_UNCORRECTED, _CONTEXT_CORRUPT = 1 << 61, 1 << 57

MEMORY_FORMS = (
    # Not "EDAC MC": each controller says so at every boot.
    *(
        MessageForm(sign, text, "edac", device="dimm", by="severity")
        for sign in (" CE ", " UE ")
        for text in (
            r"EDAC MC(?P<mc>\d{1,4}): (?P<count>\d{1,6}) (?P<severity>CE|UE) (?P<error>.{0,300}?)\bon "
            r"(?P<dimm>[^()]{1,400})(?:\((?P<detail>[^()]{0,600}))?",
            r"EDAC MC(?P<mc>\d{1,4}): (?P<severity>CE|UE)(?: - no information available)?(?: page 0x"
            r"(?P<page>[0-9a-f]{1,16}))?(?P<detail>[^\"]{0,200}?)(?:labels? \"(?P<dimm>[^\"]{0,200})\"|$)",
        )
    ),
    MessageForm(
        "EDAC DEVICE",
        r"EDAC DEVICE(?P<mc>\d{1,4}): (?P<severity>CE|UE): (?P<controller>.{0,80}?) ?instance: (?P<instance>.{0,80}?) "
        r"block: (?P<dimm>.{0,80}?)(?: count: (?P<count>\d{1,9}))? '",
        "edac",
        device="dimm",
        by="severity",
    ),
    MessageForm(
        "Machine Check",
        rf"(?:{_HARDWARE}|EDAC \w{{1,20}} MC\d{{1,4}}: )?CPU (?P<cpu>\d{{1,5}}): Machine Check(?: Event|(?P<exception> "
        "Exception))?: *"
        rf"(?P<mcgstatus>[0-9a-f]{{1,16}}) Bank (?P<bank>\d{{1,4}}): *{_STATUS}",
        "mce",
        device="cpu",
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}(?P<state>Corrected error, no action required|Deferred error, no action required|Uncorrected, "
        r"software \w{1,16} error|System Fatal error)",
        "mce",
        device="cpu",
        by="state",
        words={
            "corrected error, no action required": "corrected",
            "deferred error, no action required": "deferred",
            "uncorrected, software containable error": "uncorrected",
            "uncorrected, software restartable error": "uncorrected",
            "uncorrected, software recoverable error": "uncorrected",
            "system fatal error": "fatal",
        },
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}CPU:(?P<cpu>\d{{1,5}}) \((?P<model>[0-9a-f:]{{1,16}})\) MC(?P<bank>\d{{1,4}})_STATUS\["
        rf"(?P<flags>[^\]]{{0,120}})\]: {_STATUS}",
        "mce",
        device="cpu",
    ),
    MessageForm(
        "[Hardware Error]: ", rf"{_HARDWARE}Machine check events logged", "mce", device="cpu", variant="logged"
    ),
    MessageForm(
        "CMCI storm detected",
        r"(?:mce: )?(?:CPU (?P<cpu>\d{1,5}) BANK (?P<bank>\d{1,4}) )?CMCI storm detected",
        "mce",
        device="cpu",
        variant="storm",
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}(?:TSC:? (?P<tsc>[0-9a-f]{{1,20}})|RIP )(?:.{{0,80}}?ADDR (?P<address>[0-9a-f]{{1,16}}))?",
        "mce_detail",
        device="cpu",
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}PROCESSOR (?P<processor>[0-9a-f:]{{1,16}}) TIME \d{{1,12}} SOCKET (?P<socket>\d{{1,3}}) APIC "
        r"(?P<apic>[0-9a-f]{1,8})",
        "mce_detail",
        device="cpu",
    ),
    MessageForm(
        "[Hardware Error]: ", rf"{_HARDWARE}Error Addr: (?P<address>0x[0-9a-f]{{1,16}})", "mce_detail", device="cpu"
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}(?P<unit>[A-Z][\w /-]{{2,60}}?) (?:Ext\. Error Code|Extended Error Code): \d{{1,3}}(?:, "
        r"(?P<error>[^.]{1,120}))?",
        "mce_detail",
        device="cpu",
    ),
    # Without a number in braces it is what the firmware kept of an error before this boot (drivers/acpi/apei/bert.c).
    MessageForm(
        "[Hardware Error]: ",
        r"\[Hardware Error\]: event severity: (?P<severity>fatal|recoverable)\b",
        "ghes",
        variant="previous",
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE}(?:APEI generic hardware error status: )?(?:event )?severity: (?:\d, )?(?P<severity>fatal"
        r"|recoverable|corrected|info)\b",
        "ghes",
        by="severity",
    ),
    MessageForm(
        "[Hardware Error]: ", rf"{_HARDWARE} {{1,6}}section_?type: (?P<section>[\w ,/-]{{1,60}})", "ghes_detail"
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE} {{1,6}}device_id: (?P<pci>[0-9a-f]{{4}}:[0-9a-f]{{2}}:[0-9a-f]{{2}}\.[0-7])",
        "ghes_detail",
        device="pci",
    ),
    MessageForm(
        "[Hardware Error]: ",
        rf"{_HARDWARE} {{1,6}}(?:error_type: \d{{1,3}}, (?P<error>[\w ,/-]{{1,60}})|physical_address: "
        r"(?P<address>0x[0-9a-f]{1,16})|fru_text: (?P<fru>.{1,60})|DIMM location: (?P<dimm>.{1,80}?)(?:\. DMI "
        r"handle.{0,20})?)$",
        "ghes_detail",
    ),
    MessageForm(
        "Memory failure: 0x",
        r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): recovery action for (?P<target>[\w -]{1,60}): (?P<state>Ignored"
        r"|Failed|Delayed|Recovered)",
        "memory_failure",
        device="dimm",
        by="state",
    ),
    MessageForm(
        "Memory failure: 0x",
        r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): unhandlable page",
        "memory_failure",
        device="dimm",
        variant="ignored",
    ),
    MessageForm(
        "Memory failure: 0x",
        r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): (?:Killing|Sending SIGBUS to) (?P<process>.{1,64}):"
        r"(?P<pid>\d{1,10}) due to hardware memory corruption",
        "memory_failure",
        device="dimm",
        variant="killed",
    ),
    MessageForm(
        "hardware memory error in",
        r"(?:mce: )?Uncorrected hardware memory error in (?P<target>[\w-]{1,24}) at (?P<address>[0-9a-f]{1,16})",
        "memory_failure",
        device="dimm",
        variant="uncorrected",
    ),
    MessageForm(
        "offlining pfn",
        r"(?:RAS: )?[Ss]oft[- ]offlining pfn:? (?P<page>(?:0x)?[0-9a-f]{1,16})",
        "page_offlined",
        device="dimm",
    ),
)

_decode = decoder(MEMORY_FORMS)


def decode(message: str) -> Event | None:
    """The event of a message; a machine check is judged by the bits of its status."""
    event = _decode(message)
    if event is not None and event.attributes.get("state") == "fatal" and event.kind == "mce":
        # AMD's verdict is printed of records that are read from the banks. One that the processor cannot go on from
        # is an exception: the kernel prints that itself and stops. What it reads instead is from before its boot.
        return with_kind_meaning(event, "previous")
    if event is None or event.kind != "mce" or not isinstance(status := event.attributes.get("status"), str):
        return event
    bits = int(status, 16)
    if bits & _CONTEXT_CORRUPT or event.attributes.get("exception"):
        return with_kind_meaning(event, "fatal")
    return with_kind_meaning(event, "uncorrected" if bits & _UNCORRECTED else "corrected")


def merge_memory(head: Event, later: Event) -> Event | None:
    """A machine check or a firmware's report with its details; AMD's verdict with the line of its registers."""
    kind = later.kind.removesuffix("_detail")
    if kind != head.kind or kind not in ("mce", "ghes"):
        return None
    known = head.attributes
    if kind == later.kind and not _is_amds_word(head, later):
        return None
    added = {key: value for key, value in later.attributes.items() if key not in known}
    whole = replace(head, attributes={**known, **added})
    if kind == "mce" and added.get("tsc") == "0" and head.severity == "fatal" and not known.get("exception"):
        # No exception was taken, and the kernel found it while it looked without a clock: at its boot (`bootlog` in
        # arch/x86/kernel/cpu/mce/core.c). What stops a processor is never found by a later look.
        return with_kind_meaning(whole, "previous")
    if kind == "mce" and known.get("state") == "fatal" and added.get("tsc", "0") != "0":
        return with_kind_meaning(whole, "fatal")  # found by a clock: by a kernel that ran
    if later.device.pci is not None:
        return replace(whole, device=Device(type="pci", pci=later.device.pci))
    if "dimm" in added or added.get("section") == "memory error":
        return replace(whole, device=Device(type="dimm"))
    return whole


def _is_amds_word(head: Event, later: Event) -> bool:
    """Whether AMD's decoder goes on of a machine check: its verdict's registers, or both after an exception's line."""
    known, added = head.attributes, later.attributes
    if known.get("exception"):
        return ("state" in added and "state" not in known) or (
            "flags" in added and added.get("bank") == known.get("bank")
        )
    return "state" in known and "cpu" not in known and "flags" in added


MEMORY = MessageFamily("memory", signs(MEMORY_FORMS), decode, merge_memory, heads=frozenset({"mce", "ghes"}))


# Memory that ran out: the out-of-memory killer, its victims, allocations that failed.
#
#     oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/docker/abc123,task=postgres,pid=12345,uid=1000
#     Memory cgroup out of memory: Killed process 12345 (postgres) total-vm:1048576kB, anon-rss:524288kB, ...
#     -> one Event(kind="oom_kill", cause="application", attributes={"process": "postgres", "pid": 12345, ...})
#
# A limit of a job's own (CONSTRAINT_MEMCG) is the application's matter; a node without memory is the host's.
# Forms: mm/oom_kill.c and mm/page_alloc.c of Linux 2.6.32 to 6.16.

MEMORY_PRESSURE_FORMS = (
    MessageForm(
        "oom-kill:constraint=",
        r"oom-kill:constraint=(?P<constraint>CONSTRAINT_\w{1,24}),nodemask=[^,]{0,60}(?:,\d[\d,-]{0,200})?,cpuset="
        r"(?P<cpuset>[^,]{0,400}),mems_allowed=[\d,-]{0,200}(?:,global_oom)?(?:,oom_memcg=(?P<oom_memcg>[^,]{0,500}))?"
        r"(?:,task_memcg=(?P<task_memcg>[^,]{0,500}))?,task=(?P<process>.{0,64}?),pid=(?P<pid>\d{1,10}),uid="
        r"(?P<uid>\d{1,10})",
        "oom_kill",
        by="constraint",
    ),
    MessageForm(
        "Killed process ",
        r"(?P<constraint>Memory cgroup out of memory|Out of memory(?: \([^()]{1,40}\))?)?:? ?Killed process "
        r"(?P<pid>\d{1,10}),? (?:UID (?P<uid>\d{1,10}),? )?\((?P<process>.{0,64}?)\)(?:,? total-vm:\d{1,16}kB, "
        r"anon-rss:(?P<rss_kb>\d{1,16})kB)?",
        "oom_kill",
        by="constraint",
        words={"memory cgroup out of memory": "constraint_memcg", "out of memory": "constraint_none"},
    ),
    MessageForm(
        "Kill process ",
        r"(?P<constraint>Memory cgroup out of memory|Out of memory): Kill process (?P<pid>\d{1,10}) \("
        r"(?P<process>.{0,64}?)\) score \d{1,9} or sacrifice child",
        "oom_kill",
        by="constraint",
        words={"memory cgroup out of memory": "constraint_memcg", "out of memory": "constraint_none"},
    ),
    MessageForm(
        "invoked oom-killer",
        # Not behind what somebody puts before a quotation: a mark of a list, a quote, a sentence's colon.
        r"(?P<process>(?![-\s\"'`>$#|/])(?:(?!: )[^\"']){1,32}?) invoked oom-killer: (?:gfp_mask|order)=?",
        "oom_invoked",
    ),
    MessageForm(
        "no killable processes", r"(?:Memory cgroup o|O)ut of memory (?:and|but) no killable processes", "oom_deadlock"
    ),
    MessageForm(
        "page allocation failure",
        r"(?P<process>.{1,64}?): page allocation failure(?:: |\. )order:(?P<order>\d{1,3})",
        "page_allocation_failure",
    ),
    MessageForm(
        "page allocation stalls for",
        r"(?P<process>.{1,64}?): page allocation stalls for (?P<waited_ms>\d{1,12})ms, order:(?P<order>\d{1,3})",
        "page_allocation_failure",
    ),
    MessageForm(
        "fork rejected by pids", r"cgroup: fork rejected by pids controller in (?P<cgroup>.{1,400})", "pids_limit"
    ),
    MessageForm("file-max limit", r"VFS: file-max limit (?P<count>\d{1,18}) reached", "file_limit"),
)


def merge_oom(head: Event, later: Event) -> Event | None:
    """The sentence over a victim with the line of its numbers."""
    known = head.attributes
    if head.kind != "oom_kill" or later.kind != "oom_kill" or known.get("pid") != later.attributes.get("pid"):
        return None
    return replace(head, attributes={**later.attributes, **known})


MEMORY_PRESSURE = MessageFamily(
    "memory_pressure",
    signs(MEMORY_PRESSURE_FORMS),
    decoder(MEMORY_PRESSURE_FORMS),
    merge_oom,
    heads=frozenset({"oom_kill"}),
)

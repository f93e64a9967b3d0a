"""The host: kernel panics and lockups, processors slowed down, critical temperatures, its management controller.

    mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 5)
    -> Event(kind="cpu_throttled", device=Device("cpu"),
             attributes={"cpu": 12, "domain": "Package", "state": "throttled", "total_events": 5})

Forms: drivers/thermal/intel/therm_throt.c, drivers/thermal/thermal_core.c, kernel/reboot.c,
drivers/char/ipmi of Linux 3.10 to 6.16.
"""

from dataclasses import replace

from parsers.kernel_messages.family import MessageFamily, MessageForm, decoder, signs
from store.records.event import Event

# A kernel that stands still or broke: hung tasks, lockups, RCU stalls, oopses, panics.
#
#     watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]
#     -> Event(kind="soft_lockup", attributes={"cpu": 0, "duration_s": 27, "process": "cuda-EvtHandlr", "pid": 2255424})
#
# Forms: kernel/hung_task.c, kernel/watchdog*.c, kernel/rcu/tree_stall.h, kernel/panic.c, arch/x86/mm/fault.c,
# arch/x86/kernel/{traps,nmi}.c, arch/arm64/{mm/fault.c,kernel/traps.c} of Linux 3.10 to 6.16.

LOCKUP_FORMS = (
    MessageForm(
        "blocked for more than ",
        r"(?:INFO: )?task (?P<process>.{1,64}?):(?P<pid>\d{1,10}) blocked for more than (?P<duration_s>\d{1,9}) "
        r"seconds",
        "hung_task",
    ),
    MessageForm(
        "in I/O wait for more than ",
        r"INFO: task (?P<process>.{1,64}?):(?P<pid>\d{1,10}) blocked (?P<io_wait>in I/O wait) for more than "
        r"(?P<duration_s>\d{1,9}) seconds",
        "hung_task",
    ),
    MessageForm(
        "soft lockup - CPU#",
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d{1,5}) stuck for (?P<duration_s>\d{1,9})s!"
        r"(?: \[(?P<process>.{0,64}?):(?P<pid>\d{1,10})\]|$)",
        "soft_lockup",
        device="cpu",
    ),
    MessageForm(
        "hard LOCKUP on ",
        r"(?:NMI )?(?:watchdog: )?(?:(?:CPU\d{1,5}: )?Watchdog|CPU \d{1,5}) detected hard LOCKUP on "
        r"(?:cpu (?P<cpu>\d{1,5})|other CPUs)",
        "hard_lockup",
        device="cpu",
    ),
    MessageForm(
        " detected stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) detected stalls on (?:CPUs/tasks|tasks)",
        "rcu_stall",
    ),
    MessageForm(
        " detected expedited stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) detected expedited stalls on CPUs/tasks",
        "rcu_stall",
    ),
    MessageForm(
        "self-detected stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) self-detected stall on CPU(?:.{0,40}?\{ (?P<cpu>\d{1,5}))?",
        "rcu_stall",
    ),
    MessageForm(
        "kthread starved for",
        r"(?:rcu: )?(?P<flavour>rcu\w{0,24}) (?:grace-period )?kthread (?:timer wakeup didn't happen|starved) for "
        r"(?P<count>\d{1,18}) jiffies",
        "rcu_stall",
    ),
    MessageForm(
        "BUG: workqueue lockup",
        r"BUG: workqueue lockup - pool.{0,120}? stuck for (?P<duration_s>\d{1,9})s",
        "workqueue_lockup",
    ),
    MessageForm("anic - not syncing", r"Kernel [Pp]anic - not syncing(?:: (?P<reason>.{0,400}))?", "kernel_panic"),
    MessageForm(
        "BUG: ",
        r"BUG: (?P<error>unable to handle (?:kernel )?(?:NULL pointer dereference|paging request|page fault)|kernel "
        r"NULL pointer dereference)(?:.{0,40}?(?P<address>[0-9a-f]{8,16}))?",
        "kernel_oops",
    ),
    MessageForm(
        "BUG: ",
        r"BUG: (?P<error>Bad page (?:state|map) in process) (?P<process>.{1,64}?)  ?(?:pfn|pte):",
        "kernel_oops",
    ),
    MessageForm(
        "BUG: ",
        r"BUG: (?P<error>scheduling while atomic): (?P<process>.{1,64}?)/(?P<pid>\d{1,10})/0x",
        "kernel_oops",
        variant="bug",
    ),
    MessageForm("kernel BUG at", r"kernel BUG at (?P<where>[\w./-]{1,120}:\d{1,6})", "kernel_oops"),
    MessageForm(
        "nable to handle kernel",
        r"Unable to handle kernel (?P<error>[\w ]{1,60}?) at (?:virtual )?address (?P<address>[0-9a-f]{8,16})",
        "kernel_oops",
    ),
    MessageForm(
        "general protection fault",
        r"(?:Oops: )?(?P<error>general protection fault)[:, ].{0,160}?\[#\d{1,4}\]",
        "kernel_oops",
    ),
    MessageForm(
        ": 0000 [#",
        r"(?P<error>invalid opcode|divide error|stack segment|double fault): (?P<status>0000) \[#\d{1,4}\]",
        "kernel_oops",
    ),
    MessageForm("Oops: ", r"(?:Internal error: )?Oops: (?P<status>[0-9a-f]{4,16}) \[#\d{1,4}\]", "kernel_oops"),
    MessageForm("Oops: ", r"Oops: (?P<error>[a-z][\w ]{1,40})[:,].{0,120}?\[#\d{1,4}\]", "kernel_oops"),
    MessageForm(
        "Internal error: ",
        r"Internal error: (?P<error>[A-Za-z][\w /-]{1,60}): (?P<status>[0-9a-f]{1,16}) \[#\d{1,4}\]",
        "kernel_oops",
    ),
    MessageForm(
        "SError Interrupt on CPU",
        r"SError Interrupt on CPU(?P<cpu>\d{1,5}), code (?P<status>0x[0-9a-f]{8,16}) -- SError",
        "serror",
        device="cpu",
    ),
    MessageForm(
        "Marking clocksource",
        r"(?:clocksource: )?timekeeping watchdog on CPU(?P<cpu>\d{1,5}): Marking clocksource '(?P<name>\w{1,24})' as "
        r"unstable",
        "clock_unstable",
    ),
    MessageForm(
        "NMI received for unknown",
        r"(?:Uhhuh\. )?NMI received for unknown reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
    ),
    MessageForm(
        "NMI: PCI system error",
        r"NMI: PCI system error \(SERR\) for reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
        variant="error",
    ),
    MessageForm(
        "NMI: IOCK error",
        r"NMI: IOCK error .{0,40}?reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
        variant="error",
    ),
)


def merge_oops(head: Event, later: Event) -> Event | None:
    """One oops from its lines: what went wrong, then its code."""
    if head.kind != "kernel_oops" or later.kind != "kernel_oops" or "status" in head.attributes:
        return None
    return replace(head, attributes={**later.attributes, **head.attributes})


LOCKUPS = MessageFamily(
    "lockups", signs(LOCKUP_FORMS), decoder(LOCKUP_FORMS), merge_oops, heads=frozenset({"kernel_oops"})
)


_CPU = r"(?:mce: )?(?:\[Hardware Error\]: )?CPU(?P<cpu>\d{1,5}): (?P<domain>Core|Package) "

THERMAL_FORMS = (
    MessageForm(
        "cpu clock ",
        rf"{_CPU}temperature (?:is )?above threshold, cpu clock (?:is )?(?P<state>throttled)(?: \(total events = "
        r"(?P<total_events>\d{1,18})\))?",
        "cpu_throttled",
        device="cpu",
    ),
    MessageForm(
        "temperature/speed normal",
        rf"{_CPU}temperature/speed (?P<state>normal)",
        "cpu_throttled",
        device="cpu",
        by="state",
    ),
    MessageForm(
        "power limit no",
        rf"{_CPU}power limit (?P<state>notification|normal)(?: \(total events = (?P<total_events>\d{{1,18}})\))?",
        "cpu_power_limit",
        device="cpu",
        by="state",
    ),
    MessageForm(
        "ritical temperature reached",
        r"(?:thermal (?P<zone>[\w:.-]{1,40}): )?(?:(?P<name>[\w.-]{1,40}): )?(?:ACPI: )?[Cc]ritical temperature "
        r"reached(?: ?\((?P<temp_c>\d{1,4}) ?C\))?,? ?(?:shutting down)?",
        "thermal_shutdown",
    ),
    MessageForm(
        "HARDWARE PROTECTION",
        r"(?:reboot: )?HARDWARE PROTECTION (?P<state>shutdown|reboot) \((?P<reason>[^()]{1,80})\)",
        "thermal_shutdown",
    ),
    MessageForm(
        "BMC returned",
        r"(?:ipmi_\w{1,12} \S{1,40}: |IPMI message handler: )BMC returned (?P<error>.{1,120})",
        "bmc_error",
    ),
)

THERMAL = MessageFamily("thermal", signs(THERMAL_FORMS), decoder(THERMAL_FORMS))

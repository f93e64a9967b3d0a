"""A kernel that stands still or broke: hung tasks, lockups, RCU stalls, oopses, panics.

    watchdog: BUG: soft lockup - CPU#0 stuck for 27s! [cuda-EvtHandlr:2255424]
    -> Event(kind="soft_lockup", attributes={"cpu": 0, "duration_s": 27, "process": "cuda-EvtHandlr", "pid": 2255424})

Forms: kernel/hung_task.c, kernel/watchdog*.c, kernel/rcu/tree_stall.h, kernel/panic.c, arch/x86/mm/fault.c,
arch/x86/kernel/{traps,nmi}.c, arch/arm64/mm/fault.c of Linux 3.10 to 6.16.
"""

from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import Form, decoder, signs
from store.event import Event

FORMS = (
    Form(
        "blocked for more than ",
        r"(?:INFO: )?task (?P<process>.{1,64}?):(?P<pid>\d{1,10}) blocked for more than (?P<duration_s>\d{1,9}) "
        r"seconds",
        "hung_task",
    ),
    Form(
        "in I/O wait for more than ",
        r"INFO: task (?P<process>.{1,64}?):(?P<pid>\d{1,10}) blocked (?P<io_wait>in I/O wait) for more than "
        r"(?P<duration_s>\d{1,9}) seconds",
        "hung_task",
    ),
    Form(
        "soft lockup - CPU#",
        r"(?:NMI )?(?:watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d{1,5}) stuck for (?P<duration_s>\d{1,9})s! \["
        r"(?P<process>.{0,64}?):(?P<pid>\d{1,10})\]",
        "soft_lockup",
        device="cpu",
    ),
    Form(
        "hard LOCKUP on ",
        r"(?:NMI )?(?:watchdog: )?(?:Watchdog|CPU \d{1,5}) detected hard LOCKUP on (?:cpu (?P<cpu>\d{1,5})|other CPUs)",
        "hard_lockup",
        device="cpu",
    ),
    Form(
        " detected stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) detected stalls on (?:CPUs/tasks|tasks)",
        "rcu_stall",
    ),
    Form(
        " detected expedited stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) detected expedited stalls on CPUs/tasks",
        "rcu_stall",
    ),
    Form(
        "self-detected stall",
        r"(?:rcu: )?INFO: (?P<flavour>rcu\w{0,24}) self-detected stall on CPU(?:.{0,40}?\{ (?P<cpu>\d{1,5}))?",
        "rcu_stall",
    ),
    Form(
        "kthread starved for",
        r"(?:rcu: )?(?P<flavour>rcu\w{0,24}) (?:grace-period )?kthread (?:timer wakeup didn't happen|starved) for "
        r"(?P<count>\d{1,18}) jiffies",
        "rcu_stall",
    ),
    Form(
        "BUG: workqueue lockup",
        r"BUG: workqueue lockup - pool.{0,120}? stuck for (?P<duration_s>\d{1,9})s",
        "workqueue_lockup",
    ),
    Form("anic - not syncing", r"Kernel [Pp]anic - not syncing(?:: (?P<reason>.{0,400}))?", "kernel_panic"),
    Form(
        "BUG: ",
        r"BUG: (?P<error>unable to handle (?:kernel )?(?:NULL pointer dereference|paging request|page fault)|kernel "
        r"NULL pointer dereference)(?:.{0,40}?(?P<address>[0-9a-f]{8,16}))?",
        "kernel_oops",
    ),
    Form(
        "BUG: ",
        r"BUG: (?P<error>Bad page (?:state|map) in process) (?P<process>.{1,64}?)  ?(?:pfn|pte):",
        "kernel_oops",
    ),
    Form(
        "BUG: ",
        r"BUG: (?P<error>scheduling while atomic): (?P<process>.{1,64}?)/(?P<pid>\d{1,10})/0x",
        "kernel_oops",
        variant="bug",
    ),
    Form("kernel BUG at", r"kernel BUG at (?P<where>[\w./-]{1,120}:\d{1,6})", "kernel_oops"),
    Form(
        "nable to handle kernel",
        r"Unable to handle kernel (?P<error>[\w ]{1,60}?) at (?:virtual )?address (?P<address>[0-9a-f]{8,16})",
        "kernel_oops",
    ),
    Form(
        "general protection fault",
        r"(?:Oops: )?(?P<error>general protection fault)[:, ].{0,160}?\[#\d{1,4}\]",
        "kernel_oops",
    ),
    Form(
        ": 0000 [#",
        r"(?P<error>invalid opcode|divide error|stack segment|double fault): (?P<status>0000) \[#\d{1,4}\]",
        "kernel_oops",
    ),
    Form("Oops: ", r"(?:Internal error: )?Oops: (?P<status>[0-9a-f]{4,16}) \[#\d{1,4}\]", "kernel_oops"),
    Form("Oops: ", r"Oops: (?P<error>[a-z][\w ]{1,40})[:,].{0,120}?\[#\d{1,4}\]", "kernel_oops"),
    Form("Oops - ", r"Internal error: (?P<error>Oops - [\w ]{1,40}): \d{1,16} \[#\d{1,4}\]", "kernel_oops"),
    Form(
        "Marking clocksource",
        r"(?:clocksource: )?timekeeping watchdog on CPU(?P<cpu>\d{1,5}): Marking clocksource '(?P<name>\w{1,24})' as "
        r"unstable",
        "clock_unstable",
    ),
    Form(
        "NMI received for unknown",
        r"(?:Uhhuh\. )?NMI received for unknown reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
    ),
    Form(
        "NMI: PCI system error",
        r"NMI: PCI system error \(SERR\) for reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
        variant="error",
    ),
    Form(
        "NMI: IOCK error",
        r"NMI: IOCK error .{0,40}?reason (?P<reason>[0-9a-f]{1,4}) on CPU (?P<cpu>\d{1,5})",
        "nmi",
        device="cpu",
        variant="error",
    ),
)


def merge(head: Event, later: Event) -> Event | None:
    """One oops from its lines: what went wrong, then its code."""
    if head.kind != "kernel_oops" or later.kind != "kernel_oops" or "status" in head.attributes:
        return None
    return replace(head, attributes={**later.attributes, **head.attributes})


FAMILY = Family("lockups", signs(FORMS), decoder(FORMS), merge, heads=frozenset({"kernel_oops"}))

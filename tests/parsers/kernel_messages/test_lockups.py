"""A kernel that stands still or broke."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.host import LOCKUPS
from parsers.text.parser import Context, parse
from store.records.event import Event


def decode(*lines: str) -> list[Event]:
    """The events of lines of one second."""
    return list(parse(KernelParser(Context()), (f"[    9.{number:06}] {line}" for number, line in enumerate(lines))))


@pytest.mark.parametrize(
    ("message", "kind", "process", "pid", "duration_s"),
    [
        (
            "INFO: task cache_mgr_event:620917 blocked for more than 120 seconds.",
            "hung_task",
            "cache_mgr_event",
            620917,
            120,
        ),
        (
            "INFO: task kworker/u256:3:931150 blocked for more than 122 seconds.",
            "hung_task",
            "kworker/u256:3",
            931150,
            122,
        ),
        ("task jfsmount:136986 blocked for more than 120 seconds.", "hung_task", "jfsmount", 136986, 120),
        ("INFO: task python:42 blocked in I/O wait for more than 241 seconds.", "hung_task", "python", 42, 241),
        ("watchdog: BUG: soft lockup - CPU#18 stuck for 27s! [python3:2254956]", "soft_lockup", "python3", 2254956, 27),
        (
            "NMI watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [kworker/3:1:77]",
            "soft_lockup",
            "kworker/3:1",
            77,
            22,
        ),
        ("BUG: soft lockup - CPU#1 stuck for 67s! [migration/1:6]", "soft_lockup", "migration/1", 6, 67),
    ],
)
def test_who_is_stuck_and_for_how_long(message: str, kind: str, process: str, pid: int, duration_s: int) -> None:
    """A process's name may hold colons."""
    event = LOCKUPS.decode(message)
    assert event is not None
    assert event.kind == kind
    assert (event.attributes["process"], event.attributes["pid"], event.attributes["duration_s"]) == (
        process,
        pid,
        duration_s,
    )


@pytest.mark.parametrize(
    ("message", "kind", "severity"),
    [
        ("NMI watchdog: Watchdog detected hard LOCKUP on cpu 12", "hard_lockup", "fatal"),
        ("watchdog: CPU3: Watchdog detected hard LOCKUP on cpu 4", "hard_lockup", "fatal"),
        ("watchdog: Watchdog detected hard LOCKUP on cpu 3dModules linked in:", "hard_lockup", "fatal"),
        ("rcu: INFO: rcu_sched self-detected stall on CPU", "rcu_stall", "error"),
        ("INFO: rcu_sched self-detected stall on CPU { 3}  (t=60000 jiffies g=1 c=1 q=0)", "rcu_stall", "error"),
        ("rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:", "rcu_stall", "error"),
        ("rcu: INFO: rcu_tasks detected stalls on tasks:", "rcu_stall", "error"),
        ("rcu: INFO: rcu_sched detected expedited stalls on CPUs/tasks: { 1-... } 21000 jiffies s: 100 root: 0x2/.", "rcu_stall", "error"),
        ("rcu: rcu_sched kthread starved for 5250 jiffies! g4121 f0x0", "rcu_stall", "error"),
        ("BUG: workqueue lockup - pool cpus=3 node=0 flags=0x0 nice=0 stuck for 33s!", "workqueue_lockup", "warning"),
        ("Kernel panic - not syncing: hung_task: blocked tasks", "kernel_panic", "fatal"),
        ("Kernel Panic - not syncing: VFS: Unable to mount root fs on unknown-block(8,1)", "kernel_panic", "fatal"),
        ("BUG: unable to handle kernel NULL pointer dereference at 0000000000000008", "kernel_oops", "error"),
        ("BUG: unable to handle page fault for address: ffffb1c2c0a3d000", "kernel_oops", "error"),
        ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "kernel_oops", "error"),
        ("BUG: Bad page state in process python  pfn:1a2b3c", "kernel_oops", "error"),
        ("BUG: scheduling while atomic: swapper/0/0/0x00000100", "kernel_oops", "warning"),
        ("kernel BUG at include/linux/netdevice.h:529!", "kernel_oops", "error"),
        ("invalid opcode: 0000 [#1] SMP PTI", "kernel_oops", "error"),
        ("general protection fault: 0000 [#1] SMP PTI", "kernel_oops", "error"),
        ("general protection fault, probably for non-canonical address 0xdead000000000100: 0000 [#1] SMP", "kernel_oops", "error"),
        ("Oops: general protection fault, probably for non-canonical address 0xdead: 0000 [#1] PREEMPT SMP", "kernel_oops", "error"),
        ("Oops: int3: 0000 [#1] PREEMPT SMP NOPTI", "kernel_oops", "error"),
        ("Oops: 0002 [#1] SMP NOPTI", "kernel_oops", "error"),
        ("Internal error: Oops: 0000000096000005 [#1] SMP", "kernel_oops", "error"),
        ("Internal error: Oops - BUG: 0 [#1] SMP", "kernel_oops", "error"),
        ("Internal error: Oops - BUG: 00000000f2000800 [#1] PREEMPT SMP", "kernel_oops", "error"),
        ("Internal error: synchronous external abort: 0000000096000410 [#1] SMP", "kernel_oops", "error"),
        ("Unable to handle kernel NULL pointer dereference at virtual address 0000000000000008", "kernel_oops", "error"),
        ("clocksource: timekeeping watchdog on CPU3: Marking clocksource 'tsc' as unstable because the skew is too large:", "clock_unstable", "warning"),
        ("Uhhuh. NMI received for unknown reason 3d on CPU 0.", "nmi", "warning"),
        ("NMI: PCI system error (SERR) for reason b1 on CPU 0.", "nmi", "error"),
        ("NMI: IOCK error (debug interrupt?) for reason 61 on CPU 0.", "nmi", "error"),
        ("INFO: task xyz blocked for more than 60 seconds.", None, None),
        ("INFO: task running normally", None, None),
        ("---[ end Kernel panic - not syncing: Fatal machine check ]---", None, None),
        ("watchdog: BUG: odd", None, None),
        ("traps: python[8] general protection fault ip:7f sp:7f error:0 in libc.so.6[7f+d]", None, None),
        ("rcu: Hierarchical RCU implementation.", None, None),
        ("NMI watchdog: Enabled. Permanently consumes one hw-PMU counter.", None, None),
        ("panic: something", None, None),
        ("VFS: Unable to mount root fs", None, None),
    ],
)  # fmt: skip
def test_what_a_kernel_says_when_it_breaks(message: str, kind: str | None, severity: str | None) -> None:
    """Of x86 and arm64, old and new; a program's own crash is none."""
    event = LOCKUPS.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)


@pytest.mark.parametrize(
    ("lines", "error", "status"),
    [
        (("BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0002 [#1] SMP"), "kernel NULL pointer dereference", "0002"),
        (("kernel BUG at mm/slub.c:305!", "invalid opcode: 0000 [#1] SMP PTI"), "invalid opcode", "0000"),
        (("Unable to handle kernel paging request at virtual address ffff0001deadbe00", "Internal error: Oops: 96000005 [#1] SMP"), "paging request", "96000005"),
    ],
)  # fmt: skip
def test_an_oops_over_two_lines_is_one_event(lines: tuple[str, str], error: str, status: str) -> None:
    """What went wrong, then its code."""
    (event,) = decode(*lines)
    assert (event.kind, event.line) == ("kernel_oops", 1)
    assert (event.attributes["error"], event.attributes["status"]) == (error, status)


def test_a_second_oops_is_a_second_event() -> None:
    """And a panic after it a third, which does not wait for them."""
    oops = ("BUG: kernel NULL pointer dereference, address: 0000000000000008", "Oops: 0002 [#1] SMP")
    events = sorted(
        decode(*oops, *oops, "Kernel panic - not syncing: Fatal exception"), key=lambda event: event.line or 0
    )
    assert [event.kind for event in events] == ["kernel_oops", "kernel_oops", "kernel_panic"]
    assert events[2].attributes == {"reason": "Fatal exception"}

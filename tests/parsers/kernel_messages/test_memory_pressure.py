"""Memory that ran out."""

# ruff: noqa: E501  # a row is one line of a log, kept whole

import pytest

from parsers.formats.kernel import KernelParser
from parsers.kernel_messages.families.memory import MEMORY_PRESSURE
from parsers.text.parser import Context, parse
from store.records.event import Event

POD = "/kubepods/burstable/pod87e18f63/ef807430361edd74442f7c5703c8273545c501e93a80e8e4542de37ad75153b0"


def decode(*lines: str) -> list[Event]:
    """The events of lines of one second."""
    return list(parse(KernelParser(Context()), (f"[    9.{number:06}] {line}" for number, line in enumerate(lines))))


@pytest.mark.parametrize(
    ("message", "pid", "process", "cause"),
    [
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/docker/abc123,task_memcg=/docker/abc123,task=postgres,pid=12345,uid=1000", 12345, "postgres", "application"),
        (f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=ef80,mems_allowed=0-1,oom_memcg={POD},task_memcg={POD},task=evil-program2,pid=19667,uid=0", 19667, "evil-program2", "application"),
        ("oom-kill:constraint=CONSTRAINT_CPUSET,nodemask=0,cpuset=/restricted,mems_allowed=0,oom_memcg=/user.slice,task_memcg=/user.slice,task=stress,pid=33333,uid=1001", 33333, "stress", "host"),
        ("oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0-1,global_oom,task_memcg=/,task=Plex Media Server,pid=7,uid=0", 7, "Plex Media Server", "host"),
        ("Killed process 9876 (apache2)", 9876, "apache2", "host"),
        ("Out of memory: Killed process 123, UID 48, (httpd).", 123, "httpd", "host"),
        ("Out of memory: Killed process 22222 (nginx).", 22222, "nginx", "host"),
        ("Out of memory (oom_kill_allocating_task): Killed process 5 (a)", 5, "a", "host"),
        ("Memory cgroup out of memory: Killed process 5678 (x86_64-pc-linux-gnu-c++-5.4.0) total-vm:500000kB, anon-rss:450000kB, file-rss:50kB", 5678, "x86_64-pc-linux-gnu-c++-5.4.0", "application"),
        ("Memory cgroup out of memory: Kill process 19636 (evil-program2) score 1923 or sacrifice child", 19636, "evil-program2", "application"),
        ("Killed process 1234 (Plex Media Server) total-vm:1000000kB, anon-rss:900000kB, file-rss:100kB", 1234, "Plex Media Server", "host"),
    ],
)  # fmt: skip
def test_a_victim_and_whose_memory_it_was(message: str, pid: int, process: str, cause: str) -> None:
    """A job that reached its own limit is an application's matter."""
    event = MEMORY_PRESSURE.decode(message)
    assert event is not None
    assert (event.kind, event.severity, event.cause) == ("oom_kill", "error", cause)
    assert (event.attributes["pid"], event.attributes["process"]) == (pid, process)


def test_a_kill_told_twice_is_one_event() -> None:
    """The line of facts and the line of numbers; the process that asked is an event of its own."""
    asked, killed = decode(
        "python3.4 invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0",
        "oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=j,mems_allowed=0,oom_memcg=/j,task_memcg=/j/0,task=python,pid=12,uid=1000",
        "Memory cgroup out of memory: Killed process 12 (python) total-vm:104857600kB, anon-rss:52428800kB, file-rss:0kB",
    )
    assert (asked.kind, asked.attributes) == ("oom_invoked", {"process": "python3.4"})
    assert (killed.kind, killed.cause, killed.line) == ("oom_kill", "application", 2)
    assert (killed.attributes["rss_kb"], killed.attributes["task_memcg"]) == (52428800, "/j/0")


def test_two_victims_are_two_events() -> None:
    """Of one moment."""
    events = decode("Out of memory: Killed process 1 (a)", "Out of memory: Killed process 2 (b)")
    assert [event.attributes["pid"] for event in events] == [1, 2]


@pytest.mark.parametrize(
    ("message", "kind", "severity"),
    [
        ("Plex Media Server invoked oom-killer: gfp_mask=0x201da, order=0, oom_score_adj=0", "oom_invoked", "warning"),
        ("postgres invoked oom-killer: gfp_mask=0x201d2, order=0, oomkilladj=0", "oom_invoked", "warning"),
        ("Out of memory and no killable processes...", "oom_deadlock", "fatal"),
        ("python: page allocation failure: order:4, mode:0x40dc0(GFP_KERNEL|__GFP_COMP)", "page_allocation_failure", "warning"),
        ("python: page allocation failure. order:4, mode:0x20", "page_allocation_failure", "warning"),
        ("python: page allocation stalls for 10000ms, order:0, mode:0x14204d2", "page_allocation_failure", "warning"),
        ("cgroup: fork rejected by pids controller in /system.slice/slurmd.service", "pids_limit", "info"),
        ("VFS: file-max limit 1000000 reached", "file_limit", "warning"),
        ("VFS: file-max limit reached", None, None),
        ("VFS: file-max limit 1000000", None, None),
        ("oom_reaper: reaped process 12345 (python), now anon-rss:0kB, file-rss:0kB, shmem-rss:0kB", None, None),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/t,task_memcg=/t,task=t,pid=invalid,uid=1000", None, None),
        ("Memory cgroup stats for /docker/6562b1be2e55: cache:0KB rss:524096KB", None, None),
        ("Task in /mem2 killed as a result of limit of /mem3", None, None),
    ],
)  # fmt: skip
def test_the_rest_of_memory_pressure(message: str, kind: str | None, severity: str | None) -> None:
    """Precursors, limits, and lines that only go with them."""
    event = MEMORY_PRESSURE.decode(message)
    assert (event and event.kind, event and event.severity) == (kind, severity)

"""Memory that ran out: the out-of-memory killer, its victims, allocations that failed.

    oom-kill:constraint=CONSTRAINT_MEMCG,...,task_memcg=/docker/abc123,task=postgres,pid=12345,uid=1000
    Memory cgroup out of memory: Killed process 12345 (postgres) total-vm:1048576kB, anon-rss:524288kB, ...
    -> one Event(kind="oom_kill", cause="application", attributes={"process": "postgres", "pid": 12345, ...})

A limit of a job's own (CONSTRAINT_MEMCG) is the application's matter; a node without memory is the host's.
Forms: mm/oom_kill.c and mm/page_alloc.c of Linux 2.6.32 to 6.16.
"""

from dataclasses import replace

from parsers.kernel_messages.family import Family
from parsers.kernel_messages.form import Form, decoder, signs
from store.event import Event

FORMS = (
    Form(
        "oom-kill:constraint=",
        r"oom-kill:constraint=(?P<constraint>CONSTRAINT_\w{1,24}),nodemask=[^,]{0,60}(?:,\d[\d,-]{0,200})?,cpuset="
        r"(?P<cpuset>[^,]{0,400}),mems_allowed=[\d,-]{0,200}(?:,global_oom)?(?:,oom_memcg=(?P<oom_memcg>[^,]{0,500}))?"
        r"(?:,task_memcg=(?P<task_memcg>[^,]{0,500}))?,task=(?P<process>.{0,64}?),pid=(?P<pid>\d{1,10}),uid="
        r"(?P<uid>\d{1,10})",
        "oom_kill",
        by="constraint",
    ),
    Form(
        "Killed process ",
        r"(?P<constraint>Memory cgroup out of memory|Out of memory(?: \([^()]{1,40}\))?)?:? ?Killed process "
        r"(?P<pid>\d{1,10}),? (?:UID (?P<uid>\d{1,10}),? )?\((?P<process>.{0,64}?)\)(?:,? total-vm:\d{1,16}kB, "
        r"anon-rss:(?P<rss_kb>\d{1,16})kB)?",
        "oom_kill",
        by="constraint",
        words={"memory cgroup out of memory": "constraint_memcg", "out of memory": "constraint_none"},
    ),
    Form(
        "Kill process ",
        r"(?P<constraint>Memory cgroup out of memory|Out of memory): Kill process (?P<pid>\d{1,10}) \("
        r"(?P<process>.{0,64}?)\) score \d{1,9} or sacrifice child",
        "oom_kill",
        by="constraint",
        words={"memory cgroup out of memory": "constraint_memcg", "out of memory": "constraint_none"},
    ),
    Form(
        "invoked oom-killer",
        # Not behind what somebody puts before a quotation: a mark of a list, a quote, a sentence's colon.
        r"(?P<process>(?![-\s\"'`>$#|/])(?:(?!: )[^\"']){1,32}?) invoked oom-killer: (?:gfp_mask|order)=?",
        "oom_invoked",
    ),
    Form(
        "no killable processes", r"(?:Memory cgroup o|O)ut of memory (?:and|but) no killable processes", "oom_deadlock"
    ),
    Form(
        "page allocation failure",
        r"(?P<process>.{1,64}?): page allocation failure(?:: |\. )order:(?P<order>\d{1,3})",
        "page_allocation_failure",
    ),
    Form(
        "page allocation stalls for",
        r"(?P<process>.{1,64}?): page allocation stalls for (?P<waited_ms>\d{1,12})ms, order:(?P<order>\d{1,3})",
        "page_allocation_failure",
    ),
    Form("fork rejected by pids", r"cgroup: fork rejected by pids controller in (?P<cgroup>.{1,400})", "pids_limit"),
    Form("file-max limit", r"VFS: file-max limit (?P<count>\d{1,18}) reached", "file_limit"),
)


def merge(head: Event, later: Event) -> Event | None:
    """The sentence over a victim with the line of its numbers."""
    known = head.attributes
    if head.kind != "oom_kill" or later.kind != "oom_kill" or known.get("pid") != later.attributes.get("pid"):
        return None
    return replace(head, attributes={**later.attributes, **known})


FAMILY = Family("memory_pressure", signs(FORMS), decoder(FORMS), merge, heads=frozenset({"oom_kill"}))

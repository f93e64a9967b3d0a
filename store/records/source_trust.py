"""Whose word a source is: who can write what it gives, and what such a writer may say.

    may_tell("user", "training")    True
    may_tell("user", "kernel")      False: any user can print a line that looks like the kernel's

It is a property of the source's registration (`collectors/trust.py`), never of a line: a line can only say less.
"""

from collections.abc import Mapping
from typing import Literal, TypeAlias, get_args

from store.records.event_sources import TESTIMONIES, Testimony, testimony_of

# kernel   the kernel's own log, and nothing else stands in it: its ring, the journal's records of it, a kern.log
# system   root and root's daemons alone can write it: an exporter, the subnet manager's log. Root can write to the
#          kernel's log, too, so it may say whatever the kernel may
# user     whoever runs a job can write it: a training log, a program's output, a syslog file that `logger` reaches
Trust: TypeAlias = Literal["kernel", "system", "user"]
TRUSTS: tuple[Trust, ...] = get_args(Trust)

_KERNEL = "kernel"
# Of the kernel's log this table is not asked: it says what the source `kernel` says.
_TESTIMONIES: Mapping[Trust, frozenset[Testimony]] = {
    "kernel": frozenset(),
    "system": frozenset(TESTIMONIES),
    "user": frozenset(("iterations", "saves", "starts")),
}


def may_tell(trust: Trust | None, source: str) -> bool:
    """Whether a log of a trust may give events of a source (a format's name); None: an operator's own file."""
    if trust is None:
        return True
    return testimony_of(source) in _TESTIMONIES[trust] or (trust == "kernel" and source == _KERNEL)


def narrower(trust: Trust, other: Trust | None) -> Trust:
    """The trust of what two know of its writer: each can only take away."""
    if other is None or other == trust or other == "system":
        return trust
    return other if trust == "system" else "user"

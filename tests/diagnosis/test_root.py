"""Which event is the root of a fault."""

import pytest
from fault_events import lost_port, xid

from diagnosis.fault import when
from diagnosis.root import Head, badness, head_of, is_consequence, kind_key, not_machine, root
from store.event import Event


def heads(*events: Event) -> list[Head]:
    """The heads that events would make."""
    return [head_of(event, when(event)) for event in events]


def called(*events: Event) -> str:
    """What the incident of these events is called by."""
    kinds = [kind_key(event.kind, event.code) for event in events]
    head = root(heads(*events), kinds)
    return kind_key(head.kind, head.code)


@pytest.mark.parametrize(
    ("events", "name"),
    [
        ([xid(63, 0), xid(79, 5)], "xid:79"),  # the worst
        ([xid(119, 0), xid(79, 5)], "xid:79"),  # a GPU off the bus leaves its system processor without answer
        ([xid(119, 0), xid(48, 5)], "xid:119"),  # of equals the earliest
        ([xid(79, 0), xid(119, 5)], "xid:79"),
        ([xid(13, 0), xid(94, 5)], "xid:94"),  # the machine before the program
        ([xid(31, 0), xid(79, 1)], "xid:79"),
        ([xid(45, 0), xid(154, 1), xid(63, 2)], "xid:63"),  # reports of a fault are no fault
        ([xid(45, 0), xid(43, 1)], "xid:45"),  # among reports alone, the worst
        ([lost_port(0), xid(79, 30)], "xid:79"),
        ([xid(45, 0), lost_port(30)], "port_removed"),  # the machine before the program, at equal severity
    ],
)
def test_the_root(events: list[Event], name: str) -> None:
    """Each rule in an example, whatever the order of the lines."""
    assert called(*events) == name
    assert called(*events[::-1]) == name


def test_a_consequence_needs_its_cause_in_the_incident() -> None:
    """An MMU fault alone is a fault of its own; beside a failed PMU call it is not."""
    (mmu,) = heads(xid(31, 0))
    assert not is_consequence(mmu, ["xid:31"])
    assert not is_consequence(mmu, ["xid:31", "xid:63"])
    assert is_consequence(mmu, ["xid:31", "xid:122"])


def test_a_line_that_names_its_cause_needs_company() -> None:
    """Alone it is all that is known."""
    (told,) = heads(xid(94, 0, caused_by=48))
    assert not is_consequence(told, ["xid:94"])
    assert is_consequence(told, ["xid:94", "xid:48"])


def test_what_is_compared() -> None:
    """Severities in their order, causes of the machine and others."""
    assert [badness(one.severity) for one in heads(xid(43, 0), xid(63, 0), xid(13, 0), xid(79, 0))] == [0, 1, 2, 3]
    assert [not_machine(one) for one in heads(xid(79, 0), xid(13, 0), xid(999, 0))] == [False, True, True]

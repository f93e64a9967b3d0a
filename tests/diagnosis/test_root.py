"""Which event is the root of a fault."""

from dataclasses import replace

import pytest
from fault_events import lost_port, xid
from hypothesis import given
from hypothesis import strategies as st

from diagnosis.incidents.incident import when
from diagnosis.incidents.root import (
    CONSEQUENCE_OF,
    REPORTS,
    IncidentHead,
    badness,
    head_of,
    is_consequence,
    not_machine,
    plain,
    root,
)
from store.records.event import SEVERITIES, Event, kind_key


def heads(*events: Event) -> list[IncidentHead]:
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


def others_say_so(head: IncidentHead, kinds: frozenset[str]) -> bool:
    """What `is_consequence` answers, as it reads: by the kinds that are there beside the head's own."""
    others = kinds - {kind_key(head.kind, head.code)}
    if head.follows and others:
        return True
    if head.kind.endswith("_detail"):
        return any(plain(kind) == head.kind.removesuffix("_detail") for kind in others)
    if head.kind == "alert":
        return not others.isdisjoint({f"xid:{head.code}", f"sxid:{head.code}"})
    if head.kind == "xid" and head.code in REPORTS:
        return bool({k for k in others if plain(k) in ("xid", "sxid")} - {f"xid:{code}" for code in REPORTS})
    return head.kind == "xid" and not others.isdisjoint(CONSEQUENCE_OF.get(head.code or 0, frozenset()))


told = st.tuples(
    st.sampled_from(["xid", "sxid", "sxid_detail", "alert", "link_down"]), st.sampled_from([13, 31, 43, 45, 79, 119])
)


@given(st.lists(st.tuples(told, st.booleans(), st.integers(0, 3)), min_size=1, max_size=6))
def test_an_incident_of_many_kinds_is_called_as_by_the_rule(lines: list[tuple[tuple[str, int], bool, int]]) -> None:
    """The first that is no consequence by the rule's own words, of those in order of how grave they are."""
    (like,) = heads(xid(79, 0))
    many = [
        replace(like, kind=kind, code=code, follows=follows, severity=SEVERITIES[badly], id=str(number))
        for number, ((kind, code), follows, badly) in enumerate(lines)
    ]
    kinds = frozenset(kind_key(head.kind, head.code) for head in many)
    assert [is_consequence(head, kinds) for head in many] == [others_say_so(head, kinds) for head in many]
    assert root(many, kinds) == min(many, key=lambda head: (others_say_so(head, kinds), -badness(head.severity)))

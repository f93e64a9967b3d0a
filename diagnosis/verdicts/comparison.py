"""What a new explanation changes about the verdicts that stand: opened, revised, taken in by another, ended.

    changes = compared(HeldVerdicts(standing, looked_at, recent), explained, look)

Pure. One cause keeps its id, over revisions, restarts and a short absence: a cause is its class and any of its names.
"""

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from store.records.event import format_time
from store.records.verdict import Verdict
from store.verdicts.verdict_log import VerdictChange, closed
from wire.words.values import risk

# A cause is told of from here on, and no more once it has fallen well below: what wavers does not come and go.
LEAST_OPEN = 0.3
LEAST_STANDING = 0.15
# A probability has changed where it moved so far.
_MOVED = 0.05
# A verdict that is revised rests so long before its next revision, unless what is asked for changes.
REST = timedelta(seconds=2)
# A cause that nothing speaks for any more is ended after so long: the next line may well name it again.
PATIENCE = timedelta(seconds=30)
# Nodes named in what has changed.
_NAMED = 3
_ID_BYTES = 12


@dataclass(frozen=True, slots=True)
class CurrentLook:
    """What a comparison asks of the moment. `end_of` says why a verdict is over by what is seen, None where it is not.

    `above`: the places that a verdict's own depends on, the nearest first, as (class, name). `changed_at` and `missing`
    are kept by the caller from turn to turn: when each was last revised, and since when nothing speaks for it.
    """

    now: datetime
    end_of: Callable[[Verdict], str | None]
    above: Callable[[Verdict], Iterable[tuple[str, str]]] = lambda _verdict: ()
    changed_at: dict[str, datetime] = field(default_factory=dict)
    missing: dict[str, datetime] = field(default_factory=dict)


class _ByName:
    """Verdicts by their class and any of their names."""

    def __init__(self, verdicts: Iterable[Verdict]) -> None:
        self._found: dict[tuple[str, str], Verdict] = {}
        for verdict in verdicts:
            for name in (verdict.name, *verdict.names):
                self._found.setdefault((verdict.cause_class, name), verdict)

    def same_as(self, verdict: Verdict) -> Verdict | None:
        """The one of the same cause."""
        for name in (verdict.name, *verdict.names):
            found = self._found.get((verdict.cause_class, name))
            if found is not None:
                return found
        return None


def ident_of(verdict: Verdict) -> str:
    """The id of a verdict that is new: the same in every process that comes to it."""
    text = f"{verdict.cause_class}\0{verdict.name}\0{format_time(verdict.since)}"
    return "v" + hashlib.blake2b(text.encode("utf-8", "replace"), digest_size=_ID_BYTES).hexdigest()


@dataclass(frozen=True, slots=True)
class HeldVerdicts:
    """What is known already, by id: those that stand, those of them that were looked at, those that ended lately."""

    standing: Mapping[str, Verdict]
    looked_at: Collection[str]
    recent: Mapping[str, Verdict]


def compared(before: HeldVerdicts, explained: Sequence[Verdict], look: CurrentLook) -> list[VerdictChange]:
    """What is to be written. Those that were not looked at stay as they are."""
    known, recent = _ByName(before.standing.values()), _ByName(before.recent.values())
    held: dict[str, Verdict] = {}
    claimed: set[str] = set()
    changes: list[VerdictChange] = []
    for new in explained:
        old = known.same_as(new)
        if old is not None and old.id not in before.looked_at:
            held.setdefault(old.id, old)  # seen in part only
            continue
        events = {event for evidence in new.evidence_for for event in evidence.events}
        # One cause, one verdict: the likelier came first, and who rests on the same is no second one.
        is_rival = bool(events) and events <= claimed
        if (old is not None and old.id in held) or is_rival or look.end_of(new) is not None:
            continue
        if new.probability < (LEAST_OPEN if old is None else LEAST_STANDING):
            continue
        change = _opened(new, recent, before.standing, look) if old is None else _revised(old, new, look)
        found = replace(new, id=old.id) if change is None and old is not None else new
        found = found if change is None else change.verdict
        held[found.id] = found
        claimed |= events
        if change is not None:
            changes.append(change)
    gone = [before.standing[ident] for ident in before.looked_at if ident not in held]
    for ident in [ident for ident in look.missing if ident in held or ident not in before.standing]:
        del look.missing[ident]
    return changes + _ended(gone, held, look)


def _opened(new: Verdict, before: _ByName, standing: Mapping[str, Verdict], look: CurrentLook) -> VerdictChange:
    """A new verdict, or one that ended lately and is back."""
    old = before.same_as(new)
    if old is not None and old.id not in standing:
        back = replace(new, id=old.id, state="revised", revision=old.revision + 1, explained_by=None)
        look.changed_at[old.id] = look.now
        return VerdictChange(back, "it shows again", old)
    ident = ident_of(new)
    look.changed_at[ident] = look.now
    return VerdictChange(replace(new, id=ident, state="open", revision=0, explained_by=None), "opened")


def _revised(old: Verdict, new: Verdict, look: CurrentLook) -> VerdictChange | None:
    whats, is_urgent = what_changed(old, new)
    if not whats:
        return None
    rested = look.now - look.changed_at.get(old.id, old.since) >= REST
    if not rested and not is_urgent:
        return None
    look.changed_at[old.id] = look.now
    revised = replace(new, id=old.id, state="revised", revision=old.revision + 1, explained_by=None)
    return VerdictChange(revised, "; ".join(whats), old)


def what_changed(old: Verdict, new: Verdict) -> tuple[list[str], bool]:
    """What is materially other, in words; and whether somebody would act otherwise."""
    found: list[str] = []
    if (new.name, new.device) != (old.name, old.device):
        called, before = (f"{one.name} {one.device.words()}" for one in (new, old))
        found.append(f"it is {called}, not {before}" if called != before else f"its device is described anew: {called}")
    if (new.action, new.cause, new.node) != (old.action, old.cause, old.node):
        found.append(f"{new.cause}, {new.action} on {new.node or new.name} (before: {old.cause}, {old.action})")
    is_urgent = bool(found)
    if abs(new.probability - old.probability) >= _MOVED:
        found.append(f"probability {risk(old.probability)} to {risk(new.probability)}")
    if new.since < old.since:
        earlier_s = (old.since - new.since).total_seconds()
        found.append(f"late evidence: its first sign is {earlier_s:.0f} s earlier, {format_time(new.since)}")
    for words, now, then in (("node", new.nodes, old.nodes), ("job", new.jobs, old.jobs)):
        found += _come_and_gone(words, set(now), set(then))
    if set(new.victims) != set(old.victims) and not found:
        found.append(f"{len(new.victims)} of its nodes suffer only (before: {len(old.victims)})")
    return found, is_urgent


def _come_and_gone(word: str, now: set[str], then: set[str]) -> list[str]:
    found = []
    for more, some in (("more", now - then), ("fewer", then - now)):
        if some:
            names = ", ".join(sorted(some)[:_NAMED]) + (" ..." if len(some) > _NAMED else "")
            found.append(f"{len(some)} {word}{'s' if len(some) > 1 else ''} {more}: {names}")
    return found


def _ended(gone: Sequence[Verdict], held: Mapping[str, Verdict], look: CurrentLook) -> list[VerdictChange]:
    """Those that stand no more: taken in by another, over, or without anything that speaks for them for long."""
    changes = []
    takers = _Takers(held.values() if gone else (), look)
    for verdict in gone:
        taker = takers.of(verdict)
        if taker is not None:
            what = f"explained by {taker.cause_class} {taker.name}: {taker.reason}"[:500]
            changes.append(VerdictChange(closed(verdict, "explained", taker.id), what, verdict))
            continue
        why = look.end_of(verdict)
        if why is None:
            since = look.missing.setdefault(verdict.id, look.now)
            if look.now - since < PATIENCE:
                continue
            why = "nothing that is seen speaks for it any more"
        look.missing.pop(verdict.id, None)
        changes.append(VerdictChange(closed(verdict), why, verdict))
    return changes


class _Takers:
    """The verdicts that hold, by what each rests on: who rests on the same takes another one in."""

    def __init__(self, held: Iterable[Verdict], look: CurrentLook) -> None:
        self._above = look.above
        self._by_name: dict[tuple[str, str], Verdict] = {}
        self._by_event: dict[str, Verdict] = {}
        self._by_victim: dict[str, Verdict] = {}
        for verdict in sorted({one.id: one for one in held}.values(), key=lambda one: (-one.probability, one.id)):
            self._by_name.setdefault((verdict.cause_class, verdict.name), verdict)
            for evidence in verdict.evidence_for:
                for event in evidence.events:
                    self._by_event.setdefault(event, verdict)
            for node in verdict.victims:
                self._by_victim.setdefault(node, verdict)

    def of(self, gone: Verdict) -> Verdict | None:
        """Who takes a verdict in; None where nobody does."""
        for evidence in gone.evidence_for:
            for event in evidence.events:
                if event in self._by_event:
                    return self._by_event[event]
        if gone.node is not None and gone.node in self._by_victim:
            return self._by_victim[gone.node]
        return next((self._by_name[place] for place in self._above(gone) if place in self._by_name), None)

"""The engine: it folds the events that came in, explains what is seen, and writes what that changes about the verdicts.

    engine = VerdictEngine(database, clock)
    while engine.turn(): ...      # until nothing waits

One process at a time has it (`api/loops/`). What it knows is in memory and in the verdicts that stand: whoever comes
next reads the events of `REACH` once more. Events wait in `store/verdicts/symptom_news.py` until what was made of them
is written: none is passed over, and none counts twice. Its cost follows what is seen now, not what ever came.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from diagnosis.causes.explanation import explain
from diagnosis.causes.scene import REACH
from diagnosis.causes.suspects import ReachIndex
from diagnosis.graph.place import Place
from diagnosis.symptoms.clocks import read_clocks, read_heartbeats
from diagnosis.symptoms.folding import SymptomFold
from diagnosis.symptoms.symptom import Symptom, in_order
from diagnosis.verdicts.comparison import LEAST_STANDING, CurrentLook, HeldVerdicts, compared
from diagnosis.verdicts.ends import EndFinder
from diagnosis.verdicts.neighbourhood import MOST_AROUND, Neighbourhood, of_releases
from diagnosis.verdicts.news import recent_symptom_events
from diagnosis.verdicts.stake import with_stake
from diagnosis.verdicts.surroundings import Surroundings
from store.database.connections import transact
from store.database.coordination import VERDICTS, move_mark, read_marks
from store.records.verdict import RELEASE_CLASSES, Verdict, VerdictEvidence
from store.verdicts.symptom_news import NewsBatch, news_seqs, oldest_news, remove_news
from store.verdicts.verdict_log import (
    STANDING_STATES,
    VerdictChange,
    incidents_of,
    known_incidents,
    open_verdicts,
    recent_verdicts,
    save_changes,
    verdicts_of,
)

# Events that one turn folds: a second of a storm, and a fraction of one of work.
MOST_EVENTS = 20_000
# A cause that ended so lately and shows again is the same verdict.
LATELY = timedelta(hours=1)
# Without news all is looked at again so often: what is quiet or cured ends.
IDLE = timedelta(seconds=15)
# So few symptoms are all weighed at once, whatever they share.
_FEW = 200
# The nodes' clocks are read from their heartbeats so often; from events before a restart, so far back.
_CLOCKS_EVERY = timedelta(minutes=1)
_HEARD = timedelta(hours=1)
# What one node alone says of others is at most so likely; of what is no other's it may speak.
_MOST_OF_A_REPORT = 0.5
_OF_ITSELF = frozenset({"application", "job", "planned", "unknown", "gpu", "nic", "nvlink", "node"})
# Of so few changes at once the incidents of each one's nodes are looked up; a verdict names so many.
_FEW_CHANGES, _MOST_INCIDENTS = 10, 200
_BEFORE = timedelta(minutes=1)
_FORGET_EVERY = timedelta(minutes=10)
_log = logging.getLogger(__name__)


class HandedOverError(RuntimeError):
    """Another process has written verdicts since our last turn: what is in memory is not all there is."""


@dataclass(slots=True)
class _Memory:
    """What one process knows between turns."""

    fold: SymptomFold
    around: Surroundings
    near: Neighbourhood
    reach: ReachIndex
    standing: dict[str, Verdict]
    recent: dict[str, tuple[Verdict, datetime]]
    mark: int
    changed_at: dict[str, datetime] = field(default_factory=dict)
    missing: dict[str, datetime] = field(default_factory=dict)
    by_event: dict[str, set[str]] = field(default_factory=dict)  # ids of standing verdicts that rest on it
    looked: datetime | None = None
    forgot: datetime | None = None
    heard: datetime | None = None


@dataclass(frozen=True, slots=True)
class EngineTurn:
    """What a turn did: events folded, what changed, since when the oldest of its events waited, and whether more do."""

    events: int = 0
    changes: Sequence[VerdictChange] = ()
    oldest: datetime | None = None
    more: bool = False


Owe = Callable[[sa.Connection, Sequence[VerdictChange], datetime], None]


def _owe_nothing(_connection: sa.Connection, _changes: Sequence[VerdictChange], _now: datetime) -> None:
    pass


class VerdictEngine:
    """One of a process. `owe` writes what others are to be told, in the transaction of the verdicts themselves.

    `may_write` is entered for each write: who shares the database's one writer with others waits there.
    """

    def __init__(
        self,
        engine: sa.Engine,
        clock: Callable[[], datetime],
        owe: Owe = _owe_nothing,
        may_write: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._engine = engine
        self._clock = clock
        self._owe = owe
        self._may_write = may_write
        self._memory: _Memory | None = None
        self._pending: list[NewsBatch] = []  # folded, and not yet written

    def turn(self) -> EngineTurn:
        """Take what came in, explain it and write what that changes.

        Raises:
            SQLAlchemyError: the database is busy or gone; the next turn goes on where this one was.
            HandedOverError: another process has the engine, too; the next turn begins anew.
        """
        now = self._clock()
        memory = self._memory
        is_new = memory is None
        if memory is None:
            memory = self._memory = self._remembered(now)
        with self._engine.connect() as connection:
            batches = [] if self._pending else oldest_news(connection, MOST_EVENTS)
            is_due = memory.looked is None or now - memory.looked >= IDLE
            has_news = bool(self._pending or batches)
            if not has_news and not (is_new or (is_due and (len(memory.fold) or memory.standing))):
                return EngineTurn()
            if memory.around.refresh(connection, now):
                memory.fold.graph = memory.around.graph
                memory.near = Neighbourhood(memory.around.graph)
                memory.reach = ReachIndex(memory.around.graph).warm()
            if batches:  # after the devices, for an event keeps the place that it is given
                self._pending = batches
                self._fold(memory, batches)
            memory.near.place_jobs(memory.around.jobs)
            if memory.heard is None or now - memory.heard >= _CLOCKS_EVERY:
                memory.heard = now
                read_heartbeats(connection, memory.fold.clocks, now)
        try:
            changes = self._compared(memory, now)
        except Exception:
            self._write(memory, (), now)  # what nobody can explain shall not come again and again
            raise
        taken = self._pending
        try:
            self._write(memory, changes, now)
        except Exception:
            self._memory, self._pending = None, []  # what is in memory counts as told: it is all read anew
            raise
        memory.looked = now
        self._forget(memory, now)
        events = sum(len(batch.events) for batch in taken)
        return EngineTurn(
            events=events,
            changes=changes,
            oldest=min((batch.received for batch in taken), default=None),
            more=events >= MOST_EVENTS // 2,
        )

    @property
    def symptoms(self) -> int:
        """How many symptoms are held in memory."""
        return 0 if self._memory is None else len(self._memory.fold)

    def _remembered(self, now: datetime) -> _Memory:
        """All that is known, read once more; events that wait are among those that are read."""
        around = Surroundings()
        level = {"isolation_level": "REPEATABLE READ"} if self._engine.dialect.name == "postgresql" else {}
        with self._engine.connect().execution_options(**level) as connection:
            mark = read_marks(connection).get(VERDICTS, 0)
            around.refresh(connection, now)
            fold = SymptomFold(around.graph)
            fold.place_ranks(around.placements)
            fold.clocks = read_clocks(connection, now - _HEARD, now)
            fold.take(recent_symptom_events(connection, now - REACH))
            waiting = news_seqs(connection)
            standing = {one.id: one for one in open_verdicts(connection)}
            recent = {one.id: (one, ended) for one, ended in recent_verdicts(connection, now - LATELY)}
        self._pending = [NewsBatch(seq, received, ()) for seq, received in waiting]
        _log.info("verdicts: %d symptoms, %d verdicts that stand", len(fold), len(standing))
        near, reach = Neighbourhood(around.graph), ReachIndex(around.graph).warm()
        memory = _Memory(fold, around, near, reach, standing, recent, mark)
        for one in standing.values():
            _index(memory, one)
        return memory

    def _fold(self, memory: _Memory, batches: Iterable[NewsBatch]) -> None:
        memory.fold.place_ranks(memory.around.placements)
        for batch in batches:
            if batch.error is not None:
                _log.error("%s: its events are in the store, and in no verdict until the next start", batch.error)
            for event in batch.events:
                memory.fold.clocks.receipt(event, batch.received)
            memory.fold.take(batch.events)

    def _compared(self, memory: _Memory, now: datetime) -> list[VerdictChange]:
        """Explain what is new with what lies around it, and find what that changes."""
        back = memory.around.back_since()
        symptoms = memory.fold.as_known(clock=now)
        if back:
            symptoms = [one for one in symptoms if not _is_before(one, back)]
        fresh = memory.near.update(symptoms)
        is_idle = memory.looked is None or now - memory.looked >= IDLE
        is_wide = len(symptoms) <= _FEW or (is_idle and len(symptoms) <= MOST_AROUND)
        if is_wide or is_idle:
            symptoms = in_order(symptoms)
        part = symptoms if is_wide else memory.near.around(fresh)
        ends = EndFinder(now, memory.near.of_event, back)
        explained = self._explained(memory, part, ends, now) if part else []
        looked_at = set(memory.standing) if is_wide else self._looked_at(memory, part)
        if not is_wide:
            # What all nodes share is no matter of a neighbourhood: it is told by all of them, now and then.
            shared = {ident for ident, one in memory.standing.items() if one.cause_class in RELEASE_CLASSES}
            looked_at = looked_at | shared if is_idle else looked_at - shared
            told = self._releases(memory, symptoms, ends, now) if is_idle else []
            explained = [*told, *(one for one in explained if one.cause_class not in RELEASE_CLASSES)]
        if is_idle:
            looked_at |= {ident for ident, one in memory.standing.items() if ends.of(one) is not None}
        memory.recent = {ident: kept for ident, kept in memory.recent.items() if now - kept[1] < LATELY}
        look = CurrentLook(now, ends.of, self._above(memory), memory.changed_at, memory.missing)
        recent = {ident: one for ident, (one, _) in memory.recent.items()}
        return compared(HeldVerdicts(memory.standing, looked_at, recent), explained, look)

    def _explained(self, memory: _Memory, part: list[Symptom], ends: EndFinder, now: datetime) -> list[Verdict]:
        """The causes of some symptoms. Of what is well again nobody is in a hurry to hear: it counts half."""
        stakes = memory.around.stakes(now)
        found = explain(memory.around.scene(part, now), most=MOST_AROUND, reach=memory.reach)
        return [
            with_stake(_reported(replace(one, probability=one.probability / factor), ends.symptoms_of(one)), stakes)
            for one in found
            if one.probability >= LEAST_STANDING
            for factor in (2.0 if ends.is_cured(one) else 1.0,)
        ]

    def _releases(self, memory: _Memory, symptoms: Sequence[Symptom], ends: EndFinder, now: datetime) -> list[Verdict]:
        """The releases that explain some of any number of symptoms."""
        part = of_releases(symptoms, memory.reach or ReachIndex(memory.around.graph))
        found = self._explained(memory, part, ends, now) if part else []
        return [one for one in found if one.cause_class in RELEASE_CLASSES]

    def _looked_at(self, memory: _Memory, part: Sequence[Symptom]) -> set[str]:
        """The verdicts of which most of what they rest on is among some symptoms."""
        events = {event for symptom in part for event in symptom.events}
        idents = {ident for event in events for ident in memory.by_event.get(event, ())}
        found = set()
        for ident in idents:
            own = _events_of(memory.standing[ident])
            if 2 * len(own & events) >= len(own):
                found.add(ident)
        return found

    def _above(self, memory: _Memory) -> Callable[[Verdict], Iterable[tuple[str, str]]]:
        def above(verdict: Verdict) -> Iterable[tuple[str, str]]:
            return memory.around.graph.above(Place(verdict.cause_class, verdict.name))

        return above

    def _write(self, memory: _Memory, changes: Sequence[VerdictChange], now: datetime) -> None:
        """Write the changes and let go of the events that they were made of."""
        if not changes and not self._pending:
            return

        def work(connection: sa.Connection) -> list[VerdictChange]:
            move_mark(connection, VERDICTS)  # first: of two that write at once the second waits here, and sees it
            if read_marks(connection)[VERDICTS] != memory.mark + 1:
                raise HandedOverError("another process writes verdicts, too: all is read anew")
            named = _with_incidents(connection, _known_again(connection, changes), now)
            save_changes(connection, named, now)
            self._owe(connection, named, now)
            remove_news(connection, self._pending)
            return named

        with self._may_write():
            written = transact(self._engine, work)
        memory.mark += 1
        self._pending = []
        for change in written:
            self._note(memory, change, now)

    def _note(self, memory: _Memory, change: VerdictChange, now: datetime) -> None:
        one = change.verdict
        before = memory.standing.get(one.id)
        for event in () if before is None else _events_of(before):
            memory.by_event.get(event, set()).discard(one.id)
            if not memory.by_event.get(event):
                memory.by_event.pop(event, None)
        if one.state in STANDING_STATES:
            memory.standing[one.id] = one
            _index(memory, one)
            memory.recent.pop(one.id, None)
        else:
            memory.standing.pop(one.id, None)
            memory.changed_at.pop(one.id, None)
            memory.recent[one.id] = (one, now)

    def _forget(self, memory: _Memory, now: datetime) -> None:
        """Let go of symptoms that nobody has seen for long."""
        if memory.forgot is None or now - memory.forgot >= _FORGET_EVERY:
            memory.fold.forget(now - REACH)
            memory.forgot = now


def _reported(verdict: Verdict, seen: Sequence[Symptom]) -> Verdict:
    """What one node alone says of others is a report: whatever it claims, it is said so, and nothing is asked of them.

    Symptoms that name no node are the word of the fabric's manager or of a switch.
    """
    reporters = {symptom.node for symptom in seen}
    if len(reporters) != 1 or None in reporters or verdict.node in reporters:
        return verdict
    (reporter,) = reporters
    others = {*verdict.nodes, *([verdict.node] if verdict.node else [])} - {reporter}
    if not others and verdict.cause_class in _OF_ITSELF:
        return verdict
    why = VerdictEvidence(f"{reporter} alone says so: a report, and nothing is asked of others for it")
    return replace(
        verdict,
        probability=min(verdict.probability, _MOST_OF_A_REPORT),
        action="watch",
        victims=tuple(sorted({*verdict.victims, *others})),
        evidence_against=(*verdict.evidence_against, why),
    )


def _events_of(verdict: Verdict) -> set[str]:
    return {event for evidence in verdict.evidence_for for event in evidence.events}


def _index(memory: _Memory, verdict: Verdict) -> None:
    for event in _events_of(verdict):
        memory.by_event.setdefault(event, set()).add(verdict.id)


def _is_before(symptom: Symptom, back: dict[str, datetime]) -> bool:
    """Whether the node was away and came back since: what was seen before was seen to."""
    return symptom.node is not None and symptom.node in back and symptom.last < back[symptom.node]


def _known_again(connection: sa.Connection, changes: Sequence[VerdictChange]) -> list[VerdictChange]:
    """The changes, with those of verdicts that ended long ago and stand again by the same first sign: they are no new
    ones, for an id is given once.
    """
    ended = {one.id: one for one in verdicts_of(connection, [one.verdict.id for one in changes if one.before is None])}
    return [_again(change, ended.get(change.verdict.id) if change.before is None else None) for change in changes]


def _again(change: VerdictChange, ended: Verdict | None) -> VerdictChange:
    if ended is None:
        return change
    back = replace(change.verdict, state="revised", revision=ended.revision + 1)
    return VerdictChange(back, "it shows again", ended)


def _with_incidents(connection: sa.Connection, changes: Sequence[VerdictChange], now: datetime) -> list[VerdictChange]:
    """Changes that name the incidents of their verdicts: those of its events; of few changes, of its nodes, too."""
    firsts = known_incidents(connection, [event for change in changes for event in _events_of(change.verdict)])
    found = []
    for change in changes:
        one = change.verdict
        if one.state not in STANDING_STATES:
            found.append(change)
            continue
        incidents = dict.fromkeys((*one.incidents, *sorted(_events_of(one) & firsts)))
        if len(changes) <= _FEW_CHANGES:
            nodes = {*one.nodes, *([one.node] if one.node else [])}
            incidents.update(dict.fromkeys(incidents_of(connection, nodes, (one.since - _BEFORE, now))))
        found.append(replace(change, verdict=replace(one, incidents=tuple(incidents)[:_MOST_INCIDENTS])))
    return found

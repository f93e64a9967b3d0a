"""Requests that share a transaction: nobody is answered before the commit, nobody pays for another's mistake."""

import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from real.patience import patience
from sqlalchemy.exc import OperationalError

from api.intake.records import take_events
from api.server.joint_writes import JointWrites
from api.server.settings import ApiSettings
from api.server.state import State
from store.records.event import Event
from store.tables import schema

from .conftest import NOW


class Recorder:
    """A store that waits until it is let go, and remembers what was written together."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.begun = threading.Semaphore(0)
        self.together: list[list[int]] = []
        self._lock = threading.Lock()

    def write(self, items: Sequence[int]) -> int:
        """All or nothing; a negative item fits nowhere."""
        self.begun.release()
        assert self.free.wait(patience(30))
        if min(items) < 0:
            raise ValueError(f"{min(items)} does not fit")
        with self._lock:
            self.together.append(list(items))
        return len(items)


LONG_S = 3600.0


def joint(most_items: int = 100) -> JointWrites[int, int]:
    """Errors of the database are everybody's."""
    return JointWrites(most_items, lambda error: isinstance(error, OperationalError))


def queued(writes: JointWrites[int, int], count: int) -> None:
    """Wait until so many requests wait for a writer."""
    while len(writes._waiting) < count:
        threading.Event().wait(0.001)


def test_who_comes_while_others_write_is_written_with_the_others_that_wait() -> None:
    """Two write at a time; the five that come meanwhile are one transaction."""
    writes, store = joint(), Recorder()
    with ThreadPoolExecutor(8) as pool:
        first = []
        for n in (1, 2):
            first.append(pool.submit(writes.write, [n], store.write))
            store.begun.acquire()
        later = []
        for n in range(3, 8):
            later.append(pool.submit(writes.write, [n, n], store.write))
            queued(writes, n - 2)
        store.free.set()
        assert [done.result(patience(30)) for done in first] == [1, 1]
        assert {done.result(patience(30)) for done in later} == {10}
    assert sorted(map(sorted, store.together)) == [[1], [2], [3, 3, 4, 4, 5, 5, 6, 6, 7, 7]]


def test_a_transaction_holds_no_more_than_its_limit_but_any_one_request() -> None:
    """Seven and seven are two transactions of ten, and thirty are one of their own."""
    writes, store = joint(most_items=10), Recorder()
    with ThreadPoolExecutor(8) as pool:
        first = []
        for n in (1, 2):
            first.append(pool.submit(writes.write, [n], store.write))
            store.begun.acquire()
        later = []
        for place, size in enumerate((7, 7, 30), start=1):
            later.append(pool.submit(writes.write, [size] * size, store.write))
            queued(writes, place)
        store.free.set()
        assert [done.result(patience(30)) for done in later] == [7, 7, 30]
    assert sorted(map(len, store.together)) == [1, 1, 7, 7, 30]


def test_a_request_that_does_not_fit_is_told_so_alone() -> None:
    """The others of its transaction are written without it."""
    writes, store = joint(), Recorder()
    with ThreadPoolExecutor(8) as pool:
        first = []
        for n in (1, 2):
            first.append(pool.submit(writes.write, [n], store.write))
            store.begun.acquire()
        later = []
        for place, item in enumerate((3, -4, 5), start=1):
            later.append(pool.submit(writes.write, [item], store.write))
            queued(writes, place)
        store.free.set()
        assert (later[0].result(patience(30)), later[2].result(patience(30))) == (1, 1)
        with pytest.raises(ValueError, match="-4 does not fit"):
            later[1].result(patience(30))
    assert sorted(map(tuple, store.together)) == [(1,), (2,), (3,), (5,)]


def test_a_database_that_is_away_is_asked_once_for_all() -> None:
    """Each is told; none is tried alone, which would take the time limit once a request."""
    writes = joint()
    asked: list[int] = []
    gate, begun = threading.Event(), threading.Semaphore(0)

    def away(items: Sequence[int]) -> int:
        asked.append(len(items))
        begun.release()
        assert gate.wait(patience(30))
        raise OperationalError("INSERT", {}, Exception("gone"))

    with ThreadPoolExecutor(8) as pool:
        first = []
        for n in (1, 2):
            first.append(pool.submit(writes.write, [n], away))
            begun.acquire()
        later = []
        for n in range(3, 6):
            later.append(pool.submit(writes.write, [n], away))
            queued(writes, n - 2)
        gate.set()
        for done in (*first, *later):
            with pytest.raises(OperationalError):
                done.result(patience(30))
    assert sorted(asked) == [1, 1, 3]


def test_a_writer_that_is_ended_leaves_nobody_waiting() -> None:
    """An interrupt in the thread that writes is told to all whose items it had, and the next ones are written."""
    writes = joint()

    def interrupted(_items: Sequence[int]) -> int:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        writes.write([1], interrupted)
    assert writes.write([2], len) == 1


def test_what_is_cancelled_before_its_turn_is_not_written() -> None:
    """Its sender is gone, and sends it again; what is being written is written."""
    writes, store = joint(), Recorder()
    first = []
    for n in (1, 2):
        first.append(writes.send([n], store.write))
        store.begun.acquire()
    later = [writes.send([n], store.write) for n in (3, 4, 5)]
    assert (later[1].cancel(), first[0].cancel()) == (True, False)
    store.free.set()
    assert [sent.result(patience(30)) for sent in (*first, later[0], later[2])] == [1, 1, 2, 2]
    assert sorted(map(tuple, store.together)) == [(1,), (2,), (3, 5)]


def test_whether_it_keeps_up_is_told_by_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """By how much, and by how long nothing was written while something waits; what is written waits no more."""
    monkeypatch.setattr("api.server.joint_writes._MOST_WAITING", 10)
    writes, store = joint(), Recorder()
    sent = []
    for n in (1, 2):
        sent.append(writes.send([n], store.write))
        store.begun.acquire()
    assert writes.keeps_up(0.0)
    sent.append(writes.send([3], store.write))
    assert (writes.keeps_up(3600.0), writes.keeps_up(0.0)) == (True, False)
    sent.append(writes.send([4] * 10, store.write))
    assert not writes.keeps_up(3600.0)
    store.free.set()
    for one in sent:
        one.result(patience(30))
    assert writes.keeps_up(0.0)


def test_while_transactions_end_it_keeps_up_however_long_the_oldest_waits() -> None:
    """To hold senders back then would make the transactions small, and the server slower."""
    writes, store = joint(), Recorder()
    sent = []
    for n in (1, 2):
        sent.append(writes.send([n], store.write))
        store.begun.acquire()
    sent.append(writes.send([3], store.write))
    assert not writes.keeps_up(0.0), "none has ended since the oldest came"
    writes._wrote_at = time.monotonic() + LONG_S
    assert writes.keeps_up(0.0)
    store.free.set()
    for one in sent:
        one.result(patience(30))
    assert writes._wrote_at < time.monotonic(), "each that ends is noted"


def test_a_writer_that_had_nothing_to_do_is_there_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its thread ends after a while, and another one begins."""
    monkeypatch.setattr("api.server.joint_writes._LINGER_S", 0.01)
    writes = joint()
    assert writes.write([1], len) == 1
    deadline = time.monotonic() + patience(30)
    while writes._writers and time.monotonic() < deadline:
        time.sleep(0.005)
    assert writes._writers == 0
    assert writes.write([1, 2], len) == 2


def test_many_threads_at_once_lose_nothing_and_double_nothing() -> None:
    """Two hundred requests through two writers."""
    writes: JointWrites[int, int] = JointWrites(50, lambda _error: False)
    written: list[int] = []
    lock = threading.Lock()

    def write(items: Sequence[int]) -> int:
        with lock:
            written.extend(items)
        return len(items)

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda n: writes.write([n], write), range(200)))
    assert sorted(written) == list(range(200))


def test_of_the_same_event_sent_by_many_at_once_one_is_new(any_engine: sa.Engine) -> None:
    """Each sender is told of its own events; the counts of all sum to what is stored."""
    state = State(ApiSettings(), any_engine, lambda: NOW)
    sent = [
        [Event(NOW, "n1", "kernel", "xid", 79, "fatal", id=f"e{(node + step) % 40}") for step in range(5)]
        for node in range(40)
    ]
    with ThreadPoolExecutor(8) as pool:
        taken = list(pool.map(lambda events: take_events(state, events, (), "events"), sent))
    with any_engine.connect() as connection:
        stored = connection.scalar(sa.select(sa.func.count()).select_from(schema.events))
    assert stored == 40
    assert sum(one.accepted for one in taken) == 40
    assert all(one.accepted + one.known == 5 for one in taken)

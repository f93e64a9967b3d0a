"""The spool against a model: whatever is done to it, each event is pending or acknowledged, once and in order."""

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import orjson
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from collectors.collector import CollectorTurn
from collectors.spool.queue import Pending
from collectors.spool.spool import Spool
from store.records.event import Event, with_id

TIME = datetime(2025, 3, 1, 4, tzinfo=UTC)
SPEC = "file:/x"


def numbers(pending: Pending) -> list[int]:
    """The events of the test; what the spool says of its losses comes besides."""
    return [item["code"] for item in orjson.loads(orjson.dumps(pending.items)) if item["kind"] == "test"]


class SpoolMachine(RuleBasedStateMachine):
    """Numbers 0, 1, 2 ... are appended; the model says which of them must still be there."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(prefix="spool-model"))
        self.folder = self.root / "0"
        self.copies = 0
        self.written = 0  # the next number
        self.sent = 0  # numbers before it are acknowledged
        self.position = -1
        self.damaged = False
        self.spool = Spool(self.folder, 10**7)
        self.lent: tuple[Pending, int] | None = None

    def teardown(self) -> None:
        """Nothing stays."""
        self.spool.close()
        shutil.rmtree(self.root)

    @rule(count=st.integers(1, 30), size=st.sampled_from([1, 500, 20_000]))
    def append(self, count: int, size: int) -> None:
        """A turn's events and their position, durable on return."""
        codes = range(self.written, self.written + count)
        events = tuple(with_id(Event(TIME, "n1", "test", "test", code=n, message="x" * size)) for n in codes)
        self.spool.append(SPEC, CollectorTurn(events=events, position={"at": codes[-1]}))
        self.written += count
        self.position = codes[-1]

    @rule(max_items=st.sampled_from([1, 100, 5000]))
    def ship(self, max_items: int) -> None:
        """A request that is not answered yet."""
        pending = self.spool.pending("events", max_items, 10**6)
        self.lent = (pending, self.sent + len(numbers(pending)))

    @precondition(lambda self: self.lent is not None)
    @rule()
    def acknowledge(self) -> None:
        """The answer, perhaps of an older request, perhaps twice."""
        assert self.lent is not None
        pending, sent = self.lent
        self.spool.acknowledge("events", pending.cursor)
        self.sent = max(self.sent, sent)

    @rule(clean=st.booleans())
    def crash(self, clean: bool) -> None:
        """Go on from what is on disk at this moment."""
        self._reopen(clean)
        assert self._pending() == list(range(self.sent, self.written))
        assert (self.spool.position(SPEC) or {"at": -1})["at"] == self.position

    @precondition(lambda self: self.written > self.sent)
    @rule(cut=st.integers(1, 60))
    def torn_tail(self, cut: int) -> None:
        """The newest file ends early: its last records are gone, their position with them: they are read again."""
        newest = max((self.folder / "events").glob("*.seg"))
        size = newest.stat().st_size
        if size <= cut:
            return
        with newest.open("r+b") as file:
            file.truncate(size - cut)
        self._reopen(clean=False)
        found = self._pending()
        assert found == list(range(self.sent, self.sent + len(found)))
        self.position = (self.spool.position(SPEC) or {"at": -1})["at"]
        assert self.position + 1 <= max(self.sent + len(found), self.sent)
        self.written = max(self.position + 1, self.sent)
        self._drop_beyond_the_position(found)

    @precondition(lambda self: self.written > self.sent)
    @rule(place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
    def flipped_bit(self, place: float, bit: int) -> None:
        """Anywhere in any file: what comes out is a part of what went in, in order; a loss is counted."""
        files = sorted((self.folder / "events").glob("*.seg"))
        content = b"".join(path.read_bytes() for path in files)
        offset = int(place * len(content))
        for path in files:
            if offset < path.stat().st_size:
                raw = bytearray(path.read_bytes())
                raw[offset] ^= 1 << bit
                path.write_bytes(raw)
                break
            offset -= path.stat().st_size
        self._reopen(clean=False)
        found = self._pending()
        assert found == sorted(set(found))
        assert set(found) <= set(range(self.written))
        missing = set(range(self.sent, self.written)) - set(found)
        assert not missing or self.spool.damage_bytes() > 0
        self._start_afresh()

    @invariant()
    def nothing_is_counted_as_lost(self) -> None:
        """Damage apart, nothing was given up."""
        assert not self.spool.lost()["events", "full"]

    def _pending(self) -> list[int]:
        return numbers(self.spool.pending("events", 10**6, 10**9))

    def _drop_beyond_the_position(self, found: list[int]) -> None:
        """A turn of several records may be torn in its middle: its first ones are there, and come again."""
        if found and found[-1] > self.position:
            self._start_afresh()

    def _reopen(self, clean: bool) -> None:
        self.copies += 1
        copy = self.root / str(self.copies)
        if clean:
            self.spool.close()
            shutil.copytree(self.folder, copy)
        else:
            shutil.copytree(self.folder, copy)
            self.spool.close()
        self.folder = copy
        self.spool = Spool(copy, 10**7)
        self.lent = None  # what a process was about to acknowledge dies with it

    def _start_afresh(self) -> None:
        """The model cannot know which record was hit."""
        self.spool.acknowledge("events", self.spool.pending("events", 10**6, 10**9).cursor)
        self.lent = None
        self.sent = self.written
        self.position = (self.spool.position(SPEC) or {"at": -1})["at"]


SpoolMachine.TestCase.settings = settings(
    max_examples=20, stateful_step_count=15, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
TestSpool = SpoolMachine.TestCase

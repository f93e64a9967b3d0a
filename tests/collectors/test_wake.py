"""A wait that another thread ends."""

import gc
import os
import threading
import time
import weakref

import pytest
from real.patience import patience

from collectors.collector import Wake

LONG_S = 3600.0


def test_a_wait_ends_when_another_thread_says_so_and_so_does_every_later_one() -> None:
    """Set once, it stays set."""
    wake = Wake()
    waiting = threading.Thread(target=wake.wait, args=(LONG_S,), daemon=True)
    waiting.start()
    assert not wake.is_set
    wake.set()
    waiting.join(patience(20))
    assert not waiting.is_alive()
    assert wake.wait(LONG_S) == []
    assert wake.is_set


def test_a_wait_ends_when_a_descriptor_can_be_read() -> None:
    """It is named; one that cannot be read is not."""
    wake = Wake()
    reading, writing = os.pipe()
    other, other_end = os.pipe()
    try:
        assert wake.wait(0.0, reading, other) == []
        os.write(writing, b"x")
        assert wake.wait(LONG_S, reading, other) == [reading]
        wake.set()
        assert wake.wait(LONG_S, reading, other) == [reading]
        os.read(reading, 1)
        assert wake.wait(LONG_S, reading, other) == []
    finally:
        for descriptor in (reading, writing, other, other_end):
            os.close(descriptor)


@pytest.mark.parametrize("wait_s", [0.0, -1.0, 0.001])
def test_a_short_wait_is_short_and_none_is_none(wait_s: float) -> None:
    """It never comes back early: whoever waits in a loop would spin."""
    before = time.monotonic()
    assert Wake().wait(wait_s) == []
    assert time.monotonic() - before >= wait_s


def test_it_holds_its_descriptor_no_longer_than_it_lives() -> None:
    """A collector that was only made to see whether its SPEC is right leaves nothing open."""
    wake = Wake()
    seen, descriptor = weakref.ref(wake), wake._descriptor
    assert os.fstat(descriptor)
    del wake
    gc.collect()
    assert seen() is None
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)

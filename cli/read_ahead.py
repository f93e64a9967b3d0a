"""An iterator that another thread is ahead with: what it does outside the interpreter's lock runs beside us."""

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

Item = TypeVar("Item")
# Items that wait at once.
DEPTH = 2
_PATIENCE_S = 0.1


def read_ahead(source: Iterator[Item]) -> Iterator[Item]:
    """The items of a source, in order; what it raises is raised here."""
    waiting: queue.Queue[tuple[Item | None, BaseException | None]] = queue.Queue(DEPTH)
    gone = threading.Event()

    def put(item: Item | None, error: BaseException | None) -> None:
        while not gone.is_set():
            try:
                waiting.put((item, error), timeout=_PATIENCE_S)
            except queue.Full:
                continue
            return

    def read() -> None:
        try:
            for item in source:
                put(item, None)
                if gone.is_set():
                    return
            put(None, None)
        except BaseException as error:  # noqa: BLE001  # raised in the reader's thread
            put(None, error)

    thread = threading.Thread(target=read, name="read-ahead", daemon=True)
    thread.start()
    try:
        while True:
            item, error = waiting.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        gone.set()
        thread.join()

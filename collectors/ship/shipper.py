"""Takes batches out of the spool to the server, for ever: nothing is dropped because the server is away.

2xx: taken. 400, 413, 422: something in the batch is bad, so it is halved until the bad item is alone and put aside.
401, 403: a person must act: said loudly, tried again slowly. Anything else, or no answer: tried again, ever later.

Waits are never the same for two nodes, and a long backlog goes in large batches with a pause after each as long as its
answer took: the sidecars of a whole cluster catch up after a day without overrunning the server that came back.
"""

import logging
import os
import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from collectors.metrics import SidecarMetrics
from collectors.ship.transport import Backoff, ServerAnswer, ServerClient
from collectors.spool.state import QUEUES, Queue

if TYPE_CHECKING:
    from collectors.spool.spool import Spool

# What the server refused for good: kept on disk with its reason, for a person to look at.

_MOST_BYTES = 16 * 1024 * 1024


class RejectedFile:
    """`rejected.jsonl`: one line an item, `{"queue": ..., "reason": ..., "item": ...}`; one older file is kept."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def park(self, queue: Queue, item: Any, reason: str) -> None:
        """Put one item aside, durable on return.

        Raises:
            OSError: the disk is full or broken; the file is as it was.
        """
        size = self._path.stat().st_size if self._path.exists() else 0
        if size > _MOST_BYTES:
            self._path.replace(self._path.with_suffix(".jsonl.old"))
            size = 0
        line = orjson.dumps({"queue": queue, "reason": reason, "item": item}, option=orjson.OPT_APPEND_NEWLINE)
        with self._path.open("ab", buffering=0) as file:
            try:
                while line:
                    line = line[file.write(line) :]
                os.fsync(file.fileno())
            except OSError:
                with suppress(OSError):
                    file.truncate(size)
                raise


_LOG = logging.getLogger("foreshock.sidecar")
_PATHS: dict[Queue, str] = {"events": "/api/v1/events", "telemetry": "/api/v1/telemetry"}
_BATCH_ITEMS = 1000
_BATCH_BYTES = 1_000_000
# With more than this waiting, a batch takes more.
_LONG_BYTES = 4_000_000
_LONG_BATCH_ITEMS = 5000
_LONG_BATCH_BYTES = 4_000_000
_MOST_PAUSE_S = 5.0
_NEWS_S = 30.0  # whoever brings news says so
_MOST_NAMED = 50
_SLICE_S = 1.0  # a wait is looked at so often: a server that was changed is tried at once
_BAD = frozenset({400, 413, 422})
_DENIED_S = 30.0


class DeliveryRefusedError(Exception):
    """The server did not take a batch and may take it later."""

    def __init__(self, answer: ServerAnswer) -> None:
        super().__init__(answer.text or f"HTTP {answer.status}")
        self.answer = answer


class Shipper:
    """One thread's work: `run` until stopped."""

    def __init__(
        self,
        spool: "Spool",
        client: ServerClient,
        rejected: RejectedFile,
        metrics: SidecarMetrics,
        linger_s: float = 0.05,
    ) -> None:
        self._spool = spool
        self._client = client
        self._next: ServerClient | None = None
        self._rejected = rejected
        self._metrics = metrics
        self.linger_s = linger_s
        self._backoff = Backoff(0.5, 30.0)
        self._reported: str | None = None
        self._named: set[str] = set()  # why items were refused, as the log has it already
        self._refusals = 0
        self._next_told = 1000

    def run(self, stop: threading.Event) -> None:
        """Ship what there is, wait for more, until the stop event; the spool's `news`, set after it, end the wait."""
        while not stop.is_set():
            self._spool.news.wait(_NEWS_S)
            stop.wait(self.linger_s)  # what comes together goes together
            self._spool.news.clear()
            self._ship_all(stop)

    def use(self, client: ServerClient) -> None:
        """From the next request on, another client; the present one is closed."""
        self._next = client

    def close(self) -> None:
        """Let go of the connection, when `run` and `flush` are over."""
        self._client.close()
        if self._next is not None:
            self._next.close()

    def flush(self, deadline_s: float) -> bool:
        """One last try to bring everything to the server; False where something stays for the next start."""
        end = time.monotonic() + deadline_s
        try:
            while self._ship_once():
                if time.monotonic() > end:
                    return False
        except (DeliveryRefusedError, OSError):
            return False
        return True

    def _ship_all(self, stop: threading.Event) -> None:
        while not stop.is_set():
            long = self._is_long()
            began = time.monotonic()
            try:
                if not self._ship_once(long):
                    return
            except DeliveryRefusedError as error:
                self._wait(stop, self._wait_s(error.answer))
            except Exception as error:  # noqa: BLE001 - whatever it was (a full disk, say): the events stay, and wait
                self._tell(f"cannot ship: {type(error).__name__}: {error}")
                self._wait(stop, self._backoff.next_s())
            else:
                self._backoff.reset()
                if self._reported is not None:
                    self._reported = None
                    _LOG.info("the server takes events again")
                if long:
                    stop.wait(min(time.monotonic() - began, _MOST_PAUSE_S))

    def _wait(self, stop: threading.Event, wait_s: float) -> None:
        end = time.monotonic() + wait_s
        while self._next is None and (rest_s := end - time.monotonic()) > 0 and not stop.is_set():
            stop.wait(min(rest_s, _SLICE_S))

    def _is_long(self) -> bool:
        return sum(self._spool.backlog_bytes(queue) for queue in QUEUES) > _LONG_BYTES

    def _ship_once(self, long: bool = False) -> bool:
        """Ship one batch; False where nothing waits.

        Raises:
            DeliveryRefusedError: the batch stays where it is.
        """
        if self._next is not None:
            self._client.close()
            self._client, self._next = self._next, None
        limits = (_LONG_BATCH_ITEMS, _LONG_BATCH_BYTES) if long else (_BATCH_ITEMS, _BATCH_BYTES)
        for queue in QUEUES:
            if not self._spool.backlog_bytes(queue):
                continue
            pending = self._spool.pending(queue, *limits)
            if pending.items:
                self._send(queue, pending.items)
            self._spool.acknowledge(queue, pending.cursor)
            if pending.items:
                return True
        return False

    def _send(self, queue: Queue, items: Sequence[Any]) -> None:
        self._metrics.requests.labels(queue).inc()
        began = time.monotonic()
        answer = self._client.post(_PATHS[queue], items)
        self._metrics.request_s.labels(queue).observe(time.monotonic() - began)
        if 200 <= answer.status < 300:
            self._settle(queue, items, answer)
        elif answer.status not in _BAD:
            raise DeliveryRefusedError(answer)
        elif len(items) > 1:
            self._halves(queue, items)
        else:
            self._park(queue, items[0], f"HTTP {answer.status}: {answer.text}")

    def _settle(self, queue: Queue, items: Sequence[Any], answer: ServerAnswer) -> None:
        refused, unnamed = _refused(answer.body, len(items))
        if unnamed and len(items) > 1:  # the answer names only the first of many: ask again in halves
            self._halves(queue, items)
            return
        for index, detail in refused:
            self._park(queue, items[index], detail)
        self._metrics.shipped.labels(queue).inc(len(items) - len(refused))
        self._metrics.delivered()

    def _halves(self, queue: Queue, items: Sequence[Any]) -> None:
        middle = len(items) // 2
        self._send(queue, items[:middle])
        self._send(queue, items[middle:])

    def _park(self, queue: Queue, item: Any, reason: str) -> None:
        self._rejected.park(queue, item, reason)
        self._metrics.rejected.labels(queue).inc()
        self._metrics.rejected_total += 1
        self._refusals += 1
        if reason not in self._named and len(self._named) < _MOST_NAMED:
            self._named.add(reason)
            _LOG.error("the server refuses an item of %s, kept in rejected.jsonl: %s", queue, reason[:200])
        elif self._refusals >= self._next_told:  # a node that is refused again and again fills no log
            self._next_told = 10 * self._refusals
            _LOG.error("the server has refused %d items, kept in rejected.jsonl: %s", self._refusals, reason[:200])

    def _wait_s(self, answer: ServerAnswer) -> float:
        reason = "unreachable" if answer.status == 0 else str(answer.status)
        self._metrics.request_failures.labels(reason).inc()
        if answer.is_denied():
            self._tell(answer.why())
            return _DENIED_S * random.uniform(0.75, 1.25)  # noqa: S311
        self._tell(f"the server does not take events, trying again: {answer.why()}")
        wait_s = self._backoff.next_s()
        if answer.retry_after_s is None:
            return wait_s
        # Every sidecar got the same number: they must not come back in the same moment.
        return max(wait_s, answer.retry_after_s * random.uniform(1.0, 1.5))  # noqa: S311

    def _tell(self, text: str) -> None:
        if text != self._reported:  # the same again and again is said once
            self._reported = text
            _LOG.error("%s", text)


def _refused(body: bytes, sent: int) -> tuple[list[tuple[int, str]], bool]:
    """The items that the server's answer names as bad, by index, with what is wrong; and whether there are more."""
    try:
        answer = orjson.loads(body)
        named = {int(entry["line"]) - 1: str(entry["detail"]) for entry in answer["rejected"]}
        taken = int(answer["accepted"]) + int(answer["known"])
    except (ValueError, KeyError, TypeError):
        return [], False
    refused = [(index, detail) for index, detail in sorted(named.items()) if 0 <= index < sent]
    return refused, taken + len(refused) < sent

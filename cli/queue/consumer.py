"""Takes batches from JetStream into the store: acknowledged after the commit, and not before.

What is delivered twice changes nothing. A database that is away sends messages back, later and later. A message that is
no batch, or a record that does not fit, goes to `foreshock.rejected` and is done with.
"""

import asyncio
import base64
import logging
from collections.abc import Coroutine, Sequence
from typing import Any

import orjson
from prometheus_client import Counter, Gauge
from sqlalchemy.exc import SQLAlchemyError

from api.batches import NoBatchError, QueueBatch, Refused, check, take_batches, unpack
from api.edge.problem import why_unavailable
from api.server.state import State
from cli.queue.nats_stream import REJECTED_SUBJECT, StreamSettings, ensure_stream
from collectors.ship.nats_transport import ENCODING_HEADER, FLEET, connect, node_of
from collectors.ship.transport import Backoff, ServerAccess

_FETCH_S = 1.0
_LAG_EVERY_S = 5.0
_MOST_SHOWN = 200_000  # bytes of a refused message that are kept
_log = logging.getLogger("foreshock.consume")


class Consumer:
    """One process's consumer; any number share a durable name, and so the work."""

    def __init__(self, state: State, settings: StreamSettings) -> None:
        self._state = state
        self._settings = settings
        self._backoff = Backoff(1.0, 30.0)
        registry = state.metrics.registry
        self.messages = Counter(
            "foreshock_consumed_messages",
            "Messages of the queue, by what became of them.",
            ["result"],
            registry=registry,
        )
        self.waiting = Gauge("foreshock_queue_waiting", "Messages that no consumer has taken yet.", registry=registry)
        self.unacknowledged = Gauge(
            "foreshock_queue_unacknowledged",
            "Messages that a consumer has taken and not stored yet.",
            registry=registry,
        )

    async def run(self, url: str, access: ServerAccess, stop: asyncio.Event) -> None:
        """Consume until told to stop; what was fetched by then is stored first.

        A server that is not there yet is waited for.

        Raises:
            Exception: nats-py's own: the server lets nobody in, or the stream cannot be made.
        """
        options = {"allow_reconnect": True, "max_reconnect_attempts": -1, "reconnect_time_wait": 1}
        client = await _unless_stopped(connect(url, access, **options), stop, access.timeout_s)
        if client is None:
            return
        try:
            stream = client.jetstream(timeout=access.timeout_s)
            await ensure_stream(stream, self._settings)
            settings = self._settings
            pulled = await stream.pull_subscribe_bind(consumer=settings.durable, stream=settings.name)
            lag = asyncio.create_task(self._watch_lag(pulled))
            try:
                while not stop.is_set():
                    await self._turn(stream, pulled, stop)
            finally:
                lag.cancel()
        finally:
            await client.close()

    async def _turn(self, stream: Any, pulled: Any, stop: asyncio.Event) -> None:
        from nats.errors import Error
        from nats.errors import TimeoutError as NatsTimeoutError

        try:
            messages = await pulled.fetch(self._settings.batch, timeout=_FETCH_S)
        except (NatsTimeoutError, TimeoutError):
            return
        except (Error, OSError) as error:  # the queue is away, or was made anew: the client connects again by itself
            _log.warning("the queue does not answer: %s: %s", type(error).__name__, error)
            await _pause(stop, self._backoff.next_s())
            return
        busy = asyncio.create_task(self._keep(messages))
        try:
            await self._take(stream, messages, stop)
        except (Error, OSError) as error:
            _log.warning("what was stored could not be acknowledged, and comes again: %s", error)
        finally:
            busy.cancel()

    async def _take(self, stream: Any, messages: Sequence[Any], stop: asyncio.Event) -> None:
        whole: list[tuple[Any, QueueBatch]] = []
        for message in messages:
            try:
                whole.append((message, self._batch(message)))
            except NoBatchError as error:
                await self._park_message(stream, message, str(error))
        if not whole:
            return
        try:
            refused = await asyncio.to_thread(take_batches, self._state, [batch for _, batch in whole])
        except Exception as error:  # noqa: BLE001 - told apart here: the database's, for now, or a batch's, for ever
            await self._failed(stream, whole, error, stop)
            return
        self._backoff.reset()
        for record in refused:
            await self._park(stream, whole[record.batch][0].subject, record)
        for message, _ in whole:
            await message.ack()
        self.messages.labels("stored").inc(len(whole))

    async def _failed(
        self, stream: Any, whole: Sequence[tuple[Any, QueueBatch]], error: Exception, stop: asyncio.Event
    ) -> None:
        """The database is away: all come again later. It is not: the batch that it refuses is found and put aside."""
        away = why_unavailable(error)
        if away is not None or len(whole) == 1:
            detail = away.detail if away is not None else f"{type(error).__name__}: {error}"
            if away is None:
                await self._park_message(stream, whole[0][0], detail[:1000])
                return
            wait_s = self._backoff.next_s()
            _log.warning("%d messages are put back for %.0f s: %s", len(whole), wait_s, detail)
            for message, _ in whole:
                await message.nak(delay=wait_s)
            self.messages.labels("put_back").inc(len(whole))
            await _pause(stop, wait_s)
            return
        if not isinstance(error, NoBatchError | SQLAlchemyError):
            _log.exception("a batch cannot be stored", exc_info=error)
        for pair in whole:
            await self._take(stream, [pair[0]], stop)

    def _batch(self, message: Any) -> QueueBatch:
        parts = message.subject.split(".")
        encoding = (message.headers or {}).get(ENCODING_HEADER)
        body = unpack(message.data, encoding, self._state.settings.body_limit_bytes)
        node = None if parts[-1] == FLEET else node_of(parts[-1])
        batch = QueueBatch(parts[1] if len(parts) == 3 else "", body, node)
        check(batch)
        return batch

    async def _park_message(self, stream: Any, message: Any, detail: str) -> None:
        """Put a whole message aside: first safe elsewhere, then done with."""
        data = base64.b64encode(message.data[:_MOST_SHOWN]).decode()
        await self._park(stream, message.subject, Refused(0, {"base64": data}, detail))
        await message.term()
        self.messages.labels("rejected").inc()

    async def _park(self, stream: Any, subject: str, refused: Refused) -> None:
        _log.error("a record of %s does not fit, and is kept at %s: %s", subject, REJECTED_SUBJECT, refused.detail)
        record = {"subject": subject, "reason": refused.detail, "item": refused.record}
        await stream.publish(REJECTED_SUBJECT, orjson.dumps(record))

    async def _keep(self, messages: Sequence[Any]) -> None:
        """Tell JetStream that messages are being worked on, while a slow database takes its time."""
        while True:
            await asyncio.sleep(self._settings.ack_wait_s / 3)
            for message in messages:
                if not message.is_acked:
                    await message.in_progress()

    async def _watch_lag(self, pulled: Any) -> None:
        from nats.errors import Error

        while True:
            try:
                info = await pulled.consumer_info()
                self.waiting.set(info.num_pending)
                self.unacknowledged.set(info.num_ack_pending)
            except (Error, OSError, TimeoutError):
                self.waiting.set(float("nan"))  # not known is not zero
            await asyncio.sleep(_LAG_EVERY_S)


async def _unless_stopped(connecting: Coroutine[Any, Any, Any], stop: asyncio.Event, patience_s: float) -> Any:
    """The connection; None where the end came first."""
    connected, ended = asyncio.create_task(connecting), asyncio.create_task(stop.wait())
    both = {connected, ended}
    done, _ = await asyncio.wait(both, timeout=patience_s, return_when=asyncio.FIRST_COMPLETED)
    if not done:
        _log.warning("the queue does not answer yet: it is asked again every second")
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
    ended.cancel()
    if connected.done():
        return connected.result()
    while not connected.done():  # Python 3.11's wait_for may swallow one that comes with a refusal
        connected.cancel()
        await asyncio.wait({connected}, timeout=0.1)
    return None


async def _pause(stop: asyncio.Event, wait_s: float) -> None:
    """Wait, but not past the end."""
    try:
        async with asyncio.timeout(wait_s):
            await stop.wait()
    except TimeoutError:
        pass

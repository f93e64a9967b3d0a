"""An answer in time, whatever the database does: 503 where there is none.

A thread that waits for a database cannot be interrupted: the work goes on behind the answer, and keeps its slot until
it ends. So it may still be done; sending it again changes nothing.
"""

import asyncio

from fastapi import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.metrics import Metrics
from api.problem import problem
from api.shedding import retry_after


class AnswerWithin:
    """Pure ASGI: counts from when the whole request is there."""

    def __init__(self, app: ASGIApp, answer_s: float, metrics: Metrics) -> None:
        self._app = app
        self._answer_s = answer_s
        self._metrics = metrics
        self._late: set[asyncio.Task[None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on; answer in the application's place where it is late."""
        if scope["type"] != "http" or not self._answer_s:
            await self._app(scope, receive, send)
            return
        watch = _Watch(self._answer_s, receive, send)
        task: asyncio.Task[None] = asyncio.ensure_future(self._app(scope, watch.receive, watch.send))
        task.add_done_callback(lambda _: watch.over())
        if scope["method"] in ("GET", "HEAD"):
            watch.arm()
        try:
            await watch.ended
        except asyncio.CancelledError:
            task.cancel()
            raise
        finally:
            watch.disarm()
        if task.done() or watch.answering:
            await task
            return
        watch.muted = True
        self._late.add(task)
        task.add_done_callback(self._forget)
        self._metrics.shed.labels("late").inc()
        detail = f"no answer within {self._answer_s:g} s: the database is slow or gone; what was sent may be done yet"
        await problem(Request(scope), 503, detail, {"Retry-After": retry_after(1.0)})(scope, receive, send)

    def _forget(self, task: asyncio.Task[None]) -> None:
        self._late.discard(task)
        if not task.cancelled():
            task.exception()  # the application has logged it; here it is only taken note of


class _Watch:
    """One request: when its body was there, whether its answer has begun, and whether its time is over."""

    def __init__(self, answer_s: float, receive: Receive, send: Send) -> None:
        self._loop = asyncio.get_running_loop()
        self._answer_s = answer_s
        self._receive = receive
        self._send = send
        self._timer: asyncio.TimerHandle | None = None
        self.ended: asyncio.Future[None] = self._loop.create_future()
        self.answering = False
        self.muted = False

    def arm(self) -> None:
        """The request is whole: the time runs."""
        if self._timer is None:
            self._timer = self._loop.call_later(self._answer_s, self.over)

    def disarm(self) -> None:
        """The answer is there."""
        if self._timer is not None:
            self._timer.cancel()

    def over(self) -> None:
        """There is an answer, or no time left."""
        if not self.ended.done():
            self.ended.set_result(None)

    async def receive(self) -> Message:
        """The next message of the client."""
        message = await self._receive()
        if not message.get("more_body"):
            self.arm()
        return message

    async def send(self, message: Message) -> None:
        """The next message to the client, unless it was answered already."""
        if not self.muted:
            self.answering = True
            await self._send(message)

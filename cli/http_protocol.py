"""uvicorn's HTTP protocol, which gives up a client that does not come to the end of its request's headers.

uvicorn itself bounds the pause between two requests of a connection, and the body has its own limit (`body_s`).
"""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

# A connection without a whole request for so long is closed: each holds a file descriptor.
HEADERS_S = 20.0


class PatientProtocol(H11Protocol):
    """Closes what never becomes a request."""

    _headers_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        """A client is there: its first request is to follow."""
        super().connection_made(transport)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """More of a request: the rest of unfinished headers must come in time, however many pieces it comes in."""
        super().data_received(data)
        if self.conn.their_state is h11.IDLE:
            self._expect()
        else:
            self._expected()

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._expected()
        super().connection_lost(exc)

    def _expect(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def _expected(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None

"""uvicorn's server, which says where it is, and its HTTP protocol, which gives up a client that sends half a request.

uvicorn itself bounds the pause between two requests of a connection, and the body has its own limit (`body_s`).
A client that has hung up before its request's turn comes is not served: under overload that is most of the work.
"""

import asyncio
import gc
import select
import socket
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cli.console.output import print_text
from cli.processes.servers import Member, shown
from cli.processes.tls import EXTENSION, extension_of

# A connection without a whole request for so long is closed: each holds a file descriptor.
HEADERS_S = 20.0
# The address and headers of one request; the parser has no limit of its own.
MOST_HEADER_BYTES = 64 * 1024
MOST_HEADERS = 200
# A client of TLS that rests does not say goodbye: so long after the server's end began its connection is cut.
_GOODBYE_S = 1.0


class PatientProtocol(HttpToolsProtocol):
    """Closes what never becomes a request, and what nobody waits for."""

    _headers_timer: asyncio.TimerHandle | None = None
    _between = True  # no request has begun since the last one was whole
    _unfinished = True  # headers are on their way
    _header_bytes = 0  # of unfinished headers, as they came
    _request_bytes = 0  # of this request's, though all came at once
    _tls: dict[object, object] | None = None  # of the connection: read once, handed to each of its requests

    def connection_made(self, transport: Any) -> None:
        """A client is there: its first request is to follow."""
        super().connection_made(transport)
        self._tls = extension_of(transport.get_extra_info)
        self._expect()

    def data_received(self, data: bytes) -> None:
        """More of a request: the rest of unfinished headers must come in time, however many pieces it comes in."""
        if self._between and self.rests:
            self._unfinished = True  # an empty line is no request, but counts as the beginning of one
        super().data_received(data)
        if not self._unfinished:
            self._expected()
            return
        self._expect()
        self._header_bytes += len(data)
        if self._header_bytes > MOST_HEADER_BYTES and not self.transport.is_closing():
            self.send_400_response("The headers are too long.")

    @property
    def rests(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or bool(self.cycle.response_complete)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client is gone."""
        self._expected()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A request begins."""
        self._between, self._unfinished = False, True
        self._request_bytes = 0
        super().on_message_begin()
        if self._tls is not None:
            self.scope["extensions"] = {EXTENSION: self._tls}

    def on_url(self, url: bytes) -> None:
        """A part of the address."""
        self._request_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header."""
        self._request_bytes += len(name) + len(value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Its headers are there: its turn comes, unless nobody waits for the answer any more."""
        self._unfinished, self._header_bytes = False, 0
        if self._is_gone():
            self.transport.abort()
            return
        if self._request_bytes > MOST_HEADER_BYTES or len(self.headers) > MOST_HEADERS:
            self.send_400_response("The headers are too long.")
            return
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A part of the body."""
        if not self.transport.is_closing():
            super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is whole."""
        self._between = True
        if not self.transport.is_closing():
            super().on_message_complete()

    def _is_gone(self) -> bool:
        """Whether the client has hung up, though the event loop has not come to read that yet."""
        if self.transport.is_closing():
            return True
        descriptor = self.transport.get_extra_info("socket").fileno()
        if descriptor < 0:
            return True
        poll = select.poll()
        poll.register(descriptor, select.POLLRDHUP)
        return bool(poll.poll(0))

    def _expect(self) -> None:
        if self._headers_timer is None:
            self._headers_timer = self.loop.call_later(HEADERS_S, self.transport.close)

    def _expected(self) -> None:
        if self._headers_timer is not None:
            self._headers_timer.cancel()
            self._headers_timer = None


class Server(uvicorn.Server):
    """Says where it is once it answers; one of several tells that to its parent instead."""

    def __init__(self, config: uvicorn.Config, member: Member | None) -> None:
        super().__init__(config)
        self._member = member

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start listening, then print the address: with port 0 nobody knows it before."""
        await super().startup(sockets)
        # What is loaded by now stays. A full collection would look at all of it each time, and stop every request for
        # a tenth of a second; nor is there one now, for the thousand objects that loading left behind.
        gc.freeze()
        gc.enable()
        if self.started and self._member is not None:
            self._member.say_ready()
        elif self.started and self.servers:
            print_text(f"API {shown(self.servers[0].sockets[0], self.config.ssl is not None)}")

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Answer what is asked, and wait for no connection on which nothing is."""
        goodbye = asyncio.get_running_loop().call_later(_GOODBYE_S, self._cut_resting)
        await super().shutdown(sockets)
        goodbye.cancel()

    def _cut_resting(self) -> None:
        for connection in list(self.server_state.connections):
            if isinstance(connection, PatientProtocol) and connection.rests:
                connection.transport.abort()

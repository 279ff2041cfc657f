"""One HTTP connection: sends files by the kernel, limits a request's head, and enforces deadlines on the client."""

import asyncio
from collections.abc import Sequence
from functools import partial
import logging
import os
import socket
import struct
from typing import Any, cast

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from api import errors as problems
from api.limits.connections import ConnectionLimits
from api.middleware.browsers import SECURITY_HEADERS
from api.server.address import host_of, is_trusted, peer_address
from api.server.origins import OriginNames
from api.server.output import Output
from api.server.tunnel import Tunnel, is_stream
from api.settings import Settings
from torchyard.contract.errors import (
    HeadersTooLarge,
    MalformedHttp,
    RequestTimeout,
    TorchyardError,
    UrlTooLong,
)

ZERO_COPY = "http.response.zerocopysend"
"""The ASGI extension by which a server sends a part of an open file."""

_LINGER_S = 5
"""Seconds to read on after the last answer: closing at once could destroy the answer on its way (RFC 9112, 9.6)."""

_MOST_URL_BYTES = 8_192
_MOST_HEADER_BYTES = 8_192
"""Largest size of one header."""
_MOST_HEADERS_BYTES = 32_768
_MOST_HEADERS = 100
_MOST_UNPARSED_BYTES = _MOST_URL_BYTES + 2 * _MOST_HEADERS_BYTES
_SENDFILE_BYTES = 1 << 23
_BYTES_ACKED = struct.Struct("120xQ")
"""`tcpi_bytes_acked` of Linux's `struct tcp_info`: the bytes that the client's kernel has acknowledged."""

_NO_HEAD = "the request's head was not complete"
_NO_BODY = "no byte of the request's body arrived"

_log = logging.getLogger(__name__)


class Connection(HttpToolsProtocol):
    """Requests that never reach the application are answered with a problem, as the application's errors are."""

    def __init__(
        self,
        config: Any,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._settings: Settings = config.settings
        self._limits: ConnectionLimits = config.connections
        self._names: OriginNames = config.names
        self._host: str | None = None
        self._deadline: float | None = None
        self._late_message = ""
        self._head_complete = False
        self._unparsed = 0
        self._input_ended = False
        self._closes_after_answer = False
        self._sending_file = False
        self._acked = -1
        self._acked_at = 0.0
        self._upgrades = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._set_deadline("", self._settings.head_timeout_s)
        address = peer_address(self.client)
        self._host = None if is_trusted(address, self._settings) else host_of(address)
        self._limits.rest(self, host=self._host)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._limits.leave(self, host=self._host)

    def end(self) -> None:
        """Closes the connection after what was written. Called when too many are idle."""
        self._input_ended = True
        self.transport.close()

    def data_received(self, data: bytes) -> None:
        if self._input_ended or self.parser is None:
            return
        self._unparsed += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            if self._upgrades:
                self.handle_websocket_upgrade()
            else:
                self.cycle.keep_alive = False  # an upgrade is ignored: RFC 9110, 7.8
        except httptools.HttpParserError as error:
            cause = error.__context__
            self._refuse(cause if isinstance(cause, TorchyardError) else MalformedHttp("the request is not valid HTTP"))
        else:
            if self._unparsed > _MOST_UNPARSED_BYTES:
                self._refuse(self._head_too_large())

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        self._head_complete = False
        self._set_deadline(_NO_HEAD, self._settings.head_timeout_s)
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._head_complete:  # otherwise it is a trailer
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Raises TorchyardError, which the parser wraps and `data_received` unwraps."""
        self._head_complete = True
        if len(self.url) > _MOST_URL_BYTES or not _are_small([len(name) + len(value) for name, value in self.headers]):
            raise self._head_too_large()
        refused = self._limits.serve(self, host=self._host)
        if refused is not None:
            raise refused
        self._unset_keepalive_if_required()  # the answer to an earlier request may have set it meanwhile
        self._upgrades = self._asks_for_stream()
        self._set_deadline(_NO_BODY, self._settings.body_timeout_s)
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        """Leaves the connection to a `Tunnel`, which counts as it did."""
        super().handle_websocket_upgrade()
        self._deadline = None
        tunnel = cast("Tunnel", self.transport.get_protocol())
        self._limits.leave(self, host=self._host)
        tunnel.count(self._limits, host=self._host)

    def _should_upgrade(self) -> bool:
        return self._upgrades

    def _asks_for_stream(self) -> bool:
        """Whether the request, which has nothing before it and no body, opens a WebSocket where there is one."""
        is_first = self.cycle is None or (self.cycle.response_complete and not self.pipeline)
        has_body = any(name in {b"content-length", b"transfer-encoding"} for name, _ in self.headers)
        is_right = self.parser.get_method() == b"GET" and self.parser.get_http_version() == "1.1"
        has_one = is_stream(self.url) or self._names.name_in(self.headers) is not None
        may = is_first and is_right and not has_body and has_one
        return may and self.parser.should_upgrade() and self._get_upgrade() == b"websocket"

    def on_body(self, body: bytes) -> None:
        self._unparsed = 0
        if not self.cycle.response_complete:  # after the answer the deadline holds for the whole rest
            self._set_deadline(_NO_BODY, self._settings.body_timeout_s)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._unparsed = 0
        self._deadline = None
        super().on_message_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._closes_after_answer:
            self._unset_keepalive_if_required()
            self._end_after_answer()
        elif self.cycle.response_complete:  # otherwise a pipelined request is next
            self._limits.rest(self, host=self._host)

    def check_deadlines(self) -> None:
        """Ends the connection if the client is too slow. Called every second."""
        now = self.loop.time()
        if self._sending_file or self.transport.get_write_buffer_size():
            self._check_reader(now)
            return
        self._acked = -1
        if self._deadline is None or now < self._deadline:
            return
        if self.flow.read_paused:  # the client waits for the application
            self._set_deadline(self._late_message, self._settings.body_timeout_s)
        elif self._late_message:
            self._refuse(RequestTimeout(self._late_message))
        else:
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        super()._start_asgi_task(cycle, cast("Any", partial(self._run, cycle, app)))

    async def _run(self, cycle: RequestResponseCycle, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        output = cycle.transport = Output(self.transport, self.loop)  # type: ignore[assignment]

        async def send_files_too(message: Message) -> None:
            if message["type"] == ZERO_COPY:
                output.flush()
                await self._send_file(cycle, message)
            elif message["type"] == "http.response.start" and cycle.more_body:
                await self._start_last_answer(cycle, message, send)
            elif message["type"] == "http.response.start" and scope["method"] != "HEAD":
                output.hold()
                await send(message)
            else:
                await send(message)

        try:
            if self.transport.get_extra_info("sslcontext") is None:  # the kernel encrypts nothing
                scope["extensions"] = {ZERO_COPY: {}}
            await app(scope, receive, send_files_too)
        except (asyncio.CancelledError, problems.Interrupted) as ended:  # a shutdown ends requests after `_GRACE_S`
            _log.info("an answer to %s is not complete: %s", self.client, ended)
            cycle.disconnected = True
            self.transport.abort()

    async def _start_last_answer(self, cycle: RequestResponseCycle, message: Message, send: Send) -> None:
        """Starts the answer to a request whose body is incomplete. The rest is not read, so the connection ends."""
        await send({**message, "headers": [*message["headers"], (b"connection", b"close")]})
        self._closes_after_answer = True
        cycle.keep_alive = True  # so uvicorn leaves the closing to `_end_after_answer`

    async def _send_file(self, cycle: RequestResponseCycle, message: Message) -> None:
        """Implements the ASGI extension "Zero Copy Send". The message has every key."""
        file, offset, end = message["file"], message["offset"], message["offset"] + message["count"]
        self._sending_file = True
        try:
            while offset < end:
                if cycle.disconnected or self.transport.is_closing():
                    raise ConnectionResetError("the client closed the connection")
                count = min(_SENDFILE_BYTES, end - offset)
                # The kernel reads the next part ahead, so that no disk read blocks the event loop.
                os.posix_fadvise(file.fileno(), offset + count, _SENDFILE_BYTES, os.POSIX_FADV_WILLNEED)
                sent = await self.loop.sendfile(self.transport, file, offset, count)
                if not sent:
                    raise EOFError(f"{file.name} ends {end - offset} bytes early")
                offset += sent
                cycle.expected_content_length -= sent
        except OSError as error:
            raise problems.Interrupted(f"sending {file.name} failed: {error}") from error
        finally:
            self._sending_file = False
        if not message["more_body"]:
            await cycle.send({"type": "http.response.body", "body": b"", "more_body": False})

    def _set_deadline(self, late: str, seconds: float) -> None:
        """Gives the client `seconds`. After them `late` is answered; without it the connection is closed."""
        self._late_message = late and f"{late} within {seconds:g} s"
        self._deadline = self.loop.time() + seconds

    def _head_too_large(self) -> TorchyardError:
        if len(self.url) > _MOST_URL_BYTES:
            return UrlTooLong(f"send a URL of at most {_MOST_URL_BYTES} bytes")
        return HeadersTooLarge(
            f"send at most {_MOST_HEADERS} headers, each of {_MOST_HEADER_BYTES} bytes at most,"
            f" and of {_MOST_HEADERS_BYTES} bytes together"
        )

    def _refuse(self, error: TorchyardError) -> None:
        """Answers a request that does not reach the application, and ends the connection."""
        self._input_ended, cycle = True, cast("RequestResponseCycle | None", self.cycle)
        if cycle is not None and not cycle.more_body and not cycle.response_complete:
            cycle.keep_alive = False  # the answer to an earlier request is being sent, and is the last
            self._deadline = None
            return
        if cycle is not None and cycle.more_body:
            if self.pipeline or cycle.response_started:
                self._abort()
                return
            cycle.disconnected = cycle.response_complete = True
            cycle.message_event.set()
        _log.info("refused a request from %s: %s", self.client, error.message)
        self.transport.write(
            problems.http_answer(error, headers=[*self.server_state.default_headers, *SECURITY_HEADERS])
        )
        self._end_after_answer()

    def _end_after_answer(self) -> None:
        """Sends nothing more, and discards input until the client closes the connection or `_LINGER_S` have passed."""
        self._input_ended = True
        if self.transport.can_write_eof():  # TLS has no end in one direction
            self.transport.write_eof()
        self._set_deadline("", _LINGER_S)
        self._limits.rest(self, host=self._host)

    def _check_reader(self, now: float) -> None:
        """Aborts the connection if the client has acknowledged no byte of its answer for too long."""
        connection = self.transport.get_extra_info("socket")
        (acked,) = _BYTES_ACKED.unpack(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _BYTES_ACKED.size))
        if acked != self._acked:
            self._acked, self._acked_at = acked, now
        elif now - self._acked_at >= self._settings.stall_timeout_s:
            _log.info("aborted %s: it read nothing of its answer for %g s", self.client, now - self._acked_at)
            self._abort()

    def _abort(self) -> None:
        if not self._sending_file:
            self.transport.abort()
            return
        # The kernel's sendfile must end before the descriptor is closed; a shutdown makes it fail.
        self.transport.get_extra_info("socket").shutdown(socket.SHUT_RDWR)


def _are_small(headers: Sequence[int]) -> bool:
    """Returns whether headers of these sizes may be parsed."""
    most = max(headers, default=0)
    return most <= _MOST_HEADER_BYTES and sum(headers) <= _MOST_HEADERS_BYTES and len(headers) <= _MOST_HEADERS

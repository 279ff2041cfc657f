"""The HTTP server: uvicorn with the connections of `api.server.protocol`."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
import socket

from starlette.types import ASGIApp
import uvicorn

from api.limits.connections import ConnectionLimits
from api.server import loopback
from api.server.origins import OriginNames
from api.server.protocol import Connection
from api.server.tunnel import LARGEST_MESSAGE, Tunnel
from api.settings import Settings

_GRACE_S = 3
"""Seconds that a shutdown gives to open requests."""
IDLE_S = 15
"""Seconds without a request after which a connection is closed. Most clients close it themselves, after 5 s."""
_TICKS_A_SECOND = 10
"""Calls of `on_tick` a second: uvicorn makes them."""
_PING_S, _PONG_S = 20.0, 30.0
"""Seconds between the pings of a WebSocket, and until one must be answered. A proxy ends what is silent for longer."""
_HANDSHAKE_S = 10.0
"""Longest time for the handshake of TLS: until then a connection is in no limit."""
_CIPHERS = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""The ciphers for TLS 1.2. With TLS 1.3 all ciphers are allowed."""


class Server(uvicorn.Server):
    """Serves `app`. A shutdown calls each function of `closing` first, which ends requests that would not end."""

    def __init__(
        self, app: ASGIApp, settings: Settings, names: OriginNames, *, closing: Iterable[Callable[[], None]] = ()
    ) -> None:
        super().__init__(Config(app, settings, names))
        self._names = names
        self._held: list[socket.socket] = []
        self._closing = tuple(closing)

    async def on_tick(self, counter: int) -> bool:
        if counter % _TICKS_A_SECOND == 0:
            for connection in tuple(self.server_state.connections):
                if isinstance(connection, Connection):  # a tunnel has its pings
                    connection.check_deadlines()
        return await super().on_tick(counter)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        loop = asyncio.get_running_loop()
        if self.config.ssl is not None:  # uvicorn has no setting for it
            vars(loop)["create_server"] = partial(loop.create_server, ssl_handshake_timeout=_HANDSHAKE_S)
        await super().startup(sockets)
        if sockets is None:
            self._hold_loopback()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for close in self._closing:
            close()
        await super().shutdown(sockets)
        for each in self._held:
            each.close()

    def _hold_loopback(self) -> None:
        found = loopback.hold([each for server in self.servers for each in server.sockets])
        self._names.has_loopback = found is not None
        self._held = found or []


class Config(uvicorn.Config):
    def __init__(self, app: ASGIApp, settings: Settings, names: OriginNames) -> None:
        files = settings.tls_files
        super().__init__(
            app,
            host=settings.host,
            port=settings.port,
            loop="asyncio",
            http=Connection,
            ws=Tunnel,
            ws_max_size=LARGEST_MESSAGE,
            ws_ping_interval=_PING_S,
            ws_ping_timeout=_PONG_S,
            ws_per_message_deflate=False,
            access_log=False,
            log_config=None,
            proxy_headers=False,
            server_header=False,
            timeout_keep_alive=IDLE_S,
            timeout_graceful_shutdown=_GRACE_S,
            ssl_certfile=None if files is None else files.certificate,
            ssl_keyfile=None if files is None else files.key,
            ssl_ciphers=_CIPHERS,
        )
        self.settings = settings
        self.names = names
        self.connections = ConnectionLimits(settings)

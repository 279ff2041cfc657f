"""Opens the WebSocket of a meeting, on which client and service show each other that they know its secret."""

import logging
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException

from torchyard.client.discovery import Server
from torchyard.contract.errors import Conflict, Forbidden, ServerError, ServerUnreachable, TorchyardError
from torchyard.contract.reach.proof import Handshake
from torchyard.contract.reach.views import OpenedReachView
from torchyard.host import trust

_PING_S = 10.0
"""Also for how long an answer is awaited: a laptop that slept knows soon after that its connection is gone."""
_OPEN_S = 45.0
"""Of the proofs. The service waits 30 s for the worker."""
_LONGEST_MESSAGE = 1 << 20
_SILENT = logging.Logger(__name__, level=logging.CRITICAL)
"""It would write tracebacks to stderr, of connections that are cut."""
_ELSEWHERE = 4409
_REFUSED = {4400: ServerError, 4403: Forbidden, 4410: Conflict}
"""By the code with which the service closes: to come again would change nothing."""


class Cut(ServerUnreachable):
    """The connection is gone. The same client may come again, by another meeting."""


class Elsewhere(Cut):
    """The worker has come to another process of the service. Both may meet at the next meeting."""


async def open_meeting(server: Server, meeting: OpenedReachView) -> ClientConnection:
    """Returns the connection, on which the other end may already have spoken.

    Raises Cut if there is none, and another TorchyardError if it makes no sense to try again.
    """
    address = urlsplit(server.url)
    try:
        socket = await connect(
            f"{'wss' if address.scheme == 'https' else 'ws'}://{address.netloc}{address.path}{meeting.url}&end=client",
            ssl=trust.context(server.certificate) if address.scheme == "https" else None,
            proxy=None if trust.is_local(server.url) else True,
            compression=None,
            user_agent_header="torchyard",
            open_timeout=_OPEN_S,
            close_timeout=1,
            ping_interval=_PING_S,
            ping_timeout=_PING_S,
            max_size=_LONGEST_MESSAGE,
            write_limit=_LONGEST_MESSAGE,
            logger=_SILENT,
        )
    except InvalidStatus as error:
        status = error.response.status_code
        kind = Cut if status in {429, 502, 503, 504} else ServerError
        raise kind(f"{server.url} answered {status} where a WebSocket was to be opened") from None
    except (OSError, WebSocketException) as error:
        raise Cut(f"{server.url} cannot be reached: {str(error) or type(error).__name__}") from None
    try:
        await _prove(socket, meeting)
    except BaseException as error:
        await socket.close()
        if isinstance(error, ConnectionClosed):
            raise closed(error) from None
        raise
    return socket


def closed(error: ConnectionClosed) -> TorchyardError:
    """Returns what it means that the service, or the network, has ended a connection."""
    code, reason = (0, "") if error.rcvd is None else (error.rcvd.code, error.rcvd.reason)
    kind = Elsewhere if code == _ELSEWHERE else _REFUSED.get(code, Cut)
    return kind(reason or "the connection to the service was cut")


async def _prove(socket: ClientConnection, meeting: OpenedReachView) -> None:
    handshake = Handshake(meeting.secret, side="client", reach=meeting.id, meeting=meeting.meeting)
    try:
        await socket.send(handshake.answer(await socket.recv()))
        handshake.check(await socket.recv())
    except ValueError as error:
        raise ServerError(f"the service cannot be trusted: {error}") from None

"""Posts to addresses that users entered: to a checked address alone, within a time, and reading little."""

from collections.abc import Iterable, Mapping
import contextlib
from dataclasses import dataclass, field
from functools import cache
import ssl
import time

import httpcore2

from controller.notifications.addresses import Allowed, Resolve, checked
from controller.notifications.failure import NotDelivered
from controller.notifications.resolving import resolved
from torchyard.contract.notifications import web_address

EXCHANGE_S = 10.0
"""Seconds of one exchange, from the name of the host to the end of the answer."""
MOST_BYTES = 4096
"""Bytes of an answer that are read. They are not kept."""
_LONGEST_WAIT_S = 3600.0
_MOST_ADDRESSES = 4
"""Of one host, that are tried."""


@dataclass(frozen=True)
class Http:
    """Sends one request over one new connection. It follows no redirect and knows no proxy."""

    allowed: Allowed
    resolve: Resolve = resolved
    tls: ssl.SSLContext = field(default_factory=cache(httpcore2.default_ssl_context))
    """Verifies by the system's certificates, or those of SSL_CERT_FILE, which are read once."""
    exchange_s: float = EXCHANGE_S

    def post(self, url: str, body: bytes, *, headers: Mapping[str, str]) -> None:
        """Sends the body, and returns once the receiver has answered 2xx. Raises NotDelivered."""
        try:
            to = web_address.parse(url)
        except ValueError as error:
            raise NotDelivered(str(error), final=True) from None
        ends_at = time.monotonic() + self.exchange_s
        addresses = checked(to, self.allowed, timeout_s=self.exchange_s, resolve=self.resolve)
        network = _Pinned(addresses[:_MOST_ADDRESSES], ends_at=ends_at)
        sent = {"Host": to.authority, "User-Agent": "torchyard", "Accept-Encoding": "identity", "Connection": "close"}
        try:
            with httpcore2.ConnectionPool(ssl_context=self.tls, network_backend=network, max_connections=1) as pool:
                target = httpcore2.URL(scheme=_scheme(to), host=to.host, port=to.port, target=to.target)
                with pool.stream("POST", target, headers=[*{**sent, **headers}.items()], content=body) as answer:
                    _read_some(answer.iter_stream())
        except httpcore2.TimeoutException:
            raise NotDelivered(f"{to.host} did not answer within {self.exchange_s:g} s") from None
        except (httpcore2.NetworkError, httpcore2.ProtocolError, OSError) as error:
            raise NotDelivered(f"{to.host}: {_what(error)}") from None
        _judge(to.host, answer)


def _scheme(to: web_address.WebAddress) -> str:
    return "https" if to.secure else "http"


def _read_some(parts: Iterable[bytes]) -> None:
    """Reads the beginning of an answer: who sends a short one sees that it was read. Its status has said all."""
    read = 0
    with contextlib.suppress(httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError):
        for part in parts:
            read += len(part)
            if read >= MOST_BYTES:
                return


def _what(error: Exception) -> str:
    if isinstance(error, httpcore2.ProtocolError):
        return "the answer is not HTTP"
    return str(error)[:200] or "the connection was closed"


def _judge(host: str, answer: httpcore2.Response) -> None:
    status = answer.status
    if 200 <= status < 300:
        return
    if 300 <= status < 400:
        raise NotDelivered(f"{host} answered {status}, a redirect, which is not followed: enter the final address")
    if status == 410:
        raise NotDelivered(f"{host} answered 410: the address is gone", final=True)
    raise NotDelivered(f"{host} answered {status}", retry_after_s=_retry_after(answer))


def _retry_after(answer: httpcore2.Response) -> float | None:
    """The wait in seconds that the receiver asks for; None if it does not, or by a date."""
    for name, value in answer.headers:
        if name.lower() == b"retry-after" and value.isdigit() and len(value) < 7:
            return min(float(value), _LONGEST_WAIT_S)
    return None


class _Pinned(httpcore2.NetworkBackend):
    """Connects to addresses that were checked, whatever host it is asked for, until a moment."""

    def __init__(self, addresses: list[str], *, ends_at: float) -> None:
        self._addresses = addresses
        self._ends_at = ends_at
        self._system = httpcore2.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.NetworkStream:
        """Tries one address after the other. A slow one leaves time for the others."""
        for left, address in zip(range(len(self._addresses), 0, -1), self._addresses, strict=True):
            try:
                seconds = _left(self._ends_at) / left
                return _Timed(self._system.connect_tcp(address, port, seconds), self._ends_at)
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout):
                if left == 1:
                    raise
        raise httpcore2.ConnectError("there is no address")


class _Timed(httpcore2.NetworkStream):
    """A connection that is used until a moment, however little arrives at a time."""

    def __init__(self, stream: httpcore2.NetworkStream, ends_at: float) -> None:
        self._stream = stream
        self._ends_at = ends_at

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._stream.read(max_bytes, _left(self._ends_at))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._stream.write(buffer, _left(self._ends_at))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore2.NetworkStream:
        secured = self._stream.start_tls(ssl_context, server_hostname, _left(self._ends_at))
        return _Timed(secured, self._ends_at)

    def get_extra_info(self, info: str) -> object:
        return self._stream.get_extra_info(info)


def _left(ends_at: float) -> float:
    seconds = ends_at - time.monotonic()
    if seconds <= 0:
        raise httpcore2.ReadTimeout("timed out")
    return seconds

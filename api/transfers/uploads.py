"""The body of an upload, which is read as it arrives."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from api.openapi import bodies
from api.transfers.decoding import Decoder
from torchyard.contract.errors import InvalidRequest

_GATHERED_BYTES = 1 << 20


@dataclass(frozen=True)
class UploadedTar:
    """A tar, or a part of one. `decoder` makes its bytes from those that arrive."""

    decoder: Decoder
    request: Request

    def pieces(self) -> AsyncGenerator[bytes]:
        """Does what `pieces_of` does."""
        return pieces_of(self.request)


async def pieces_of(request: Request) -> AsyncGenerator[bytes]:
    """Yields the body as it arrives. Raises InvalidRequest."""
    try:
        async for piece in request.stream():
            if piece:
                yield piece
    except ClientDisconnect:
        cut = "the connection was closed before the body was complete; what arrived is kept"
        raise InvalidRequest(cut) from None


async def gathered(request: Request) -> AsyncGenerator[bytes]:
    """Yields the body in parts of about a MiB: each is work for a thread. Raises InvalidRequest after what arrived."""
    pieces, size = list[bytes](), 0
    try:
        async for piece in pieces_of(request):
            pieces.append(piece)
            size += len(piece)
            if size >= _GATHERED_BYTES:
                yield b"".join(pieces)
                pieces, size = [], 0
    except InvalidRequest:
        if pieces:
            yield b"".join(pieces)
        raise
    if pieces:
        yield b"".join(pieces)


@bodies.declares(bodies.TAR)
async def _tar(request: Request) -> UploadedTar:
    """Raises InvalidRequest for an unknown `Content-Encoding`."""
    return UploadedTar(Decoder(request.headers.get("content-encoding")), request)


TarBody = Annotated[UploadedTar, Depends(_tar)]
"""A route's parameter: the tar that the request uploads."""

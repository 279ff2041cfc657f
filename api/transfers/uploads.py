"""The body of an upload, which is read as it arrives."""

from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from starlette.requests import ClientDisconnect

from api.openapi import bodies
from api.transfers.decoding import Decoder
from torchyard.contract.errors import InvalidRequest


@dataclass(frozen=True)
class UploadedTar:
    """A tar, or a part of one. `decoder` makes its bytes from those that arrive."""

    decoder: Decoder
    request: Request

    async def pieces(self) -> AsyncGenerator[bytes]:
        """Yields the body as it arrives. Raises InvalidRequest."""
        try:
            async for piece in self.request.stream():
                if piece:
                    yield piece
        except ClientDisconnect:
            cut = "the connection was closed before the body was complete; what arrived is kept"
            raise InvalidRequest(cut) from None


@bodies.declares(bodies.TAR)
async def _tar(request: Request) -> UploadedTar:
    """Raises InvalidRequest for an unknown `Content-Encoding`."""
    return UploadedTar(Decoder(request.headers.get("content-encoding")), request)


TarBody = Annotated[UploadedTar, Depends(_tar)]
"""A route's parameter: the tar that the request uploads."""

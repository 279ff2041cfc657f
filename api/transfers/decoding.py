"""Decodes the body of an upload, plain or as one zstd stream, in pieces of bounded size."""

from collections.abc import Generator

from backports.zstd import DecompressionParameter, ZstdDecompressor, ZstdError

from torchyard.contract.bundles.names import is_compressed_too_much
from torchyard.contract.errors import FieldError, InvalidRequest

_PIECE = 1 << 20
_WINDOW_LOG = 23
"""The largest window is 8 MiB, as for every zstd body of HTTP (RFC 9659). It is what a decoder keeps in memory."""


class Decoder:
    """Decodes one body. `encoding` is its `Content-Encoding`, None without one. Raises InvalidRequest if unknown."""

    def __init__(self, encoding: str | None) -> None:
        coding = (encoding or "identity").strip().lower()
        if coding not in {"identity", "zstd"}:
            wrong = FieldError("Content-Encoding", f"{coding[:50]!r} is not possible: use zstd, or send the plain tar")
            raise InvalidRequest("the request is not valid", errors=(wrong,))
        options: dict[int, int] = {DecompressionParameter.window_log_max: _WINDOW_LOG}
        self._zstd = ZstdDecompressor(options=options) if coding == "zstd" else None
        self._read = self._made = 0

    def decode(self, data: bytes) -> Generator[bytes]:
        """Yields the plain bytes that `data` adds, in pieces of at most 1 MiB. Raises InvalidRequest."""
        if self._zstd is None:
            yield data
            return
        self._read += len(data)
        while True:
            if self._zstd.eof:
                if data or self._zstd.unused_data:
                    raise _invalid("the body continues after the end of its zstd stream")
                return
            try:
                piece = self._zstd.decompress(data, _PIECE)
            except ZstdError as error:
                raise _invalid(f"the body is not a zstd stream with a window of at most 8 MiB: {error}") from None
            data = b""
            self._count(piece)
            if piece:
                yield piece
            if self._zstd.needs_input:
                return

    def _count(self, piece: bytes) -> None:
        self._made += len(piece)
        if is_compressed_too_much(sent=self._read, decoded=self._made):
            raise _invalid("the body is compressed to less than 1/100: send it without compression")


def _invalid(message: str) -> InvalidRequest:
    return InvalidRequest(f"{message}; what this request sent is removed")

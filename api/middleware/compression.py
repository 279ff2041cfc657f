"""Compresses JSON answers. Streams, downloads and other answers pass through untouched, as the server sends files.

A long read compresses its answer in its own turns; all others are compressed here on their way out.
"""

from collections.abc import Generator
import gzip
import re
import zlib

from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import Response
from starlette.types import Message, Scope

_LEAST_BYTES = 1 << 11
"""JSON becomes about half as large or less. Where that saves less than 1 KiB, it costs more time than it saves."""
_THREAD_BYTES = 1 << 14
"""An answer of this size is compressed in a thread."""
_PART_BYTES = 1 << 20
"""So much of an answer is compressed in a turn: that takes some hundredths of a second."""
_LEVEL = 5
_GZIP = 16 + zlib.MAX_WBITS
"""The `wbits` by which zlib writes gzip."""
_TYPES = frozenset({b"application/json", b"application/problem+json"})
_NAMES = frozenset({"gzip", "x-gzip"})
_WEIGHT = re.compile(r"q=(?:0\.[0-9]{1,3}|1(?:\.0{0,3})?)")


def is_json(start: Message) -> bool:
    """Returns whether an answer that starts so may be compressed. Then its start waits until its body is known."""
    kind = next((value for name, value in start["headers"] if name.lower() == b"content-type"), b"")
    return kind.partition(b";")[0] in _TYPES


async def compressed_answer(scope: Scope, start: Message, message: Message) -> Message:
    """Returns the body of an answer of JSON, as gzip if it is large and the client accepts it.

    Adapts the headers in `start` to it.
    """
    MutableHeaders(scope=start).add_vary_header("Accept-Encoding")
    if _may_help(message) and accepts_gzip(Headers(scope=scope)):
        return await _compressed(start, message)
    return message


def accepts_gzip(headers: Headers) -> bool:
    """Returns whether the client accepts answers in gzip."""
    accepted = ",".join(headers.getlist("accept-encoding")).lower().split(",")
    return any(_is_gzip(*item.partition(";")) for item in accepted)


def _is_gzip(name: str, separator: str, weight: str) -> bool:
    if name.strip() not in _NAMES:
        return False
    weight = weight.strip()
    # `0`, `0.0` and so on: not acceptable (RFC 9110, 12.4.2).
    return not separator or (_WEIGHT.fullmatch(weight) is not None and weight.strip("q=0.") != "")


def gzipped(response: Response, request: Headers) -> Generator[None, None, Response]:
    """Compresses the body of an answer of JSON, if that is worth it and the client accepts it. Call it in a thread.

    It yields after each part of a large one.
    """
    if len(response.body) >= _LEAST_BYTES and accepts_gzip(request):
        response.body = yield from _compressed_in_parts(memoryview(response.body))
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(response.body))
    return response


def _may_help(message: Message) -> bool:
    return not message.get("more_body", False) and len(message.get("body", b"")) >= _LEAST_BYTES


async def _compressed(start: Message, message: Message) -> Message:
    """Returns `message` with a compressed body, and adapts the headers in `start`; an encoded one as it is."""
    body = message.get("body", b"")
    if "content-encoding" in Headers(raw=start["headers"]):
        return message
    if len(body) < _THREAD_BYTES:
        small = compressed(body)
    else:
        small = await run_in_threadpool(compressed, body)
    headers = MutableHeaders(scope=start)
    headers["Content-Encoding"] = "gzip"
    headers["Content-Length"] = str(len(small))
    if headers.get("etag", "").startswith('"'):
        headers["ETag"] = f"W/{headers['etag']}"  # a strong one stands for the uncompressed bytes
    return {**message, "body": small}


def compressed(body: bytes, *, level: int = _LEVEL) -> bytes:
    """Returns the body in gzip. `level`: up to 9, for what is compressed once and sent often."""
    return gzip.compress(body, level, mtime=0)


def _compressed_in_parts(body: memoryview) -> Generator[None, None, bytes]:
    if len(body) <= _PART_BYTES:
        return compressed(bytes(body))
    compressor, parts = zlib.compressobj(_LEVEL, wbits=_GZIP), list[bytes]()
    for first in range(0, len(body), _PART_BYTES):
        parts.append(compressor.compress(body[first : first + _PART_BYTES]))
        yield
    return b"".join([*parts, compressor.flush()])

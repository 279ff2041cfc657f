"""Drops cookies that this service never sets: Python's parser may take quadratic time for them."""

import re

from starlette.types import Scope

_PLAIN = re.compile(rb"[A-Za-z0-9_-]{1,200}")
"""Matches the names and the values of this service's cookies."""


def keep_plain(scope: Scope) -> None:
    """Drops cookies with quotes, or other characters that this service's cookies never have.

    A browser sends the cookies of all services of the host. Before Python 3.11.10 and 3.12.6, reading one with quotes
    takes time by the square of its length (CVE-2024-7592).
    """
    cookies = [value for name, value in scope["headers"] if name == b"cookie"]
    if cookies:  # most callers have none
        others = [header for header in scope["headers"] if header[0] != b"cookie"]
        sent = b";".join(cookies)
        scope["headers"] = [*others, (b"cookie", _plain(sent))] if sent else others


def _plain(cookies: bytes) -> bytes:
    pairs = [[part.strip() for part in cookie.partition(b"=")] for cookie in cookies.split(b";")]
    return b"; ".join(b"".join(pair) for pair in pairs if _PLAIN.fullmatch(pair[0]) and _PLAIN.fullmatch(pair[2]))

"""Signed links to single files, for downloads of a browser, which can send no header. They are not stored."""

from collections.abc import Callable
import hashlib
import hmac
import time
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit

PARAMETER = "link"
"""The parameter of the query that holds a link's end, session and signature."""
LIFETIME_S = 60
"""Seconds in which a download may begin."""


class FileLinks:
    """Makes and reads links. All API processes of a service need the same `secret`."""

    def __init__(self, secret: str, *, clock: Callable[[], float] = time.time) -> None:
        self._key = hashlib.sha256(f"file link {secret}".encode()).digest()
        self._clock = clock

    def make(self, session: str, target: str) -> tuple[str, int]:
        """Returns `target` (a path with its query) as a link for a session's digest, and when it ends (Unix time)."""
        parts = urlsplit(target)
        query = _without_link(parts.query)
        ends = int(self._clock()) + LIFETIME_S
        link = f"{ends}.{session}.{self._signature(ends, session, unquote(parts.path), query)}"
        return f"{parts.path}?{urlencode([*query, (PARAMETER, link)])}", ends

    def session_of(self, link: str, *, path: str, query: str) -> str | None:
        """Returns the digest of the session for which the link to this path, decoded, and this query was made.

        Returns None if it has ended, or was made for something else.
        """
        ends, _, rest = link.partition(".")
        session, _, signature = rest.partition(".")
        if not (ends.isascii() and ends.isdecimal()) or len(ends) > 12 or int(ends) <= self._clock():
            return None
        expected = self._signature(int(ends), session, path, _without_link(query))
        return session if hmac.compare_digest(signature.encode(), expected.encode()) else None

    def _signature(self, ends: int, session: str, path: str, query: list[tuple[str, str]]) -> str:
        text = "\n".join((str(ends), session, path, urlencode(query)))
        return hmac.new(self._key, text.encode(), hashlib.sha256).hexdigest()


def _without_link(query: str) -> list[tuple[str, str]]:
    return [item for item in parse_qsl(query, keep_blank_values=True) if item[0] != PARAMETER]

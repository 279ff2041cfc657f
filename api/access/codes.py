"""The one-time codes with which a browser on this machine logs in. Call everything here in the event loop."""

from collections.abc import Callable
from dataclasses import dataclass
import hashlib
import hmac
import secrets
import time

LIFETIME_S = 60
"""Seconds for which a code is valid."""
_MOST_OF_ONE = 10
"""Valid codes of one credential. The oldest ends when there are more."""


@dataclass(frozen=True)
class _Code:
    """A code that is valid until `ends`, and the credential for which it was made."""

    digest: bytes
    credential: str
    ends: float


class LoginCodes:
    """The valid codes of this process. Each ends when it is used."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._codes: list[_Code] = []

    def make(self, credential: str) -> str:
        """Returns a new code for the credential: a token's id, or the digest of the administrator's token."""
        code = secrets.token_urlsafe(32)
        self._drop_old()
        theirs = [made for made in self._codes if made.credential == credential]
        for oldest in theirs[: max(0, len(theirs) + 1 - _MOST_OF_ONE)]:
            self._codes.remove(oldest)
        self._codes.append(_Code(_digest(code), credential, self._clock() + LIFETIME_S))
        return code

    def take(self, code: str) -> str | None:
        """Returns the credential for which the code was made, and ends the code; None if it is not valid."""
        found = self._find(code)
        if found is None:
            return None
        self._codes.remove(found)
        return found.credential

    def look(self, code: str) -> str | None:
        """Returns what `take` does, and the code stays valid."""
        found = self._find(code)
        return None if found is None else found.credential

    def _find(self, code: str) -> _Code | None:
        self._drop_old()
        digest = _digest(code)
        return next((made for made in self._codes if hmac.compare_digest(made.digest, digest)), None)

    def _drop_old(self) -> None:
        now = self._clock()
        self._codes = [made for made in self._codes if made.ends > now]


def _digest(code: str) -> bytes:
    return hashlib.sha256(code.encode()).digest()

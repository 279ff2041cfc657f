"""What a bundle may contain, and how a job spec names it: the code or data of a user, as a tar, by its sha256."""

from collections.abc import Mapping
import re
from typing import Protocol
import unicodedata

from torchyard.contract.errors import InvalidBundle

MAX_BUNDLE_BYTES = 2 << 30
"""Bytes of a bundle's tar, by default."""
MAX_PACKED_BYTES = 200 << 20
"""Bytes that the client packs of a folder, unless its caller allows more."""
MAX_BUNDLE_FILES = 1_000_000
"""Files of a bundle, and as many folders, by default."""
MAX_NAME_BYTES = 1000
MAX_PART_BYTES = 255
BUNDLE_URL = "bundle:sha256:"
"""With the digest after it, this names a bundle in a job spec."""

_MOST_SHOWN = 10_000
"""Names of a folder that are remembered, to be shown beside one that differs in upper and lower case."""
_MOST_RATIO = 100
FREE_BYTES = 4 << 20
"""Bytes of a request that may be compressed to anything."""

_DIGEST = re.compile(r"[0-9a-f]{64}")
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")
"""Unicode's category Cc."""


def bundle_url(sha256: str) -> str:
    """Returns the URL of a bundle for a job spec."""
    return f"{BUNDLE_URL}{sha256}"


def is_digest(text: str) -> bool:
    """Returns whether the text can be a bundle's id."""
    return _DIGEST.fullmatch(text) is not None


def digest_in(url: str) -> str | None:
    """Returns the sha256 in a bundle's URL, or None if the URL names no bundle."""
    sha256 = url.removeprefix(BUNDLE_URL)
    return sha256 if sha256 != url and is_digest(sha256) else None


class NamesUrls(Protocol):
    """A job spec that knows the URLs of its code and data, by their fields."""

    @property
    def urls(self) -> Mapping[str, str]: ...


def bundles_of(spec: NamesUrls) -> dict[str, str]:
    """Returns the sha256 of each bundle that a job spec names, by the field that names it."""
    digests = {field: digest_in(url) for field, url in spec.urls.items()}
    return {field: sha256 for field, sha256 in digests.items() if sha256 is not None}


class Names:
    """The names of a bundle's files, which are added in the order of the tar.

    It keeps little of a long list: names are sorted, so a folder whose last file was added does not come again.
    """

    def __init__(self, max_files: int = MAX_BUNDLE_FILES) -> None:
        self._most = max_files
        self._files = self._folders = 0
        self._last = b""
        self._begun: dict[str, None] = {}
        """The last name, and those before it with which the next one begins: one may be the folder of a later one."""
        self._path: list[str] = []
        """The folder of the last name, by its parts."""
        self._spelled: list[_Spelled] = [_Spelled()]
        """The names in that folder, and in each of those above it."""

    def add(self, name: str) -> None:
        """Adds one name. Raises InvalidBundle if it is not allowed, alone or beside the others."""
        encoded = check_name(name)
        if self._files >= self._most:
            raise InvalidBundle(f"the bundle has more than {self._most} files: the first of too many is {name!r}")
        if encoded == self._last:
            raise InvalidBundle(f"{name!r} is in the bundle twice")
        if encoded < self._last:
            raise InvalidBundle(f"{name!r} follows {self._last.decode()!r}: names must be sorted by their bytes")
        while self._begun and not name.startswith(next(reversed(self._begun))):
            self._begun.popitem()
        *folders, own = name.split("/")
        self._enter(folders, name)
        self._spelled[-1].add(own, whole=name)
        self._begun[name] = None
        self._files += 1
        self._last = encoded

    def _enter(self, folders: list[str], name: str) -> None:
        """Goes to the folder of the next name."""
        if folders == self._path:
            return
        same = 0
        while same < min(len(folders), len(self._path)) and folders[same] == self._path[same]:
            same += 1
        del self._spelled[same + 1 :]
        for depth in range(same, len(folders)):
            folder = "/".join(folders[: depth + 1])
            if folder in self._begun:
                raise InvalidBundle(f"{folder!r} is a file, and the folder of {name!r}")
            if self._folders >= self._most:
                raise InvalidBundle(f"the bundle has more than {self._most} folders: one of too many is {folder!r}")
            self._spelled[-1].add(folders[depth], whole=folder)
            self._folders += 1
            self._spelled.append(_Spelled())
        self._path = folders


class _Spelled:
    """The names in one folder, without upper and lower case."""

    def __init__(self) -> None:
        self._folded: set[int] = set()
        """Their hashes: a million texts would take three times as much memory."""
        self._shown: dict[str, str] = {}

    def add(self, name: str, *, whole: str) -> None:
        """Adds a name that is not there. `whole`: with its folder. Raises InvalidBundle."""
        folded = name.casefold()
        before = len(self._folded)
        self._folded.add(hash(folded))
        if len(self._folded) == before:
            other = self._shown.get(folded)
            both = f"{other!r} and {whole!r}" if other is not None else f"{whole!r} and another name of its folder"
            raise InvalidBundle(f"{both} differ only in upper and lower case")
        if len(self._shown) < _MOST_SHOWN:
            self._shown[folded] = whole


def check_name(name: str) -> bytes:
    """Returns the name of a file in UTF-8. Raises InvalidBundle if no bundle may contain it."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise InvalidBundle(f"the name {name!r} is not UTF-8") from None
    if problem := _problem(name, encoded):
        raise InvalidBundle(f"the name {name[:200]!r} {problem}")
    return encoded


def _problem(name: str, encoded: bytes) -> str | None:
    """Returns what is wrong with a name, or None."""
    if not 1 <= len(encoded) <= MAX_NAME_BYTES:
        return f"has {len(encoded)} bytes: it must have 1 to {MAX_NAME_BYTES}"
    if _CONTROL.search(name) is not None:
        return "has a control character"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode's normal form C"
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "must be relative, with no empty part, no `.` and no `..`"
    if len(encoded) > MAX_PART_BYTES and any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"has a part of more than {MAX_PART_BYTES} bytes"
    return None


def is_compressed_too_much(*, sent: int, decoded: int, free: int = FREE_BYTES) -> bool:
    """Returns whether `sent` bytes of a request may not stand for `decoded` ones: few bytes must not fill a disk."""
    return decoded > free + _MOST_RATIO * sent

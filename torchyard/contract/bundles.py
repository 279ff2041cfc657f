"""What a bundle may contain, and how a job spec names it: the code or data of a user, as a tar, by its sha256."""

from collections.abc import Mapping
import re
from typing import Protocol
import unicodedata

from torchyard.contract.errors import InvalidBundle

MAX_BUNDLE_BYTES = 2 << 30
"""Bytes of a bundle's tar, by default."""
MAX_BUNDLE_FILES = 20_000
"""Files of a bundle, and as many folders, by default."""
MAX_NAME_BYTES = 1000
MAX_PART_BYTES = 255
BUNDLE_URL = "bundle:sha256:"
"""With the digest behind it, this names a bundle in a job spec."""

_MOST_RATIO = 100
FREE_BYTES = 4 << 20
"""Bytes of a request that may be compressed to anything."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


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
    found = {field: digest_in(url) for field, url in spec.urls.items()}
    return {field: sha256 for field, sha256 in found.items() if sha256 is not None}


class Names:
    """The names of a bundle's files, which are added in the order of the tar."""

    def __init__(self, max_files: int = MAX_BUNDLE_FILES) -> None:
        self._most = max_files
        self._last = b""
        self._files: set[str] = set()
        self._folded: dict[str, str] = {}
        """Files and folders, by their names without upper case."""
        self._folders: set[str] = set()

    def add(self, name: str) -> None:
        """Adds one name. Raises InvalidBundle if it is not allowed, alone or beside the others."""
        encoded = check_name(name)
        if len(self._files) >= self._most:
            raise InvalidBundle(f"the bundle has more than {self._most} files: the first of too many is {name!r}")
        if encoded == self._last:
            raise InvalidBundle(f"{name!r} is in the bundle twice")
        if encoded < self._last:
            raise InvalidBundle(f"{name!r} follows {self._last.decode()!r}: names must be sorted by their bytes")
        self._require_one_spelling(name)
        self._add_folders(name)
        self._files.add(name)
        self._last = encoded

    def _add_folders(self, name: str) -> None:
        folder = name.rpartition("/")[0]
        while folder and folder not in self._folders:  # the folders above a known one are known
            if folder in self._files:
                raise InvalidBundle(f"{folder!r} is a file, and the folder of {name!r}")
            if len(self._folders) >= self._most:
                raise InvalidBundle(f"the bundle has more than {self._most} folders: one of too many is {folder!r}")
            self._require_one_spelling(folder)
            self._folders.add(folder)
            folder = folder.rpartition("/")[0]

    def _require_one_spelling(self, name: str) -> None:
        other = self._folded.setdefault(name.casefold(), name)
        if other != name:
            raise InvalidBundle(f"{other!r} and {name!r} differ only in upper and lower case")


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
    if any(unicodedata.category(character) == "Cc" for character in name):
        return "has a control character"
    if not unicodedata.is_normalized("NFC", name):
        return "is not in Unicode's normal form C"
    parts = name.split("/")
    if not {"", ".", ".."}.isdisjoint(parts):
        return "must be relative, with no empty part, no `.` and no `..`"
    if any(len(part.encode()) > MAX_PART_BYTES for part in parts):
        return f"has a part of more than {MAX_PART_BYTES} bytes"
    return None


def is_compressed_too_much(*, sent: int, decoded: int, free: int = FREE_BYTES) -> bool:
    """Returns whether `sent` bytes of a request may not stand for `decoded` ones: few bytes must not fill a disk."""
    return decoded > free + _MOST_RATIO * sent

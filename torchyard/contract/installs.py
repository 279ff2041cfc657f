"""What a service has other machines install: its own wheels, and the lock of all that they need, by their digests."""

from dataclasses import dataclass
from typing import Annotated

from torchyard.contract.wire.codec import Record, matching
from torchyard.contract.wire.view import View

DIGESTS_FILE = "torchyard/digests.json"
"""Where the wheel that a code's line names has the digests of the others: an `InstallDigests`."""
INSTALL = "/install"
WHEEL_NAME = r"torchyard-[0-9A-Za-z.+_]{1,60}-py3-none-any\.whl"


@dataclass(frozen=True, kw_only=True)
class FileDigest(Record):
    """A file, and the SHA-256 that it must have, in hex."""

    name: Annotated[str, matching(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,150}", "the name of a file")]
    sha256: Annotated[str, matching(r"[0-9a-f]{64}", "a SHA-256 in hex")]

    @property
    def path(self) -> str:
        """That of its address."""
        return f"{INSTALL}/{self.sha256}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class InstallDigests(Record):
    """What makes an environment of a worker."""

    client: FileDigest
    server: FileDigest
    lock: FileDigest


class InstallFileView(View):
    """An installable file, at `/install/SHA256/NAME`."""

    name: str
    sha256: str
    size: int


class InstallView(View):
    """The files that install this exact version on another machine."""

    version: str
    first: InstallFileView
    """The client's wheel. It has the digests of the other files."""
    client: InstallFileView
    """The client's wheel without these digests."""
    server: InstallFileView
    lock: InstallFileView
    """Requirements file for pip, with digests."""

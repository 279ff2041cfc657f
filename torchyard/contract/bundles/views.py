"""The JSON of bundles, and of the code that a job runs."""

from datetime import datetime
from typing import Literal

from torchyard.contract.bundles.parts import SharedParts
from torchyard.contract.wire.view import View


class BundleView(View):
    """A bundle, complete or partial."""

    sha256: str
    size: int
    """Size of the whole tar in bytes."""
    files: int | None
    """Number of files; null until it is complete."""
    state: Literal["complete", "partial"]
    received: int
    """Received bytes. An interrupted upload continues there."""
    created_at: datetime
    """When the upload ended; for an unfinished one, when it began."""
    name: str | None = None
    """Its name, for `data:NAME`."""


class FoundParts(View):
    """The parts that you need not upload."""

    data: list[SharedParts]


class CodeFileView(View):
    path: str
    size: int
    executable: bool
    sha256: str | None
    """Only with `?digests=true`, for files up to 256 KiB, and 64 MiB together."""


class PackagesView(View):
    """The installed packages of rank 0 in the newest attempt."""

    attempt: int | None
    """Null before the first logged step, and for programs that do not log."""
    packages: dict[str, str]
    """Versions by package name."""


class CodeView(View):
    """The files of a job's code, sorted by path."""

    sha256: str | None
    """The sha256 of the bundle; null if the code is not a bundle."""
    note: str | None
    """Why no files are listed; null if they are."""
    files: list[CodeFileView]
    total: int
    """Number of files in the bundle. The first 5,000 are listed."""

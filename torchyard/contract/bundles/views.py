"""The JSON of bundles, and of the code that a job runs."""

from datetime import datetime
from typing import Literal

from torchyard.contract.bundles.parts import SharedParts
from torchyard.contract.wire.view import View


class BundleView(View):
    """A bundle, complete or partial."""

    sha256: str
    size: int
    """Bytes of the whole tar."""
    files: int | None
    """None as long as it is not complete."""
    state: Literal["complete", "partial"]
    received: int
    """Bytes that have arrived. An upload that was cut continues there."""
    created_at: datetime
    """The time of the upload's end, or of its start as long as it is not complete."""
    name: str | None = None
    """What its owner calls it, as `data:NAME`."""


class FoundParts(View):
    """The parts that you need not upload."""

    data: list[SharedParts]


class CodeFileView(View):
    path: str
    size: int
    executable: bool
    sha256: str | None
    """Only with `?digests=true`, of files whose text is sent, up to 64 MiB of them together."""


class PackagesView(View):
    """The installed packages of rank 0 in the newest attempt."""

    attempt: int | None
    """Null before an attempt has logged its first step, and for programs that do not log."""
    packages: dict[str, str]
    """Versions by names."""


class CodeView(View):
    """The files of a job's code, sorted by path."""

    sha256: str | None
    """Of the bundle; null if the code is none."""
    note: str | None
    """Why no files are listed."""
    files: list[CodeFileView]
    total: int
    """Files of the bundle: of more than 5,000 the first are listed."""

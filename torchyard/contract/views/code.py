"""The JSON of the code that a job runs."""

from torchyard.contract.views.base import View


class CodeFileView(View):
    path: str
    size: int
    executable: bool
    sha256: str | None
    """Only with `?digests=true`, of files whose text is sent, up to 64 MiB of them together."""


class PackagesView(View):
    """What is installed where rank 0 of the job's newest attempt runs."""

    attempt: int | None
    """Null before an attempt has logged its first step, and for programs that do not log."""
    packages: dict[str, str]
    """Versions by names."""


class CodeView(View):
    """The files of a job's code, by the bytes of their paths."""

    sha256: str | None
    """Of the bundle; null if the code is none."""
    note: str | None
    """Why no files are listed."""
    files: list[CodeFileView]
    total: int
    """Files of the bundle: of more than 5,000 the first are listed."""

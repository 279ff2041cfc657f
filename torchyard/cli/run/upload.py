"""Uploads what the server does not have of a packed folder, and shows on stderr what it does."""

from collections.abc import Generator
from contextlib import contextmanager
import shlex
import sys

from torchyard.cli import output
from torchyard.cli.progress import Transfer
from torchyard.client import Client
from torchyard.client.packing.bundle import Bundle
from torchyard.client.packing.leftout import LeftOut
from torchyard.host import terminal

MOST_SHOWN = 5
"""The most files of one kind that are shown."""
MOST_PUSHED = 2 << 30
"""The most bytes that are packed of a folder of data, unless the caller allows more."""
_ERASE = "\r\x1b[K"
"""Takes back what is on the terminal's line."""


@contextmanager
def packing() -> Generator[None]:
    """Says in a terminal that a folder is packed, during the block. Rich could, too, but takes as long to import as a
    run to start.
    """
    shown = sys.stderr.isatty()
    if shown:
        sys.stderr.write("Packing the folder …")
        sys.stderr.flush()
    try:
        yield
    finally:
        if shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()


def left_out(bundle: Bundle) -> list[str]:
    """Returns what of the folder is not in the bundle, and why, and what brings it back: the first few of each kind."""
    ignored = [f"by {each.by}: {each}{_brings_back(each)}" for each in bundle.left_out if each.by != "never packed"]
    never = [f"{each}: never packed" for each in bundle.left_out if each.by == "never packed"]
    odd = [f"{name}: {why}" for name, why in bundle.skipped.items()]
    return [line for lines in (ignored, never, odd) for line in _first(lines)]


def _brings_back(each: LeftOut) -> str:
    return f"(add it with --include {shlex.quote(each.name)} or a mount)" if each.by == ".gitignore" else ""


def _first(lines: list[str]) -> list[str]:
    more = len(lines) - MOST_SHOWN
    return [*lines[:MOST_SHOWN], f"and {more} more"] if more > 0 else lines


def push(client: Client, bundle: Bundle, *, place: str = "") -> None:
    """Says what is packed of the data and what is left out, and uploads it."""
    what = f"{output.count(len(bundle.files), 'file')}, {terminal.size(bundle.size)}"
    terminal.note(f"{place}: {what}" if place else what)
    for line in left_out(bundle):
        terminal.note(f"left out   {terminal.plain(line)}")
    upload(client, bundle)


def upload(client: Client, bundle: Bundle) -> None:
    """Sends the bundle, from where an earlier upload stopped. Ctrl-C says how to go on, and exits with 130."""
    sent = _Sent()
    with Transfer("code", upload=True) as transfer:

        def show(done: int, total: int) -> None:
            sent.count(done)
            transfer.show(done, total)

        client.bundles.upload(bundle, progress=show, on_copied=sent.leave_out)
    terminal.note(sent.told)


class _Sent:
    """How many bytes were sent, from what the first and the last call of a progress say."""

    def __init__(self) -> None:
        self._first: int | None = None
        self._last = 0
        self._copied = 0

    def count(self, done: int) -> None:
        self._first = done if self._first is None else self._first
        self._last = done

    def leave_out(self, copied: int) -> None:
        """Takes bytes that the server had in other bundles, which were not sent."""
        self._copied += copied

    @property
    def told(self) -> str:
        new = self._last - (self._first or 0) - self._copied
        if self._copied:
            return f"Uploaded {terminal.size(new)}; the server already had {terminal.size(self._copied)}."
        return f"Uploaded {terminal.size(new)}." if new else "The server already has these files. Nothing was sent."

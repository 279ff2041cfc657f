"""The text of an error's traceback, as it is recorded."""

from collections.abc import Iterator
import os
from pathlib import Path
import traceback

TRACEBACK_LIMIT = 32_000

_HEAD = 4_000  # characters kept of the start of a long traceback: its end says more
_OWN = f"{Path(__file__).parents[1]}{os.sep}"
"""The folder of this package, wherever it is installed. A user's folder of the same name is another one."""


def traceback_of(error: BaseException, *, own_frames: bool) -> str:
    """Returns the traceback, with those of the errors that led to it, cut to TRACEBACK_LIMIT characters and a mark.

    Without `own_frames` it has no line of this package: a script's traceback then ends in the script, or in what it
    called by us, as a person can only correct that.
    """
    shown = traceback.TracebackException.from_exception(error, compact=True)
    if not own_frames:
        for part in _with_causes(shown):
            kept = [frame for frame in part.stack if not frame.filename.startswith(_OWN)]
            part.stack = traceback.StackSummary.from_list(kept)
    return _shorten("".join(shown.format()))


def _with_causes(shown: traceback.TracebackException) -> Iterator[traceback.TracebackException]:
    waiting = [shown]
    while waiting:
        part = waiting.pop()
        yield part
        waiting += [
            inner for inner in (part.__cause__, part.__context__, *(part.exceptions or ())) if inner is not None
        ]


def _shorten(text: str) -> str:
    if len(text) <= TRACEBACK_LIMIT:
        return text
    return f"{text[:_HEAD]}\n…\n{text[_HEAD - TRACEBACK_LIMIT :]}"

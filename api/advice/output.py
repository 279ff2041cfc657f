"""Finds what shows a failure in the output of a job: the decisive line of its log, and the user's line of code."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import PurePath
import re

from torchyard.contract.attempts.last_error import unmarked
from torchyard.contract.jobs.views import ErrorView
from torchyard.contract.states import EndReason
from torchyard.contract.telemetry.views import LogLine
from torchyard.contract.wire.text import headline

_SPEAKS_OF = {
    EndReason.OUT_OF_MEMORY: re.compile(r"out of memory|can't allocate memory|MemoryError", re.IGNORECASE),
    EndReason.HANG: re.compile("Watchdog caught collective operation timeout"),
    EndReason.DEVICE_FAULT: re.compile(r"CUDA error|NCCL error|uncorrectable|Xid", re.IGNORECASE),
}
"""What the line says that shows an end of this kind."""
_FRAME = re.compile(
    r'^ *File "(?P<file>[^"\n]{1,4096})", line (?P<line>[0-9]{1,9})(?:, in (?P<name>.*))?$', re.MULTILINE
)
_SAYS_NOTHING = re.compile(
    r"[\W_]*|Set the environment variable HYDRA_FULL_ERROR=1 .*|(?:During handling of|The above exception was) .*"
)
"""A line that shows no cause: marks below a line of code, rulers, and what libraries add to any error."""
_OF_OTHERS = ("/site-packages/", "/dist-packages/", "/lib/python", "<")
"""Parts of the paths of code that is not the user's own."""
_LEAST_QUOTED = 12
"""The least length of a line, in characters, to count as quoted in a message. A shorter one may match by chance."""
_MOST_TEXT = 200
"""Characters of a line that are enough to see that it says nothing."""


@dataclass(frozen=True)
class Frame:
    """A line of the user's code that was being executed."""

    file: str
    """Its name, without the folder."""
    line: int
    name: str
    """The function."""
    code: str
    """Empty if the traceback does not show it."""
    text: str
    """The line of the traceback that names it."""

    def __str__(self) -> str:
        where = f"{self.file}, line {self.line}"
        return where if self.name in {"", "<module>"} else f"{where}, in {self.name}"


def last_frame(traceback: str | None) -> Frame | None:
    """Returns the innermost line of the user's own code in a traceback. None without any."""
    frames = [item for item in _FRAME.finditer(traceback or "") if not any(part in item["file"] for part in _OF_OTHERS)]
    if traceback is None or not frames:
        return None
    last = frames[-1]
    following = traceback[last.end() :].lstrip("\n").split("\n", 1)[0]
    code = following.strip() if following.startswith(" ") and not following.lstrip().startswith("File ") else ""
    name = last["name"] or ""
    return Frame(PurePath(last["file"]).name, int(last["line"]), name.strip(), code, last[0].strip())


def decisive_line(failure: ErrorView, lines: Sequence[LogLine]) -> LogLine | None:
    """Returns the line that shows why the attempt ended: the newest one of those that say most.

    That is a line that speaks of this kind of end, else the last line of the traceback, else the line that the message
    quotes, else the last line of stderr, else the last line. A hang is shown by no other line than its own. None if
    nothing was written.
    """
    newest_first = [line for line in reversed(lines) if not _SAYS_NOTHING.fullmatch(line.text.strip()[:_MOST_TEXT])]
    speaks = _SPEAKS_OF.get(failure.code)
    if speaks is not None and (line := _first(newest_first, lambda text: speaks.search(text) is not None)):
        return line
    if failure.code is EndReason.HANG:
        return None
    raised = (failure.traceback or "").rstrip().rpartition("\n")[2].strip()
    if raised and (line := _first(newest_first, lambda text: text.strip().endswith(raised))):  # torch marks a rank's
        return line
    message = headline(failure.message)
    quoted = [
        line for line in newest_first if len(own := unmarked(line.text).strip()) >= _LEAST_QUOTED and own in message
    ]
    if quoted:
        return max(quoted, key=lambda line: len(line.text.strip()))
    return next((line for line in newest_first if line.stream == "stderr"), newest_first[0] if newest_first else None)


def line_of(frame: Frame, lines: Sequence[LogLine]) -> int | None:
    """Returns the number of the newest line of the log that names the frame; None if it is not there."""
    number = _first(list(reversed(lines)), lambda text: unmarked(text).strip() == frame.text)
    return None if number is None else number.line


def _first(lines: Sequence[LogLine], says: Callable[[str], bool]) -> LogLine | None:
    return next((line for line in lines if says(line.text)), None)

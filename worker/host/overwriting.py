"""Finds what a terminal shows of a line whose parts overwrite each other: progress bars begin each with a `\\r`."""

import re

_STYLE = re.compile(rb"\x1b\[[0-9;?]{0,20}[@-~]")
"""A sequence that colours or erases: it is no text."""
BLANK = b"\r \t"
_UP = re.compile(rb"\x1b\[[0-9]{0,4}A")


def goes_up(line: bytes) -> bool:
    """Whether the cursor moves up in the line. The next line then is drawn over what is there, as by nested bars."""
    return _UP.search(line) is not None


def newest_part(line: bytes) -> tuple[int, int]:
    """Returns where the newest part with text begins and ends, in a line without its newline.

    Blank parts only erase. A line that is all blank is its first part; one without a `\\r` is the part.
    """
    end = line.find(b"\r", len(line.rstrip(BLANK)))
    end = len(line) if end < 0 else end
    while (begin := line.rfind(b"\r", 0, end) + 1) and not _STYLE.sub(b"", line[begin:end]).strip():
        end = begin - 1
    return begin, end

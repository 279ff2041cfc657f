"""Reads a file that an argument of a command names."""

import errno
from pathlib import Path
import sys

from torchyard.host.untrusted import read_given

STDIN = "-"
_OF_THE_MACHINE = ("/dev/", "/proc/")
"""What a shell names for `<(program)`, and no folder has."""


def read(file: str, most: int) -> bytes:
    """Returns the content of a file, or of stdin. Raises OSError, also for more than `most` bytes.

    A pipe in a folder would be waited for without end, so it is refused; one of `<(program)` is the user's own.
    """
    if file == STDIN:
        content = sys.stdin.buffer.read(most + 1)
    elif file.startswith(_OF_THE_MACHINE):
        with Path(file).open("rb") as source:
            content = source.read(most + 1)
    else:
        return read_given(Path(file), most)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most} bytes", file)
    return content

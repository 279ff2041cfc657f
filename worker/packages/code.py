"""The text files in a folder of code, whose owner may change it meanwhile."""

from dataclasses import dataclass
import os
from pathlib import Path
import stat

from torchyard.contract.errors import DataError

_MARK = b"\xef\xbb\xbf"  # what some editors write before UTF-8


@dataclass(frozen=True)
class Code:
    """The files below `folder`, a path without links."""

    folder: str

    def has(self, name: str) -> bool:
        return os.path.lexists(os.path.join(self.folder, name))  # noqa: PTH118 Path.exists raises for a long name

    def text(self, name: str, most: int) -> str:
        """Returns the text of a file of at most `most` bytes.

        Raises DataError, also for a file outside the folder, and OSError.
        """
        if "\0" in name:
            raise DataError(f"{name!r} is not the name of a file")
        code = Path(self.folder)
        path = Path(os.path.realpath(code / name))
        if not path.is_relative_to(code):
            raise DataError(f"{code / name} is outside the code folder")
        if not os.path.isfile(path):  # noqa: PTH113 Path.is_file raises for a name that is too long
            raise DataError(f"there is no {code / name}")
        with open(path, "rb", opener=_open_at_once) as file:
            # Its owner may have put a link or a pipe in its place meanwhile.
            opened, status = Path(f"/proc/self/fd/{file.fileno()}").readlink(), os.fstat(file.fileno())
            if opened != path or not stat.S_ISREG(status.st_mode):
                raise DataError(f"{code / name} changed while it was read")
            content = file.read(most + 1)
        if len(content) > most:
            raise too_large(name, size=max(status.st_size, len(content)), most=most)
        try:
            # uv takes each of the three for the end of a line.
            return content.removeprefix(_MARK).decode().replace("\r\n", "\n").replace("\r", "\n")
        except UnicodeDecodeError:
            raise DataError(f"{name} is not a text in UTF-8") from None


def too_large(what: str, *, size: int, most: int) -> DataError:
    """Returns the error for something of `size` bytes, of which at most `most` are possible."""
    return DataError(f"{what} has {size} bytes: at most {most} are possible")


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_CLOEXEC)

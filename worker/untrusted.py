"""Reading and removing what a training process wrote: no link is followed, whatever it made of its files."""

from contextlib import suppress
import errno
import os
from pathlib import Path
import shutil

from torchyard.untrusted import RECORD_LIMIT, append_untrusted, folder_inside, open_inside, read_tail, read_untrusted

__all__ = [
    "RECORD_LIMIT",
    "append_untrusted",
    "folders_inside",
    "open_inside",
    "read_tail",
    "read_untrusted",
    "remove_inside",
]


def folders_inside(root: Path, *parts: str) -> list[str]:
    """The names of the folders in the folder `parts` below `root`, sorted; none behind a link. Raises OSError."""
    try:
        with folder_inside(root, *parts) as folder, os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))
    except (FileNotFoundError, NotADirectoryError, PermissionError):  # the job's own doing; waiting would not end
        return []
    except OSError as error:
        if error.errno == errno.ELOOP:
            return []
        raise


def remove_inside(root: Path, *parts: str) -> bool:
    """Removes the folder `parts` below `root`, as far as it can be removed. False where something of it is left."""
    # A link, a folder that the job took our right to change, one of a thousand levels.
    with suppress(OSError, RecursionError), folder_inside(root, *parts[:-1]) as folder:
        shutil.rmtree(parts[-1], ignore_errors=True, dir_fd=folder)
    return not os.path.lexists(root.joinpath(*parts))

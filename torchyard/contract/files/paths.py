"""The files that a job leaves: which paths they may have, how many a checkpoint has, and the digest of their list."""

from collections.abc import Collection, Iterable
import hashlib

from torchyard.contract.wire.text import printable

DEEPEST = 16
"""Names in a path, at most."""
MOST_PATH_BYTES = 1000
"""Bytes of a path, at most."""
KEPT = "./"
"""Begins the stored path of a file of the working folder: no artifact has such a path."""
MOST_FILES = 10_000
"""Files of a checkpoint."""
MOST_PATHS_BYTES = 1 << 20
"""Bytes of their paths together: a row of the database has them all."""
MOST_NAME_BYTES = 255
"""Bytes of a name in a path: no more than file systems take."""
MOST_SHOWN_FILES_BYTES = 8192
"""Bytes, as JSON, of the files of a checkpoint in a row of a list."""

_PATH_WORDS = (
    f"names with / between them, at most {DEEPEST} of up to {MOST_NAME_BYTES} bytes, and {MOST_PATH_BYTES} bytes"
    " together, in UTF-8, without `.`, `..`, backslashes and characters that cannot be seen"
)


def is_artifact_path(text: str) -> bool:
    """Returns whether the text may be the path of an artifact: relative, with `/`, without `..` or control characters.

    Nor has it characters that change the direction of text, or that UTF-8 lacks.
    """
    if printable(text) != text or len(text.encode()) > MOST_PATH_BYTES:
        return False
    names = text.split("/")
    return len(names) <= DEEPEST and not {"", ".", ".."} & {*names}


def is_file_path(text: str) -> bool:
    """Returns whether a file of a checkpoint may have this path: that of an artifact, without a backslash."""
    if not is_artifact_path(text) or "\\" in text:
        return False
    return all(len(name.encode()) <= MOST_NAME_BYTES for name in text.split("/"))


def check_path(text: str) -> str:
    """Returns the path of a file. Raises ValueError if none may have it."""
    if not is_file_path(text):
        raise ValueError(f"{text[:100]!r} must be {_PATH_WORDS}")
    return text


def check_paths(paths: Collection[str]) -> None:
    """Raises ValueError if one checkpoint cannot have all of these paths, each of which is allowed.

    Its text says what is wrong with the list, which is its subject.
    """
    if len(paths) > MOST_FILES:
        raise ValueError(f"has {len(paths)} files: a checkpoint has at most {MOST_FILES}")
    if (size := sum(len(path.encode()) for path in paths)) > MOST_PATHS_BYTES:
        raise ValueError(f"has paths of {size} bytes together: a checkpoint has at most {MOST_PATHS_BYTES}")
    found = {*paths}
    if len(found) < len(paths):
        raise ValueError("lists a file twice")
    for path in paths:
        folder = path.rpartition("/")[0]
        while folder:
            if folder in found:
                raise ValueError(f"has {folder[:100]!r} as a file, and as the folder of another one")
            folder = folder.rpartition("/")[0]


def folder_of(paths: Iterable[str]) -> str:
    """Returns the deepest folder that has all of these files; `` if there is none."""
    folders = {tuple(path.split("/")[:-1]) for path in paths}
    if not folders:
        return ""
    first, last = min(folders), max(folders)
    same = next((at for at, name in enumerate(first) if at >= len(last) or last[at] != name), len(first))
    return "/".join(first[:same])


def in_order(paths: Iterable[str]) -> list[str]:
    """Returns the paths as they stand in the list and in the tar of a checkpoint: sorted by their bytes."""
    return sorted(paths, key=str.encode)


def digest_of(files: Iterable[tuple[str, str]]) -> str:
    """Returns the sha256 of the list of files, each given by its path and its sha256.

    The list is what `sha256sum` prints of the files, sorted by the bytes of their paths. A file's sha256 says its size.
    """
    whole = hashlib.sha256()
    for path, sha256 in sorted(files, key=lambda file: file[0].encode()):
        whole.update(f"{sha256}  {path}\n".encode())
    return whole.hexdigest()

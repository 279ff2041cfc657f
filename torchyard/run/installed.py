"""The packages that this process can import, as they are installed."""

from collections.abc import Iterator, Mapping
import json
import os
import re
import sys

from torchyard.contract.events import MOST_PACKAGES, PACKAGE_NAME, PACKAGE_VERSION, PACKAGES_BYTES

_FOLDER = re.compile(rf"({PACKAGE_NAME})-({PACKAGE_VERSION})\.(?:dist-info|egg-info)")
_MOST_ENTRIES = 20_000


def installed() -> Mapping[str, str]:
    """Returns versions by names, sorted, as many as are recorded. Of two of one name the one that is imported.

    The names of the folders of metadata say both, so that no file is read: `importlib.metadata` opens one for each.
    """
    found: dict[str, str] = {}
    for name in _entries():
        match = _FOLDER.fullmatch(name)
        if match is not None:
            found.setdefault(match[1].replace("_", "-").lower(), match[2])
    kept: dict[str, str] = {}
    size = 2
    for name in sorted(found):
        size += len(json.dumps({name: found[name]}))
        if len(kept) == MOST_PACKAGES or size > PACKAGES_BYTES:
            break
        kept[name] = found[name]
    return kept


def _entries() -> Iterator[str]:
    left = _MOST_ENTRIES
    for folder in dict.fromkeys(map(str, sys.path)):
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    yield entry.name
        except (OSError, ValueError):
            continue  # a zip, or a folder that is not there

"""The packages that this process can import, as they are installed."""

from collections.abc import Iterator, Mapping
import json
import os
import re
import sys

from torchyard.contract.attempts.events import MOST_PACKAGES, PACKAGE_NAME, PACKAGE_VERSION, PACKAGES_BYTES

_ENDS = (".dist-info", ".egg-info")
_MOST_ENTRIES = 20_000


def installed() -> Mapping[str, str]:
    """Returns versions by names, sorted, as many as are recorded. Of two of one name the one that is imported.

    The names of the folders of metadata say both, so that no file is read: `importlib.metadata` opens one for each.
    """
    found: dict[str, str] = {}
    for name in _entries():
        package, _, version = name[: name.rindex(".")].partition("-")
        if re.fullmatch(PACKAGE_NAME, package) and re.fullmatch(PACKAGE_VERSION, version):
            found.setdefault(package.replace("_", "-").lower(), version)
    kept: dict[str, str] = {}
    size = 2
    for name in sorted(found):
        size += len(json.dumps({name: found[name]}))
        if len(kept) == MOST_PACKAGES or size > PACKAGES_BYTES:
            break
        kept[name] = found[name]
    return kept


def _entries() -> Iterator[str]:
    """Yields the names of the folders of metadata, NAME-VERSION.dist-info: a name has no `-` there."""
    left = _MOST_ENTRIES
    for folder in dict.fromkeys(map(str, sys.path)):
        try:
            with os.scandir(folder or ".") as entries:
                for entry in entries:
                    left -= 1
                    if left < 0:
                        return
                    if entry.name.endswith(_ENDS):
                        yield entry.name
        except (OSError, ValueError):
            continue  # a zip, or a folder that is not there

"""The version of Torchyard, which client and server tell each other."""

import functools
import re

HEADER = "Torchyard-Version"
"""In every answer of the API."""
UNKNOWN = "unknown"
_VERSION = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})[0-9A-Za-z.+-]{0,50}")


@functools.cache
def own_version() -> str:
    """Returns the version of the distribution `torchyard`; `unknown` where its metadata is not installed."""
    from importlib.metadata import PackageNotFoundError, version  # takes long, and most commands need none

    try:
        return version("torchyard")
    except PackageNotFoundError:
        return UNKNOWN


def works_with(theirs: str, ours: str) -> bool:
    """Whether a worker and a service of these versions work together: at most one minor version lies between them.

    One that does not say its version is taken for equal.
    """
    one, other = release(theirs), release(ours)
    return one is None or other is None or (one[0] == other[0] and abs(one[1] - other[1]) <= 1)


def gap(theirs: str, ours: str) -> str | None:
    """Returns why a machine of the version `theirs` does not work with a service of `ours`; None if it does."""
    if works_with(theirs, ours):
        return None
    return (
        f"this machine has Torchyard {theirs}, and the service {ours}: at most one minor version may lie between them"
    )


def release(version: str) -> tuple[int, int] | None:
    """Returns major and minor of a version such as `0.1.0`; None for what is no such version."""
    match = _VERSION.fullmatch(version)
    return None if match is None else (int(match[1]), int(match[2]))

"""Where a script's mounts are: at `$TORCHYARD_MOUNTS/NAME`, or at a path of its working folder."""

from collections.abc import Iterable, Mapping
import re
from typing import Annotated, Any

from pydantic import Field

from torchyard.contract.bounds import LONGEST_MOUNT_PLACE, MOUNT_PLACE

MOST_MOUNTS = 32
_DEEPEST = 16

MountPlace = Annotated[str, Field(pattern=MOUNT_PLACE, max_length=LONGEST_MOUNT_PLACE)]
"""A name, or a relative path, of which the first part is `.` or has another one behind it."""
_NAME = re.compile(r"[A-Za-z0-9_\-]{1,64}")


def is_path(place: str) -> bool:
    """Returns whether the mount lies in the working folder."""
    return "/" in place


def parts_of(place: str) -> tuple[str, ...]:
    """Returns the parts of a path that `canonical` has returned."""
    return tuple(place.split("/")[1:])


def paths_in(mounts: Mapping[str, str]) -> list[str]:
    """Returns the paths below the working folder at which mounts lie. Raises ValueError as `canonical` does."""
    return ["/".join(parts_of(place)) for place in canonical(mounts) if is_path(place)]


def canonical(mounts: Any) -> Any:
    """Returns the mounts with each path in one form, which begins with `./`. What is no table stays as it is.

    Raises ValueError for a path that leads outside, and for two that are in one another.
    """
    if not isinstance(mounts, Mapping):
        return mounts
    found: dict[Any, Any] = {}
    for place, url in mounts.items():
        exact = _canonical(place) if isinstance(place, str) else place
        if exact in found:
            raise ValueError(f"{exact} is named twice")
        found[exact] = url
    _require_apart([place for place in found if isinstance(place, str) and is_path(place)])
    return found


def _canonical(place: str) -> str:
    if "/" not in place:
        if place in {".", ".."} or (place and not _NAME.fullmatch(place)):
            raise ValueError(f"{place[:100]!r} is not a name of a mount: write ./{place[:100]} for a path")
        return place
    parts = [part for part in place.split("/") if part not in {"", "."}]
    if place.startswith("/") or ".." in parts or not parts:
        raise ValueError(f"{place[:100]!r} must be below the working folder: relative, without `..`")
    if len(parts) > _DEEPEST or any(len(part.encode(errors="replace")) > 255 for part in parts):
        raise ValueError(f"{place[:100]!r} has more than {_DEEPEST} parts, or one of more than 255 bytes")
    return "/".join((".", *parts))


def _require_apart(places: Iterable[str]) -> None:
    before = ""
    for place in sorted(places, key=parts_of):
        if before and place.startswith(f"{before}/"):
            raise ValueError(f"{place} lies in the mount {before}: a mount can be read, and nothing is put into it")
        before = place

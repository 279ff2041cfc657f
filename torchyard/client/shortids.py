"""Shows ids as short as they can be typed, and finds what a short one names.

An id is its kind and 32 digits, of which the first are the time: ids of one day begin alike, and their ends differ.
"""

from collections.abc import Iterable, Mapping
import re

from torchyard.contract.errors import Conflict

MOST_LISTED = 5
_SHOWN = 6
"""Digits of a short id. Of 10,000 jobs, fewer than one in 1,000 shares them with another."""
_WHOLE = re.compile(r"([a-z]{2,8}_)([0-9a-f]{32})")
_SHORT = re.compile(r"([a-z]{2,8}_)?(…|\.\.\.)?([0-9a-f]{4,32})")
"""At least four digits, or any new object would change what they name."""


def shortened(texts: Iterable[str]) -> dict[str, str]:
    """Returns the short form of each text that is an id, such as `job_…3f09c1`: six digits, or as many as differ."""
    found = {text: match for text in texts if (match := _WHOLE.fullmatch(text))}
    size = _SHOWN
    while len({(match[1], match[2][-size:]) for match in found.values()}) < len(found):
        size += 1
    return {text: f"{match[1]}…{match[2][-size:]}" for text, match in found.items()}


def is_whole(ref: str) -> bool:
    """Returns whether `ref` is an id with all its digits."""
    return _WHOLE.fullmatch(ref) is not None


def digits_of(ref: str) -> str | None:
    """Returns the digits by which `ref` may name an id, or None where it cannot: `3f09c1` of `job_…3f09c1`."""
    match = _SHORT.fullmatch(ref)
    return match[3] if match else None


def is_named(id: str, ref: str) -> bool:
    """Returns whether `ref` is the end of an id (`job_…3f09c1`, `3f09c1`) or its beginning (`job_0192ab`)."""
    match = _SHORT.fullmatch(ref)
    if match is None or not id.startswith(match[1] or ""):
        return False
    return id.endswith(match[3]) or (match[1] is not None and match[2] is None and id.startswith(ref))


def only_id(ref: str, known: Mapping[str, str]) -> str | None:
    """Returns the id of `known` that `ref` names, or None. `known` has what is said of each, by id.

    Raises Conflict, which lists them, if there are several.
    """
    found = {id: about for id, about in known.items() if is_named(id, ref)}
    if len(found) > 1:
        listed = [f"  {id}  {about}" for id, about in found.items()][:MOST_LISTED]
        more = ["  …"] if len(found) > MOST_LISTED else []
        raise Conflict("\n".join([f"{ref} matches several ids: write more of one", *listed, *more]))
    return next(iter(found), None)

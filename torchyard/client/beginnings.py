"""Finds the object whose id begins with what a person wrote."""

from collections.abc import Mapping
import re

from torchyard.contract.errors import Conflict

MOST_LISTED = 5
_SHORT = re.compile(r"[a-z]{2,8}_[0-9a-f]{4,}")
"""The beginning of an id: at least four digits follow its kind, or any new object would change what it names."""


def is_beginning(ref: str) -> bool:
    """Returns whether an id may be named by `ref`."""
    return _SHORT.fullmatch(ref) is not None


def only_id(ref: str, known: Mapping[str, str]) -> str | None:
    """Returns the id of `known` that begins with `ref`, or None. `known` has what is said of each, by id.

    Raises Conflict, which lists them, if there are several.
    """
    if not is_beginning(ref):
        return None
    found = {id: about for id, about in known.items() if id.startswith(ref)}
    if len(found) > 1:
        listed = [f"  {id}  {about}" for id, about in found.items()][:MOST_LISTED]
        more = ["  …"] if len(found) > MOST_LISTED else []
        raise Conflict(
            "\n".join([f"several ids begin with {ref}: write more of the one that you mean", *listed, *more])
        )
    return next(iter(found), None)

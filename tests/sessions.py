"""Calls functions of the store that take a session, each in one transaction."""

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy.orm import Session

from store.store import Store

P = ParamSpec("P")
R = TypeVar("R")


def read(store: Store, function: Callable[Concatenate[Session, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns what the function answers, of one snapshot."""
    with store.read() as session:
        return function(session, *args, **kwargs)


def write(store: Store, function: Callable[Concatenate[Session, P], R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Returns what the function answers, after its changes are committed and announced."""
    with store.write("other") as session:
        return function(session, *args, **kwargs)

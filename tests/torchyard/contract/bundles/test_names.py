"""The names of a bundle: what one pass with little memory refuses is what all of them together show to be wrong."""

import tracemalloc

from hypothesis import example, given
from hypothesis import strategies as st
import pytest

from torchyard.contract.bundles.names import Names
from torchyard.contract.errors import InvalidBundle

_PART = st.sampled_from(["a", "A", "a-", "a.b", "b", "B", "ß", "ss", "Ss", "é", "É"])
_NAME = st.lists(_PART, min_size=1, max_size=4).map("/".join)


def fit(names: list[str]) -> bool:
    """Whether one folder can have all of these files on every machine."""
    folders = {"/".join(name.split("/")[:depth]) for name in names for depth in range(1, name.count("/") + 1)}
    every = {*names, *folders}
    return folders.isdisjoint(names) and len({name.casefold() for name in every}) == len(every)


def accepted(names: list[str], *, most: int = 100) -> bool:
    known = Names(most)
    try:
        for name in sorted(names, key=str.encode):
            known.add(name)
    except InvalidBundle:
        return False
    return True


def test_a_bundle_has_at_most_so_many_files_and_so_many_folders() -> None:
    assert accepted(["a/b/c/x", "a/b/y", "d/z"], most=4)
    assert not accepted(["a/b/c/x", "a/b/y", "d/z"], most=3), "four folders"
    assert accepted(["x", "y", "z"], most=3) and not accepted(["x", "y", "z"], most=2)


@given(st.lists(_NAME, max_size=10, unique=True))
@example(["a", "a-", "a/b"])
@example(["a", "a-/a", "a.b/a", "a/b"])
@example(["A/a", "a/b"])
@example(["ss/a", "ß"])
@example(["b/A/b", "b/a"])
def test_names_are_refused_that_no_machine_can_have_together(names: list[str]) -> None:
    assert accepted(names) == fit(names)


@pytest.mark.parametrize("names", [["b", "a"], ["a", "a"], ["a/b", "a/a"], ["a/", "b"], ["/a"], ["a//b"], ["../a"]])
def test_names_out_of_order_twice_or_outside_are_refused(names: list[str]) -> None:
    known = Names()
    with pytest.raises(InvalidBundle):
        for name in names:
            known.add(name)


def test_files_and_folders_are_counted() -> None:
    assert accepted(["a/b/c", "a/b/d", "b"], most=3)
    assert not accepted(["a", "b", "c", "d"], most=3)
    assert not accepted(["a/b/c/d", "e"], most=2)
    assert accepted(["a/b/c/d", "e"], most=3)


@pytest.mark.parametrize("name", ["{:0200}", "d{:0200}/x", "A{:0200}"])
def test_many_names_take_little_memory(name: str) -> None:
    """Of the first 10,000 it keeps the text too, to show it."""
    known = Names()
    for number in range(10_000):
        known.add(name.format(number))
    tracemalloc.start()
    try:
        for number in range(10_000, 15_000):
            known.add(name.format(number))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 5_000 * 100

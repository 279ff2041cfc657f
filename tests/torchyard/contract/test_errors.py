"""What an error holds in memory is let go of once the error is kept, or handled."""

from collections.abc import Iterator
import gc
import weakref

import pytest

from torchyard.contract.errors import InvalidSpec, kept, let_go


class Held:
    """Something in memory."""


@pytest.fixture
def uncollected() -> Iterator[None]:
    """Has the garbage collector find nothing meanwhile."""
    gc.disable()
    yield
    gc.enable()


def _raised(seen: list[weakref.ref[Held]]) -> InvalidSpec:
    """Returns an error that another one has caused, and whose traceback leads to functions that hold something."""

    def fail() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        try:
            raise ValueError(held)
        except ValueError as error:
            cycle = [error]
            raise InvalidSpec("wrong", errors=()) from (None if cycle else error)

    try:
        fail()
    except InvalidSpec as error:
        return error
    raise AssertionError


@pytest.mark.usefixtures("uncollected")
def test_an_error_that_is_kept_holds_nothing_of_what_raised_it() -> None:
    seen: list[weakref.ref[Held]] = []
    error = _raised(seen)
    found = kept(error)
    assert found is error
    assert (found.__traceback__, found.__context__, found.message) == (None, None, "wrong")


@pytest.mark.usefixtures("uncollected")
def test_the_functions_that_have_raised_a_handled_error_hold_nothing() -> None:
    seen: list[weakref.ref[Held]] = []
    error = _raised(seen)
    assert seen[0]() is not None
    let_go(error)
    del error
    assert seen[0]() is None

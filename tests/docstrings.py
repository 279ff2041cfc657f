"""Runs the examples of docstrings, and finds the parameters that a docstring does not name."""

from collections.abc import Iterator, Mapping, Sequence
import doctest
import inspect
import io
import re
from typing import Any


def examples_of(*objects: Any) -> Iterator[doctest.DocTest]:
    """Yields the examples in the docstrings of modules, of classes with their methods, and of functions."""
    for item in objects:
        finder = doctest.DocTestFinder(recurse=not inspect.ismodule(item))
        yield from (found for found in finder.find(item, globs={}) if found.examples)


def run_example(example: doctest.DocTest, names: Mapping[str, Any]) -> None:
    """Runs the example with these names, and fails if it prints something else than it shows."""
    said = io.StringIO()
    example.globs = {**names}
    result = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS).run(example, out=said.write)
    assert result.failed == 0, said.getvalue()


def unnamed_parameters(*objects: Any) -> Sequence[str]:
    """Returns the parameters of functions and of public methods that neither their docstring nor the class's names."""
    return [
        f"{function.__qualname__}: {parameter}"
        for item in objects
        for function in ([item] if inspect.isfunction(item) else vars(item).values())
        if inspect.isfunction(function) and not function.__name__.startswith("_")
        for parameter in inspect.signature(function).parameters
        if parameter != "self"
        if re.search(rf"\b{parameter}\b", f"{item.__doc__} {function.__doc__}") is None
    ]

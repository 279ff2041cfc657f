"""Follows the calls of a function from file to file.

It reads the sources and runs nothing. It knows what a name is by imports, and what a value is by annotations. So it
does not follow what is called by a name that it computes, or through a protocol; and it follows both arms of an `if`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
import sys

from bench.reach import names
from bench.reach.names import Module, Sources, Thing
from bench.reach.walk import walk

_MOST_CALLS_DEEP = 20_000


@dataclass
class Reached:
    """What is reached from a start: functions, classes and constants, in the order in which they are read."""

    hops: list[tuple[int, Thing]] = field(default_factory=list)
    """Each with how many calls lie between it and its start."""

    @property
    def files(self) -> list[str]:
        """The names of modules, each where it is first needed."""
        return [*dict.fromkeys(thing.module.name for _, thing in self.hops)]

    @property
    def functions(self) -> int:
        return sum(thing.is_function for _, thing in self.hops)


def follow(root: Path, starts: tuple[str, ...]) -> Reached:
    """Returns what is reached from the starts, each a route by its method and path, or a function by folder and name.

    Raises LookupError for one that is not there.
    """
    sys.setrecursionlimit(_MOST_CALLS_DEEP)
    sources, reached, seen = Sources(root), Reached(), set[Thing]()

    def reach(thing: Thing, depth: int) -> None:
        if thing in seen:
            return
        seen.add(thing)
        reached.hops.append((depth, thing))
        walk(sources, thing, lambda called: reach(called, depth + 1))

    for start in starts:
        reach(_find_start(sources, start), 0)
    return reached


def _find_start(sources: Sources, start: str) -> Thing:
    if " " not in start:
        folder, _, name = start.partition(":")
        return names.require(sources, folder, name)
    found = [thing for thing, route in _routes(sources) if route == start]
    if not found:
        raise LookupError(f"no route is {start!r}")
    return found[0]


def _routes(sources: Sources) -> Iterator[tuple[Thing, str]]:
    for path in sorted((sources.root / "api" / "routes").rglob("*.py")):
        module = sources.module(".".join(path.relative_to(sources.root).with_suffix("").parts))
        if module is not None:
            yield from _routes_of(module)


def _routes_of(module: Module) -> Iterator[tuple[Thing, str]]:
    for name in module.definitions:
        for method, path in names.routes_of(module, name):
            yield Thing(module, name), f"{method} {path}"

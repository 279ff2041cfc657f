"""The mutants that are tried, in `mutants.json`, and how they are drawn."""

from dataclasses import asdict, dataclass
import json
from pathlib import Path
import random
from typing import Any

from tests.mutants import mutations, sources
from tests.mutants.contexts import Contexts
from tests.mutants.mutations import Mutation

FILE = Path(__file__).with_name("mutants.json")


@dataclass(frozen=True)
class Mutant:
    """A mutation of the function that this module had when it was drawn, and what became of it.

    The verdict is `killed` (a test failed), `survived`, or `equivalent` (no test can tell, for `reason`).
    """

    area: str
    module: str
    mutation: Mutation
    verdict: str
    killer: str | None = None
    reason: str | None = None


def draw(contexts: Contexts, *, each: int, seed: int) -> list[Mutant]:
    """Draws mutants of lines that tests run: as many of each area, at most one of a function."""
    return [
        Mutant(area, str(module), mutation, "new")
        for area in sources.AREAS
        for module, mutation in _of_area(area, contexts, random.Random(f"{seed} {area}"))[:each]
    ]


def read(file: Path = FILE) -> list[Mutant]:
    return [_mutant(row) for row in json.loads(file.read_text())]


def write(mutants: list[Mutant], file: Path = FILE) -> None:
    rows = [{key: value for key, value in asdict(mutant).items() if value is not None} for mutant in mutants]
    file.write_text(json.dumps(rows, indent=1, ensure_ascii=False) + "\n")


def _mutant(row: dict[str, Any]) -> Mutant:
    return Mutant(mutation=Mutation(**row.pop("mutation")), **row)


def _of_area(area: str, contexts: Contexts, chance: random.Random) -> list[tuple[Path, Mutation]]:
    found: list[tuple[Path, Mutation]] = []
    for module in sources.modules(area):
        for name, function in sources.functions_of(module).items():
            candidates = list(mutations.mutations(name, function))
            chance.shuffle(candidates)
            covered = (
                mutation
                for mutation in candidates
                if contexts.of(module, mutations.line(function, mutation) or 0) and _is_possible(module, mutation)
            )
            found += [(module, mutation) for mutation in [next(covered, None)] if mutation is not None]
    chance.shuffle(found)
    return found


def _is_possible(module: Path, mutation: Mutation) -> bool:
    """Whether a loaded function can get the mutated code, which has to close over the same variables."""
    return sources.code(module, mutation).co_freevars == sources.original(module, mutation.function).co_freevars

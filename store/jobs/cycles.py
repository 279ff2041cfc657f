"""Jobs of one batch that would wait for themselves. It asks no database."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from store.jobs.submission import Submission
from torchyard.contract.errors import FieldError, InvalidSpec

_MOST_TOLD = 10
"""Jobs of which it is said."""
_MOST_NAMED = 4
"""Jobs that are named of a longer cycle, beside that with which it begins and ends."""


def find(wanted: Mapping[int, Submission]) -> dict[int, InvalidSpec]:
    """Returns the errors of some jobs that close a cycle of `after`, by their indexes in the batch; none without one.

    A name that several of the jobs have leads nowhere.
    """
    names = Counter(each.spec.name for each in wanted.values())
    indexes = {each.spec.name: index for index, each in wanted.items() if names[each.spec.name] == 1}
    awaited = {index: [indexes.get(item.job) for item in each.spec.after] for index, each in wanted.items()}
    errors: dict[int, InvalidSpec] = {}
    for cycle, number in _cycles(awaited):
        errors.setdefault(cycle[-1], _error(number, [wanted[index].spec.name for index in (*cycle, cycle[0])]))
        if len(errors) == _MOST_TOLD:
            break
    return errors


def _cycles(awaited: Mapping[int, Sequence[int | None]]) -> Iterator[tuple[Sequence[int], int]]:
    """Yields cycles, each from the job that its last one waits for, and which of the items of the last one that is."""
    done: set[int] = set()
    for start in awaited:
        path, at, steps = [start], {start: 0}, [iter(enumerate(awaited[start]))]
        while path:
            number, following = next(steps[-1], (0, -1))
            if following == -1:
                done.add(path[-1])
                del at[path.pop()]
                steps.pop()
            elif following in at:
                yield path[at[following] :], number
            elif following is not None and following not in done:
                at[following] = len(path)
                path.append(following)
                steps.append(iter(enumerate(awaited[following])))


def _error(number: int, names: Sequence[str]) -> InvalidSpec:
    shown = names if len(names) <= _MOST_NAMED + 1 else [*names[:_MOST_NAMED], "…", names[-1]]
    message = f"the job would wait for itself: {' -> '.join(shown)}"
    return InvalidSpec("the job spec is not valid", errors=(FieldError(f"after.{number}.job", message),))

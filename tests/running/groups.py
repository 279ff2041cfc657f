"""Makes groups of tests: each is run by one worker, the longest first, so that none runs alone at the end.

Groups that mostly wait for processes run beside groups that mostly use a processor. The longest groups start first and
mostly wait: in one order they would leave the cores idle for a third of the time.

What a worker shares between tests is started by each worker that has one of them: a service costs fifteen seconds of a
processor, and a warm process five. So the files that use one are one group, or two where that would end last.
"""

from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

_SERVICE = "shared_service"
"""The fixture of the service of `tests/e2e/shared.py`."""
_LAUNCHES = (
    "worker/test_supervisor.py",
    "worker/test_supervisor_stops.py",
    "worker/test_supervisor_launchers.py",
    "worker/test_supervisor_leftovers.py",
    "worker/test_torchrun.py",
    "worker/test_daemon.py",
    "worker/test_hanging.py",
    "worker/test_idle_daemon.py",
    "worker/test_examples.py",
    "worker/test_bundle_attempts.py",
    "security/test_inside.py",
    "security/test_levels.py",
    "security/test_proc.py",
    "security/test_writable.py",
    "security/test_stores.py",
    "worker/attempts/test_runner_processes.py",
    "worker/engines/test_conformance.py",
    "worker/engines/local/launchers/test_warm.py",
    "worker/engines/local/test_door.py",
    "worker/engines/local/test_stacks.py",
    "worker/engines/local/test_stray.py",
    "worker/packages/test_attempts.py",
    "worker/test_parallel_examples.py",
    "worker/test_supervisor_pauses.py",
)
_WARM = "worker/engines/local/warm/"
"""Theirs, and those of `_LAUNCHES`, use one warm process."""
_MOST_PARTS = 2
_SHARE = 0.8
"""One worker alone has a service, or a warm process, unless that is more than such a share of what each has to do."""
_GUESS_S = 0.05
"""How long a test is taken to last whose file has no record."""


@dataclass(frozen=True)
class Group:
    tests: Sequence[int]
    """Indices of the collected items."""
    waits: bool
    """Whether it belongs to the half of all groups, by their length, that uses a processor least."""


class Line:
    """The groups that no worker has begun: those that wait, and those that use a processor, each in their order."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._halves = {waits: deque(group for group in groups if group.waits == waits) for waits in (True, False)}

    def take(self, running: Sequence[Group]) -> Group | None:
        """Removes and returns a group of the half that has fewer in `running`. Takes the other half if it is empty.

        Returns None if both are empty.
        """
        waiting = sum(group.waits for group in running)
        first = self._halves[waiting * 2 <= len(running)]
        half = first or next(filter(None, self._halves.values()), None)
        return half.popleft() if half else None

    def put_back(self, group: Group) -> None:
        self._halves[group.waits].appendleft(group)

    def clear(self) -> None:
        for half in self._halves.values():
            half.clear()


def make_groups(
    items: Sequence[pytest.Item], lengths: Mapping[str, float], spent: Mapping[str, float], *, workers: int
) -> list[Group]:
    """Returns the items in groups. `lengths` are seconds by file, `spent` processor seconds; a file keeps its order."""
    files: defaultdict[str, list[int]] = defaultdict(list)
    for index, item in enumerate(items):
        files[item.nodeid.partition("::")[0]].append(index)
    took = {file: lengths.get(file, len(tests) * _GUESS_S) for file, tests in files.items()}
    shared = {file: _shares(file, [items[index] for index in tests]) for file, tests in files.items()}
    groups = [[file] for file, what in shared.items() if what is None]
    fits_s = _SHARE * sum(took.values()) / workers
    for what in ("service", "launches"):
        groups += _parted([file for file, uses in shared.items() if uses == what], took, fits_s=fits_s)
    waiting = _that_wait(groups, took, spent)
    order = sorted(range(len(groups)), key=lambda number: -sum(took[file] for file in groups[number]))
    return [
        Group([index for file in sorted(groups[number]) for index in files[file]], number in waiting)
        for number in order
    ]


def _shares(file: str, items: Sequence[pytest.Item]) -> str | None:
    """Returns what the file's tests share with those of other files, and what is dear to start."""
    if any(_SERVICE in getattr(item, "fixturenames", ()) for item in items):
        return "service"
    name = file.removeprefix("tests/")
    return "launches" if name in _LAUNCHES or name.startswith(_WARM) else None


def _parted(files: Sequence[str], took: Mapping[str, float], *, fits_s: float) -> list[list[str]]:
    """Returns the files in one part, or if that lasts longer than `fits_s` in more that last equally long."""
    parts: list[list[str]] = [[] for _ in range(1 if sum(took[file] for file in files) <= fits_s else _MOST_PARTS)]
    for file in sorted(files, key=lambda file: -took[file]):
        min(parts, key=lambda part: sum(took[each] for each in part)).append(file)
    return [part for part in parts if part]


def _that_wait(groups: Sequence[Sequence[str]], took: Mapping[str, float], spent: Mapping[str, float]) -> set[int]:
    """Returns the numbers of the groups that use a processor least while they run: together half of all seconds."""
    lengths = [sum(took[file] for file in group) for group in groups]
    used = [sum(spent.get(file, took[file]) for file in group) for group in groups]
    left_s = sum(lengths) / 2
    waiting: set[int] = set()
    for number in sorted(range(len(groups)), key=lambda number: used[number] / (lengths[number] or 1.0)):
        if left_s <= 0:
            break
        waiting.add(number)
        left_s -= lengths[number]
    return waiting

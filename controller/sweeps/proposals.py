"""Which points a sweep tries next. The rows say what was tried and how it went.

Points that depend on results are found by a process of their own: the controller's thread does not compute them.
"""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
import json
import logging
import os
import resource
import select
import signal
import time
from typing import Any, NoReturn
import weakref

from store.sweeps.facts import KnownTrials
from torchyard.contract.sweeps.points import drawn_point, known_point
from torchyard.contract.sweeps.spec import Point, SweepSpec
from torchyard.host.parent import end_with_parent

CPU_S = 20
"""Seconds of processor time of one process. Then it ends, and the points that it has found are used."""
WALL_S = 120.0
"""Seconds after which one process is killed, even if it used little processor time."""
MEMORY_BYTES = 1 << 30
"""Memory of one process, beside what the controller has."""

_CHUNK = 1 << 20
_log = logging.getLogger(__name__)

Key = tuple[str, int]
"""A sweep, and the number of its next trial."""


def by_results(spec: SweepSpec, known: KnownTrials, *, made: int, count: int) -> Callable[[], Iterator[Point]]:
    """Returns what finds the points of the next trials, `count` at most, by how the first `made` trials have gone.

    `known`: those and perhaps more; they are never changed. What finds the points makes them, too. The same for the
    same arguments. Fewer than `count` are left of a sweep that ends soon. It may take seconds.
    """
    from controller.sweeps.sampling import sample  # Optuna takes half a second, which few sweeps need

    return lambda: sample(spec, known(made), count=min(count, spec.size - made))


def by_chance(spec: SweepSpec, number: int) -> list[Point]:
    """Returns the point of a trial, which follows from the seed and its number alone."""
    return [drawn_point(spec, number)]


def points_of(spec: SweepSpec, *, first: int, count: int) -> list[Point]:
    """Returns the points, from the number `first` on, of a method whose points depend on their numbers alone."""
    points = (known_point(spec, number) for number in range(first, min(first + count, spec.size)))
    return [point for point in points if point is not None]


class Proposals:
    """At most one process at a time, a fork of this one. Who asks while it is at work for another one asks again."""

    def __init__(self) -> None:
        self._work: _Work | None = None

    @property
    def busy(self) -> bool:
        """Whether points are being found that nobody has taken yet."""
        return self._work is not None

    def keep(self, keys: Collection[Key]) -> None:
        """Ends the process, if it is at work for none of these."""
        if self._work is not None and self._work.key not in keys:
            self._work.end()
            self._work = None

    def begin(self, key: Key, find: Callable[[], Iterable[Point]]) -> None:
        """Starts the process, which runs `find`. Only while none is busy. Raises OSError."""
        assert self._work is None
        self._work = _Work.begin(key, find)

    def take(self, key: Key, *, wait_s: float) -> list[Point] | None:
        """Returns the points for a key, or those that were found until the limits ended the process, perhaps none.

        Returns None if `wait_s` seconds are not enough, or while it is at work for another key: ask again.
        """
        if self._work is None or self._work.key != key or not self._work.has_ended(wait_s):
            return None
        work, self._work = self._work, None
        return work.points()


@dataclass
class _Work:
    key: Key
    pid: int
    pipe: int
    began: float
    written: bytearray = field(default_factory=bytearray)
    end: Callable[[], object] = lambda: None
    """Kills the process, if it is there, and forgets it."""

    @classmethod
    def begin(cls, key: Key, find: Callable[[], Iterable[Point]]) -> "_Work":
        """Raises OSError."""
        pipe, other = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(pipe)
            os.close(other)
            raise
        if pid == 0:
            _find(find, other)
        os.close(other)
        work = cls(key, pid, pipe, time.monotonic())
        work.end = weakref.finalize(work, _end, pid, pipe)
        return work

    def has_ended(self, wait_s: float) -> bool:
        """Reads what it writes. Returns whether that is all. Kills it after its time."""
        until = time.monotonic() + wait_s
        while select.select([self.pipe], [], [], max(0.0, until - time.monotonic()))[0]:
            if not (chunk := os.read(self.pipe, _CHUNK)):
                return True
            self.written += chunk
        return time.monotonic() - self.began > WALL_S

    def points(self) -> list[Point]:
        """Returns what it has found."""
        if (status := self.end()) != 0:
            _log.warning("the points of sweep %s took too much, or failed: status %s", self.key[0], status)
        return [json.loads(line) for line in self.written.splitlines(keepends=True) if line.endswith(b"\n")]


def _end(pid: int, pipe: int) -> int:
    os.close(pipe)
    os.kill(pid, signal.SIGKILL)  # it is this process's child until it is waited for
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _find(find: Callable[[], Iterable[Point]], pipe: int) -> NoReturn:
    """Writes each point in a line, and ends this process."""
    try:
        end_with_parent(signal.SIGKILL)
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_DFL)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        _limit()
        for point in find():
            _write(pipe, json.dumps(point).encode() + b"\n")
        os._exit(0)
    except BaseException:  # noqa: BLE001 - nothing of the controller goes on here
        os._exit(1)


def _limit() -> None:
    with open("/proc/self/statm", "rb") as file:  # noqa: PTH123 - nothing more is imported here
        pages = int(file.read().split()[0])
    most = pages * resource.getpagesize() + MEMORY_BYTES
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (most, most))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S + 1))


def _write(pipe: int, data: Any) -> None:
    left = memoryview(data)
    while left:
        left = left[os.write(pipe, left) :]

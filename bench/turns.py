"""Programs that train the same thing and take turns: one trains while the others stand still.

Each is started once, by torchrun, and a turn is a few steps: so what disturbs the machine for seconds disturbs all of
them alike. Every rank waits for a byte on its standard input before a turn; rank 0 tells on its standard output how
long the turn took.
"""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
import json
import math
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from bench.torchrun import started

if TYPE_CHECKING:
    from torch import nn

SIDE, CLASSES = 28, 10

_GO = b"."
_ALIKE = 1e-3
"""How far the weights of two programs may be apart, relatively: they add numbers in other orders."""


@dataclass(frozen=True)
class Course:
    """What each of them trains, in one epoch. The first turn warms up, and counts for nothing."""

    model: str
    batch: int
    """Samples a rank and step."""
    settling: int
    """Steps at the beginning of a turn that are not timed."""
    steps: int
    """Those that are."""
    log_every: int
    """Steps from one logged loss to the next."""
    turns: int = 7
    """Beside the first one."""
    processes: int = 1
    data: str = ""
    """An .npz file of pictures of SIDE × SIDE pixels, of CLASSES classes."""
    seed: int = 42
    mean: float = 0.5
    std: float = 0.25
    """Of pixels, as the models are told."""
    lr: float = 0.002
    weight_decay: float = 0.01

    @property
    def turn(self) -> int:
        """Steps of a turn. The first one is shorter, so that what is logged is logged inside a turn, not at its end."""
        return self.settling + self.steps

    @property
    def skipped(self) -> int:
        return self.log_every // 2

    @property
    def samples(self) -> int:
        """That the data must have."""
        return ((1 + self.turns) * self.turn - self.skipped) * self.batch * self.processes

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> "Course":
        return cls(**json.loads(Path(path).read_text()))


class Clock:
    """The side of one rank: `ready`, then `step` after each training step, then `finish`."""

    def __init__(self, course: Course) -> None:
        self.rank = int(os.environ["RANK"])
        self._course = course
        self._place = course.skipped
        """Steps of the turn so far."""
        self._began = 0.0

    def ready(self) -> None:
        self._tell("ready", 0)
        _wait()

    def step(self) -> None:
        self._place += 1
        if self._place == self._course.settling:
            self._began = _now()
        elif self._place == self._course.turn:
            self._tell("seconds", _now() - self._began)
            self._place = 0
            _wait()

    def finish(self, model: "nn.Module") -> None:
        norm = math.sqrt(sum(parameter.double().square().sum().item() for parameter in model.parameters()))
        self._tell("norm", norm)

    def _tell(self, what: str, value: float) -> None:
        if self.rank == 0:
            print(what, value, flush=True)


@dataclass(frozen=True)
class Program:
    """The other side: one program with all its ranks."""

    name: str
    ranks: int
    process: subprocess.Popen[bytes]
    log: Path

    def go(self) -> None:
        """Lets it take its next turn."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(_GO * self.ranks)
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.exit(self._ended())

    def told(self, what: str) -> float:
        """The value that it tells next under that name. Exits where it has ended instead."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            name, _, value = line.decode().partition(" ")
            if name == what:
                return float(value)
        sys.exit(self._ended())

    def _ended(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.name} has ended before its time; the end of its log:", *lines[-20:]])


@contextmanager
def running(
    programs: Mapping[str, Sequence[str]], *, ranks: int, folder: Path, env: Mapping[str, str]
) -> Generator[list[Program]]:
    """The programs, which are given as Python's arguments by their names, with so many ranks each."""
    with ExitStack() as stack:
        found: list[Program] = []
        for name, arguments in programs.items():
            log = folder / f"{name.replace(' ', '-')}.log"
            process = stack.enter_context(started(arguments, processes=ranks, log=log, env=env))
            found.append(Program(name, ranks, process, log))
        yield found


def take_turns(programs: Sequence[Program], *, turns: int) -> dict[str, list[float]]:
    """The seconds of each one's turns, by its name. In each round another one comes first.

    Exits where they have not trained the same.
    """
    for program in programs:
        program.told("ready")
    seconds: dict[str, list[float]] = {program.name: [] for program in programs}
    for number in range(1 + turns):
        first = number % len(programs)
        for program in (*programs[first:], *programs[:first]):
            program.go()
            taken = program.told("seconds")
            if number:
                seconds[program.name].append(taken)
    for program in programs:
        program.go()
    check_alike({program.name: program.told("norm") for program in programs})
    return seconds


def check_alike(norms: Mapping[str, float]) -> None:
    """Exits where the norms of the trained weights differ."""
    first = next(iter(norms.values()))
    if not all(math.isclose(norm, first, rel_tol=_ALIKE) for norm in norms.values()):
        sys.exit(f"they have not trained the same: the norms of their weights are {norms}")


def _now() -> float:
    """When the device has done all that it was told."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _wait() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        sys.exit("nobody is there to say when to go on")

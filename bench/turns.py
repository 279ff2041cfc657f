"""Programs that train the same model and take turns: one trains while the others wait.

Each program is started once, with torchrun, and a turn is a few steps. So a disturbance of the machine affects all
programs equally. Every rank waits for a byte on its stdin before a turn. Rank 0 prints how long the turn took.
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
from typing import TYPE_CHECKING, Self

from bench.torchrun import started

if TYPE_CHECKING:
    from torch import nn

    from bench.counting import Operations, PythonCalls

SIDE, CLASSES = 28, 10
COUNTED = 2
"""The turns at the end in which calls are counted: of operations, then of functions."""

_GO = b"."
_ALIKE = 1e-3
"""The largest relative difference of the weight norms of two programs, which add numbers in different orders."""


@dataclass(frozen=True)
class TrainingSettings:
    """What each program trains, in one epoch. The first turn is a warm-up, and is not counted."""

    model: str
    batch: int
    """Samples per rank and step."""
    settling: int
    """Steps at the beginning of a turn that are not measured."""
    steps: int
    """Measured steps of a turn."""
    log_every: int
    """Steps between two logged losses."""
    turns: int = 7
    """The number of turns after the first one."""
    processes: int = 1
    data: str = ""
    """An .npz file of images with SIDE × SIDE pixels and CLASSES classes."""
    seed: int = 42
    mean: float = 0.5
    std: float = 0.25
    """The mean and the standard deviation of the pixels, for normalization."""
    lr: float = 0.002
    weight_decay: float = 0.01

    @property
    def turn(self) -> int:
        """Steps of a turn. The first turn is shorter, so that losses are logged inside a turn and not at its end."""
        return self.settling + self.steps

    @property
    def timed(self) -> int:
        """The turns that are timed. In one more turn each, operations and calls are counted."""
        return 1 + self.turns

    @property
    def skipped(self) -> int:
        return self.log_every // 2

    @property
    def samples(self) -> int:
        """The number of samples that the data must have."""
        return ((self.timed + COUNTED) * self.turn - self.skipped) * self.batch * self.processes

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)))

    @classmethod
    def read(cls, path: str) -> Self:
        return cls(**json.loads(Path(path).read_text()))


class Clock:
    """Used by a rank: it calls `ready`, then `step` after each training step, then `finish`."""

    def __init__(self, settings: TrainingSettings) -> None:
        self.rank = int(os.environ["RANK"])
        self._settings = settings
        self._place = settings.skipped
        """The steps of this turn so far."""
        self._turn = 0
        self._began = 0.0
        self._counter: Operations | PythonCalls | None = None

    def ready(self) -> None:
        self._tell("ready", 0)
        _wait()

    def step(self) -> None:
        self._place += 1
        if self._place == self._settings.settling:
            self._begin()
        elif self._place == self._settings.turn:
            self._end()
            self._place, self._turn = 0, self._turn + 1
            _wait()

    def finish(self, model: "nn.Module") -> None:
        norm = math.sqrt(sum(parameter.double().square().sum().item() for parameter in model.parameters()))
        self._tell("norm", norm)

    def _begin(self) -> None:
        """Begins the measured part of a turn. What counts calls would slow a timed turn, and has a turn of its own."""
        from bench.counting import Operations, PythonCalls

        counted = self._turn - self._settings.timed
        if counted >= 0:
            self._counter = Operations() if counted == 0 else PythonCalls()
            self._counter.__enter__()
        self._began = _now()

    def _end(self) -> None:
        value = _now() - self._began
        if self._counter is not None:
            self._counter.__exit__(None, None, None)
            value, self._counter = self._counter.count / self._settings.steps, None
        self._tell("measured", value)

    def _tell(self, what: str, value: float) -> None:
        if self.rank == 0:
            print(what, value, flush=True)


@dataclass(frozen=True)
class Program:
    """One program with all its ranks, as the benchmark controls it."""

    name: str
    ranks: int
    process: subprocess.Popen[bytes]
    log: Path

    def go(self) -> None:
        """Starts its next turn."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(_GO * self.ranks)
            self.process.stdin.flush()
        except BrokenPipeError:
            sys.exit(self._ended())

    def told(self, what: str) -> float:
        """Returns the next value that it prints under this name. Exits if the program has ended."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            name, _, value = line.decode().partition(" ")
            if name == what:
                return float(value)
        sys.exit(self._ended())

    def _ended(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join([f"{self.name} has ended too early; the end of its log:", *lines[-20:]])


@contextmanager
def running(
    programs: Mapping[str, Sequence[str]], *, ranks: int, folder: Path, env: Mapping[str, str]
) -> Generator[list[Program]]:
    """Runs the programs, with `ranks` ranks each. `programs`: the arguments of Python by name."""
    with ExitStack() as stack:
        found: list[Program] = []
        for name, arguments in programs.items():
            log = folder / f"{name.replace(' ', '-')}.log"
            process = stack.enter_context(started(arguments, processes=ranks, log=log, env=env))
            found.append(Program(name, ranks, process, log))
        yield found


@dataclass(frozen=True)
class Measured:
    """The measurements of one program."""

    seconds: list[float]
    """Of its timed turns."""
    operations: float
    """Calls in a step."""
    calls: float
    """Calls of functions of Python and C in a step."""


def take_turns(programs: Sequence[Program], *, turns: int) -> dict[str, Measured]:
    """Returns what was measured of each program, by name. In each round, another program comes first.

    Exits if the trained weights differ.
    """
    for program in programs:
        program.told("ready")
    values: dict[str, list[float]] = {program.name: [] for program in programs}
    for number in range(1 + turns + COUNTED):
        first = number % len(programs)
        for program in (*programs[first:], *programs[:first]):
            program.go()
            values[program.name].append(program.told("measured"))
    for program in programs:
        program.go()
    check_alike({program.name: program.told("norm") for program in programs})
    return {name: Measured(taken[1:-COUNTED], *taken[-COUNTED:]) for name, taken in values.items()}


def check_alike(norms: Mapping[str, float]) -> None:
    """Exits if the norms of the trained weights differ."""
    first = next(iter(norms.values()))
    if not all(math.isclose(norm, first, rel_tol=_ALIKE) for norm in norms.values()):
        sys.exit(f"the programs have trained different weights; their norms are {norms}")


def _now() -> float:
    """Returns the time after the device has finished all its work."""
    import torch

    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter()


def _wait() -> None:
    if not os.read(sys.stdin.fileno(), 1):
        sys.exit("the benchmark has ended: its end of the pipe is closed")

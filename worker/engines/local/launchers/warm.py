"""Forks of the supervisor as the ranks, where the supervisor itself is a fork of the worker's warm process.

Each rank sees torchrun's environment. Its store is served on loopback by one more fork, once a rank connects to it.
"""

from collections.abc import Callable, Collection, Sequence
import contextlib
import importlib
import os
from pathlib import Path
import re
import signal
import socket
import time
from typing import Literal, NoReturn

from setproctitle import setproctitle

from torchyard.contract.records import LaunchPlan
from torchyard.contract.rundir import RunDir, process_title
from worker.engines.base import Plan
from worker.engines.local import process
from worker.engines.local.launchers.torchrun import Torchrun
from worker.engines.local.warm import fork

_LOOPBACK = "127.0.0.1"
_TERM_S = 30.0
"""Between SIGTERM and SIGKILL for the ranks beside one that failed: torchrun's."""
_READ_AT_IMPORT = re.compile(
    r"PYTHON.*|LD_.*|GLIBC_.*|MALLOC_.*|LANG|LANGUAGE|LC_.*"
    r"|TORCH_.*|TORCH[A-Z]+_.*|PYTORCH_.*|ATEN_.*|C10_.*|KINETO_.*|TRITON_.*|HF_.*|HUGGINGFACE_.*|TRANSFORMERS_.*"
    r"|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|DNNL_.*|ONEDNN_.*|OPENBLAS_.*|GOTO_.*|BLIS_.*|VECLIB_.*|NUMEXPR_.*|NPY_.*|NUMPY_.*"
)
"""Variables that Python, torch, NumPy and the libraries below them read once, when they are loaded."""
_SERVICES_OWN = re.compile(r"TORCHYARD_.*|PYTHONUNBUFFERED")


class Warm(Torchrun):
    """The ranks get the environment that they would have under torchrun."""

    @property
    def name(self) -> Literal["warm"]:  # pyright: ignore[reportIncompatibleMethodOverride] one of the protocol's two
        return "warm"

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        return list(plan.program)


def obstacle(plan: Plan, *, loaded: frozenset[str]) -> str | None:
    """Why the plan's program cannot be run by a process that has imported `loaded` (top-level modules) already."""
    early = sorted(name for name in plan.env if _READ_AT_IMPORT.fullmatch(name) and not _SERVICES_OWN.fullmatch(name))
    if early:
        return f"{', '.join(early)} must be set when Python starts"
    shadowed = sorted(_modules_beside(plan.program) & loaded)
    if shadowed:
        return f"the code has modules of its own that are named like installed ones: {', '.join(shadowed)}"
    return None


def _modules_beside(program: Sequence[str]) -> frozenset[str]:
    """The modules and packages in the folder of the plan's script."""
    if program[0] == "-m":
        return frozenset()
    folder = Path(program[0]).resolve().parent
    try:
        return frozenset(
            path.name.partition(".")[0]
            for path in folder.iterdir()
            if path.suffix in {".py", ".pyc", ".so"} or (path / "__init__.py").exists()
        )
    except OSError:
        return frozenset()


class Forks:
    """Forks one process for each rank of a plan. Raises OSError where a fork fails."""

    def __init__(self, plan: LaunchPlan, run: RunDir) -> None:
        self.exit: int | None = None
        self._plan = plan
        self._run = run
        self._store: int | None = None
        self._deaths: list[tuple[int, int]] = []
        self._kill_at: float | None = None
        self._ends: dict[int, int] = {}
        """The pidfd of each child that has not ended."""
        self._listener: socket.socket | None = socket.create_server((_LOOPBACK, 0), backlog=1024)
        self._port = int(self._listener.getsockname()[1])
        self._ranks: dict[int, int] = {}
        """The rank of each pid that has not ended."""
        errors = [self._error_file(rank) for rank in range(plan.world_size)]
        for rank, path in enumerate(errors):
            self._ranks[self._fork(lambda rank=rank, path=path: self._be_rank(rank, path))] = rank

    @property
    def keeper(self) -> int | None:
        return self._store

    def descriptors(self) -> Sequence[int]:
        wanted = [] if self._listener is None else [self._listener.fileno()]
        return [*self._ends.values(), *wanted]

    def tend(self) -> None:
        """Serves the store as soon as a rank asks for it, and kills what outlives its SIGTERM."""
        if self._listener is not None and process.readable([self._listener.fileno()]):
            self._store = self._fork(self._be_store, keep=(self._listener.fileno(),))
            self._listener.close()
            self._listener = None
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._send(signal.SIGKILL)

    def note(self, pid: int, code: int) -> None:
        descriptor = self._ends.pop(pid, None)
        if descriptor is None:
            return
        os.close(descriptor)
        if pid == self._store:
            self.exit = code or 1 if self.exit is None else self.exit
            return
        rank = self._ranks.pop(pid)
        if code and self.exit is None:  # else it was ended because the store was lost
            self._deaths.append((rank, code))
            if self._kill_at is None:
                self._kill_at = time.monotonic() + _TERM_S
                self._send(signal.SIGTERM)
        if not self._ranks and self.exit is None:
            self.exit = 1 if self._deaths else 0

    def deaths(self) -> list[tuple[int, int]]:
        return list(self._deaths)

    def close(self) -> None:
        for descriptor in self._ends.values():
            os.close(descriptor)
        if self._listener is not None:
            self._listener.close()

    def _fork(self, be: Callable[[], NoReturn], *, keep: Collection[int] = ()) -> int:
        pid = fork.child(be, keep=keep)
        self._ends[pid] = os.pidfd_open(pid)
        return pid

    def _send(self, number: signal.Signals) -> None:
        for pid in self._ranks:  # none of them was reaped: each pid is still its own
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._ends[pid], number)

    def _error_file(self, rank: int) -> Path:
        """Where torchrun's `record` writes what a rank raised."""
        folder = self._run.torchrun / "none_warm" / "attempt_0" / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "error.json"

    def _be_rank(self, rank: int, error_file: Path) -> NoReturn:
        env = self._plan.env | _environment(self._plan, rank=rank, port=self._port, error_file=error_file)
        fork.become_rank(self._plan.argv, env=env, cwd=self._plan.cwd)

    def _be_store(self) -> NoReturn:
        assert self._listener is not None
        setproctitle(process_title(self._plan.job_id, self._plan.attempt, "store"))
        listening = os.dup(self._listener.fileno())  # the store closes it when it ends
        distributed = importlib.import_module("torch.distributed")
        server = distributed.TCPStore(
            _LOOPBACK, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listening
        )
        while server:
            signal.pause()
        raise AssertionError


def _environment(plan: LaunchPlan, *, rank: int, port: int, error_file: Path) -> dict[str, str]:
    """What torchrun's agent adds for one rank on one host."""
    size = str(plan.world_size)
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "ROLE_RANK": str(rank),
        "ROLE_NAME": "default",
        "GROUP_RANK": "0",
        "WORLD_SIZE": size,
        "LOCAL_WORLD_SIZE": size,
        "ROLE_WORLD_SIZE": size,
        "GROUP_WORLD_SIZE": "1",
        "MASTER_ADDR": _LOOPBACK,
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RUN_ID": "none",
        "TORCHELASTIC_RESTART_COUNT": "0",
        "TORCHELASTIC_MAX_RESTARTS": "0",
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "TORCHELASTIC_ERROR_FILE": str(error_file),
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGTERM,SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": plan.env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }

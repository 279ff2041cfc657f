"""The warm launcher: the ranks are forks of the supervisor, which is a fork of the worker's warm process.

Each rank gets the environment that torchrun would give it. One more fork serves the TCP store on loopback, as soon as
a rank connects to it.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
import contextlib
from dataclasses import replace
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
from worker.engines.local.warm import fork

_LOOPBACK = "127.0.0.1"
_KILL_AFTER_S = 30.0
"""Seconds between SIGTERM and SIGKILL for the other ranks of a failed one, as with torchrun."""
_READ_AT_IMPORT = re.compile(
    r"PYTHON.*|LD_.*|GLIBC_.*|MALLOC_.*|LANG|LANGUAGE|LC_.*"
    r"|TORCH_.*|TORCH[A-Z]+_.*|PYTORCH_.*|ATEN_.*|C10_.*|KINETO_.*|TRITON_.*|HF_.*|HUGGINGFACE_.*|TRANSFORMERS_.*"
    r"|OMP_.*|GOMP_.*|KMP_.*|MKL_.*|DNNL_.*|ONEDNN_.*|OPENBLAS_.*|GOTO_.*|BLIS_.*|VECLIB_.*|NUMEXPR_.*|NPY_.*|NUMPY_.*"
)
"""Variables that Python, torch, NumPy and the libraries below them read once, when they are loaded."""
_SET_BY_SERVICE = re.compile(r"TORCHYARD_.*|PYTHONUNBUFFERED")


class WarmLauncher:
    """Launches the ranks as forks of the supervisor."""

    @property
    def name(self) -> Literal["warm"]:
        return "warm"

    def command(self, plan: Plan, *, folder: Path) -> list[str]:
        return list(plan.program)


def warm_start_obstacle(plan: Plan, *, loaded: frozenset[str]) -> str | None:
    """Returns why a process that has imported the modules `loaded` cannot run the plan's program, or None if it can."""
    names = (*plan.env, *plan.secrets)
    early = sorted(name for name in names if _READ_AT_IMPORT.fullmatch(name) and not _SET_BY_SERVICE.fullmatch(name))
    if early:
        return f"{', '.join(early)} must be set when Python starts"
    shadowed = sorted(_modules_beside(plan.program) & loaded)
    if shadowed:
        return f"the code has modules of its own that are named like installed ones: {', '.join(shadowed)}"
    return None


def _modules_beside(program: Sequence[str]) -> frozenset[str]:
    """Returns the names of the modules and packages in the folder of the plan's script."""
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


class ForkedRanks:
    """Forks one process for each rank of a plan, with its secrets. Raises OSError if a fork fails."""

    def __init__(self, plan: LaunchPlan, run: RunDir, secrets: Mapping[str, str]) -> None:
        self.exit_code: int | None = None
        self._plan = plan
        self._run = run
        self._secrets = secrets
        self._store_pid: int | None = None
        self._failures: list[tuple[int, int]] = []
        self._kill_at: float | None = None
        self._pidfds: dict[int, int] = {}
        """The pidfd of each child that has not ended, by pid."""
        self._listener: socket.socket | None = socket.create_server((_LOOPBACK, 0), backlog=1024)
        self._port = int(self._listener.getsockname()[1])
        self._ranks: dict[int, int] = {}
        """The rank of each child that has not ended, by pid."""
        error_files = [self._error_file(rank) for rank in range(plan.world_size)]
        for rank, path in enumerate(error_files):
            self._ranks[self._fork(lambda rank=rank, path=path: self._run_rank(rank, path))] = rank

    @property
    def last_killed(self) -> int | None:
        return self._store_pid

    def descriptors(self) -> Sequence[int]:
        listener = [] if self._listener is None else [self._listener.fileno()]
        return [*self._pidfds.values(), *listener]

    def handle_events(self) -> None:
        """Forks the store when the first rank connects, and kills the ranks that outlive their SIGTERM."""
        if self._listener is not None and process.readable([self._listener.fileno()]):
            self._store_pid = self._fork(self._run_store, keep=(self._listener.fileno(),))
            self._listener.close()
            self._listener = None
        if self._kill_at is not None and time.monotonic() >= self._kill_at:
            self._send(signal.SIGKILL)

    def child_exited(self, pid: int, code: int) -> None:
        pidfd = self._pidfds.pop(pid, None)
        if pidfd is None:
            return
        os.close(pidfd)
        if pid == self._store_pid:
            self.exit_code = code or 1 if self.exit_code is None else self.exit_code
            return
        rank = self._ranks.pop(pid)
        if code and self.exit_code is None:  # otherwise it ended because the store had ended
            self._failures.append((rank, code))
            if self._kill_at is None:
                self._kill_at = time.monotonic() + _KILL_AFTER_S
                self._send(signal.SIGTERM)
        if not self._ranks and self.exit_code is None:
            self.exit_code = 1 if self._failures else 0

    def failures(self) -> list[tuple[int, int]]:
        return list(self._failures)

    def close(self) -> None:
        for pidfd in self._pidfds.values():
            os.close(pidfd)
        if self._listener is not None:
            self._listener.close()

    def _fork(self, run: Callable[[], NoReturn], *, keep: Collection[int] = ()) -> int:
        pid = fork.fork(run, keep=keep)
        self._pidfds[pid] = os.pidfd_open(pid)
        return pid

    def _send(self, number: signal.Signals) -> None:
        for pid in self._ranks:  # none of them was reaped, so no other process has its pid
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._pidfds[pid], number)

    def _error_file(self, rank: int) -> Path:
        """Returns the path at which torchrun's `record` writes the exception of a rank."""
        folder = self._run.torchrun / "none_warm" / "attempt_0" / str(rank)
        folder.mkdir(parents=True, exist_ok=True)
        return folder / "error.json"

    def _run_rank(self, rank: int, error_file: Path) -> NoReturn:
        of_rank = _torchrun_environment(self._plan, rank=rank, port=self._port, error_file=error_file)
        fork.run_rank(replace(self._plan, env=self._plan.env | of_rank | dict(self._secrets)))

    def _run_store(self) -> NoReturn:
        assert self._listener is not None
        setproctitle(process_title(self._plan.job_id, self._plan.attempt, "store"))
        listening = os.dup(self._listener.fileno())  # the store closes its descriptor when it ends
        distributed = importlib.import_module("torch.distributed")
        server = distributed.TCPStore(
            _LOOPBACK, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listening
        )
        while server:
            signal.pause()
        raise AssertionError


def _torchrun_environment(plan: LaunchPlan, *, rank: int, port: int, error_file: Path) -> dict[str, str]:
    """Returns the variables that torchrun's agent sets for a rank on a single host."""
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

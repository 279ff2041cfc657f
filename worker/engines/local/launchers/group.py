"""The ranks of an attempt as forks of its agent, and the TCP store at which they meet."""

from collections.abc import Callable
from dataclasses import replace
import importlib
import os
from pathlib import Path
import select
import signal
import socket
import time
from typing import Any, NoReturn

from torchyard.contract.attempts.records import LaunchPlan
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host import inspection
from worker.engines.local.launchers import fork
from worker.host import forks, process
from worker.sandbox.door.variables import with_python

_LOOPBACK = "127.0.0.1"
_SETTLE_S = 0.2
"""Seconds between the first failure and SIGTERM for the other ranks. The rank that failed first may end last: its peers
fail when it closes its connections, while it still records its error."""
_KILL_AFTER_S = 30.0
"""Seconds between SIGTERM and SIGKILL for the other ranks of a failed one, as with torchrun."""


class RankGroup:
    """Forks one process for each rank of a plan. `secrets`: the ranks' secret variables. Raises OSError.

    Its `run` does that. Until then nothing of it runs, and its port is known.
    """

    def __init__(self, plan: LaunchPlan, run: RunDir, secrets: dict[str, str]) -> None:
        self._plan = plan
        self._run = run
        self._secrets = secrets
        self._store: Any = None
        self._listener = socket.create_server((_LOOPBACK, 0), backlog=1024)
        self._port = int(self._listener.getsockname()[1])
        self._failures: list[list[int]] = []
        self._signals: list[tuple[float, signal.Signals]] = []
        """The signals that the ranks get, and when, the next one in front."""
        self._ranks: dict[int, int] = {}
        """Each rank that was not reaped, by its pid."""

    def variables_beside(self, rank: int) -> dict[str, str]:
        """Returns all variables of a rank, for a program that is started beside it."""
        return with_python(self._variables(rank, self._error_path(rank)))

    def run(self, began: Callable[[], None]) -> list[list[int]]:
        """Forks the ranks, and serves the store until all have ended. When one fails, it ends the others.

        `began` is called once all are forked, while this process has one thread: they need not wait for it. Reaps all
        children. Returns the rank and the exit code of each failed rank, the first failure in front. Raises OSError.
        """
        self._child_ended, wakeup = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        signal.set_wakeup_fd(wakeup, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, _do_nothing)  # only a signal with a handler writes to the wakeup descriptor
        self._ranks = self._start()
        began()
        poll = select.poll()
        for descriptor in (self._listener.fileno(), self._child_ended):
            poll.register(descriptor, select.POLLIN)
        while self._ranks:
            left = max(0.0, self._signals[0][0] - time.monotonic()) * 1000 if self._signals else None
            for descriptor, _ in poll.poll(left):
                if descriptor == self._child_ended:
                    os.read(self._child_ended, 4096)
                    self._reap()
                else:
                    poll.unregister(descriptor)
                    self._serve_store()
            self._send_due_signals()
        return self._failures

    def _start(self) -> dict[int, int]:
        error_files = [self._error_file(rank) for rank in range(self._plan.world_size)]
        return {
            forks.fork(lambda rank=rank, path=path: self._run_rank(rank, path)): rank
            for rank, path in enumerate(error_files)
        }

    def _serve_store(self) -> None:
        """Serves the store from a thread of this process, as soon as a rank connects: no rank is forked any more."""
        distributed = importlib.import_module("torch.distributed")
        listening = os.dup(self._listener.fileno())  # the store closes its descriptor when it ends
        self._store = distributed.TCPStore(
            _LOOPBACK, self._port, is_master=True, wait_for_workers=False, master_listen_fd=listening
        )

    def _reap(self) -> None:
        for pid, code in process.reap_children():
            rank = self._ranks.pop(pid, None)
            if rank is not None and code:
                self._failures.append([rank, code])
                if len(self._failures) == 1:
                    terminate = time.monotonic() + _SETTLE_S
                    self._signals = [(terminate, signal.SIGTERM), (terminate + _KILL_AFTER_S, signal.SIGKILL)]

    def _send_due_signals(self) -> None:
        while self._signals and time.monotonic() >= self._signals[0][0]:
            _, number = self._signals.pop(0)
            for pid in self._ranks:  # none of them was reaped
                os.kill(pid, number)

    def _error_file(self, rank: int) -> Path:
        """Returns the path at which torchrun's `record` writes the exception of a rank."""
        path = self._error_path(rank)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _error_path(self, rank: int) -> Path:
        return self._run.torchrun / "none_warm" / "attempt_0" / str(rank) / "error.json"

    def _run_rank(self, rank: int, error_file: Path) -> NoReturn:
        plan = self._plan
        if plan.sandbox is not None:
            inspection.permit()  # the agent may not be inspected, if it is the first process of the attempt
        fork.run_rank(replace(plan, env=self._variables(rank, error_file)))

    def _variables(self, rank: int, error_file: Path) -> dict[str, str]:
        env = self._plan.env | _torchrun_environment(self._plan, rank=rank, port=self._port, error_file=error_file)
        return env | self._plan.rank_env | self._secrets


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
        "TORCHELASTIC_SIGNALS_TO_HANDLE": "SIGINT,SIGHUP,SIGQUIT",
        "TORCH_NCCL_ASYNC_ERROR_HANDLING": plan.env.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
    }


def _do_nothing(*_: object) -> None:
    pass

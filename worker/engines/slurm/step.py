"""The step of Slurm in which the nodes of one attempt run: srun and its input."""

from collections.abc import Mapping, Sequence
import contextlib
import os
from pathlib import Path
import signal
import subprocess
import sys

from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.untrusted import read_tail

_END_S = 30.0


class Step:
    """One srun, which starts `worker.engines.slurm.node` once on each node. Raises OSError if it cannot be started."""

    def __init__(
        self, run: RunDir, *, nodes: int, addresses: Sequence[str], port: int, key: bytes, environ: Mapping[str, str]
    ) -> None:
        for node in range(nodes):
            run.of_node(node).ctl.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._run = run
        self._log = run.ctl / "srun.log"
        command = _command(run.root, nodes=nodes, addresses=addresses, port=port, environ=environ)
        with self._log.open("ab") as log:
            self._srun = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=dict(environ))
        self._pidfd = os.pidfd_open(self._srun.pid)
        assert self._srun.stdin is not None
        with contextlib.suppress(BrokenPipeError), self._srun.stdin as given:
            given.write(f"{key.hex()}\n".encode())  # srun copies its input to all nodes: no process shows it

    def fileno(self) -> int:
        """Becomes readable when srun has ended."""
        return self._pidfd

    @property
    def exit_code(self) -> int | None:
        return self._srun.poll()

    @property
    def said(self) -> str:
        """The end of what srun has written."""
        return _tail(self._log)

    def said_by(self, node: int) -> str:
        """The end of what a node has written."""
        return _tail(self._run.of_node(node).supervisor_log)

    def end(self) -> None:
        """Waits a while for srun, which ends once all nodes have ended, and then has it end them."""
        for number in (None, signal.SIGTERM, signal.SIGKILL):
            if number is not None:
                self._srun.send_signal(number)
            try:
                self._srun.wait(_END_S)
            except subprocess.TimeoutExpired:
                continue
            return


def _tail(path: Path) -> str:
    return read_tail(path, 4_000).decode("utf-8", "replace").strip()


def _command(root: Path, *, nodes: int, addresses: Sequence[str], port: int, environ: Mapping[str, str]) -> list[str]:
    cpus = environ.get("SLURM_CPUS_PER_TASK", "")
    return [
        "srun",
        "--kill-on-bad-exit=1",
        f"--nodes={nodes}",
        f"--ntasks={nodes}",
        "--ntasks-per-node=1",
        *([f"--cpus-per-task={cpus}"] if cpus.isdecimal() else []),
        "--wait=0",
        "--mpi=none",
        "--export=ALL",
        "--chdir=/",
        "--open-mode=append",
        f"--output={root}/ctl/nodes/%n/supervisor.log",
        *(sys.executable, "-P", "-m", "worker.engines.slurm.node"),
        *(str(root), ",".join(addresses), str(port)),
    ]

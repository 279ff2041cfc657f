"""Starts ranks as the worker does, without the service: torchrun on loopback, with the cores divided among them."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import Any

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.spec.spec import parse_spec
from worker.engines.local.environment import inherited

ROOT = Path(__file__).resolve().parents[1]
_TORCHRUN = ("-P", "-m", "trainer.torchrun", "--nnodes=1")
_HERE = ("--local-addr=127.0.0.1", "--max-restarts=0", "--no-python")
_END_S = 60


def run_dir(root: Path, job: dict[str, Any]) -> RunDir:
    """Creates the run directory of a job, with the configuration that its trainer reads. Raises InvalidSpec."""
    spec = parse_spec(job)
    run = RunDir(root)
    run.create()
    run.config.write_text(spec.model_dump_json(include={"trainer", "config", "checkpoint"}))
    return run


def environment(run: RunDir, *, data: str) -> dict[str, str]:
    """Returns the variables that the trainer reads. `data`: `digits` or a path."""
    return {
        Env.JOB_ID: "job_bench",
        Env.ATTEMPT: "1",
        Env.RUN_DIR: str(run.job),
        Env.CONFIG: str(run.config),
        Env.CHECKPOINT_DIR: str(run.checkpoints),
        Env.DATA: data,
    }


def clean_up_on_sigterm() -> None:
    """Has SIGTERM end the program as Ctrl-C does: processes are ended, and scratch folders are removed."""
    signal.signal(signal.SIGTERM, _leave)


@contextmanager
def started(
    program: Sequence[str], *, processes: int, env: Mapping[str, str], log: Path
) -> Generator[subprocess.Popen[bytes]]:
    """Runs `python PROGRAM…` on `processes` ranks in the project's folder until the block ends.

    The ranks share two pipes, for stdin and for stdout. Their stderr goes to `log`.
    """
    threads = max(1, len(os.sched_getaffinity(0)) // processes)
    own = {"OMP_NUM_THREADS": str(threads), "GLOO_SOCKET_IFNAME": "lo", "NCCL_SOCKET_IFNAME": "lo"}
    ranks = [f"--nproc-per-node={processes}", f"--log-dir={log.with_suffix('')}"]
    with (
        log.open("wb") as errors,
        subprocess.Popen(
            [sys.executable, *_TORCHRUN, *_HERE, *ranks, sys.executable, *program],
            cwd=ROOT,
            env={**inherited(os.environ), **own, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
        ) as process,
    ):
        try:
            yield process
        finally:
            _end(process)


def _leave(*_: object) -> None:
    sys.exit(128 + signal.SIGTERM)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends torchrun, which ends its ranks. Ranks that wait for input also end when it is closed."""
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()

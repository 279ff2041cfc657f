"""Ranks as the worker starts them, without the service: torchrun on loopback, the cores divided among the ranks."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
import os
from pathlib import Path
import signal
import subprocess
import sys
from typing import Any

from torchyard.contract.rundir import Env, RunDir
from torchyard.contract.spec import parse_spec
from worker.engines.local.environment import inherited

ROOT = Path(__file__).resolve().parents[1]
_TORCHRUN = ("-P", "-m", "trainer.torchrun", "--nnodes=1", "--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0")
_HERE = ("--local-addr=127.0.0.1", "--max-restarts=0", "--no-python")
_END_S = 60


def run_dir(root: Path, job: dict[str, Any]) -> RunDir:
    """The run directory of a job, with the configuration that its trainer reads. Raises InvalidSpec."""
    spec = parse_spec(job)
    run = RunDir(root)
    run.create()
    run.config.write_text(spec.model_dump_json(include={"trainer", "config", "checkpoint"}))
    return run


def environment(run: RunDir, *, data: str) -> dict[str, str]:
    """What the trainer sees. `data`: `digits` or a path."""
    return {
        Env.JOB_ID: "job_bench",
        Env.ATTEMPT: "1",
        Env.RUN_DIR: str(run.job),
        Env.CONFIG: str(run.config),
        Env.CHECKPOINT_DIR: str(run.checkpoints),
        Env.DATA: data,
    }


def clean_up_on_sigterm() -> None:
    """As at Ctrl-C: what was begun ends, and scratch folders go."""
    signal.signal(signal.SIGTERM, _leave)


@contextmanager
def started(
    program: Sequence[str], *, processes: int, env: Mapping[str, str], log: Path
) -> Generator[subprocess.Popen[bytes]]:
    """`python PROGRAM…` on so many ranks, in the project's folder, for as long as this lasts.

    The ranks share two pipes, their input and their output; their errors go to `log`.
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
    """torchrun ends its ranks; those that wait for input end without it, too."""
    assert process.stdin is not None
    process.stdin.close()
    process.terminate()
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()

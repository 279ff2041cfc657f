"""Runs functions on real ranks: processes in a Gloo group, forked from a process that has imported torch."""

from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
import os
from pathlib import Path
import pickle
import tempfile
import traceback
from typing import Any

import torch
from torch.distributed import TCPStore  # pyright: ignore[reportPrivateImportUsage]

from tests import forks
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.recipes import MODULES, ImageClassification
from torchyard.contract.spec.spec import parse_spec

DEADLINE_S = 120

PRELOADED = (
    "trainer.__main__",
    *(f"trainer.recipes.{name}" for name in MODULES),
    "safetensors.torch",
    "torchvision.models",
    "torch.utils.serialization.config",
    "numpy.ctypeslib",
    "numpy.ma",
    "encodings.cp437",
)
"""What a rank imports until its first step and its first checkpoint."""

forks.preload(*PRELOADED)


def on_ranks(
    size: int,
    function: Callable[..., Any],
    *arguments: Any,
    env: dict[str, str] | None = None,
    deadline_s: float = DEADLINE_S,
) -> list[Any]:
    """Returns what `function` returned or raised on each rank."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    shared = {
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(store.port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
        "WORLD_SIZE": str(size),
        "LOCAL_WORLD_SIZE": str(size),
        "TMPDIR": tempfile.gettempdir(),  # the server may be older than this process's own folder
        **(env or {}),
    }
    pipes: list[Connection] = []
    processes: list[Any] = []
    for rank in range(size):
        ours, theirs = forks.context.Pipe(duplex=False)
        own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        process = forks.context.Process(target=_main, args=(theirs, own, function, arguments))
        process.start()
        theirs.close()
        pipes.append(ours)
        processes.append(process)
    try:
        return [_receive(pipe, deadline_s) for pipe in pipes]
    finally:
        for process in processes:
            process.kill()
            process.join()
            process.close()


def results(outcomes: Sequence[Any]) -> list[Any]:
    """Returns the values of `on_ranks`. Raises the exception of a rank."""
    for outcome in outcomes:
        if isinstance(outcome, BaseException):
            raise outcome
    return list(outcomes)


def job(root: Path, config: dict[str, Any], *, trainer: str = "image-classification", **spec: Any) -> RunDir:
    """Creates a run directory with the job's configuration, as the worker does."""
    run = RunDir(root)
    run.create()
    job = parse_spec({"trainer": trainer, "config": config, **spec})
    run.config.write_text(job.model_dump_json(include={"trainer", "config", "checkpoint", "mode"}))
    return run


def environment(
    run: RunDir, *, data: str, resume_from: Path | None = None, init_from: Path | None = None
) -> dict[str, str]:
    env: dict[str, str] = {Env.RUN_DIR: str(run.job), Env.CONFIG: str(run.config), Env.DATA: data}
    env["XDG_CACHE_HOME"] = str(run.root / "cache")
    saved = {Env.RESUME_FROM: resume_from, Env.INIT_FROM: init_from}
    return env | {name: str(folder) for name, folder in saved.items() if folder}


def recipe(**sections: Any) -> ImageClassification:
    return ImageClassification.model_validate(sections)


def _main(pipe: Connection, env: dict[str, str], function: Callable[..., Any], arguments: Sequence[Any]) -> None:
    os.environ.update(env)
    torch.set_num_threads(1)
    try:
        outcome = function(*arguments)
    except Exception as error:  # noqa: BLE001 the test decides what it means
        outcome = error
    pipe.send_bytes(_pickled(outcome))


def _pickled(outcome: Any) -> bytes:
    """Returns the outcome by value: `send` would share the memory of tensors, which ends with the rank."""
    try:
        return pickle.dumps(outcome)
    except TypeError:  # an error that holds modules, as those of a compiler do
        if not isinstance(outcome, Exception):
            raise
        return pickle.dumps(RuntimeError("".join(traceback.format_exception(outcome))))


def _receive(pipe: Connection, deadline_s: float) -> Any:
    if not pipe.poll(deadline_s):
        raise TimeoutError(f"a rank has not answered within {deadline_s} s")
    return pickle.loads(pipe.recv_bytes())

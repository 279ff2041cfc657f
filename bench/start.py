"""The time from POST to the first training step, and from the last line to the end of the job, beside plain torchrun:
`python -m bench.start`.

Each stage is timed by what it leaves: the answers and the stream over REST, the event of the claim, the files of the
run directory, and what the program prints and writes.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import Any

from bench import table
from bench.service import Service, scratch, script, up, wait_for
from bench.table import Row
from bench.torchrun import environment, run_dir
from bench.watching import Watched, first_metric, watch
from torchyard.client import Client

REPEATS = 5
PROCESSES = 2
_PEER = "torchrun"
_SCRIPT = """
import time
began = time.time()

import os, pathlib
rank = int(os.environ["RANK"])
if rank == 0:
    print(began, flush=True)

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

distributed.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.randn(4, 8)).sum().backward()
optimizer.step()
if rank == 0:
    path = pathlib.Path(__file__).with_name("first-step")
    path.with_suffix(".new").write_text(str(time.time()))
    path.with_suffix(".new").rename(path)
distributed.barrier()
distributed.destroy_process_group()
if rank == 0:
    print(time.time(), flush=True)
"""
_RECIPE: dict[str, Any] = {
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}, "training": {"max_steps": 4}, "logging": {"every_steps": 1}},
    "resources": {"devices_per_node": PROCESSES, "device": "cpu"},
}


@dataclass(frozen=True)
class Start:
    """The times of the stages of one job."""

    watched: Watched
    printed: float
    """The time of the program's first line, by its own clock."""
    stepped: float
    """The end of the first training step."""
    left: float
    """The time of the program's last line, by its own clock."""


def measure() -> Iterator[Row]:
    warm: list[Start] = []
    cold: list[Start] = []
    recipes: list[float] = []
    peer: list[float] = []
    peer_recipes: list[float] = []
    with scratch() as folder, up(folder, slots=PROCESSES) as service, service.client() as client:
        wait_for(client.workers.list, "the worker, which may start after the API")
        wait_for(lambda: _is_warm(service, client, folder / "code" / "first"), "a start from the worker's warm process")
        for number in range(REPEATS):
            warm.append(_script(service, client, folder / "code" / f"warm-{number}"))
            cold.append(_script(service, client, folder / "code" / f"cold-{number}", launcher="torchrun"))
            recipes.append(_recipe(service, client))
            peer.append(_script_by_torchrun(folder / f"peer-{number}"))
            peer_recipes.append(_recipe_by_torchrun(folder / f"peer-recipe-{number}"))
        assert {start.watched.launcher for start in warm} == {"warm"}
    yield from _warm_rows(warm, peer)
    yield Row(
        "POST to the first step, 2 ranks, recipe digits", "s", recipes, peer=_PEER, theirs=peer_recipes, at_most=1.0
    )
    yield from _cold_rows(cold, peer)


def _warm_rows(starts: list[Start], peer: list[float]) -> Iterator[Row]:
    yield Row(
        "POST to the first step, 2 ranks, a script",
        "s",
        [start.stepped - start.watched.submitted for start in starts],
        peer=_PEER,
        theirs=peer,
        at_most=0.6,
        ratio_at_most=0.125,
    )
    yield Row("– POST to its answer", "s", [start.watched.accepted - start.watched.submitted for start in starts])
    yield Row("– to the worker's claim", "s", [start.watched.claimed - start.watched.accepted for start in starts])
    yield Row("– to the program's first line", "s", [start.printed - start.watched.claimed for start in starts])
    yield Row("– to the first step", "s", [start.stepped - start.printed for start in starts])
    yield Row(
        "POST to the program's first line, over REST",
        "s",
        [min(start.watched.lines.values()) - start.watched.submitted for start in starts],
        at_most=0.25,
    )
    yield Row("– by the program's clock", "s", [start.printed - start.watched.submitted for start in starts])
    yield Row(
        "the program's last line to `succeeded` over REST",
        "s",
        [start.watched.succeeded - start.left for start in starts],
        at_most=0.3,
    )


def _cold_rows(starts: list[Start], peer: list[float]) -> Iterator[Row]:
    launched = [start.watched.launched for start in starts]
    yield Row(
        "cold: POST to torchrun's start",
        "s",
        [at - start.watched.submitted for at, start in zip(launched, starts, strict=True)],
        peer="none: the job itself starts torchrun",
        at_most=0.5,
    )
    yield Row(
        "– cold: torchrun's start to the first step, 2 ranks",
        "s",
        [start.stepped - at for at, start in zip(launched, starts, strict=True)],
        peer=_PEER,
        theirs=peer,
        ratio_at_most=1.0,
    )
    yield Row(
        "– cold: the program's last line to `succeeded` over REST",
        "s",
        [start.watched.succeeded - start.left for start in starts],
    )


def _is_warm(service: Service, client: Client, code: Path) -> bool:
    return watch(service, client, script(code, "")).launcher == "warm"


def _script(service: Service, client: Client, code: Path, **spec: str) -> Start:
    watched = watch(service, client, script(code, _SCRIPT, processes=PROCESSES) | spec)
    printed, left = sorted(map(float, watched.lines))
    return Start(watched, printed=printed, stepped=_first_step(code), left=left)


def _recipe(service: Service, client: Client) -> float:
    """Returns the seconds from POST to the end of the first step."""
    watched = watch(service, client, _RECIPE)
    return watched.first_metric - watched.submitted


def _script_by_torchrun(code: Path) -> float:
    """Returns the seconds from torchrun's start to the first step."""
    code.mkdir()
    program = code / "train.py"
    program.write_text(_SCRIPT)
    return _torchrun(code, str(program), first_step=lambda: _first_step(code))


def _recipe_by_torchrun(folder: Path) -> float:
    folder.mkdir()
    run = run_dir(folder / "run", _RECIPE)
    env = environment(run, data="digits")
    return _torchrun(folder, "-m", "trainer", env=env, first_step=lambda: first_metric(run))


def _torchrun(
    folder: Path, *program: str, first_step: Callable[[], float], env: Mapping[str, str] | None = None
) -> float:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={PROCESSES}", *program]
    began = time.time()
    with (folder / "log").open("wb") as log:
        subprocess.run(
            command,
            env=os.environ | {"OMP_NUM_THREADS": "1"} | dict(env or {}),
            check=True,
            stdout=log,
            stderr=subprocess.STDOUT,
        )
    return first_step() - began


def _first_step(code: Path) -> float:
    return float((code / "first-step").read_text())


if __name__ == "__main__":
    table.main(measure)

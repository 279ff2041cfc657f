"""`python -m bench.trainer_overhead` times the trainer beside a DDP loop by hand, Lightning and accelerate.

All train the same model on the same batches with the same optimizer, and end with the same weights. They take turns, as
`bench.turns` describes. A turn contains no evaluation and no checkpoint, but it logs the loss. Two more turns count the
operations and the functions that a step calls.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench import table
from bench.service import scratch
from bench.table import Row
from bench.torchrun import clean_up_on_sigterm, environment, run_dir
from bench.turns import CLASSES, SIDE, Measured, TrainingSettings, running, take_turns

RATIO = 0.99
"""The least ratio of the trainer's speed to that of another program."""
OURS, RAW, AGAIN = "torchyard", "DDP by hand", "DDP by hand again"
OTHERS = {"Lightning": "bench.peers.lightning_loop", "accelerate": "bench.peers.accelerate_loop"}
PROGRAMS = {OURS: "bench.trainer_rank", RAW: "bench.peers.raw_loop", **OTHERS, AGAIN: "bench.peers.raw_loop"}
SETTINGS = {
    "small_cnn": TrainingSettings("small_cnn", batch=32, settling=10, steps=40, log_every=10),
    "resnet18": TrainingSettings("resnet18", batch=16, settling=2, steps=8, log_every=10),
}
_HELD_OUT = 32


def main() -> None:
    """Prints a table of the programs' times."""
    parser = argparse.ArgumentParser(description="Time the training loop beside others.")
    parser.add_argument("--models", nargs="+", choices=SETTINGS, default=list(SETTINGS))
    parser.add_argument("--processes", nargs="+", type=int, metavar="N", help="default: 1 and 2; 1 with a single GPU")
    parser.add_argument("--batch", type=int, metavar="SAMPLES", help="samples of a process and step")
    parser.add_argument("--steps", type=int, metavar="N", help="timed steps of a turn")
    parser.add_argument("--turns", type=int, default=7, metavar="N", help="turns of each program")
    options = parser.parse_args()
    gpus = _gpus()
    processes: list[int] = options.processes or ([1] if gpus == 1 else [1, 2])
    if gpus and max(processes) > gpus:
        sys.exit(f"--processes may be at most {gpus} here, one a GPU, not {max(processes)}")
    chosen = {
        name: getattr(options, name) for name in ("batch", "steps", "turns") if getattr(options, name) is not None
    }
    if min(*processes, *chosen.values()) < 1:
        sys.exit("--processes, --batch, --steps and --turns must be at least 1")
    trainings = [replace(SETTINGS[model], processes=count, **chosen) for model in options.models for count in processes]
    clean_up_on_sigterm()
    table.main(partial(measure, trainings))


def measure(trainings: Sequence[TrainingSettings]) -> Iterator[Row]:
    for settings in trainings:
        with scratch() as folder:
            measured = _race(settings, folder)
        yield from rows(settings, measured)


def rows(settings: TrainingSettings, measured: Mapping[str, Measured]) -> Iterator[Row]:
    """Yields the rows of the trainer beside each program, of their speeds and of their calls, and the machine's noise.

    The loop by hand computes no gradient norm and skips no step; tests/trainer/test_overhead.py counts beside one that
    does.
    """
    samples = settings.steps * settings.batch * settings.processes
    speeds = {name: [samples / value for value in found.seconds] for name, found in measured.items()}
    what = f"{settings.model}, {settings.processes} × {settings.batch}"
    for name in (RAW, *OTHERS):
        yield Row(what, "samples/s", speeds[OURS], peer=name, theirs=speeds[name], ratio_at_least=RATIO)
    yield Row(f"– noise: {RAW}, a second time", "samples/s", speeds[AGAIN], peer=RAW, theirs=speeds[RAW])
    own = measured[OURS]
    for name in (RAW, *OTHERS):
        theirs = measured[name]
        yield Row(f"{what}, a step", "operations", [own.operations], peer=name, theirs=[theirs.operations])
        yield Row(f"{what}, a step", "calls of functions", [own.calls], peer=name, theirs=[theirs.calls])


def _race(settings: TrainingSettings, folder: Path) -> dict[str, Measured]:
    settings = replace(settings, data=str(_pictures(folder / "pictures.npz", settings)))
    file = folder / "settings.json"
    settings.write(file)
    env = environment(run_dir(folder / "run", _job(settings)), data=settings.data)
    programs = {name: ("-m", module, str(file)) for name, module in PROGRAMS.items()}
    with running(programs, ranks=settings.processes, folder=folder, env=env) as started:
        return take_turns(started, turns=settings.turns)


def _pictures(path: Path, settings: TrainingSettings) -> Path:
    """Writes random pictures in the form of MNIST."""
    numbers = np.random.default_rng(0)
    arrays: dict[str, NDArray[Any]] = {}
    for split, count in (("train", settings.samples), ("test", _HELD_OUT)):
        arrays[f"x_{split}"] = numbers.integers(256, size=(count, SIDE, SIDE), dtype=np.uint8)
        arrays[f"y_{split}"] = np.arange(count) % CLASSES
    np.savez(path, allow_pickle=False, **arrays)
    return path


def _job(settings: TrainingSettings) -> dict[str, Any]:
    normalization = {"mean": [settings.mean], "std": [settings.std]}
    return {
        "trainer": "image-classification",
        "config": {
            "model": {"name": settings.model},
            "data": {"source": Path(settings.data).as_uri(), "normalize": normalization},
            "training": {"epochs": 1, "per_device_batch_size": settings.batch, "seed": settings.seed},
            "optimizer": {"name": "adamw", "lr": settings.lr, "weight_decay": settings.weight_decay},
            "lr_scheduler": {"name": "constant"},
            "logging": {"every_steps": settings.log_every},
        },
    }


def _gpus() -> int:
    import torch

    return torch.cuda.device_count()


if __name__ == "__main__":
    main()

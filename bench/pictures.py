"""Samples a second from large JPEGs: `python -m bench.pictures [TREE]`, where TREE is a checkout to compare with.

The trainer's loader reads class folders in two loader processes. The loaders of the other checkout and of timm take
turns with it, each in a program of its own. The pictures are photographs from `../shared/data`, or else noise that
looks like one, enlarged to 2000×1500 pixels. Wall time depends on the load of the machine; the CPU time of a program
and its loader processes hardly does.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
import io
import json
import os
from pathlib import Path
import subprocess
import sys
import time
from typing import NamedTuple
import zipfile

import numpy as np
from PIL import Image

from bench import table
from bench.service import scratch
from bench.table import Row

TURNS, PICTURES, CLASSES = 5, 96, 2
WIDTH, HEIGHT, SIDE = 2000, 1500, 224
BATCH, WORKERS = 16, 2
OURS, CACHED, BEFORE, TIMM = "torchyard", "torchyard, its cache filled", "the other checkout", "timm"
TARGETS = {BEFORE: 2.3, TIMM: 0.95}
_PHOTOGRAPHS = Path(__file__).resolve().parents[1].parent / "shared" / "data" / "cracks-masonry.zip"


class Turn(NamedTuple):
    """How long one pass over all pictures took."""

    wall_s: float
    cpu_s: float
    """Processor time of the program and its loader processes."""


class Program:
    """A script of `bench.peers` that reads all pictures once for each line on its stdin."""

    def __init__(self, script: str, folder: Path, *, cache: Path, tree: Path | None = None) -> None:
        root = Path(__file__).resolve().parents[1]
        variables = {"PYTHONPATH": str(tree or root), "XDG_CACHE_HOME": str(cache), "OMP_NUM_THREADS": "1"}
        self._process = subprocess.Popen(
            [sys.executable, root / "bench" / "peers" / script, folder, *map(str, (SIDE, BATCH, WORKERS))],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()  # it ends with its stdin

    def read(self) -> Turn:
        """Exits if the program does not read as many pictures as there are."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit("a program has ended")
        pictures, wall_s, cpu_s = json.loads(line)
        if pictures != PICTURES:
            sys.exit(f"{pictures} pictures were read instead of {PICTURES}")
        return Turn(wall_s, cpu_s)


def measure(before: Path | None = None) -> Iterator[Row]:
    with scratch() as folder, ExitStack() as stack:
        data = folder / "data"
        write_pictures(data)
        time.sleep(2)  # what was written just now is not cached
        programs = {
            OURS: Program("torchyard_loader.py", data, cache=Path(os.devnull)),
            CACHED: Program("torchyard_loader.py", data, cache=folder / "cache"),
            **({BEFORE: Program("torchyard_loader.py", data, cache=Path(os.devnull), tree=before)} if before else {}),
            TIMM: Program("timm_loader.py", data, cache=Path(os.devnull)),
        }
        for program in programs.values():
            stack.enter_context(program)
            program.read()  # a warm-up, which fills the cache
        turns: dict[str, list[Turn]] = {name: [] for name in programs}
        for _ in range(TURNS):
            for name, program in programs.items():
                turns[name].append(program.read())
    yield from _rows(turns)


def write_pictures(folder: Path) -> None:
    """Writes JPEGs of two classes: parts of photographs, enlarged, so that no two are alike."""
    for number, picture in enumerate(_pictures()):
        file = folder / f"class-{number % CLASSES}" / f"{number}.jpg"
        file.parent.mkdir(parents=True, exist_ok=True)
        picture.save(file, quality=90)


def _pictures() -> Iterator[Image.Image]:
    random = np.random.default_rng(0)
    for source in _sources():
        grain = random.normal(0, 6, (HEIGHT, WIDTH, 3))
        enlarged = np.asarray(source.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC))
        yield Image.fromarray((enlarged + grain).clip(0, 255).astype(np.uint8))


def _sources() -> Iterator[Image.Image]:
    if not _PHOTOGRAPHS.exists():
        random = np.random.default_rng(1)
        for _ in range(PICTURES):
            yield Image.fromarray(random.integers(0, 256, (150, 200, 3), dtype=np.uint8))
        return
    with zipfile.ZipFile(_PHOTOGRAPHS) as archive:
        names = sorted(name for name in archive.namelist() if "images/" in name and name.endswith((".jpg", ".png")))
        for number in range(PICTURES):
            with archive.open(names[number % len(names)]) as file:
                yield Image.open(io.BytesIO(file.read())).convert("RGB")


def _rows(turns: Mapping[str, Sequence[Turn]]) -> Iterator[Row]:
    speeds = {name: [PICTURES / turn.wall_s for turn in own] for name, own in turns.items()}
    costs = {name: [1000 * turn.cpu_s / PICTURES for turn in own] for name, own in turns.items()}
    what = f"JPEGs of {WIDTH}×{HEIGHT} read at {SIDE}×{SIDE}, {WORKERS} loader processes"
    for peer in (name for name in (BEFORE, TIMM) if name in turns):
        yield Row(what, "samples/s", speeds[OURS], peer=peer, theirs=speeds[peer], ratio_at_least=TARGETS[peer])
        most = 1 / TARGETS[peer]
        yield Row("– CPU time", "ms/sample", costs[OURS], peer=peer, theirs=costs[peer], ratio_at_most=most)
    yield Row("– the second epoch, from the cache", "samples/s", speeds[CACHED], peer=TIMM, theirs=speeds[TIMM])
    yield Row("– CPU time", "ms/sample", costs[CACHED], peer=TIMM, theirs=costs[TIMM])


if __name__ == "__main__":
    table.main(partial(measure, Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None))

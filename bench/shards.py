"""Small pictures in shards beside the same pictures in folders, in turns: `python -m bench.shards`.

It measures the time to the first batch, and the speed of an epoch. Both kinds are on a local disk, mostly in the page
cache. On a network disk each file that is opened costs one more round trip.
"""

from collections.abc import Iterator
from pathlib import Path
import time

import numpy as np
from PIL import Image
import torch

from bench import table
from bench.service import scratch
from bench.table import Row
from torchyard.cli.sharding import find_files, write_shards
from torchyard.contract.recipes import ImageDataConfig
from trainer.data.folders import load_folders

REPEATS = 5
PICTURES = 20_000
BATCH = 100
SHARD_BYTES = 16 << 20


def measure() -> Iterator[Row]:
    with scratch() as folder:
        write_pictures(folder / "files", PICTURES)
        write_shards(find_files(folder / "files"), folder / "shards", most=SHARD_BYTES)
        found = {name: list[tuple[float, float]]() for name in ("shards", "files")}
        for _ in range(REPEATS):
            for name, values in found.items():
                values.append(_read(folder / name))
    first, speed = ([[value[place] for value in values] for values in found.values()] for place in (0, 1))
    yield Row(
        f"time to the first batch of {PICTURES:,} small JPEGs in shards",
        "s",
        first[0],
        "class folders",
        first[1],
    )
    yield Row("– an epoch of them, in one process, without a cache", "pictures/s", speed[0], "class folders", speed[1])


def write_pictures(root: Path, count: int) -> None:
    """Writes so many JPEGs of 32 × 32 pixels in ten classes."""
    chance = np.random.default_rng(0)
    for number in range(count):
        path = root / f"class{number % 10}" / f"{number:06d}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(chance.integers(0, 256, (32, 32, 3), dtype=np.uint8)).save(path)


def _read(root: Path) -> tuple[float, float]:
    """Returns the seconds until the first batch is there, and the pictures of an epoch a second."""
    begun = time.monotonic()
    data = load_folders(root, ImageDataConfig(cache="none"))
    plan = list(torch.randperm(len(data.train), generator=torch.Generator().manual_seed(0)).split(BATCH))
    batches = data.train.batches(plan, device=torch.device("cpu"), workers=0)
    next(batches)
    first = time.monotonic()
    for _ in batches:
        pass
    return first - begun, (len(data.train) - len(plan[0])) / (time.monotonic() - first)


if __name__ == "__main__":
    table.main(measure)

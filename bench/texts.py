"""A text model on batches of like lengths, beside batches of random texts, in turns: `python -m bench.texts`.

The texts are made up: most are short, and a few are many times longer.
"""

from collections.abc import Iterator
import json
from pathlib import Path
import random
from statistics import median
from typing import Any

from bench import table
from bench.service import scratch
from bench.table import Row
from bench.training import train
from torchyard.contract.attempts.events import Metric, parse_line

REPEATS = 3
TEXTS = 4000
MAX_LENGTH = 128
SPEED = "train/tokens_per_second"


def measure() -> Iterator[Row]:
    with scratch() as folder:
        texts = folder / "texts.jsonl"
        write_texts(texts, TEXTS)
        speeds: dict[bool, list[float]] = {True: [], False: []}
        for number in range(REPEATS):
            for grouped, found in speeds.items():
                found.append(_speed(folder / f"{number}-{grouped}", texts, grouped=grouped))
    peer = "random texts: `group_by_length: false`"
    yield Row("`text-classification`, batches of 32, without padding", "tokens/s", speeds[True], peer, speeds[False])


def job(texts: Path, *, grouped: bool) -> dict[str, Any]:
    """Returns the spec of one epoch."""
    return {
        "trainer": "text-classification",
        "config": {
            "data": {
                "source": texts.as_uri(),
                "max_length": MAX_LENGTH,
                "vocabulary": 1000,
                "group_by_length": grouped,
            },
            "training": {"epochs": 1},
        },
        "checkpoint": {"every_epochs": None},
    }


def write_texts(path: Path, count: int) -> None:
    """Writes so many texts of two classes, whose lengths have a long tail."""
    chance = random.Random(0)
    with path.open("w") as file:
        for number in range(count):
            length = min(round(chance.lognormvariate(3, 1)) + 1, MAX_LENGTH)
            words = [f"w{chance.randrange(500)}" for _ in range(length)]
            file.write(json.dumps({"text": " ".join(words), "label": str(number % 2)}) + "\n")


def _speed(folder: Path, texts: Path, *, grouped: bool) -> float:
    folder.mkdir()
    spec = job(texts, grouped=grouped)
    run = train(spec, name=f"grouped: {grouped}", folder=folder, source=str(texts), processes=1)
    logged = [line for raw in run.events.read_bytes().splitlines() if isinstance(line := parse_line(raw), Metric)]
    return median(line.values[SPEED] for line in logged if SPEED in line.values)


if __name__ == "__main__":
    table.main(measure)

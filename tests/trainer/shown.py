"""What an evaluation shows, as it is in the run directory."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from torchyard.contract.attempts.events import Shown, parse_line
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.run.context import Run
from trainer.task import Evaluation


def shown(run: RunDir, key: str, *, evaluation: Evaluation | None = None, step: int = 7) -> list[Shown]:
    """Returns the items of a key. `evaluation`: shows it first."""
    if evaluation is not None:
        run.create()
        context = Run({Env.RUN_DIR: str(run.job)})
        evaluation.show(context, step)
        context.close()
    lines = map(parse_line, run.events.read_bytes().splitlines())
    return [line for line in lines if isinstance(line, Shown) and line.key == key]


def pixels(run: RunDir, line: Shown, name: str) -> NDArray[np.uint8]:
    """Returns the pixels of a picture: `image`, `truth` or `predicted`."""
    files: dict[str, str] = {**line.files}
    return np.asarray(Image.open(run.media / Path(files[name])))

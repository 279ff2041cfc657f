"""`torchyard.run` in an environment in which nothing of ours is installed."""

from pathlib import Path
import subprocess

import pytest

from tests import pythons
from worker.environments import run_package

IMPORTS = """
import importlib, pathlib, sys
sys.path.append(sys.argv[1])
import torchyard, torchyard.run
for name in sorted(path.stem for path in pathlib.Path(torchyard.__file__).parent.joinpath("run").glob("*.py")):
    if name != "__init__":
        importlib.import_module("torchyard.run." + name)
run = torchyard.init()
run.log({"train/loss": 1.0}, step=1)
print(run.should_stop(), run.resume(), sorted(name for name in sys.modules if name in ("worker", "store", "pydantic")))
"""


@pytest.mark.parametrize("version", ["3.10", "3.13"])
def test_it_needs_the_standard_library_alone(tmp_path: Path, version: str) -> None:
    python = pythons.find(version)
    if python is None:
        pytest.skip(f"there is no Python {version}")
    run_package.write(tmp_path / "python")
    command = [str(python), "-I", "-S", "-B", "-W", "error", "-c", IMPORTS, str(tmp_path / "python")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == ("False None []\n", "", 0)


def test_it_lies_alone_in_its_folder(tmp_path: Path) -> None:
    run_package.write(tmp_path / "python")
    assert [path.name for path in (tmp_path / "python").iterdir()] == ["torchyard"]
    parts = {path.name for path in (tmp_path / "python" / "torchyard").iterdir()}
    assert parts == {"__init__.py", "py.typed", "contract", "host", "integrations", "run", "states"}
    assert not [*(tmp_path / "python").rglob("__pycache__")]

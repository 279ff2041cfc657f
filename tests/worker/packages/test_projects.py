"""The code itself as what is installed: `-e .`, and a `pyproject.toml` without a lock."""

from pathlib import Path
import subprocess

import pytest

from tests.worker.packages.fixture import Packages, run_python
from tests.worker.packages.index import Index
from torchyard.contract.errors import ConfigError, DataError
from torchyard.contract.recipes import Script
from worker.packages.installation import Installed

BACKEND = """
import pathlib, zipfile

def build_wheel(folder, *_):
    info = "mypkg-1.0.dist-info"
    files = {
        "mypkg/__init__.py": pathlib.Path("src/mypkg/__init__.py").read_text(),
        info + "/METADATA": "Metadata-Version: 2.1\\nName: mypkg\\nVersion: 1.0\\nRequires-Dist: alpha\\n",
        info + "/WHEEL": "Wheel-Version: 1.0\\nGenerator: own\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n",
        info + "/entry_points.txt": "[console_scripts]\\nmytool = mypkg:main\\n",
    }
    files[info + "/RECORD"] = "".join(name + ",,\\n" for name in (*files, info + "/RECORD"))
    pathlib.Path("build-ran").touch()
    with zipfile.ZipFile(pathlib.Path(folder, "mypkg-1.0-py3-none-any.whl"), "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    return "mypkg-1.0-py3-none-any.whl"

build_editable = build_wheel
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]

[project]
name = "mypkg"
version = "1.0"
requires-python = ">=3.10"
dependencies = ["alpha"]
scripts = {mytool = "mypkg:main"}
"""


@pytest.fixture
def code(packages: Packages) -> Path:
    folder = packages.folder / "own-code"
    (folder / "src" / "mypkg").mkdir(parents=True)
    (folder / "src" / "mypkg" / "__init__.py").write_text(
        "import alpha\ndef main():\n    print('mytool', alpha.version)\n"
    )
    (folder / "backend.py").write_text(BACKEND)
    (folder / "pyproject.toml").write_text(PROJECT)
    return folder


def named(requirements: str) -> Script:
    return Script.model_validate({"code": "file:///code", "module": "mypkg", "requirements": requirements})


@pytest.mark.parametrize(
    "requirements",
    [
        "pyproject.toml",
        pytest.param("requirements.txt", marks=pytest.mark.thorough),
        pytest.param("lib.txt", marks=pytest.mark.thorough),
    ],
)
def test_the_code_is_installed_with_its_programs_and_what_it_needs(
    packages: Packages, index: Index, code: Path, requirements: str
) -> None:
    index.add("alpha")
    (code / "requirements.txt").write_text("-e .\n")
    (code / "lib.txt").write_text("./\n")
    found = packages.finish(packages.begin_in(code, named(requirements)))
    assert isinstance(found, Installed), found
    done = subprocess.run([str(found.environment / "bin" / "mytool")], capture_output=True, text=True, check=True)
    assert done.stdout == "mytool 1.0\n"
    assert not (code / "build-ran").exists()
    assert "of the environment" not in run_python(found.environment, "import mypkg; print(mypkg.__file__)")
    again = packages.finish(packages.begin_in(code, named(requirements)))
    assert isinstance(again, Installed)
    assert again.was_there
    (code / "src" / "mypkg" / "__init__.py").write_text("def main():\n    print('changed')\n")
    changed = packages.finish(packages.begin_in(code, named(requirements)))
    assert isinstance(changed, Installed)
    assert not changed.was_there
    done = subprocess.run([str(changed.environment / "bin" / "mytool")], capture_output=True, text=True, check=True)
    assert done.stdout == "changed\n"


def test_code_that_cannot_be_installed_is_refused_before_anything_is_built(packages: Packages, code: Path) -> None:
    (code / "requirements.txt").write_text("-e ../other\n")
    with pytest.raises((ConfigError, DataError)):
        packages.read_in(code, named("requirements.txt"))
    (code / "requirements.txt").write_text("-e .\n")
    (code / "pyproject.toml").write_text(PROJECT.replace(">=3.10", ">=3.99"))
    with pytest.raises(ConfigError, match=r"requires Python >=3\.99"):
        packages.read_in(code, named("requirements.txt"))
    (code / "pyproject.toml").write_text(PROJECT + '[tool.uv.sources]\nalpha = {url = "https://example.com/a.whl"}\n')
    with pytest.raises(ConfigError, match=r"tool\.uv\.sources"):
        packages.read_in(code, named("pyproject.toml"))
    (code / "pyproject.toml").write_text(PROJECT.replace('"alpha"', '"alpha @ https://example.com/a.whl"'))
    with pytest.raises(ConfigError, match="the address in alpha"):
        packages.read_in(code, named("pyproject.toml"))
    packages.builds = False
    (code / "pyproject.toml").write_text(PROJECT)
    with pytest.raises(ConfigError, match="this worker builds no packages"):
        packages.read_in(code, named("requirements.txt"))

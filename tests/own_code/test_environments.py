"""A person's own environment, as it is: found, used, and the same result as by hand."""

from collections.abc import Generator
import json
from pathlib import Path
import subprocess
import sys
from typing import Any

import pytest
import torch

from tests import pythons
from tests.e2e.documented import ROOT, blocks, environment_in, run_blocks
from tests.e2e.service import Service, running, until
from tests.venvs import make_venv
from torchyard.client.handles import Job
from torchyard.contract.states import JobState

CPU_TORCH = "torch==2.13.0+cpu"
"""Another one than the worker's, in a wheel without CUDA: 200 MB."""
OTHERS = ("3.13", "3.12", "3.10")
OTHER_TORCH = "torch==2.13.0"
"""Another one than the worker's, with wheels for all of these: 500 MB."""
NEEDED_BY_TORCH = ["filelock", "fsspec", "jinja2", "networkx", "setuptools", "sympy", "typing-extensions"]
TRAINS = """
import os, sys
import torch, torch.distributed as dist
import torchyard
run = torchyard.init()
dist.init_process_group("gloo")
torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(1, 4):
    loss = model(torch.ones(2, 4) * (dist.get_rank() + 1)).square().mean()
    optimizer.zero_grad(); loss.backward(); optimizer.step()
    run.log({"train/loss": loss}, step=step)
weights = float(sum(parameter.sum() for parameter in model.parameters()))
listening = []
for line in open("/proc/net/tcp").read().splitlines()[1:]:
    fields = line.split()
    links = (f"/proc/{os.getppid()}/fd/{name}" for name in os.listdir(f"/proc/{os.getppid()}/fd"))
    if fields[3] == "0A" and any(os.readlink(link) == f"socket:[{fields[9]}]" for link in links):
        listening.append(fields[1].partition(":")[0])
if dist.get_rank() == 0:
    run.save_checkpoint({"model": model.module.state_dict()}, step=3, metrics={"val/loss": float(loss)})
    print("python", sys.version_info.minor, flush=True)
    print("found", torch.__version__, sys.prefix, f"{weights:.6f}", listening, flush=True)
dist.barrier()
dist.destroy_process_group()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of environments with one that has another torch."""
    folder = tmp_path_factory.mktemp("envs")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "ml")], check=True)
    command = [str(folder / "ml" / "bin" / "python"), "-m", "pip", "install", "--quiet", CPU_TORCH]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip(f"no package index has {CPU_TORCH}: {done.stderr.strip().splitlines()[-1:]}")
    return folder


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder of environments with one that has another Python, and another torch from its wheel.

    That wheel is for GPUs: for the libraries of NVIDIA, of 2.5 GB, it takes those of the tests' own environment.
    """
    own = f"3.{sys.version_info.minor}"
    found = next((python for version in OTHERS if version != own and (python := pythons.find(version))), None)
    if found is None:
        pytest.skip(f"no other Python of {', '.join(OTHERS)} is here")
    folder = tmp_path_factory.mktemp("others")
    environment = make_venv(folder / "other", python=found)
    install = [str(Path(sys.executable).with_name("uv")), "pip", "install", "--quiet", "--python"]
    install.append(str(environment / "bin" / "python"))
    for wanted in (["--no-deps", OTHER_TORCH], NEEDED_BY_TORCH):
        done = subprocess.run([*install, *wanted], capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no package index has {wanted}: {done.stderr.strip().splitlines()[-1:]}")
    (packages,) = (environment / "lib").glob("python3.*/site-packages")
    (packages / "nvidia").symlink_to(Path(torch.__file__).parents[1] / "nvidia")
    return folder


@pytest.fixture(scope="module")
def offering(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Generator[Service]:
    env = {"TORCHYARD_ENVIRONMENTS": str(folder), "LD_LIBRARY_PATH": "/libraries/of/the/service"}
    with running(Service(tmp_path_factory.mktemp("service"), warm=False, env=env)) as service:
        yield service


def run_in(service: Service, python: str, **more: Any) -> Job:
    folder = service.data.parent / "project"
    folder.mkdir(exist_ok=True)
    (folder / "train.py").write_text(TRAINS)
    job = service.client.run("train.py", folder=folder, devices=2, python=python, **more)
    service.wait(job.id, JobState.SUCCEEDED)
    return job


def found(lines: list[str]) -> list[str]:
    (line,) = [line for line in lines if line.startswith("found")]
    return line.split(maxsplit=4)


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # with what the fixture installs
def test_a_program_has_the_torch_of_its_environment_and_the_result_of_torchrun_there(
    offering: Service, folder: Path
) -> None:
    job = run_in(offering, "ml")
    _, version, prefix, weights, listening = found([line.text for line in job.logs()])
    assert (version, prefix) == ("2.13.0+cpu", str(folder / "ml"))
    assert {*json.loads(listening.replace("'", '"'))} == {"0100007F"}  # torchrun's store is at loopback alone
    by_hand = subprocess.run(
        [str(folder / "ml" / "bin" / "torchrun"), "--standalone", "--nproc-per-node=2", "train.py"],
        cwd=offering.data.parent / "project",
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert found(by_hand.stdout.splitlines())[3] == weights, by_hand.stderr
    (attempt,) = offering.client.jobs.attempts(job.id)
    assert attempt.environment is not None
    assert (attempt.environment.torch, attempt.environment.cuda) == ("2.13.0+cpu", "")
    assert len(job.metrics("train/loss")["train/loss"].values) == 3
    assert job.latest_checkpoint().view.step == 3
    offered = {each.name: each.torch for worker in offering.client.workers.list() for each in starts_of(worker)}
    assert offered == {"ml": "2.13.0+cpu"}


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # with what the fixture installs
def test_ranks_have_another_python_with_another_torch_and_the_result_of_torchrun_there(
    other: Path, tmp_path: Path
) -> None:
    environment = other / "other"
    with running(Service(tmp_path, warm=False, env={"TORCHYARD_ENVIRONMENTS": str(other)})) as service:
        job = run_in(service, "other")
        (line,) = [line.text for line in job.logs() if line.text.startswith("python")]
        assert line == f"python {own_version_of(environment)}"
        assert line != f"python {sys.version_info.minor}"
        _, version, prefix, weights, _ = found([line.text for line in job.logs()])
        assert (version.partition("+")[0], prefix) == (OTHER_TORCH.partition("==")[2], str(environment))
        assert version != torch.__version__
        (attempt,) = service.client.jobs.attempts(job.id)
        assert attempt.environment is not None
        assert attempt.environment.torch == version
        assert len(job.metrics("train/loss")["train/loss"].values) == 3
        assert job.latest_checkpoint().view.step == 3
        by_hand = subprocess.run(
            [str(environment / "bin" / "torchrun"), "--standalone", "--nproc-per-node=2", "train.py"],
            cwd=tmp_path / "project",
            env={"PATH": "/usr/bin:/bin", "PYTHONPATH": str(Path(__file__).parents[2]), "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert found(by_hand.stdout.splitlines())[3] == weights, by_hand.stderr


def own_version_of(environment: Path) -> str:
    program = "import sys; print(sys.version_info.minor)"
    python = environment / "bin" / "python"
    return subprocess.run([python, "-I", "-c", program], capture_output=True, text=True, check=True).stdout.strip()


def starts_of(worker: Any) -> list[Any]:
    return [] if worker.starts is None else worker.starts.environments


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # with what the fixture installs
def test_the_lines_of_the_document_run_in_a_persons_environment(
    offering: Service, folder: Path, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "your-program.md").read_text()
    envs, *runs, command = blocks(text.partition("## Use your own environment\n")[2], "sh")[0].splitlines()
    assert len(runs) == 3
    (tmp_path / "project" / "mypkg").mkdir(parents=True)
    for program in ("train.py", "mypkg/train.py"):
        (tmp_path / "project" / program).write_text(
            "import os, sys, torch\nprint('found', os.environ['RANK'], torch.__version__, sys.prefix)\n"
        )
    server = offering.server
    environment = {
        **environment_in(tmp_path),
        "TORCHYARD_URL": server["url"],
        "TORCHYARD_TOKEN": server["token"],
        "CONDA_PREFIX": str(folder / "ml"),
    }
    (offered,) = [line for line in run_blocks([envs], tmp_path, environment).splitlines() if " ml " in line]
    assert "2.13.0+cpu" in offered
    for line in runs:
        said = run_blocks([line], tmp_path / "project", environment).splitlines()
        for rank in range(2 if "--devices 2" in line else 1):
            assert f"rank {rank} | found {rank} 2.13.0+cpu {folder / 'ml'}" in said, line
    assert "2.13.0+cpu" in run_blocks([command], tmp_path / "project", environment)


@pytest.mark.thorough
@pytest.mark.timeout(1800)  # with what the fixture installs
def test_an_environment_that_changes_between_two_attempts_is_said(offering: Service, folder: Path) -> None:
    first = run_in(offering, str(folder / "ml" / "bin" / "python"))
    packages = folder / "ml" / "lib" / f"python3.{sys.version_info.minor}" / "site-packages"
    gate = offering.code / "gate"
    text = f"import os, time\nprint('began', flush=True)\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
    project = offering.data.parent / "waits"
    project.mkdir()
    (project / "train.py").write_text(text)
    job = offering.client.run("train.py", folder=project, python="ml")
    until(lambda: any(line.text == "began" for line in job.logs()), what="the program began")
    job.pause()
    offering.wait(job.id, JobState.PAUSED)
    (packages / "new_one-1.0.dist-info").mkdir()
    gate.touch()
    job.resume()
    offering.wait(job.id, JobState.SUCCEEDED)
    said = [event.data["text"] for event in offering.client.jobs.events(job.id) if event.type == "message"]
    assert any("the environment ml has changed since attempt 1: its packages are others" in text for text in said)
    one, two = offering.client.jobs.attempts(job.id)
    assert one.environment is not None
    assert two.environment is not None
    assert two.environment.packages == one.environment.packages + 1
    assert first.id != job.id


def test_a_persons_own_venv_below_an_allowed_folder_runs_a_command(service: Service) -> None:
    venv = make_venv(service.code / "own-venv")
    project = service.code / "own-venv-project"
    project.mkdir()
    (project / "tool.py").write_text(
        "import os, sys, torchyard\nprint(sys.prefix, os.environ['VIRTUAL_ENV'], torchyard.init().config, flush=True)\n"
    )
    job = service.client.run("python", args=["tool.py"], folder=project, python=str(venv / "bin" / "python"))
    service.wait(job.id, JobState.SUCCEEDED)
    assert any(line.text.startswith(f"{venv} {venv} ") for line in job.logs())
    (attempt,) = service.client.jobs.attempts(job.id)
    assert attempt.environment is not None
    assert (attempt.environment.path, attempt.environment.torch) == (str(venv), "")


def test_ranks_in_an_environment_without_torch_are_refused_with_the_way_out(service: Service) -> None:
    venv = make_venv(service.code / "empty-venv")
    project = service.code / "empty-venv-project"
    project.mkdir()
    (project / "train.py").write_text("print('never')")
    job = service.client.run("train.py", folder=project, python=str(venv))
    view = service.wait(job.id, JobState.FAILED)
    assert view.error is not None
    assert view.error.code == "config_error"
    assert view.error.message == f"no ranks can run in the environment {venv}: it has no torch"

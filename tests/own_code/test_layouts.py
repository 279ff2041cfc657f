"""Programs in the layouts that people use: `src`, PYTHONPATH, sub-folders, and entry points."""

from pathlib import Path

import pytest

from tests.e2e.service import Service
from torchyard.client.handles import Job
from torchyard.contract.states import JobState

FILES = {
    "src/mypkg/__init__.py": "where = 'src'\n",
    "src/mypkg/train.py": "import mypkg, sys\nprint('found', mypkg.where, __name__, *sys.argv[1:], flush=True)\n",
    "lib/helpers.py": "where = 'lib'\n",
    "shared.py": "where = 'root'\n",
    "scripts/train.py": "import shared, mypkg\nprint('found', shared.where, mypkg.where, flush=True)\n",
    "uses.py": "import helpers, os\nprint('found', helpers.where, os.environ['PYTHONPATH'], flush=True)\n",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("layouts") / "project"
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


def found(service: Service, job: Job) -> str:
    service.wait(job.id, JobState.SUCCEEDED)
    (line,) = [line.text for line in job.logs() if line.text.startswith("found")]
    return line


def test_a_module_in_src_runs_as_where_the_project_is_installed(service: Service, project: Path) -> None:
    job = service.client.run("mypkg.train", module=True, folder=project, args=["--lr", 1])
    assert found(service, job) == "found src __main__ --lr 1"


def test_a_script_in_a_sub_folder_finds_the_root_and_src(service: Service, project: Path) -> None:
    assert found(service, service.client.run("scripts/train.py", folder=project)) == "found root src"


def test_pythonpath_names_folders_of_the_bundle(service: Service, project: Path) -> None:
    job = service.client.run("uses.py", folder=project, env={"PYTHONPATH": "lib:."})
    work = service.data / "runs" / job.id / "work"
    assert found(service, job) == f"found lib {work}/lib:{work}"

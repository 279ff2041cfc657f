"""Data where a program looks for it: by an argument, or beside itself, as its user types it."""

from pathlib import Path
import re
import shlex
import shutil
import subprocess

import pytest

from tests.e2e.service import Service
from tests.own_code.typed import torchyard
from torchyard.contract.spec.spec import ScriptSpec

PROGRAMS = Path(__file__).parent / "programs"
DOCUMENT = Path(__file__).parents[2] / "docs" / "your-program.md"
TWO_MOUNTS = (
    "run --mount ./input=data:mnist --env 'DATA=${TORCHYARD_MOUNTS}' --mount m=data:mnist train.py --data input"
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A project with its data, which git ignores."""
    folder = tmp_path / "project"
    (folder / "data" / "mnist" / "train").mkdir(parents=True)
    (folder / "data" / "mnist" / "train" / "a.txt").write_text("one")
    shutil.copy(PROGRAMS / "by_argument.py", folder / "train.py")
    shutil.copy(PROGRAMS / "beside.py", folder / "beside.py")
    (folder / ".gitignore").write_text("data\n")
    subprocess.run(["git", "init", "--quiet"], cwd=folder, check=True)
    return folder


def test_the_lines_of_the_document_give_a_program_its_data(service: Service, folder: Path) -> None:
    text = DOCUMENT.read_text().partition("## Bring your data")[2]
    block = re.search(r"```sh\n(.*?)```", text, re.DOTALL)
    assert block is not None
    push, *runs = (shlex.split(line)[1:] for line in block[1].splitlines())
    assert len(runs) == 3
    torchyard(service, folder, *push)
    two_mounts = shlex.split(TWO_MOUNTS)
    for words in (*runs, two_mounts):
        said, _ = torchyard(service, folder, *words)
        assert "rank 0 | read ['train/a.txt=one']" in said.splitlines(), words
        assert ("rank 0 | there ['m']" in said) == (words == two_mounts)


def test_a_program_reads_its_own_data_folder_and_only_what_changed_is_sent(service: Service, folder: Path) -> None:
    data = folder / "data"
    (data / "b.txt").write_text("two")
    with (data / "large.bin").open("wb") as file:
        for number in range(4000):
            file.write(number.to_bytes(4, "big") * 256)
    words = ("run", "--mount", "./data=./data", "--keep", "results/*", "beside.py")
    said, _ = torchyard(service, folder, *words)
    assert "rank 0 | read ['two']" in said.splitlines()
    (data / "b.txt").write_text("three")
    said, told = torchyard(service, folder, *words)
    assert "rank 0 | read ['three']" in said.splitlines()
    assert re.search(r"Uploaded .*; the server already had .* MiB", told), told


def test_what_an_attempt_writes_goes_where_its_arguments_say(service: Service, folder: Path) -> None:
    out = "${TORCHYARD_RUN_DIR}/artifacts"
    words = ("run", "--name", "writes", "--mount", "m=./data", "train.py", "--data", "$TORCHYARD_MOUNTS/m/mnist")
    torchyard(service, folder, *words, "--out", out)
    job = service.client.get("writes")
    assert [item.path for item in service.client.jobs.artifacts(job.id)] == ["result.txt"]
    spec = job.view.spec
    assert isinstance(spec, ScriptSpec)
    assert spec.config.args[-1] == out

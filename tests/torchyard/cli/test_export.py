"""`torchyard export`, on a checkpoint of a small model."""

import json
from pathlib import Path
from subprocess import CompletedProcess
import sys

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process, run_process
from tests.torchyard.cli.test_predict import serve
from tests.torchyard.client.fake_server import TOKEN, FakeServer
from tests.trainer.test_evaluate import checkpoint, pictures
from torchyard.models import load


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a checkpoint alone."""
    checkpoint(tmp_path, "image-classification", pictures(tmp_path))
    (tmp_path / "small.npz").unlink()
    return tmp_path


def test_it_prints_the_path_and_what_was_checked(folder: Path, approved: Approved) -> None:
    done = run(folder, "state.pt", "--to", "safetensors")
    assert (done.returncode, done.stdout) == (0, "state.safetensors\n"), done.stderr
    assert done.stderr == approved("stderr")
    answer = json.loads(run(folder, "state.safetensors", "--to", "safetensors", "-o", "b.safetensors", "--json").stdout)
    assert (answer["path"], answer["to"], answer["difference"]) == ("b.safetensors", "safetensors", 0)
    assert answer["card"]["outputs"]["logits"]["shape"] == ["batch", 10]
    assert load(folder / "b.safetensors", device="cpu").metadata["classes"] == answer["card"]["classes"]


def test_nothing_is_replaced_without_force(folder: Path, approved: Approved) -> None:
    (folder / "state.safetensors").write_text("mine")
    done = run(folder, "state.pt", "--to", "safetensors")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("stderr")
    assert (folder / "state.safetensors").read_text() == "mine"
    assert run(folder, "state.pt", "--to", "safetensors", "--force").returncode == 0
    assert load(folder / "state.safetensors", device="cpu").metadata["classes"]


def test_a_file_goes_into_a_folder_that_is_there(folder: Path) -> None:
    (folder / "out").mkdir()
    assert run(folder, "state.pt", "--to", "safetensors", "-o", "out").stdout == "out/state.safetensors\n"


def test_a_jobs_checkpoint_is_downloaded_and_gives_its_name(folder: Path, server: FakeServer) -> None:
    serve(server, (folder / "state.pt").read_bytes())
    (folder / "out").mkdir()
    env = environment(server.url, TOKEN) | {"XDG_CACHE_HOME": str(folder / "cache")}
    done = run_in_process(["export", "job_1/best", "--to", "safetensors", "-o", "out"], env, cwd=folder)
    assert (done.returncode, done.stdout) == (0, "out/job_1-best.safetensors\n"), done.stderr


@pytest.mark.parametrize(
    "arguments",
    [
        ["state.pt", "--to", "hf"],
        ["state.pt", "--to", "onnx", "-o", "absent/it.onnx"],
        ["state.pt", "--to", "onnx", "-o", f"{'a' * 300}.onnx"],
        ["state.pt", "--to", "safetensors", "-o", "/proc/self/it.safetensors"],
        ["absent.pt", "--to", "onnx"],
        ["torn.pt", "--to", "onnx"],
    ],
)
def test_what_is_wrong_is_said_in_a_line_and_nothing_is_left(
    folder: Path, arguments: list[str], approved: Approved
) -> None:
    (folder / "torn.pt").write_bytes((folder / "state.pt").read_bytes()[:5000])
    before = sorted(folder.iterdir())
    done = run(folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved.of_row("errors") and len(done.stderr.splitlines()) == 1
    assert sorted(folder.iterdir()) == before


def test_without_the_extra_it_names_it(tmp_path: Path, approved: Approved) -> None:
    command = ["export", "state.pt", "--to", "safetensors"]
    done = run_process(command, environment(None, ""), cwd=tmp_path, prepare=_forget_torch)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved("stderr")


def _forget_torch() -> None:
    """Leaves this process as one that has imported nothing of the extra, and cannot."""
    for name in [*sys.modules]:
        if name.startswith("torchyard.models"):
            del sys.modules[name]
    sys.modules["torch"] = None  # pyright: ignore[reportArgumentType] whoever imports it gets ImportError


def run(folder: Path, *arguments: str) -> CompletedProcess[str]:
    return run_in_process(["export", *arguments], environment(None, ""), cwd=folder)

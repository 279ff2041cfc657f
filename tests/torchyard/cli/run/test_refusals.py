"""What `torchyard run` refuses before it packs or sends anything."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.fake_server import TOKEN, FakeServer, problem, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        yield server


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a program, a package and a file that is no program."""
    for name in ("train.py", "package/train.py", "package/inner/__main__.py", "notes.txt"):
        path = tmp_path / "code" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("print(1)\n")
    return tmp_path / "code"


@pytest.mark.parametrize(
    "arguments",
    [
        ["trian.py"],
        ["--", "trian.py"],
        ["--", "./go.sh"],
        ["accelerate", "launch", "train.py"],
        ["python", "train.py"],
        ["sh", "go.sh"],
        ["--", "sh", "go.sh"],
        ["bash", "notes.txt"],
        ["/opt/envs/ml/bin/python3.10", "train.py"],
        ["../other.py"],
        ["/etc/passwd"],
        ["notes.txt"],
        ["-m", "package.trian"],
        ["-m", "package/train.py"],
        [""],
    ],
)
def test_a_program_that_is_not_there_is_said_before_anything_is_sent(
    server: FakeServer, folder: Path, arguments: list[str], tmp_path: Path, approved: Approved
) -> None:
    done = _run(server, folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == approved.of_row("errors", tmp_path=tmp_path)
    assert server.requests == []


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["--devices", "0", "train.py"],
        ["--time-limit", "soon", "train.py"],
        ["--max-size", "large", "train.py"],
        ["--env", "A", "train.py"],
        ["--env", "A=1", "--secret", "A", "train.py"],
        ["--mount", "photos=", "train.py"],
        ["--launcher", "slurm", "train.py"],
    ],
)
def test_a_wrong_flag_is_misuse_and_names_what_is_allowed(
    server: FakeServer, folder: Path, arguments: list[str], approved: Approved
) -> None:
    done = _run(server, folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == approved.of_row("errors")
    assert server.requests == []


def test_a_server_that_does_not_answer_is_said_before_the_folder_is_packed(folder: Path, approved: Approved) -> None:
    (folder / "train.py").chmod(0)
    own = environment("http://127.0.0.1:9", TOKEN)
    for arguments in (["run", "train.py"], ["data", "push", "."]):
        done = run_in_process(arguments, own, cwd=folder)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == approved("errors")


def test_a_wrong_token_is_exit_code_4(server: FakeServer, folder: Path) -> None:
    server.on("/v1/me", problem("not_authorized", 401))
    assert _run(server, folder, "train.py").returncode == 4


@pytest.mark.parametrize(
    "arguments",
    [
        ["--env", "RANK=1", "train.py"],
        ["--requirements", "requirements.txt", "train.py"],
        ["--name", "my job", "train.py"],
        ["--max-size", "10", "train.py"],
        ["--python", "env with spaces", "train.py"],
        ["left-out.py"],
        ["--mount", "photos=./absent", "train.py"],
        ["--mount", "../photos=./package", "train.py"],
        ["--mount", "./a=./package", "--mount", "a/b=./package", "train.py"],
        ["--mount", "my photos=./package", "train.py"],
        ["--mount", "./=./package", "train.py"],
    ],
)
def test_what_cannot_run_is_said_before_the_upload(
    server: FakeServer, folder: Path, arguments: list[str], tmp_path: Path, approved: Approved
) -> None:
    server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
    (folder / "left-out.py").touch()
    (folder / ".torchyardignore").write_text("left-out.py\n")
    done = _run(server, folder, *arguments)
    assert done.returncode in {1, 2}
    assert done.stderr == approved.of_row("errors", tmp_path=tmp_path)
    assert {request.path for request in server.requests} <= {"/v1/me"}


def _run(server: FakeServer, folder: Path, *arguments: str) -> CompletedProcess[str]:
    return run_in_process(["run", *arguments], environment(server.url, TOKEN), cwd=folder)

"""What `torchyard run` refuses before it packs or sends anything."""

from collections.abc import Iterator
from pathlib import Path
from subprocess import CompletedProcess

import pytest

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
    ("arguments", "says"),
    [
        (["trian.py"], "there is no file trian.py in "),
        (["--", "trian.py"], "there is no file trian.py in "),
        (["--", "./go.sh"], "there is no file ./go.sh in "),
        (["accelerate", "launch", "train.py"], "or an executable after --"),
        (["python", "train.py"], "leave python out: name its file"),
        (["../other.py"], "../other.py is outside of "),
        (["/etc/passwd"], "/etc/passwd is outside of "),
        (["notes.txt"], "notes.txt is neither a Python file nor executable"),
        (["-m", "package.trian"], "neither package/trian.py nor package/trian/__main__.py is there"),
        (["-m", "package/train.py"], "package/train.py is no module"),
        ([""], "there is no program"),
    ],
)
def test_a_program_that_is_not_there_is_said_before_anything_is_sent(
    server: FakeServer, folder: Path, arguments: list[str], says: str
) -> None:
    done = _run(server, folder, *arguments)
    assert (done.returncode, done.stdout) == (1, "")
    assert says in done.stderr
    assert server.requests == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ([], "Missing argument"),
        (["--devices", "0", "train.py"], "--devices"),
        (["--time-limit", "soon", "train.py"], "--time-limit must be a duration: 90s, 15m, 24h or 7d; it is 'soon'"),
        (["--max-size", "large", "train.py"], "--max-size must be a size"),
        (["--env", "A", "train.py"], "write --env NAME=…"),
        (["--env", "A=1", "--secret", "A", "train.py"], "--secret: A has a text as value, too"),
        (["--mount", "photos=/data", "train.py"], "`torchyard data push DIR` uploads a folder"),
        (["--launcher", "slurm", "train.py"], "--launcher"),
    ],
)
def test_a_wrong_flag_is_misuse_and_names_what_is_allowed(
    server: FakeServer, folder: Path, arguments: list[str], says: str
) -> None:
    done = _run(server, folder, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert says in done.stderr
    assert server.requests == []


def test_a_server_that_does_not_answer_is_said_before_the_folder_is_packed(folder: Path) -> None:
    (folder / "train.py").chmod(0)
    own = environment("http://127.0.0.1:9", TOKEN)
    for arguments in (["run", "train.py"], ["data", "push", "."]):
        done = run_in_process(arguments, own, cwd=folder)
        assert (done.returncode, done.stdout) == (1, "")
        assert "http://127.0.0.1:9 cannot be reached" in done.stderr


def test_a_wrong_token_is_exit_code_4(server: FakeServer, folder: Path) -> None:
    server.on("/v1/me", problem("not_authorized", 401))
    assert _run(server, folder, "train.py").returncode == 4


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--env", "RANK=1", "train.py"], "env: RANK is set by the service"),
        (["--requirements", "requirements.txt", "train.py"], "requirements.txt, which has the requirements, is not"),
        (["--name", "my job", "train.py"], "--name must be 1 to 100 letters"),
        (["--max-size", "10", "train.py"], "at most 10 B are packed"),
        (
            ["--requirements", "pyproject.toml", "train.py"],
            "uv.lock, which has the requirements, is not among the files",
        ),
        (["left-out.py"], "left-out.py would not be in the bundle: git or .torchyardignore ignores it"),
    ],
)
def test_what_cannot_run_is_said_before_the_upload(
    server: FakeServer, folder: Path, arguments: list[str], says: str
) -> None:
    server.on("/v1/me", {"name": "admin", "role": "admin", "scopes": []})
    (folder / "left-out.py").touch()
    (folder / "pyproject.toml").touch()
    (folder / ".torchyardignore").write_text("left-out.py\n")
    done = _run(server, folder, *arguments)
    assert done.returncode in {1, 2}
    assert says in done.stderr
    assert {request.path for request in server.requests} <= {"/v1/me"}


def _run(server: FakeServer, folder: Path, *arguments: str) -> CompletedProcess[str]:
    return run_in_process(["run", *arguments], environment(server.url, TOKEN), cwd=folder)

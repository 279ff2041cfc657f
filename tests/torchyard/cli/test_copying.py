"""`torchyard cp` trusts no name that a server lists, and makes the folders of what it copies."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client import answers
from tests.torchyard.client.answers import DATA, NOW, SHA256
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer, serving


@pytest.fixture
def server() -> Iterator[FakeServer]:
    with serving() as server:
        server.on("/v1/jobs/job_1", answers.job())
        yield server


def serve(server: FakeServer, *paths: str) -> None:
    file = {"size": len(DATA), "attempt": 1, "sha256": SHA256, "created_at": NOW}
    listed = [{"id": f"art_{number}", "path": path, **file} for number, path in enumerate(paths)]
    server.on("/v1/jobs/job_1/artifacts", answers.page(listed))


@pytest.mark.parametrize("path", ["../x", "/etc/x", "plots/../../x", "a//b", "plots..", "other/x", "plots/\x1b[2J"])
def test_an_unsafe_path_of_the_server_stops_the_copy_before_it_begins(
    server: FakeServer, tmp_path: Path, path: str, approved: Approved
) -> None:
    serve(server, "plots/good", path)
    inside = tmp_path / "inside"
    inside.mkdir()
    done = run_in_process(["cp", "job_1:artifacts/plots", "."], environment(server.url, TOKEN), cwd=inside)
    assert done.returncode == 1
    assert done.stderr == approved.of_row("errors")
    assert "\x1b" not in done.stderr
    assert [*tmp_path.rglob("*")] == [inside]


def test_bytes_that_differ_from_the_listed_ones_are_not_kept(server: FakeServer, tmp_path: Path) -> None:
    serve(server, "plots/good")
    server.on("/v1/jobs/job_1/artifacts/plots/good", Answer(DATA[:-1] + b"x"))
    for dest in (".", "-"):
        done = run_in_process(["cp", "job_1:artifacts/plots/good", dest], environment(server.url, TOKEN), cwd=tmp_path)
        assert (done.returncode, done.stdout) == (1, "")
        assert "is listed as" in done.stderr
        assert [*tmp_path.iterdir()] == []


def test_a_folder_with_one_file_becomes_a_folder(server: FakeServer, tmp_path: Path) -> None:
    serve(server, "plots/loss.png")
    server.on("/v1/jobs/job_1/artifacts/plots/loss.png", Answer(DATA))
    done = run_in_process(["cp", "job_1:artifacts/plots", "out"], environment(server.url, TOKEN), cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "out/loss.png\n"), done.stderr
    assert (tmp_path / "out" / "loss.png").read_bytes() == DATA


FILES = {"out/c=1/.metadata": b"1", "out/c=1/__0_0.distcp": b"2" * 2000, "out/c=1/deep/a/b/c/d/e": b"3"}


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def cp(server: FakeServer, cwd: Path, source: str, dest: str) -> str:
    done = run_in_process(["cp", source, dest], environment(server.url, TOKEN), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_checkpoint_in_several_files_becomes_a_folder_in_one_request(server: FakeServer, tmp_path: Path) -> None:
    answers.serve_folder(server, FILES)
    assert cp(server, tmp_path, "job_1:checkpoints/best", ".").splitlines() == [f"best/{path}" for path in FILES]
    assert files_in(tmp_path / "best") == FILES
    assert [request.path for request in server.requests if "download" in request.path or "/files/" in request.path] == [
        "/v1/jobs/job_1/checkpoints/ckpt_1/download"
    ]
    (tmp_path / "best/out/c=1/.metadata").unlink()
    cp(server, tmp_path, "job_1:checkpoints/best", ".")
    assert files_in(tmp_path / "best") == FILES
    assert server.requests[-1].path.endswith("/files/out/c%3D1/.metadata")


def test_a_folder_of_a_checkpoint_is_copied_by_its_path(server: FakeServer, tmp_path: Path) -> None:
    answers.serve_folder(server, FILES)
    cp(server, tmp_path, "job_1:checkpoints/best/out/c=1", ".")
    assert files_in(tmp_path) == {path.removeprefix("out/"): content for path, content in FILES.items()}


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "a\\b", "a\x1b[2J", "out/c=1"])
def test_an_unsafe_path_of_a_checkpoint_stops_the_copy_before_it_begins(
    server: FakeServer, tmp_path: Path, path: str
) -> None:
    answers.serve_folder(server, {**FILES, path: b"evil"})
    inside = tmp_path / "inside"
    inside.mkdir()
    done = run_in_process(["cp", "job_1:checkpoints/best", "."], environment(server.url, TOKEN), cwd=inside)
    assert (done.returncode, done.stdout) == (1, "")
    assert "\x1b" not in done.stderr
    assert [*tmp_path.rglob("*")] == [inside]


def test_a_list_names_the_folder_of_very_many_files(server: FakeServer, tmp_path: Path) -> None:
    view = answers.serve_folder(server, FILES, folder={"path": "out/c=1", "files": 9000}, files_omitted=True)
    server.on("/v1/jobs/job_1/checkpoints", answers.page([{**view, "files": []}]))
    for left in ("artifacts", "kept"):
        server.on(f"/v1/jobs/job_1/{left}", answers.page([]))
    done = run_in_process(["cp", "job_1:"], environment(server.url, TOKEN), cwd=tmp_path)
    assert "checkpoints/best/out/c=1/ " in done.stdout, done.stderr
    done = run_in_process(["checkpoints", "job_1"], environment(server.url, TOKEN), cwd=tmp_path)
    assert " out/c=1/ " in done.stdout, done.stderr


@pytest.mark.parametrize(("state", "said"), [("running", "No files yet."), ("succeeded", "No files are stored.")])
def test_a_job_without_files_is_told_from_one_that_has_yet_to_store_them(
    server: FakeServer, tmp_path: Path, state: str, said: str
) -> None:
    server.on("/v1/jobs/job_1", answers.job(state=state))
    for left in ("artifacts", "kept", "checkpoints"):
        server.on(f"/v1/jobs/job_1/{left}", answers.page([]))
    done = run_in_process(["cp", "job_1:"], environment(server.url, TOKEN), cwd=tmp_path)
    assert done.stderr.startswith(said), done

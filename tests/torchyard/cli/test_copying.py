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

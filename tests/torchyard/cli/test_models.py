"""The commands of models: against answers of a server, and against a real one."""

import json
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from tests.approved import Approved
from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.cli.service import Team
from tests.torchyard.client.answers import DATA, JOB, SHA256, job, page, serve_checkpoint
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from tests.torchyard.client.test_models import MODEL, PATH, VERSION


@pytest.fixture(autouse=True)
def models(server: FakeServer) -> None:
    server.on("/v1/me", {"name": "ada", "role": "member", "scopes": []})
    server.on(JOB, job())
    server.on("/v1/models", page([MODEL, {**MODEL, "owner": "bob", "visibility": "private"}]))
    server.on(PATH, MODEL)
    server.on(f"{PATH}/versions", page([VERSION]))
    for version in ("latest", "3"):
        server.on(f"{PATH}/versions/{version}", {**VERSION, "card": {"parameters": 7}})


def run(server: FakeServer, *arguments: str, cwd: Path | None = None) -> CompletedProcess[str]:
    done = run_in_process(("models", *arguments), environment(server.url, TOKEN), cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.parametrize(("checkpoint", "ref"), [("job_1/best", "best"), ("job_1", "best"), ("job_1/ckpt_1", "ckpt_1")])
def test_a_checkpoint_is_added(server: FakeServer, checkpoint: str, ref: str) -> None:
    serve_checkpoint(server, DATA)
    server.on("/v1/models", Answer(VERSION, 201))
    done = run(server, "add", "digits", checkpoint, "--visibility", "team")
    assert done.stdout.startswith("ada/digits@3  step 9, ")
    assert f"{JOB}/checkpoints/{ref}" in [request.path for request in server.requests]
    assert json.loads(server.requests[-1].body) == {"name": "digits", "from": "job_1/ckpt_1", "visibility": "team"}
    assert json.loads(run(server, "add", "digits", checkpoint, "--json").stdout)["version"] == 3


def test_a_file_of_a_job_without_checkpoints_says_how_it_becomes_one(server: FakeServer, approved: Approved) -> None:
    server.on(f"{JOB}/checkpoints", page([]))
    done = run_in_process(("models", "add", "linear", "job_1/model.pt"), environment(server.url, TOKEN))
    assert (done.returncode, done.stderr) == (1, approved("stderr"))


def test_models_are_listed_with_their_owners(server: FakeServer) -> None:
    heading, first, second = run(server, "ls").stdout.splitlines()
    assert heading.split()[:4] == ["MODEL", "OWNER", "NEWEST", "METRICS"]
    assert (first.split()[:3], second.split()[1]) == (["digits", "ada", "@3"], "bob")
    assert json.loads(run(server, "ls", "--json", "--owner", "ada").stdout)[0]["newest"]["version"] == 3
    assert server.requests[-1].query["owner"] == ["ada"]
    server.on("/v1/models", page([]))
    empty = run(server, "ls")
    assert (empty.stdout, "models add NAME JOB/best" in empty.stderr) == ("", True)


def test_a_model_is_shown_with_its_versions_and_a_version_with_its_files(server: FakeServer) -> None:
    lines = run(server, "show", "digits").stdout.splitlines()
    assert lines[0].split() == ["model", "ada/digits"]
    assert lines[-1].split()[:2] == ["@3", "val/loss"] and "job_1  image-classification  1" in lines[-1]
    whole = run(server, "show", "digits@3").stdout
    for part in ("ada/digits@3", "job_1/ckpt_1", "epoch 1, step 9", "a b&.txt", "MODEL CARD"):
        assert part in whole
    assert json.loads(run(server, "show", "digits@3", "--json").stdout)["card"] == {"parameters": 7}
    assert json.loads(run(server, "show", "digits", "--json").stdout)["versions"] == 2


def test_a_text_of_the_server_moves_no_cursor(server: FakeServer) -> None:
    evil = "\x1b[2J\u202e"
    version = {**VERSION, "trainer": evil, "metrics": {evil: 1.0}, "card": {evil: evil}}
    version["files"] = [{"path": evil, "size": 1, "sha256": SHA256}]
    server.on("/v1/models", page([{**MODEL, "newest": version}]))
    server.on(f"{PATH}/versions", page([version]))
    server.on(f"{PATH}/versions/3", version)
    for arguments in (("ls",), ("show", "digits"), ("show", "digits@3")):
        shown = run(server, *arguments).stdout
        assert "\x1b" not in shown and "\u202e" not in shown, arguments


def test_a_version_is_downloaded_and_verified(server: FakeServer, tmp_path: Path) -> None:
    server.on(f"{PATH}/versions/3/download", Answer(DATA))
    done = run(server, "download", "digits", "-o", "it.pt", cwd=tmp_path)
    assert (done.stdout, (tmp_path / "it.pt").read_bytes()) == ("it.pt\n", DATA)
    assert f"ada/digits@3, sha256 {SHA256}" in done.stderr
    answered = run(server, "download", "digits@3", "--file", "state.pt", "-o", "it.pt", "--json", cwd=tmp_path)
    assert json.loads(answered.stdout)["version"]["version"] == 3


def test_a_model_is_shared_and_removed(server: FakeServer) -> None:
    assert run(server, "share", "digits").stdout == "ada/digits  team\n"
    server.on(PATH, {**MODEL, "visibility": "private"})
    assert run(server, "share", "digits", "--private").stdout == "ada/digits  private\n"
    assert json.loads(server.requests[-1].body) == {"visibility": "private"}
    refused = run_in_process(("models", "rm", "digits"), environment(server.url, TOKEN))
    assert (refused.returncode, "use --yes" in refused.stderr) == (2, True)
    server.on(PATH, MODEL, Answer(b"", 204))
    assert run(server, "rm", "digits", "--yes").stdout == "ada/digits  deleted\n"
    server.on(f"{PATH}/versions/3", VERSION, Answer(b"", 204))
    assert json.loads(run(server, "rm", "digits@3", "-y", "--json").stdout) == {"deleted": ["ada/digits@3"]}
    assert [request.path for request in server.requests if request.method == "DELETE"] == [PATH, f"{PATH}/versions/3"]


def test_what_names_no_model_fails_in_one_line(team: Team) -> None:
    for arguments, said in (
        (("show", "a b"), "names no model"),
        (("show", "none"), "there is no model admin/none"),
        (("download", "ada/none@3"), "there is no model ada/none"),
        (("add", "digits", "none/best"), "there is no job and no sweep with the id or name 'none'"),
    ):
        done = team.run("admin", "models", *arguments)
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[0], done.stderr

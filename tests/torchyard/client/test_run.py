"""`run` makes a job of a folder: packed, uploaded, submitted."""

import json
from pathlib import Path
import subprocess
from typing import Any

import pytest

from tests.torchyard.client.answers import NOW, job, page
from tests.torchyard.client.fake_server import Answer, FakeServer
from torchyard.client import Client
from torchyard.client.packing.bundle import pack
from torchyard.contract.errors import ConfigError, NotFound
from torchyard.contract.spec.spec import parse_spec


@pytest.fixture
def code(tmp_path: Path) -> Path:
    folder = tmp_path / "my project"
    folder.mkdir()
    (folder / "train.py").write_text("print('hello')\n")
    return folder


def serve_bundle(server: FakeServer, folder: Path) -> str:
    """Lets the server have the folder's bundle. Returns its URL."""
    with pack(folder) as bundle:
        have = {"sha256": bundle.sha256, "size": bundle.size, "files": 1, "state": "complete"}
        server.on(f"/v1/bundles/{bundle.sha256}", {**have, "received": bundle.size, "created_at": NOW})
        return bundle.url


def submitted(server: FakeServer) -> dict[str, Any]:
    posts = [request for request in server.requests if (request.method, request.path) == ("POST", "/v1/jobs")]
    return json.loads(posts[-1].body)


def test_a_folder_becomes_a_job(server: FakeServer, client: Client, code: Path) -> None:
    url = serve_bundle(server, code)
    server.on("/v1/jobs", page([]), Answer(job(), 201))
    found = client.run(
        "train.py", folder=code, devices=2, args=["--lr", 0.1], checkpoints=["out/*.pt"], time_limit="1h"
    )
    assert found.id == "job_1"
    spec = submitted(server)
    assert spec == {
        "trainer": "script",
        "name": "my-project",
        "time_limit": "1h",
        "resources": {"devices_per_node": 2, "nodes": 1},
        "config": {
            "entrypoint": "train.py",
            "code": url,
            "args": ["--lr", "0.1"],
            "checkpoints": ["out/*.pt"],
        },
    }
    parse_spec(spec)


def test_a_run_over_nodes_names_its_pool_and_more_resources_are_kept(
    server: FakeServer, client: Client, code: Path
) -> None:
    serve_bundle(server, code)
    server.on("/v1/jobs", page([]), Answer(job(), 201))
    client.run("train.py", folder=code, nodes=2, devices=4, pool="gpu", resources={"memory_gb": 64})
    spec = parse_spec(submitted(server))
    assert (spec.resources.nodes, spec.resources.devices_per_node, spec.resources.pool) == (2, 4, "gpu")
    assert spec.resources.memory_gb == 64


def test_a_job_says_which_commit_its_code_is_from(server: FakeServer, client: Client, code: Path) -> None:
    who = ["-c", "user.name=ada", "-c", "user.email=ada@example.org"]
    for words in (["init", "--quiet", "--initial-branch=main"], ["add", "."], [*who, "commit", "--quiet", "-m", "x"]):
        subprocess.run(["git", *words], cwd=code, check=True)
    (code / "train.py").write_text("print('changed')\n")
    serve_bundle(server, code)
    server.on("/v1/jobs", page([]), Answer(job(), 201))
    client.run("train.py", folder=code)
    told = submitted(server)["config"]["git"]
    assert (told["branch"], told["dirty"]) == ("main", True)
    assert "+print('changed')" in told["diff"]
    parse_spec(submitted(server))


def test_a_warning_says_what_git_ignores_and_include_has_it_packed(
    server: FakeServer, client: Client, code: Path, tmp_path: Path
) -> None:
    subprocess.run(["git", "init", "--quiet"], cwd=code, check=True)
    (code / ".gitignore").write_text("*.npz\n")
    (code / "data").mkdir()
    (code / "data" / "x.npz").write_bytes(bytes(10))
    with pack(code, include=["data"]) as whole, pack(code / "data", asks_git=False) as data:
        for bundle in (whole, data):
            have = {"sha256": bundle.sha256, "size": bundle.size, "files": 1, "state": "complete"}
            server.on(f"/v1/bundles/{bundle.sha256}", {**have, "received": bundle.size, "created_at": NOW})
    serve_bundle(server, code)
    server.on("/v1/jobs", Answer(job(), 201))
    with pytest.warns(
        UserWarning, match=r"left out by .gitignore: data/ \(1 file, 10 B\): include=\['data'\], or a mount"
    ):
        client.run("train.py", folder=code, name="a", mounts={"data": code / "data"})
    assert submitted(server)["config"]["left_out"] == ["data/"]
    assert submitted(server)["config"]["mounts"] == {"data": data.url}
    with pytest.warns(UserWarning, match="left out"):
        client.run("train.py", folder=code, idempotency_key="a-key")
    assert "left_out" not in submitted(server)["config"]
    client.run("train.py", folder=code, name="a", include=["data"])
    assert submitted(server)["config"]["code"] == whole.url
    parse_spec(submitted(server))


def test_mounts_are_packed_too_and_urls_stay(server: FakeServer, client: Client, code: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "x.txt").write_text("x")
    serve_bundle(server, code)
    url = serve_bundle(server, data)
    server.on("/v1/jobs", Answer(job(), 201))
    client.run("pkg.train", module=True, folder=code, name="mine", mounts={"data": data, "raw": "file:///raw"})
    spec = submitted(server)
    assert spec["config"]["mounts"] == {"data": url, "raw": "file:///raw"}
    assert (spec["name"], spec["config"]["module"]) == ("mine", "pkg.train")
    parse_spec(spec)


def test_named_data_is_looked_up_and_what_a_mount_hides_is_not_packed(
    server: FakeServer, client: Client, code: Path, tmp_path: Path
) -> None:
    url = serve_bundle(server, code)
    (code / "data" / "mnist").mkdir(parents=True)
    (code / "data" / "mnist" / "x.npz").write_text("x")
    have = {"sha256": "12" * 32, "size": 10, "files": 1, "state": "complete", "received": 10, "created_at": NOW}
    server.on("/v1/bundles", page([have | {"name": "mnist"}]))
    server.on("/v1/jobs", Answer(job(), 201))
    client.run("train.py", folder=code, name="mine", mounts={"data/mnist": "data:mnist"})
    assert submitted(server)["config"]["code"] == url
    assert submitted(server)["config"]["mounts"] == {"data/mnist": f"bundle:sha256:{'12' * 32}"}
    assert parse_spec(submitted(server)).urls["config.mounts../data/mnist"] == f"bundle:sha256:{'12' * 32}"
    (asked,) = [request for request in server.requests if request.path == "/v1/bundles"]
    assert asked.query["name"] == ["mnist"]
    server.on("/v1/bundles", page([]))
    with pytest.raises(NotFound, match=r"no data named mnist; .*: torchyard data push DIR --name mnist"):
        client.run("train.py", folder=code, name="mine", mounts={"data/mnist": "data:mnist"})
    with pytest.raises(ConfigError, match=r"mounts: .*x. must be below"):
        client.run("train.py", folder=code, name="mine", mounts={"../x": "data:mnist"})


@pytest.mark.parametrize(
    "wrong", [{"program": "absent.py"}, {"requirements": "absent.txt"}, {"trainer": "x"}, {"config": {}}]
)
def test_what_cannot_run_is_not_sent(server: FakeServer, client: Client, code: Path, wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        client.run(folder=code, **wrong)
    assert server.requests == []

"""What names weights is read alike by every command that takes them."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.torchyard.cli.answered import is_clean_error, run
from tests.torchyard.client.answers import DATA, NOW, SHA256, job, page
from tests.torchyard.client.fake_server import TOKEN, Answer, FakeServer
from tests.torchyard.client.test_models import PATH, VERSION
from tests.torchyard.client.test_sweeps import sweep
from torchyard.cli.cached import checkpoint_of
from torchyard.client import Client
from torchyard.client.blocking import ask
from torchyard.client.references import with_ids

JOB = f"job_{'3f09c1':0>32}"
CHECKPOINT = f"ckpt_{'77aa01':0>32}"
SWEEP = f"swp_{'5b5b5b':0>32}"
VIEW: dict[str, Any] = {"id": CHECKPOINT, "epoch": 3, "step": 9, "attempt": 1, "metrics": {}, "aliases": ["best"]}
VIEW |= {"files": [{"path": "state.pt", "size": len(DATA), "sha256": SHA256}], "size": len(DATA), "sha256": SHA256}
VIEW |= {"created_at": NOW}
FORMS = {
    "digits": f"{JOB}/{CHECKPOINT}",
    "digits/best": f"{JOB}/best",
    "digits/77aa01": f"{JOB}/{CHECKPOINT}",
    "3f09c1/latest": f"{JOB}/latest",
    f"job_…3f09c1/{CHECKPOINT}": f"{JOB}/{CHECKPOINT}",
    "lrs/best": f"{SWEEP}/best",
    "5b5b5b/best": f"{SWEEP}/best",
    "model:ada/digits@3": "model:ada/digits@3",
}


def answer_lists(server: FakeServer, named: str) -> None:
    """Lists the job by its name, or after it was asked for by its name; never for the name of a sweep."""
    found = page([job(id=JOB, name="digits")])
    server.on("/v1/jobs", *{"digits": [found], "lrs": [page([])], "5b5b5b": [page([])]}.get(named, [page([]), found]))


@pytest.fixture
def weights(server: FakeServer) -> FakeServer:
    listed = job(id=JOB, name="digits")
    for ref in ("best", "latest", CHECKPOINT):
        server.on(f"/v1/jobs/{JOB}/checkpoints/{ref}", VIEW)
    server.on(f"/v1/jobs/{JOB}", listed)
    server.on(f"/v1/jobs/{JOB}/checkpoints", page([VIEW]))
    best = {"trial": 2, "job_id": JOB, "value": 0.1, "point": {}, "checkpoint_id": CHECKPOINT}
    server.on("/v1/sweeps", page([sweep(id=SWEEP, name="lrs")]))
    server.on(f"/v1/sweeps/{SWEEP}", sweep(id=SWEEP, name="lrs", best=best))
    file = {"path": "state.pt", "size": len(DATA), "sha256": SHA256}
    version = {**VERSION, "trainer": "image-classification", "files": [file], "size": len(DATA), "sha256": SHA256}
    server.on(f"{PATH}/versions/3", version)
    for path in (f"/v1/jobs/{JOB}/checkpoints/{CHECKPOINT}", f"{PATH}/versions/3"):
        for what in ("download", "files/state.pt"):
            server.on(f"{path}/{what}", Answer(DATA))
    return server


@pytest.mark.parametrize("named", FORMS)
def test_a_name_of_weights_is_read_alike_by_each_command(
    weights: FakeServer, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer_lists(weights, named.partition("/")[0])
    done = run(weights, "download", named, "-o", "state.pt", cwd=tmp_path)
    assert (done.returncode, (tmp_path / "state.pt").read_bytes()) == (0, DATA), done.stderr
    with Client(weights.url, TOKEN) as client:
        answer_lists(weights, named.partition("/")[0])
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert checkpoint_of(client, named).read_bytes() == DATA, "predict and export"
        answer_lists(weights, named.partition("/")[0])
        assert ask(client, with_ids, [{"init_from": named}]) == [{"init_from": FORMS[named]}]


def test_a_model_is_downloaded_with_its_view(weights: FakeServer, tmp_path: Path) -> None:
    done = run(weights, "download", "model:ada/digits@3", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    assert (found["model"]["version"], (tmp_path / found["path"]).read_bytes()) == (3, DATA)


@pytest.mark.parametrize("option", ["--best", "--latest", "--epoch=1", "--ref=best"])
@pytest.mark.parametrize("named", ["digits/best", "model:ada/digits@3"])
def test_weights_are_named_once(weights: FakeServer, named: str, option: str) -> None:
    done = run(weights, "download", named, option)
    assert (done.returncode, f"{named} already names a checkpoint" in done.stderr) == (2, True)


def test_a_sweep_without_a_best_checkpoint_is_one_line(weights: FakeServer) -> None:
    answer_lists(weights, "lrs")
    weights.on(f"/v1/sweeps/{SWEEP}", sweep(id=SWEEP, name="lrs"))
    done = run(weights, "download", "lrs/best")
    assert is_clean_error(done) and "no trial of lrs has reported val/loss yet" in done.stderr

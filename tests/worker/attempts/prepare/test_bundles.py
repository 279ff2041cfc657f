"""A runner whose job is made of bundles: its copy of the code, and what it says where there is none."""

from collections.abc import Generator
from pathlib import Path
import re
from typing import Any

import pytest

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.output import artifacts, checkpoints
from tests.approved import Approved
from tests.disks import mounted
from tests.store.fixture import StoreFixture
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import INVENTORY, SimulatedRunnerFixture, worker_context
from tests.worker.bundles.tars import Tree, read_tree, store, store_as, tar_of
from tests.worker.engines.memory import MemoryEngine
from tests.worker.eventfiles import NAME, scalars, write
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.spec.spec import RecipeSpec, parse_spec
from torchyard.contract.states import EndReason, JobState
from worker.attempts import intents
from worker.attempts.prepare.code import data_of
from worker.bundles import copying
from worker.host.untrusted import remove_inside

CODE: Tree = {"train.py": (b"print(1)", False), "run.sh": (b"#!/bin/sh", True)}
DATA: Tree = {"d.bin": (bytes(200_000), False)}


@pytest.fixture
def config() -> dict[str, Any]:
    """What a test changes of the script's configuration."""
    return {}


@pytest.fixture
def code() -> Tree:
    """What the job's code is."""
    return CODE


@pytest.fixture
def simulated(
    tmp_path: Path, database: Database, config: dict[str, Any], code: Tree
) -> Generator[SimulatedRunnerFixture]:
    service, blobs = StoreFixture(database), BlobFolder(tmp_path / "blobs")
    program, data = (bundle_url(store(blobs, tar_of(tree))) for tree in (code, DATA))
    job_id = service.submit(config={"code": program, "mounts": {"data": data}} | config)
    claim = service.starting(job_id, service.worker())
    engine = MemoryEngine(INVENTORY)
    fixture = SimulatedRunnerFixture(service, worker_context(tmp_path, database, engine), engine, claim)
    yield fixture
    fixture.close()
    remove_inside(tmp_path, "unpacked")


def test_an_attempt_works_in_the_folder_of_its_job(simulated: SimulatedRunnerFixture) -> None:
    attempt = simulated.start_ranks()
    assert read_tree(simulated.run.work) == CODE
    assert read_tree((simulated.run.mounts / "data").resolve()) == DATA
    plan = attempt.plan
    assert plan.cwd == simulated.run.work
    assert plan.source is not None
    assert read_tree(plan.source) == CODE
    assert plan.env["TORCHYARD_MOUNTS"] == str(simulated.run.mounts)
    assert list(plan.bundles.values()) == [(simulated.run.mounts / "data").resolve()]
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED


@pytest.mark.parametrize("code", [{**CODE, "large.bin": (bytes(1 << 20), False)}])
def test_each_part_of_the_copy_is_a_turn_and_a_cancel_ends_it(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns: list[int] = []
    send = copying.os.sendfile

    def send_and_cancel(*arguments: Any) -> int:
        turns.append(simulated.runner.instructions.turns.count)
        if len(turns) == 3:
            simulated.store.cancel(simulated.claim.job_id)
        return send(*arguments)

    monkeypatch.setattr(copying.os, "sendfile", send_and_cancel)
    monkeypatch.setattr(copying, "FICLONE", 0)  # no file system knows it
    monkeypatch.setattr(copying, "_CHUNK", 1 << 16)
    monkeypatch.setattr(intents, "READ_EVERY_S", 0.0)
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.CANCELLED
    assert turns == sorted(set(turns))
    assert len(turns) == 3
    assert simulated.engine.attempts == {}


OLD_EVENTS = scalars("loss", {900: 0.1})
EARLIER_RUN: Tree = {
    "train.py": (b"print(1)", False),
    f"runs/{NAME}": (OLD_EVENTS, False),
    "best.pt": (b"old", False),
    "events.jsonl": (b'{"type":"metric","step":900,"time":1,"values":{"train/loss":0.1}}\n', False),
    "errors/0.json": (b'{"type":"ValueError","message":"old","traceback":"old"}', False),
    "stacks/0.txt": (b"old", False),
    "logs/rank-0.stdout": (b"old\n", False),
    "artifacts/old.txt": (b"old", False),
    "checkpoints/epoch-0001/state.pt": (b"old", False),
}
"""The folder of a script that has run by hand, or in a run directory, before it was sent."""


@pytest.mark.parametrize("code", [EARLIER_RUN])
@pytest.mark.parametrize("config", [{"mounts": {}, "checkpoints": ["**/*.pt"]}])
def test_what_an_earlier_run_left_in_the_code_is_no_work_of_any_attempt(simulated: SimulatedRunnerFixture) -> None:
    service, job_id = simulated.store, simulated.claim.job_id
    simulated.start_ranks().end(EndReason.KILLED, "fails")
    assert simulated.wait_for_end().state == JobState.QUEUED
    simulated.claim = service.starting(job_id, service.worker())
    attempt = simulated.start_ranks()
    write(simulated.run.work / "runs" / NAME, OLD_EVENTS + scalars("loss", {3: 0.5}))
    wait_for(lambda: service.series(job_id), "the point, whose step the checkpoint has")
    (simulated.run.work / "new.pt").write_bytes(b"new")
    simulated.write_log("new\n")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert {key: list(found.steps) for key, found in service.series(job_id).items()} == {"loss": [3]}
    stored = service.read(lambda session: list(checkpoints.list_newest_first(session, job_id)))
    assert [(one.step, [file["path"] for file in one.files]) for one in stored] == [(3, ["new.pt"])]
    kept = service.read(lambda session: artifacts.read_room(session, job_id)).stored
    assert [(item.path, item.attempt) for item in kept] == [(f"./runs/{NAME}", 2)]
    assert simulated.lines() == ["new"]
    assert [text for text in simulated.messages() if re.search(r"\bold", text)] == []


@pytest.mark.parametrize("config", [{"code": bundle_url("0" * 64)}, {"mounts": {"data": bundle_url("0" * 64)}}])
def test_a_bundle_that_the_store_lost_ends_the_job(simulated: SimulatedRunnerFixture) -> None:
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.FAILED
    error = simulated.job.error
    assert error is not None
    assert error["code"] == "data_error"
    assert error["message"] == f"the bundle {'0' * 64} is no longer stored: upload it again"


def test_a_damaged_bundle_ends_the_job(simulated: SimulatedRunnerFixture, approved: Approved) -> None:
    sha256 = simulated.job.spec["config"]["code"].rpartition(":")[2]
    store_as(simulated.blobs, sha256, tar_of(DATA))
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.FAILED
    assert simulated.job.error is not None
    assert simulated.job.error["message"] == approved("message")


@pytest.mark.parametrize("config", [{"entrypoint": "main.py"}])
def test_a_missing_entrypoint_is_named(simulated: SimulatedRunnerFixture, approved: Approved) -> None:
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.FAILED
    assert simulated.job.error is not None
    assert simulated.job.error["message"] == approved("message", code=simulated.run.work)


@pytest.mark.parametrize("where", [pytest.param("unpacked", marks=pytest.mark.thorough), "runs"])
def test_an_attempt_waits_while_the_disk_is_full(simulated: SimulatedRunnerFixture, tmp_path: Path, where: str) -> None:
    folder = tmp_path / where
    folder.mkdir(exist_ok=True)
    with mounted(folder, kibibytes=1024):
        with (folder / "ballast").open("wb", buffering=0) as ballast, pytest.raises(OSError, match="No space left"):
            while True:
                ballast.write(bytes(4096))
        simulated.start_runner()
        wait_for(simulated.messages, "the owner is told")
        assert "cannot be prepared now; retrying: [Errno 28] No space left on device" in simulated.messages()[0]
        (folder / "ballast").unlink()
        wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
        assert read_tree(simulated.run.work) == CODE
        simulated.engine.attempts[simulated.key].end()
        assert simulated.wait_for_end().state == JobState.SUCCEEDED


@pytest.mark.parametrize(
    ("files", "expected"), [(["x.npz"], "x.npz"), (["x.npz", "y.npz"], ""), (["images/1.png"], "")], ids=str
)
def test_a_recipe_reads_the_only_file_of_a_bundle_or_its_folder(
    tmp_path: Path, files: list[str], expected: str
) -> None:
    for name in files:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    spec = parse_spec({"trainer": "image-classification", "config": {"data": {"source": bundle_url("0" * 64)}}})
    assert isinstance(spec, RecipeSpec)
    found = data_of(spec, [], unpacked={"config.data.source": tmp_path})
    assert found[Env.DATA.value] == str(tmp_path / expected)


@pytest.mark.parametrize("files", [["model.safetensors"], ["config.json", "model.safetensors"]], ids=str)
def test_a_recipe_reads_its_base_from_the_folder_of_a_bundle(tmp_path: Path, files: list[str]) -> None:
    data, base = tmp_path / "data.jsonl", tmp_path / "base"
    data.touch()
    base.mkdir()
    for name in files:
        (base / name).touch()
    config = {"data": {"source": f"file://{data}"}, "model": {"weights": bundle_url("0" * 64)}}
    spec = parse_spec({"trainer": "causal-lm", "config": config})
    assert isinstance(spec, RecipeSpec)
    found = data_of(spec, [tmp_path], unpacked={"config.model.weights": base})
    assert found == {Env.DATA.value: str(data), Env.WEIGHTS.value: str(base)}

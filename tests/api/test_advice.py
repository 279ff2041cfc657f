"""Advice over HTTP, from stored rows."""

import time
from typing import Any

import pytest
from sqlalchemy import update

from store.attempts.facts import Claim
from store.cluster import workers
from store.jobs import jobs
from store.output import logs
from store.output.facts import MetricPoint, NewEvent, NewLines
from store.tables import Attempt
from tests.api.bundles import packed_files, upload_whole
from tests.api.service import ApiFixture, both_databases
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from torchyard.contract.recipes.entry import DATA_WAIT
from torchyard.contract.states import EndReason

OOM = "OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
GPU: dict[str, Any] = {"index": 0, "uuid": "cpu-0", "name": "H200", "kind": "cuda"}


def minutes_ago(minutes: float) -> int:
    return time.time_ns() // 1000 - int(minutes * 60_000_000)


def report_was(service: ApiFixture, claim: Claim, *, minutes: float) -> None:
    with service.database.write() as session:
        moved = update(Attempt).where(Attempt.id == claim.attempt_id)
        session.execute(moved.values(reported_at=minutes_ago(minutes)))


@both_databases
def test_a_failed_job_is_judged_by_the_lines_of_the_attempt_and_the_rank_that_failed(
    service: ApiFixture, approved: Approved
) -> None:
    job_id = service.submit(max_restarts=1)["id"]
    first = service.start(job_id)
    service.record(first, lines=[NewLines(1, "stderr", ["an older OutOfMemoryError: out of memory"])])
    service.end(first, reason=EndReason.OUT_OF_MEMORY, message=OOM, rank=1)
    waits = service.get(f"/v1/jobs/{job_id}/advice")
    assert (waits["severity"], waits["headline"]) == ("warning", approved("headline"))
    assert waits["evidence"][0] == {
        "kind": "log",
        "text": "an older OutOfMemoryError: out of memory",
        "line": 1,
        "rank": 1,
    }
    with service.database.write() as session:
        jobs.require(session, job_id).not_before = None
    second = service.start(job_id)
    service.record(second, lines=[NewLines(1, "stderr", ["starts", OOM, "bye"]), NewLines(0, "stderr", [OOM])])
    service.end(second, reason=EndReason.OUT_OF_MEMORY, message=OOM, rank=1, exit_code=1)
    found = service.get(f"/v1/jobs/{job_id}/advice")
    assert (found["severity"], found["headline"], found["cause"]) == ("error", approved("failed out memory"), OOM)
    log, memory, rank = found["evidence"]
    assert log == {"kind": "log", "text": OOM, "line": 3, "rank": 1}
    assert (memory["text"], rank["text"]) == (approved("text"), approved("rank ended exit"))
    assert found["steps"][0] == approved("steps")


@quick_on_sqlite
def test_a_running_job_is_judged_by_its_devices_and_its_newest_wait(service: ApiFixture, approved: Approved) -> None:
    config = {"data": {"source": "file:///data", "workers": 3}}
    job_id = service.submit(trainer="segmentation", config=config)["id"]
    claim = service.start(job_id)
    path = f"/v1/jobs/{job_id}/advice"
    assert service.get(path)["headline"] == "runs"
    points = [MetricPoint(DATA_WAIT, step, share, minutes_ago(0)) for step, share in ((10, 0.1), (20, 0.61))]
    service.record(claim, points=points)
    starts = {"mode": "cold", "cpus": 16}
    with service.database.write() as session:
        workers.heartbeat(session, service.worker_id, devices=[{**GPU, "utilization": 0.38}], starts=starts)
    assert service.get(path) == {
        "headline": approved("headline"),
        "cause": approved("cause"),
        "evidence": [
            {"kind": "metric", "text": "time/data_wait is 0.61", "line": None, "rank": None},
            {"kind": "utilization", "text": approved("text"), "line": None, "rank": None},
        ],
        "steps": [approved("steps")],
        "severity": "warning",
        "starts_if": [],
        "metric_pattern": None,
        "silent_s": None,
    }


@both_databases
def test_a_job_stalls_when_its_event_log_has_nothing_new(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    path = f"/v1/jobs/{job_id}/advice"
    assert service.get(path)["severity"] == "info", "it has not begun to report"
    progress = {"step": 7, "fraction": None}
    service.record(claim, events=[NewEvent("progress", progress, minutes_ago(0))], progress=progress, reports=True)
    report_was(service, claim, minutes=8.1)
    stalled = service.get(path)
    assert stalled["headline"] == approved("headline")
    assert stalled["evidence"][0]["text"] == approved("text")
    service.record(claim, points=[MetricPoint("train/loss", 8, 0.5, minutes_ago(0))], reports=True)
    assert service.get(path)["headline"] == "runs"


@both_databases
def test_no_silence_is_claimed_from_times_that_the_job_wrote(service: ApiFixture) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    path = f"/v1/jobs/{job_id}/advice"
    old = [MetricPoint("train/loss", 8, 0.5, minutes_ago(600))]
    service.record(claim, curves={"tensorboard": old}, events=[NewEvent("message", {"text": "x"}, minutes_ago(600))])
    assert service.get(path)["headline"] == "runs", "a stall is not measured by these"
    service.record(claim, points=old, reports=True)
    assert service.get(path)["headline"] == "runs", "it came just now, whatever its time"


def test_a_queued_job_is_judged_by_the_workers(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit(resources={"devices_per_node": 2})["id"]
    path = f"/v1/jobs/{job_id}/advice"
    assert service.get(path)["steps"] == [approved("start worker none")]
    service.start(service.submit()["id"])
    with service.database.write() as session:
        jobs.set_waiting_reason(session, [job_id], jobs.Reason("devices_busy", "needs 2 devices; 1 free on box-a"))
    found = service.get(path)
    assert (found["headline"], found["severity"]) == ("waits for devices", "info")
    assert found["cause"] == approved("cause")
    assert "\n".join(found["steps"]) == approved("steps")


def test_a_job_that_succeeded_names_its_best_checkpoint(service: ApiFixture, approved: Approved) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    service.record(claim, checkpoints=[service.new_checkpoint(step=9, epoch=3, files={"state.pt": b"x"}, val_loss=0.5)])
    service.end(claim, reason=EndReason.COMPLETED)
    found = service.get(f"/v1/jobs/{job_id}/advice")
    assert found["headline"] == approved("headline")
    assert found["evidence"][0]["text"] == approved("text")


@both_databases
def test_the_lines_of_a_long_log_are_looked_for_at_its_end(
    service: ApiFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = service.submit()["id"]
    claim = service.start(job_id)
    texts = [str(number) for number in range(1, 401)]
    service.record(claim, lines=[NewLines(0, "stdout", texts[:150]), NewLines(0, "stdout", texts[150:])])
    with service.database.read() as session:
        assert [line.text for line in logs.list_newest(session, job_id, attempt=1, rank=0)] == texts[100:]
        assert logs.list_newest(session, job_id, attempt=1, rank=1) == []
        monkeypatch.setattr(logs, "MOST_CHUNKS", 1)
        assert [line.line for line in logs.list_newest(session, job_id, attempt=1, rank=None)] == list(range(151, 401))
        monkeypatch.setattr(logs, "MOST_CHUNKS", 100)
        monkeypatch.setattr(logs, "MOST_CHARACTERS", 10)
        assert [line.line for line in logs.list_newest(session, job_id, attempt=1, rank=None)] == list(range(151, 401))


def test_a_missing_module_names_the_requirements_that_the_bundle_has(service: ApiFixture, approved: Approved) -> None:
    found: list[str] = []
    for files in ({"requirements.txt": b"einops\n", "train.py": b"import einops\n"}, {"train.py": b"import einops\n"}):
        bundle = packed_files(files)
        upload_whole(service.client, bundle)
        config = {"code": f"bundle:sha256:{bundle.sha256}"}
        job_id = service.submit(trainer="script", config=config, max_restarts=0)["id"]
        service.end(
            service.start(job_id),
            reason=EndReason.USER_ERROR,
            message="ModuleNotFoundError: No module named 'einops'",
            rank=0,
            exit_code=1,
        )
        found += service.get(f"/v1/jobs/{job_id}/advice")["steps"]
    assert [step[:20] for step in found] == ["The code has a requi", "Write its package in"]
    assert found[0] == approved("found")


@pytest.mark.parametrize(
    ("missed", "files", "env", "folder"),
    [
        ("helpers", ["lib/helpers.py"], {}, "lib"),
        ("helpers", ["deep/er/lib/helpers.py", "lib/py/helpers/x.py"], {"PYTHONPATH": "a"}, "a:lib/py"),
        ("pkg.models", ["python/pkg/models/__init__.py", "python/pkg/__init__.py"], {}, "python"),
        ("helpers", ["helpers.py", "lib/other_helpers.py", "lib/helpers.txt"], {}, None),
    ],
)
def test_a_missing_module_that_lies_in_a_folder_of_the_code_is_found_there(
    service: ApiFixture, missed: str, files: list[str], env: dict[str, str], folder: str | None
) -> None:
    bundle = packed_files(dict.fromkeys(sorted(["train.py", *files]), b""))
    upload_whole(service.client, bundle)
    config = {"code": f"bundle:sha256:{bundle.sha256}"}
    job_id = service.submit(trainer="script", config=config, env=env, max_restarts=0)["id"]
    message = f"ModuleNotFoundError: No module named '{missed}'"
    service.end(service.start(job_id), reason=EndReason.USER_ERROR, message=message, rank=0, exit_code=1)
    steps = service.get(f"/v1/jobs/{job_id}/advice")["steps"]
    if folder is None:
        assert [step[:20] for step in steps] == ["Write its package in"]
    else:
        assert f"--env PYTHONPATH={folder} " in steps[0]
        assert f"`cd {folder.rpartition(':')[2]}`" in steps[1]

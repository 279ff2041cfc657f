"""The main job and others, with real processes: API, worker, Redis, each database, torchrun."""

import json
import math
from pathlib import Path
from typing import Any

import pytest

from tests.chaos import job_processes
from tests.e2e.service import Service, until
from torchyard.contract.errors import Conflict, NotFound
from torchyard.contract.states import EndReason, JobState
from trainer.evaluate import evaluate
from worker.host import process

LIGHT = "import os, time\nprint('rank', os.environ['RANK'], flush=True)\n"


def test_the_main_job_runs_from_submit_to_download(service: Service, tmp_path: Path) -> None:
    job = service.client.submit(
        {
            "trainer": "image-classification",
            "name": "digits",
            "resources": {"devices_per_node": 2},
            "config": {"data": {"source": "digits"}},
        }
    )
    assert job.state is JobState.QUEUED
    done = service.wait(job.id, JobState.SUCCEEDED)

    states = [event.data["to"] for event in service.client.jobs.events(job.id) if event.type == "state"]
    assert states == ["queued", "starting", "running", "succeeded"]
    sequence = [event.seq for event in service.client.jobs.events(job.id)]
    assert sequence == sorted(set(sequence))
    assert done.attempt == 1
    assert done.progress.epoch == done.progress.epochs == 3
    assert done.progress.fraction == 1.0
    assert [device.index for device in done.devices] == [0, 1]
    assert done.error is None

    series = {item.key: item.points for item in service.client.jobs.metrics(job.id).data}
    assert len(series["val/accuracy"]) == 3
    assert done.metrics["val/accuracy"] == series["val/accuracy"][-1].value >= 0.95
    assert done.metrics["train/loss"] == series["train/loss"][-1].value

    printed = [line.text for line in service.client.jobs.logs(job.id, rank=0) if line.stream == "stdout"]
    assert [" epoch 3/3  step 72 " in line for line in printed].count(True) == 1

    listed = list(service.client.jobs.checkpoints(job.id))
    aliases = {alias: checkpoint for checkpoint in listed for alias in checkpoint.aliases}
    assert {"best", "latest", "epoch-1", "epoch-2", "epoch-3"} <= set(aliases)
    assert done.best is not None
    assert done.best.checkpoint_id == aliases["best"].id
    assert done.best.value == min(checkpoint.metrics["val/loss"] for checkpoint in listed)
    again = aliases["best"].remeasured
    assert again is not None
    assert done.best.remeasured == again.metrics["val/loss"] == pytest.approx(done.best.value, rel=1e-5)
    assert again.metrics["val/accuracy"] == aliases["best"].metrics["val/accuracy"]
    assert [checkpoint.id for checkpoint in listed if checkpoint.remeasured] == [done.best.checkpoint_id]
    for ref in ("best", "latest", "epoch-1"):
        path = service.client.jobs.download(job.id, ref=ref, to=tmp_path / f"{ref}.pt")
        assert path.stat().st_size == aliases[ref].size

    evaluated = evaluate(tmp_path / "best.pt", device="cpu")
    assert evaluated["accuracy"] == aliases["best"].metrics["val/accuracy"]


def test_two_jobs_share_the_devices_one_after_the_other(service: Service) -> None:
    both = {"devices_per_node": 2}
    gate = service.code / "gate"
    held = LIGHT + f"while not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
    first = service.submit_script("first", held, resources=both)
    service.wait(first.id, JobState.RUNNING)
    second = service.submit_script("second", LIGHT, resources=both)
    small = service.submit_script("too-big", LIGHT, resources={"devices_per_node": 64})

    def reason(job_id: str) -> str | None:
        found = service.client.get(job_id).view.status_reason
        return found.message if found.code != "waiting" else None

    busy = until(lambda: reason(second.id), what="the second job has its reason")
    assert busy.startswith("needs 2 devices; 0 free on ") and busy.endswith(" is reserved for this job")
    too_big = until(lambda: reason(small.id), what="the big job has its reason")
    assert "needs 64 devices; the largest worker" in too_big
    gate.touch()
    earlier, later = service.wait(first.id, JobState.SUCCEEDED), service.wait(second.id, JobState.SUCCEEDED)
    assert {(line.rank, line.text) for line in service.client.jobs.logs(second.id) if line.rank is not None} == {
        (0, "rank 0"),
        (1, "rank 1"),
    }
    assert earlier.finished_at is not None
    assert later.started_at is not None
    assert earlier.finished_at <= later.started_at
    assert service.client.jobs.cancel(small.id).state is JobState.CANCELLED


@pytest.mark.thorough
def test_a_job_starts_warm_or_by_torchrun_as_requested_and_says_why(service: Service) -> None:
    def messages(**spec: Any) -> list[str]:
        job = service.submit_script("starts", LIGHT, **spec)
        service.wait(job.id, JobState.SUCCEEDED)
        plan = json.loads((service.data / "runs" / job.id / "1" / "ctl" / "plan.json").read_text())
        assert plan["launcher"] == ("torchrun" if spec else "warm")
        return [event.data["text"] for event in service.client.jobs.events(job.id) if event.type == "message"]

    assert messages() == []
    assert messages(launcher="torchrun", resources={"devices_per_node": 2}) == []
    told = messages(env={"PYTHONHASHSEED": "0"}, resources={"devices_per_node": 2})
    assert told == ["starts with torchrun, which takes seconds: PYTHONHASHSEED must be set when Python starts"]
    refused = service.submit_script("refused", LIGHT, env={"OMP_NUM_THREADS": "1"}, launcher="warm")
    error = service.wait(refused.id, JobState.FAILED).error
    assert error is not None
    assert (error.code, error.message) == (
        "config_error",
        "launcher: warm is not possible: OMP_NUM_THREADS must be set when Python starts. With auto, the job starts "
        "with torchrun",
    )
    starts = service.client.workers.list()[0].starts
    assert starts is not None
    assert starts.mode == "warm"


def test_a_worker_says_below_which_folders_jobs_may_name_files(service: Service) -> None:
    starts = service.client.workers.list()[0].starts
    assert starts is not None
    assert starts.folders == [str(service.code)]


def test_a_queued_job_is_cancelled_at_once_and_stays_so(service: Service) -> None:
    job = service.submit_script("queued", LIGHT, resources={"devices_per_node": 99})
    cancelled = service.client.jobs.cancel(job.id)
    assert cancelled.state is JobState.CANCELLED
    assert cancelled.finished_at is not None
    assert service.client.jobs.cancel(job.id).version == cancelled.version


def test_a_job_is_cancelled_while_it_starts(service: Service) -> None:
    job = service.submit_script("starting", LIGHT + "time.sleep(3600)\n")
    service.wait(job.id, JobState.STARTING)
    service.client.jobs.cancel(job.id)
    done = service.wait(job.id, JobState.CANCELLED)
    states = [event.data["to"] for event in service.client.jobs.events(job.id) if event.type == "state"]
    assert states[:2] == ["queued", "starting"]
    assert states[-1] == "cancelled"
    assert done.attempt == 1
    assert job_processes.find({job.id}) == []


def test_cancelling_a_running_job_leaves_no_process(service: Service) -> None:
    stubborn = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        open(os.environ["TORCHYARD_RUN_DIR"] + "/grandchild", "w").write(str(os.getpid()))
        time.sleep(3600)
    os._exit(0)
time.sleep(3600)
"""
    job = service.submit_script("stubborn", stubborn, stop_grace="1s")
    service.wait(job.id, JobState.RUNNING)
    marker = service.data / "runs" / job.id / "1" / "job" / "grandchild"
    until(lambda: (marker.exists() and marker.read_text()) or None, what="the grandchild runs")
    assert len(process.find(job.id, 1)) >= 4  # supervisor, agent, rank and grandchild
    service.client.jobs.cancel(job.id)
    done = service.wait(job.id, JobState.CANCELLED)
    assert process.find(job.id, 1) == []
    assert done.status_reason.code == "cancelled"
    assert done.status_reason.message == "cancelled by its owner; killed after a grace of 1s"
    with pytest.raises(Conflict):
        service.client.jobs.cancel(_finished(service))


def test_a_failing_script_shows_its_rank_and_traceback(service: Service) -> None:
    text = LIGHT + "if os.environ['RANK'] == '1':\n    raise ValueError('the sky is green')\ntime.sleep(60)\n"
    job = service.submit_script("failing", text, resources={"devices_per_node": 2}, max_restarts=1)
    done = service.wait(job.id, JobState.FAILED)
    assert done.attempt == 1  # it had made no progress
    assert done.error is not None
    assert (done.error.code, done.error.rank) == (EndReason.USER_ERROR, 1)
    assert done.error.traceback is not None
    assert 'train.py", line 4' in done.error.traceback
    assert "ValueError: the sky is green" in done.error.traceback
    assert "the sky is green" in done.error.message
    printed = {
        (line.attempt, line.text) for line in service.client.jobs.logs(job.id, rank=1) if line.stream == "stdout"
    }
    assert printed == {(1, "rank 1")}


@pytest.mark.parametrize(
    ("source", "named"),
    [("{code}/absent", "{code}/absent"), ("/etc", "/etc"), ("{code}/../../../etc/passwd", "passwd")],
)
def test_data_that_is_absent_or_not_allowed_fails_at_once(service: Service, source: str, named: str) -> None:
    path = source.format(code=service.code)
    job = service.client.submit(
        {"trainer": "image-classification", "config": {"data": {"source": f"file://{path}"}}, "max_restarts": 3}
    )
    done = service.wait(job.id, JobState.FAILED)
    assert done.attempt == 1
    assert done.error is not None
    assert done.error.code is EndReason.DATA_ERROR
    assert named.format(code=service.code) in done.error.message


def test_a_script_logs_saves_and_resumes_through_the_run_context(service: Service, tmp_path: Path) -> None:
    text = """
import torch, torchyard
run = torchyard.init()
state = run.resume()
start = 0 if state is None else int(state["step"])
for step in range(start + 1, 5):
    odd = float("nan") if step == 2 else float("inf")
    run.log({"train/loss": torch.tensor(1.0 / step), "train/odd": odd}, step=step)
    run.progress(step=step, total_steps=4)
    state = {"step": step, "weights": torch.full((3,), float(step))}
    run.save_checkpoint(state, step=step, metrics={"val/loss": 1.0 / step})
    if step == 2 and start == 0:
        raise RuntimeError("first attempt ends here")
print("resumed at", start)
"""
    job = service.submit_script("context", text, max_restarts=1)
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.attempt == 2
    assert "resumed at 2" in [line.text for line in service.client.jobs.logs(job.id, rank=0)]
    series = {item.key: item.points for item in service.client.jobs.metrics(job.id).data}
    assert [(point.step, point.attempt) for point in series["train/loss"]] == [(1, 1), (2, 1), (3, 2), (4, 2)]
    odd = [point.value for point in series["train/odd"]]
    assert odd[0] == math.inf
    assert math.isnan(odd[1])
    steps = [checkpoint.step for checkpoint in service.client.jobs.checkpoints(job.id)]
    assert steps == [4, 3, 2, 1]
    path = service.client.jobs.download(job.id, ref="step-3", to=tmp_path / "three.pt")
    import torch

    assert torch.load(path, weights_only=True)["weights"].tolist() == [3.0, 3.0, 3.0]


def test_unknown_objects_are_not_found(service: Service) -> None:
    for job_id in ("job_" + "0" * 32, "nonsense", "job_'--"):
        with pytest.raises(NotFound):
            service.client.get(job_id)


def _finished(service: Service) -> str:
    return service.wait(service.submit_script("quick", LIGHT).id, JobState.SUCCEEDED).id

"""Jobs survive a restart of the service, a kill of the worker and a kill of `up`."""

import os
from pathlib import Path
import signal
from typing import Any

import pytest

from tests.chaos import job_processes
from tests.e2e.service import Service, is_running, newest_step, running, until
from tests.postgresql import postgresql_server
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import JobState

GATED = """
import os, time, torchyard
run = torchyard.init()
state = run.resume()
step = 0 if state is None else state["step"]
gate = os.path.join(os.path.dirname(__file__), "gate")
while not (os.path.exists(gate) or run.should_stop()):
    step += 1
    run.log({"train/step": float(step)}, step=step)
    time.sleep(0.05)
run.save_checkpoint({"step": step}, step=step, metrics={})
print("left at", step, "from", 0 if state is None else state["step"])
"""
COMMAND = {"command": "python", "args": ["train.py"]}
"""A job that is a plain command: its ranks do not import torch, but to save a checkpoint."""


@pytest.fixture(params=["cold", "warm"])
def service(request: pytest.FixtureRequest, tmp_path: Path, database_url: str) -> Service:
    """A service for one test, on each kind of database, not started yet."""
    return Service(tmp_path, database=database_url, warm=request.param == "warm")


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("service", "started_by"),
    [("cold", COMMAND), ("cold", {}), ("warm", {})],
    ids=["command", "cold", "warm"],
    indirect=["service"],
)
def test_a_job_is_adopted_after_a_kill_of_the_worker_and_resumed_after_a_stop_of_the_service(
    service: Service, started_by: dict[str, Any]
) -> None:
    """A stopped service requeues its jobs. `test_up.py` shows both with a script that saves nothing."""

    def config(name: str) -> dict[str, Any]:
        return {"code": f"file://{service.code / name}", **started_by}

    service.start()
    quick = service.submit_script("finished", "print('done')", config=config("finished"))
    finished = service.wait(quick.id, JobState.SUCCEEDED)
    job = service.submit_script("gated", GATED, config=config("gated"), max_restarts=0)
    service.wait(job.id, JobState.RUNNING)
    until(lambda: service.client.jobs.metrics(job.id).data or None, what="the job has logged")
    _kill_worker(service)
    seen = newest_step(service, job.id)
    until(lambda: newest_step(service, job.id) > seen, what="the next worker reads on")
    assert service.client.get(job.id).view.attempt == 1
    assert service.stop() == 0
    assert service.processes() == []
    assert not (service.data / "server.json").exists()

    (service.code / "gated" / "gate").touch()
    with running(service):
        again = service.client.get(finished.id).view
        assert again == finished
        assert [line.text for line in service.client.jobs.logs(finished.id, rank=0)] == ["done"]
        done = service.wait(job.id, JobState.SUCCEEDED)
        assert done.attempt == 2
        steps = [checkpoint.step for checkpoint in service.client.jobs.checkpoints(job.id)]
        left = [line.text for line in service.client.jobs.logs(job.id, rank=0) if line.attempt == 2]
        assert left == [f"left at {steps[0]} from {steps[1]}"]


def _kill_worker(service: Service) -> None:
    """Kills the worker, and waits for the next one."""
    worker = service.server["processes"]["worker"]
    os.kill(worker, signal.SIGKILL)
    until(lambda: service.server["processes"]["worker"] not in {worker, None}, what="the worker is restarted")


@pytest.mark.thorough
def test_a_killed_worker_is_restarted_and_adopts_its_job(service: Service) -> None:
    with running(service):
        job = service.submit_script("gated", GATED, max_restarts=0)
        service.wait(job.id, JobState.RUNNING)
        _kill_worker(service)
        (service.code / "gated" / "gate").touch()
        done = service.wait(job.id, JobState.SUCCEEDED)
        assert done.attempt == 1
        (series,) = service.client.jobs.metrics(job.id, max_points=100_000).data
        steps = [point.step for point in series.points]
        assert steps == list(range(1, len(steps) + 1))


@pytest.mark.thorough
def test_a_job_survives_the_kill_of_the_whole_service(service: Service) -> None:
    service.start()
    job = service.submit_script("gated", GATED, max_restarts=0)
    service.wait(job.id, JobState.RUNNING)
    children = service.server["processes"].values()
    service.stop(signal.SIGKILL)
    until(lambda: not any(is_running(pid) for pid in children), what="the children have ended")
    assert service.processes(), "the job goes on without the service"
    with running(service):
        (service.code / "gated" / "gate").touch()
        assert service.wait(job.id, JobState.SUCCEEDED).attempt == 1


@pytest.mark.thorough
def test_a_killed_rank_and_a_killed_supervisor_are_retried_without_leaving_a_process(service: Service) -> None:
    with running(service):
        job = service.submit_script("gated", GATED, resources={"devices_per_node": 2}, max_restarts=1)
        for attempt, victim, code in ((1, "rank", "killed"), (2, "supervisor", "worker_lost")):
            until(
                lambda attempt=attempt: (
                    (found := service.client.get(job.id).view).attempt == attempt and found.state is JobState.RUNNING
                ),
                what=f"attempt {attempt} runs",
            )
            # Their own records have the numbers that they see, which are others in a sandbox.
            pid = until(
                lambda attempt=attempt, victim=victim: next(
                    (
                        process.pid
                        for process in job_processes.find({job.id})
                        if (process.attempt, process.role) == (attempt, victim)
                    ),
                    None,
                ),
                what=f"the {victim} is seen",
            )
            os.kill(pid, signal.SIGKILL)
            until(
                lambda attempt=attempt: service.client.get(job.id).view.attempt > attempt,
                what="the next attempt starts",
            )
            ended = [event for event in service.client.jobs.events(job.id) if event.data.get("to") == "queued"][-1]
            assert ended.data["error"]["code"] == code
        (service.code / "gated" / "gate").touch()
        assert service.wait(job.id, JobState.SUCCEEDED).attempt == 3


@pytest.mark.thorough
def test_a_job_trains_on_while_postgresql_is_away(tmp_path: Path) -> None:
    with postgresql_server() as server, running(Service(tmp_path, database=server.url("postgres"))) as service:
        job = service.submit_script("gated", GATED, max_restarts=0)
        service.wait(job.id, JobState.RUNNING)
        processes = service.server["processes"]
        server.stop()
        with pytest.raises(Unavailable, match="the database does not answer"):
            service.client.get(job.id)
        server.start()
        (service.code / "gated" / "gate").touch()
        assert service.wait(job.id, JobState.SUCCEEDED).attempt == 1
        assert service.server["processes"] == processes
        (series,) = service.client.jobs.metrics(job.id, max_points=100_000).data
        steps = [point.step for point in series.points]
        assert steps == list(range(1, len(steps) + 1))

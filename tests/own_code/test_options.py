"""What a trial records of its options is what ran, and what a program says of its failure is what is told."""

from concurrent.futures import ThreadPoolExecutor
import json
from pathlib import Path
import shutil
from typing import Any

import pytest

from tests.e2e.service import Service
from tests.own_code.typed import torchyard
from torchyard.contract.states import JobState

PROGRAMS = Path(__file__).parent / "programs" / "options"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(
        shutil.copytree(
            PROGRAMS, tmp_path_factory.mktemp("own") / "options", ignore=shutil.ignore_patterns("__pycache__")
        )
    )


def run(service: Service, folder: Path, *words: str) -> str:
    """Runs `torchyard run -d` in the folder. Returns the id of the job or of the sweep."""
    return torchyard(service, folder, "run", "-d", *words)[0].strip()


def ran(service: Service, job_id: str) -> Any:
    lines = [line.text.removeprefix("ran ") for line in service.client.get(job_id).logs() if line.text[:4] == "ran "]
    return json.loads(lines[-1])


def test_each_trial_runs_with_the_settings_that_it_records(service: Service, folder: Path) -> None:
    varied = ("augment=true,false", "fp16=true", "betas=[[0.5,0.6]]", "amp=True", "learning_rate=1e3", "out=a")
    options = [word for values in varied for word in ("--sweep", values)]
    words = (*options, "--name", "flags", "flags.py", "--no-augment", "--fp16", "false", "--out", "run-{out}")
    sweep = service.client.sweeps.wait(run(service, folder, *words))
    trials = [*service.client.sweeps.trials(sweep.id, sort="number")]
    assert [trial.point["args.augment"] for trial in trials] == [True, False]
    for trial in trials:
        assert trial.job_id is not None and trial.state == JobState.SUCCEEDED
        recorded = {key.removeprefix("args.").replace("-", "_"): value for key, value in trial.point.items()}
        found = ran(service, trial.job_id)
        assert found == {**recorded, "betas": [0.5, 0.6], "out": "run-a"}
    styles = service.client.sweeps.get(sweep.id).spec.styles
    assert styles["args.augment"] == "no-flag" and styles["args.amp"] == "flag" and styles["args.fp16"] == "value"


def test_a_program_that_shows_its_error_itself_is_told_by_that_error(service: Service, folder: Path) -> None:
    words = ("--sweep-style", "hydra", "--sweep", "lr=3", "--name", "assigned", "assigned.py", "lr=1")
    sweep = service.client.sweeps.wait(run(service, folder, *words))
    (trial,) = service.client.sweeps.trials(sweep.id)
    assert trial.job_id is not None
    error = service.client.get(trial.job_id).view.error
    assert error is not None and error.message == "rank 0: ValueError: lr 3 is too high"
    assert error.traceback is not None and error.traceback.endswith("ValueError: lr 3 is too high")
    assert service.client.jobs.advice(trial.job_id).steps == ["Correct assigned.py, line 9, then submit it again."]


def test_a_program_that_takes_nccl_for_its_rank_is_told_how_it_runs_without(service: Service, folder: Path) -> None:
    job = run(service, folder, "--max-restarts", "0", "distributed.py")
    assert service.wait(job).state == JobState.FAILED
    steps = service.client.jobs.advice(job).steps
    assert "`torchyard run -- python distributed.py` runs it once, without RANK." in steps
    job = run(service, folder, "--", "python", "distributed.py")
    service.wait(job, JobState.SUCCEEDED)


def test_jobs_of_one_moment_have_names_of_their_own(service: Service, folder: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        started = [pool.submit(service.client.run, "flags.py", folder=folder) for _ in range(4)]
        jobs = [each.result() for each in started]
    assert len({job.view.name for job in jobs}) == len(jobs)
    for job in jobs:
        service.wait(job.id, JobState.SUCCEEDED)


def test_a_program_that_only_prints_has_curves(service: Service, folder: Path) -> None:
    metric = r"(?P<key>loss|acc)[ =:]+(?P<value>[0-9.]+)"
    job = run(service, folder, "--metric", metric, "printed.py")
    service.wait(job, JobState.SUCCEEDED)
    series = service.client.get(job).metrics()
    assert {key: [*found.values] for key, found in series.items()} == {"loss": [1.0, 0.5, 0.25], "acc": [0.1, 0.2, 0.3]}
    assert [*series["loss"].steps] == [1, 2, 3]
    assert {found.source for found in service.client.jobs.metrics(job).data} == {"log"}

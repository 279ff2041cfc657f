"""A program that is stopped gives what it gives when it is not, whatever stops it and however it saves its work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
import os
from pathlib import Path
import shutil
import signal
from typing import Any

import pytest

from tests.chaos import job_processes
from tests.e2e.service import Service, until
from tests.own_code.programs.training import HELD_AT, STEPS
from tests.worker.eventfiles import scalars
from torchyard.client.handles import Job
from torchyard.contract.states import JobState

THOROUGH = pytest.mark.thorough
PROGRAMS = Path(__file__).parent / "programs"


@dataclass(frozen=True)
class Program:
    """How a program is run. The patterns are those that its user would give."""

    name: str
    checkpoints: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    files: frozenset[str] = field(default_factory=frozenset)
    """What a run that is not stopped has stored at its end, by path below the working folder."""


def numbered(name: str, *, first: int = 1) -> frozenset[str]:
    return frozenset(name.format(step) for step in range(first, STEPS + 1))


QUICK = [
    Program("replaced", checkpoints=("last.pt",), files=frozenset({"last.pt"})),
    Program("renamed", checkpoints=("out/*.pt",), files=frozenset({"out/last.pt"})),
    Program("numbered", checkpoints=("epoch_*.pt",), files=numbered("epoch_{}.pt")),
    Program("linked", checkpoints=("*.pt",), files=numbered("checkpoint-{}.pt")),
    Program("folders", checkpoints=("out/*",), files=numbered("out/checkpoint-{}/model.safetensors")),
    Program("sharded", checkpoints=("out/*",), files=numbered("out/step_{}/.metadata")),
    Program("published"),
    Program("results", keep=("results/*",), files=frozenset({"results/losses.csv", "results/curve.png"})),
    Program("temporary", files=frozenset({"from-tmp/run/last.pt"})),
    Program("tensorboard", checkpoints=("last.pt",), files=frozenset({"last.pt"})),
]
FRAMEWORKS = [
    Program("trainer", checkpoints=("out/*",), files=numbered("out/checkpoint-{}/trainer_state.json")),
    Program("lightning_module", checkpoints=("out/*.ckpt",), files=frozenset({"out/last.ckpt"})),
    Program("accelerated", checkpoints=("out/*",), files=numbered("out/state_{}/model.safetensors")),
]


class Runs:
    """Runs the programs on one service. One of each kind of training runs without a stop, too."""

    def __init__(self, service: Service, folder: Path) -> None:
        self.service = service
        self._folder = folder
        self._results: dict[str, str] = {}
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
        (folder / "records.bin").write_bytes(scalars("loss", {step: 1 / step for step in range(1, STEPS + 1)}))

    def start(self, program: Program, *, gate: Path | None = None, as_it_is: bool = False) -> Job:
        options: dict[str, Any] = {"max_restarts": 1, "preemptible": True}
        if gate is not None:
            options["env"] = {"GATE": str(gate)}
        if not as_it_is:
            options["checkpoints"] = [*program.checkpoints]
            options["keep"] = [*program.keep]
        return self.service.client.run(f"{program.name}.py", folder=self._folder, **options)

    def result(self, program: Program) -> str:
        """Returns that of a run that is not stopped: the programs without a framework do the same training."""
        same = QUICK[0] if program in QUICK else program
        if same.name not in self._results:
            job = self.start(same)
            self.service.wait(job.id, JobState.SUCCEEDED)
            self._results[same.name] = said(job, "result")[-1]
        return self._results[same.name]


@pytest.fixture(scope="module")
def runs(service: Service, tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(service, tmp_path_factory.mktemp("own") / "programs")


def kill(service: Service, job: Job) -> Job:
    (rank,) = [found for found in job_processes.find({job.id}) if found.role == "rank"]
    os.kill(rank.pid, signal.SIGKILL)
    until(lambda: job.refresh().attempt == 2, what="the next attempt starts")
    return job


def pause(service: Service, job: Job) -> Job:
    job.pause()
    service.wait(job.id, JobState.PAUSED)
    job.resume()
    return job


def preempt(service: Service, job: Job) -> Job:
    other = service.submit_script("urgent", "print('urgent')", resources={"devices_per_node": 2}, priority=50)
    service.wait(other.id, JobState.SUCCEEDED)
    return job


def retry(service: Service, job: Job) -> Job:
    job.cancel()
    service.wait(job.id, JobState.CANCELLED)
    return job.retry()


def move(service: Service, job: Job) -> Job:
    """As another host finds it, where nothing of the job is."""
    job.pause()
    service.wait(job.id, JobState.PAUSED)
    shutil.rmtree(service.data / "runs" / job.id)
    job.resume()
    return job


STOPS: Mapping[str, Callable[[Service, Job], Job]] = {
    "killed": kill,
    "paused": pause,
    "preempted": preempt,
    "retried": retry,
    "moved": move,
}


def is_quick(program: Program, how: str) -> bool:
    """Each way to save is shown where nothing but what is stored is left, and a kill with one of them.

    `tensorboard` renames as `renamed` does, and `linked` numbers as `numbered` does.
    """
    moved = program in QUICK and program.name not in {"renamed", "numbered"}
    return (how == "moved" and moved) or (how == "killed" and program.name == "replaced")


@pytest.mark.parametrize(
    ("program", "how"),
    [
        pytest.param(program, how, id=f"{program.name}-{how}", marks=() if is_quick(program, how) else THOROUGH)
        for program in (*QUICK, *FRAMEWORKS)
        for how in STOPS
    ],
)
def test_a_program_that_is_stopped_gives_the_result_of_one_that_is_not(runs: Runs, program: Program, how: str) -> None:
    expected = runs.result(program)
    gate = runs.service.code / f"gate-{program.name}-{how}"
    job = runs.start(program, gate=gate)
    until(lambda: bool(said(job, "held")), what="the program is at its step")
    stopped = STOPS[how](runs.service, job)
    gate.touch()
    runs.service.wait(stopped.id, JobState.SUCCEEDED)
    assert said(stopped, "begins")[-1] == f"begins after step {HELD_AT}"
    assert said(stopped, "result") == [expected]
    assert program.files <= stored(job) | stored(stopped)


def said(job: Job, word: str) -> list[str]:
    return [line.text for line in job.logs() if line.text.startswith(word)]


def stored(job: Job) -> set[str]:
    """Returns the paths below the working folder of all that is stored of the job."""
    captured = {file.path for checkpoint in job.checkpoints() for file in checkpoint.view.files}
    kept = {item.view.path for item in job.kept_files()}
    return captured | kept

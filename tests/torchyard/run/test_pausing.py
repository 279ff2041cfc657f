"""When a script that is a trial of a sweep is told to leave."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.approved import Approved
from torchyard.contract.attempts.pausing import PausePoint
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import MANIFEST, Env, RunDir
from torchyard.host.recordfiles import write_record
from torchyard.run import Run


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def context(folder: RunDir, pause_at: str, **environ: str) -> Run:
    return Run({Env.RUN_DIR.value: str(folder.job), Env.PAUSE_AT.value: pause_at, **environ})


REACHES: list[Callable[[Run], None]] = [
    lambda run: run.log({"loss": torch.tensor(0.5)}, step=10),
    lambda run: run.progress(step=12, epoch=1),
    lambda run: run.save_checkpoint({}, step=10),
]


@pytest.mark.parametrize("reach", REACHES, ids=["log", "progress", "save_checkpoint"])
def test_it_leaves_once_it_has_told_the_step(folder: RunDir, reach: Callable[[Run], None]) -> None:
    run = context(folder, "steps:10")
    run.log({"loss": 1.0}, step=9)
    assert not run.should_stop()
    reach(run)
    assert run.should_stop()
    assert run.told_to_stop
    assert folder.paused.exists()
    run.close()


def test_an_epoch_has_ended_once_it_is_saved_or_the_next_one_has_begun(folder: RunDir) -> None:
    run = context(folder, "epochs:2")
    run.progress(step=5, epoch=2)
    run.save_checkpoint({}, step=6, epoch=2, end_of_epoch=False)
    assert not run.should_stop()
    assert not folder.paused.exists()
    run.save_checkpoint({}, step=7, epoch=2)
    assert run.should_stop()
    run.close()
    run = context(folder, "epochs:2")
    run.progress(step=8, epoch=3)
    assert run.should_stop()
    run.close()


def test_it_leaves_at_once_if_it_goes_on_from_there(folder: RunDir) -> None:
    folder.resume.mkdir()
    write_record(folder.resume / MANIFEST, Manifest(step=40, epoch=2, files=[]))
    assert not context(folder, "epochs:3", **{Env.RESUME_FROM.value: str(folder.resume)}).should_stop()
    assert context(folder, "epochs:2", **{Env.RESUME_FROM.value: str(folder.resume)}).should_stop()


def test_other_scripts_and_those_outside_the_service_are_never_told(folder: RunDir) -> None:
    for run in (Run({Env.RUN_DIR: str(folder.job)}), Run({Env.PAUSE_AT: "steps:1"})):
        run.log({"loss": 1.0}, step=1_000)
        assert not run.should_stop()
        assert not run.pauses_at(step=1_000, epochs=1_000)
        run.close()


@pytest.mark.parametrize("text", ["", "3", "epochs", "epochs:0", "epochs:-1", "epochs:x", "steps:1:2", "seconds:3"])
def test_what_is_no_point_is_refused(text: str, approved: Approved) -> None:
    with pytest.raises(ValueError) as raised:
        PausePoint.parse(text)
    assert str(raised.value) == approved.of_row("message")


@pytest.mark.parametrize("document", [{"epochs": 3}, {"steps": 1}])
def test_a_point_is_what_the_row_has(document: dict[str, int]) -> None:
    point = PausePoint.of(document)
    assert point.document == document
    assert PausePoint.parse(point.variable) == point
    assert str(point) == ("3 epochs" if "epochs" in document else "1 step")

"""The examples that need torch alone stop and resume exactly. `tests/e2e/test_examples.py` has all, as jobs."""

from pathlib import Path
import shutil

import pytest

from tests import examples
from tests.worker.attempt import Attempt, wait_for
from torchyard.contract.states import EndReason
from worker.engines.local.warm.manager import WarmProcess


def start(folder: Path, name: str, *, warm: WarmProcess, number: int, resume: Path | None = None) -> Attempt:
    attempt = Attempt.create(folder, warm=warm, launcher="warm")
    attempt.number = number
    attempt.script((examples.FOLDER / name).read_text(), name=name)
    if resume is not None:
        shutil.copytree(resume, attempt.run.resume)
    attempt.start_job(examples.HELD, args=[name], resumes=resume is not None)
    return attempt


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["ddp.py", "pipeline.py", "fsdp2.py"])
def test_an_example_that_is_paused_and_resumed_has_the_curve_of_one_that_is_not(
    name: str, tmp_path: Path, warm_process: WarmProcess
) -> None:
    first = start(tmp_path / "first", name, warm=warm_process, number=1)
    wait_for(lambda: examples.HELD_AT in examples.losses(first.run) or first.run.exit.exists(), "the step")
    first.stop(EndReason.PAUSED)
    assert first.report().reason is EndReason.PAUSED, first.log("0", "stderr")
    (saved,) = [path for path in first.run.checkpoints.iterdir() if not path.name.startswith(".")]
    second = start(tmp_path / "second", name, warm=warm_process, number=2, resume=saved)
    whole = start(tmp_path / "whole", name, warm=warm_process, number=2)
    assert second.report().reason is whole.report().reason is EndReason.COMPLETED
    before, after, expected = (examples.losses(attempt.run) for attempt in (first, second, whole))
    assert list(expected) == list(range(1, 201))
    assert list(after) == list(range(max(before) + 1, 201))
    assert before | after == expected

"""The order in which the streams of one process are stored."""

import os
from pathlib import Path

import pytest

from store.facts.output import Batch
from torchyard.contract.rundir import RunDir
from worker.attempts.output.logs import LogReader


@pytest.mark.parametrize("last", ["stdout", "stderr"])
def test_what_a_process_wrote_last_is_stored_last(tmp_path: Path, last: str) -> None:
    run = RunDir(tmp_path)
    run.create()
    for second, stream in enumerate(("stdout", "stderr")):
        path = run.log("rank-0", stream)
        path.write_text(f"{stream}\n")
        moment = 10 if stream == last else second
        os.utime(path, (moment, moment))
    batch = Batch(offsets={})
    LogReader(run.job, world_size=1).read(batch, {}, final=True)
    assert [new.stream for new in batch.lines][-1] == last
    assert len(batch.lines) == 2

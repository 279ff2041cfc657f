"""Where the files of an attempt lie, and how its records are written."""

import os
from pathlib import Path

import pytest

from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host import failpoints
from torchyard.host.recordfiles import read_record, write_record

STOP = StopRequest(reason=EndReason.CANCELLED)


def test_what_the_job_may_write_is_below_its_own_folder(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    for path in (run.events, run.ranks, run.errors, run.stacks, run.agreement, run.logs, run.torchrun, run.checkpoints):
        assert path.is_relative_to(tmp_path / "job")
    for path in (run.launch, run.supervisor, run.supervisor_log, run.stop, run.exit):
        assert path.parent == tmp_path / "ctl"
    for path in (run.config, run.resume):
        assert path.parent == tmp_path / "input"


def test_a_rank_finds_its_run_directory(tmp_path: Path) -> None:
    run = RunDir(tmp_path)
    assert RunDir.of_job(run.job) == run


def test_sealed_inputs_are_read_only_until_they_are_made_again(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "job_1" / "1")
    run.create()
    write_record(run.config, STOP)
    run.resume.mkdir()
    (run.resume / "state.pt").write_bytes(b"state")
    run.seal()
    modes = {path.name: path.stat().st_mode & 0o777 for path in (run.input, *run.input.rglob("*"))}
    assert modes == {"input": 0o500, "config.json": 0o400, "resume": 0o500, "state.pt": 0o400}
    run.create()
    assert (run.input.stat().st_mode & 0o777, run.resume.stat().st_mode & 0o777) == (0o700, 0o700)
    assert run.root.parent.stat().st_mode & 0o077 == 0


def test_a_link_at_a_name_that_could_be_guessed_leads_a_record_nowhere(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    run = RunDir(tmp_path / "run")
    run.create()
    (run.ctl / f".stop.json.{os.getpid()}").symlink_to(precious)
    run.stop.symlink_to(precious)
    write_record(run.stop, STOP)
    assert precious.read_text() == "kept"
    assert read_record(run.stop, StopRequest) == STOP


def test_a_folder_that_is_a_link_takes_no_record(tmp_path: Path) -> None:
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="link"):
        write_record(tmp_path / "link" / "stop.json", STOP)
    assert list((tmp_path / "target").iterdir()) == []


@pytest.mark.parametrize("step", ["fsync", "rename"])
def test_a_record_that_cannot_be_written_leaves_nothing(tmp_path: Path, step: str) -> None:
    failpoints.arm({failpoints.VARIABLE: f"record.stop.{step}=error:ENOSPC"})
    try:
        with pytest.raises(OSError, match="No space"):
            write_record(tmp_path / "stop.json", STOP)
    finally:
        failpoints.arm({})
    assert list(tmp_path.iterdir()) == []

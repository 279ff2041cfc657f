"""What a full disk does to the checkpoints and the lines of a program that trains: nothing, for as long as it can."""

from collections.abc import Callable
import errno
import hashlib
from pathlib import Path
import threading
import time
from typing import Any, BinaryIO

import pytest
import torch

from tests.approved import Approved
from tests.disks import mounted
from torchyard.contract.attempts.events import CheckpointSaved, Message, parse_line
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.host.recordfiles import read_record
from torchyard.run import Run
from torchyard.run.eventlog import EventLog

BIG = 1 << 18
"""Numbers: they need as many bytes as the small disk has."""


@pytest.fixture
def folder(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def context(folder: RunDir) -> Run:
    return Run({Env.RUN_DIR: str(folder.job)})


def lines(folder: RunDir) -> list[Any]:
    written, _, _ = folder.events.read_text().rpartition("\n")  # the rest is a line that is being written
    return [parse_line(line) for line in written.splitlines()]


def warnings(folder: RunDir) -> list[str]:
    return [line.text for line in lines(folder) if isinstance(line, Message) and line.level == "warning"]


def saved(folder: RunDir) -> list[str]:
    """The checkpoints that were told of, in that order. Each is whole, and there is nothing else."""
    names = [line.name for line in lines(folder) if isinstance(line, CheckpointSaved)]
    assert sorted(path.name for path in folder.checkpoints.iterdir() if path.is_dir()) == sorted(names)
    for name in names:
        manifest = read_record(folder.checkpoints / name / "manifest.json", Manifest)
        assert manifest is not None
        for file in manifest.files:
            found = (folder.checkpoints / name / file.path).read_bytes()
            assert hashlib.sha256(found).hexdigest() == file.sha256
    return names


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("background", [True, False])
def test_a_checkpoint_that_a_full_disk_refuses_is_skipped_aloud_and_the_earlier_ones_stay_whole(
    folder: RunDir, background: bool, approved: Approved
) -> None:
    with mounted(folder.checkpoints, kibibytes=1024):
        run = context(folder)
        run.save_checkpoint({"a": torch.ones(1)}, step=1, background=background)
        for step in (2, 3):
            run.save_checkpoint({"a": torch.ones(BIG)}, step=step, background=background)
            run.log({"train/loss": 1.0}, step=step)
        run.save_checkpoint({"a": torch.ones(2)}, step=4, background=background)  # nothing is left of the refused ones
        run.close()
        assert saved(folder) == ["step-00000001", "step-00000004"]
    said = warnings(folder)
    assert [text.split(" cannot")[0] for text in said] == [approved("text"), approved("checkpoint step")]
    assert said[0] == approved("said", checkpoints=folder.checkpoints)


@pytest.mark.parametrize("background", [True, False])
def test_the_last_checkpoint_waits_for_room_as_it_was_when_it_was_saved(
    folder: RunDir, background: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.run.checkpoint_writer.LAST_RETRY_S", 0.05)
    told = "first"

    def tell(file: BinaryIO) -> None:
        file.write(told.encode())

    with mounted(folder.checkpoints, kibibytes=1536):
        ballast = folder.checkpoints / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        run = context(folder)
        weight = torch.ones(BIG)
        run.save_checkpoint({"weight": weight}, step=1, files={"told": tell}, background=background)
        wait_until(lambda: run.log({"train/loss": 1.0}, step=1) or (folder.events.exists() and warnings(folder)))
        weight += 1
        told = told if background else "changed"  # in the background, a function is called when it is written
        closing = threading.Thread(target=run.close)
        closing.start()
        wait_until(shows_life(folder.events))
        assert closing.is_alive()
        ballast.unlink()
        closing.join(120)
        assert saved(folder) == ["step-00000001"]
        written = folder.checkpoints / "step-00000001"
        assert torch.equal(torch.load(written / "state.pt", weights_only=True)["weight"], torch.ones(BIG))
        assert (written / "told").read_text() == "first"


def test_a_refused_checkpoint_is_tried_again_while_the_program_trains_on(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.run.checkpoint_writer.RETRY_S", 0.0)
    with mounted(folder.checkpoints, kibibytes=1536):
        ballast = folder.checkpoints / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        run = context(folder)
        run.save_checkpoint({"a": torch.ones(BIG)}, step=1, background=True)
        wait_until(lambda: run.log({"train/loss": 1.0}, step=1) or (folder.events.exists() and warnings(folder)))
        ballast.unlink()
        wait_until(lambda: run.progress(step=2) or (folder.checkpoints / "step-00000001").exists())
        run.close()
        assert saved(folder) == ["step-00000001"]
        assert len(warnings(folder)) == 1


def test_a_last_checkpoint_for_which_no_room_comes_is_an_error_once(
    folder: RunDir, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, approved: Approved
) -> None:
    monkeypatch.setattr("torchyard.run.context.FULL_DISK_S", 0.0)
    with mounted(folder.checkpoints, kibibytes=512):
        run = context(folder)
        run.save_checkpoint({"a": torch.ones(1)}, step=1)
        run.save_checkpoint({"a": torch.ones(BIG)}, step=2)
        with pytest.raises(OSError) as raised:
            run.flush()
        assert str(raised.value) == approved("message", tmp_path=tmp_path)
        assert (raised.value.errno, raised.value.filename) == (errno.ENOSPC, str(folder.checkpoints))
        run.close()
        assert saved(folder) == ["step-00000001"]


def test_no_checkpoint_is_published_before_the_lines_that_it_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchyard.run.context.FULL_DISK_S", 0.0)
    folder = RunDir(tmp_path / "small")
    folder.root.mkdir()
    with mounted(folder.root, kibibytes=256):
        folder.create()
        with mounted(folder.checkpoints, kibibytes=1024):
            run = context(folder)
            ballast = folder.root / "ballast"
            fill(ballast)
            run.log({"train/loss": 0.5}, step=1)
            run.save_checkpoint({"step": 1}, step=1)
            assert list(folder.checkpoints.iterdir()) == []
            ballast.unlink()
            run.close()
            assert [line.type for line in lines(folder)] == ["metric", "packages", "message", "checkpoint"]
            assert saved(folder) == ["step-00000001"]


def test_lines_that_wait_for_a_full_disk_show_that_the_program_lives(tmp_path: Path) -> None:
    folder = RunDir(tmp_path / "small")
    folder.root.mkdir()
    with mounted(folder.root, kibibytes=64):
        folder.create()
        log = EventLog(folder.events, synchronize=lambda: None)
        log.log({"train/loss": 0.0}, step=0)
        log.flush()
        fill(folder.root / "ballast")
        for step in range(200):  # more than the last block of the file may take
            log.log({"train/loss": 0.5}, step=step)
        wait_until(shows_life(folder.events))
        (folder.root / "ballast").unlink()
        log.close()
        assert len(lines(folder)) == 201


def shows_life(path: Path) -> Callable[[], bool]:
    """Whether the file was touched, and has not grown, since the answer before."""
    last = path.stat()

    def touched() -> bool:
        nonlocal last
        before, last = last, path.stat()
        return last.st_mtime_ns != before.st_mtime_ns and last.st_size == before.st_size

    return touched


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, pytest.raises(OSError, match="No space left"):
        while True:
            file.write(bytes(4096))

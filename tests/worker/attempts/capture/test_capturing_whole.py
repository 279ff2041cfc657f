"""What is not whole is not captured while the script runs, and is a damaged checkpoint in the end."""

from collections.abc import Iterable
import io
import os
from pathlib import Path
import zipfile

import pytest

from store.blobs.folder import BlobFolder
from store.output.facts import Batch, NewCheckpoint
from tests.approved import Approved
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record
from worker.attempts.capture import capturing
from worker.attempts.files.writers import Writers
from worker.attempts.output.relay import Relay
from worker.host.looks import Match
from worker.host.workfolders import WorkRecord


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"look_s": 0.0, "mask": None})


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "job" / "1")
    run.create()
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=1))
    run.work.mkdir()
    return run


@pytest.fixture
def relay(run: RunDir) -> Relay:
    blobs = BlobFolder(run.root.parent.parent / "blobs")
    blobs.root.mkdir(exist_ok=True)
    return Relay(run, blobs, listed=(), world_size=1, patterns=["*"])


def batches(relay: Relay, *, final: bool = False, completed: bool = False) -> list[Batch]:
    found: list[Batch] = []
    while (batch := relay.read(final=final, completed=completed)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                found.append(batch)
    return found


def look(relay: Relay, *, final: bool = False, completed: bool = False) -> list[tuple[str, bool]]:
    """Returns the paths that are captured, and whether each is damaged."""
    return [told(new) for batch in batches(relay, final=final, completed=completed) for new in batch.checkpoints]


def told(new: NewCheckpoint) -> tuple[str, bool]:
    return new.files[0].path, new.damaged


def zipped(size: int = 10) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data", b"x" * size)
    return file.getvalue()


def test_a_torn_zip_is_captured_in_the_end_alone_and_is_damaged(run: RunDir, relay: Relay, approved: Approved) -> None:
    (run.work / "last.pt").write_bytes(zipped()[:-5])
    assert look(relay) + look(relay) + look(relay) == []
    found = batches(relay, final=True, completed=True)
    assert [told(new) for batch in found for new in batch.checkpoints] == [("last.pt", True)]
    assert [event.data["text"] for batch in found for event in batch.events] == [approved("warnings")]
    assert look(relay, final=True) == []


def test_a_torn_file_that_is_written_anew_is_captured(run: RunDir, relay: Relay) -> None:
    (run.work / "last.pt").write_bytes(zipped()[:-5])
    assert look(relay) + look(relay) == []
    (run.work / "last.pt").write_bytes(zipped())
    assert look(relay) + look(relay) == [("last.pt", False)]


def test_a_zip_is_whole_in_the_end_however_its_attempt_ended(run: RunDir, relay: Relay) -> None:
    (run.work / "last.pt").write_bytes(zipped())
    assert look(relay, final=True) == [("last.pt", False)]


@pytest.mark.parametrize("completed", [True, False])
def test_another_format_that_nobody_saw_at_rest_is_whole_if_its_attempt_ended_well(
    run: RunDir, relay: Relay, *, completed: bool
) -> None:
    (run.work / "last.npy").write_bytes(b"anything")
    assert look(relay, final=True, completed=completed) == [("last.npy", not completed)]


def test_another_format_that_was_at_rest_and_closed_is_whole_in_the_end(run: RunDir, relay: Relay) -> None:
    (run.work / "last.npy").write_bytes(b"one")
    assert look(relay) + look(relay) == [("last.npy", False)]
    (run.work / "last.npy").write_bytes(b"another")
    assert look(relay) + look(relay) == []  # too soon to be captured again
    assert look(relay, final=True) == [("last.npy", False)]


def test_another_format_that_was_written_since_is_not_whole_in_the_end(run: RunDir, relay: Relay) -> None:
    (run.work / "last.npy").write_bytes(b"one")
    assert look(relay) + look(relay) == [("last.npy", False)]
    (run.work / "last.npy").write_bytes(b"another")
    assert look(relay) + look(relay) == []
    (run.work / "last.npy").write_bytes(b"the third")
    assert look(relay, final=True) == [("last.npy", True)]


def test_a_file_that_stayed_open_is_not_whole_in_the_end(run: RunDir, relay: Relay) -> None:
    with (run.work / "last.npy").open("wb", buffering=0) as writer:
        writer.write(b"part")
        assert look(relay) + look(relay) + look(relay) == []
    assert look(relay, final=True) == [("last.npy", True)]


def test_of_files_of_another_user_those_are_captured_that_are_whole_by_their_bytes(
    run: RunDir, relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cannot_tell(_: Path, matches: Iterable[Match]) -> Writers:
        return Writers(set(), {match.parts for match in matches})

    monkeypatch.setattr(capturing, "open_for_writing", cannot_tell)
    (run.work / "zip.pt").write_bytes(zipped())
    (run.work / "torn.pt").write_bytes(zipped()[:-5])
    (run.work / "other.npy").write_bytes(b"anything")
    assert look(relay) + look(relay) + look(relay) == [("zip.pt", False)]
    assert look(relay, final=True) == [("torn.pt", True), ("other.npy", True)]


def test_an_empty_file_is_no_checkpoint(run: RunDir, relay: Relay) -> None:
    (run.work / "empty.pt").touch()
    assert look(relay) + look(relay) + look(relay, final=True, completed=True) == []


def test_a_torn_file_beside_whole_ones_holds_up_none(run: RunDir, relay: Relay) -> None:
    (run.work / "1.pt").write_bytes(zipped()[:-5])
    os.utime(run.work / "1.pt", ns=(5, 5))
    (run.work / "2.pt").write_bytes(zipped())
    assert look(relay) + look(relay) == [("2.pt", False)]

"""A runner whose disk, database, checkpoints or run directory fail."""

from collections.abc import Generator
import hashlib
from io import BytesIO
from pathlib import Path
import re
import socket

import pytest

from store.db.database import Database
from store.output import checkpoints
from store.output.facts import NewCheckpoint
from store.service_identity import ServiceIdentity
from tests.approved import Approved
from tests.databases import unavailable
from tests.disks import mounted
from tests.leftovers import LEVELS, leave_depth
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.states import EndReason, JobState
from torchyard.host import failpoints
from torchyard.host.recordfiles import read_record
from torchyard.run.publishing import publish


def test_a_runner_waits_for_a_blob_store_that_cannot_be_written(
    simulated: SimulatedRunnerFixture, tmp_path: Path, approved: Approved
) -> None:
    simulated.blobs.root.write_text("in the way")
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(3)
    wait_for(simulated.messages, "the owner is told")
    assert simulated.messages()[0] == approved("messages", tmp_path=tmp_path)
    attempt.end()
    simulated.blobs.root.unlink()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.row.checkpoints == 1
    assert simulated.messages()[1:] == ["output of the attempt is stored again"]


def test_a_runner_waits_for_blobs_that_are_not_mounted_any_more(simulated: SimulatedRunnerFixture) -> None:
    blobs = simulated.blobs
    ServiceIdentity(simulated.store.database, blobs).require()
    attempt = simulated.start_ranks()
    blobs.root.rename(elsewhere := blobs.root.with_name("elsewhere"))
    blobs.root.mkdir()
    simulated.save_checkpoint(3)
    wait_for(simulated.messages, "the owner is told")
    assert "is it still mounted?" in simulated.messages()[0]
    attempt.end()
    assert [*blobs.root.iterdir()] == []
    blobs.root.rmdir()
    elsewhere.rename(blobs.root)
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.row.checkpoints == 1
    assert len([*blobs.root.glob("??/*")]) > 0


@pytest.fixture
def small_disk(simulated: SimulatedRunnerFixture) -> Generator[Path]:
    """A file system of 1 MiB with the blob store, filled up."""
    folder = simulated.blobs.root
    folder.mkdir()
    with mounted(folder, kibibytes=1024):
        with (folder / "ballast").open("wb") as ballast, pytest.raises(OSError, match="No space left"):
            while True:
                ballast.write(bytes(65_536))
                ballast.flush()
        yield folder


def test_an_attempt_goes_on_while_the_disk_of_the_blobs_is_full(
    simulated: SimulatedRunnerFixture, small_disk: Path, tmp_path: Path, approved: Approved
) -> None:
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(3)
    wait_for(simulated.messages, "the owner is told")
    assert simulated.messages()[0] == approved("messages", tmp_path=tmp_path)
    simulated.write_log("trained on")
    attempt.end()
    assert simulated.row.ended_at is None
    (small_disk / "ballast").unlink()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.row.checkpoints == 1
    assert simulated.lines() == ["trained on"]
    assert simulated.messages()[1:] == ["output of the attempt is stored again"]


def test_an_attempt_stays_open_if_the_worker_leaves_before_all_is_stored(simulated: SimulatedRunnerFixture) -> None:
    simulated.blobs.root.write_text("in the way")
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(3)
    attempt.end()
    wait_for(simulated.messages, "the owner is told")
    simulated.detach()
    assert simulated.row.ended_at is None
    simulated.blobs.root.unlink()
    simulated.start_runner()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.row.checkpoints == 1


def test_a_cancel_ends_the_wait_for_the_blob_store(simulated: SimulatedRunnerFixture) -> None:
    simulated.blobs.root.write_text("in the way")
    attempt = simulated.start_ranks()
    simulated.save_checkpoint(3)
    attempt.end()
    wait_for(simulated.messages, "the owner is told")
    simulated.request_stop()
    simulated.wait_for_end()
    assert simulated.store.held() == {}


@pytest.fixture
def full_disk(simulated: SimulatedRunnerFixture) -> Generator[Path]:
    """A job resumes from a checkpoint of 512 KiB, and the disk of its run directory has less free space.

    Yields the file that fills the disk.
    """
    blob = simulated.blobs.add(BytesIO(bytes(1 << 19)))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    new = NewCheckpoint("step-1", Manifest(step=1, metrics={}, files=files), files)
    simulated.store.record(simulated.claim, seq=0, checkpoints=[new])
    with mounted(simulated.context.runs, kibibytes=900):
        (simulated.context.runs / "ballast").write_bytes(bytes(1 << 19))
        yield simulated.context.runs / "ballast"


def test_an_attempt_waits_for_free_disk_space_before_it_starts(
    simulated: SimulatedRunnerFixture, full_disk: Path
) -> None:
    simulated.start_runner()
    wait_for(simulated.messages, "the owner is told")
    assert simulated.messages()[0].startswith("the attempt cannot be prepared now; retrying: [Errno 28] No space left")
    simulated.detach()
    assert simulated.row.ended_at is None
    full_disk.unlink()
    simulated.start_ranks().end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert (simulated.run.resume / "state.pt").stat().st_size == 1 << 19
    assert simulated.messages()[1].endswith("(step 1)")


@pytest.mark.parametrize(("stop", "state"), [("cancel", JobState.CANCELLED), ("pause", JobState.PAUSED)])
def test_a_stop_ends_the_wait_for_free_disk_space(
    simulated: SimulatedRunnerFixture, full_disk: Path, stop: str, state: JobState
) -> None:
    simulated.start_runner()
    wait_for(simulated.messages, "the owner is told")
    simulated.request_stop(stop)
    assert simulated.wait_for_end().state == state
    assert simulated.job.restarts == 0
    assert simulated.store.held() == {}
    assert full_disk.exists()


def test_a_start_that_fails_on_a_broken_disk_counts_no_restart(
    simulated: SimulatedRunnerFixture, full_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full_disk.unlink()
    monkeypatch.setenv(failpoints.VARIABLE, "blob.fsync=error:EIO")
    failpoints.arm()
    try:
        simulated.start_runner()
        assert simulated.wait_for_end().state == JobState.QUEUED
    finally:
        monkeypatch.undo()
        failpoints.arm()
    assert (simulated.row.end_reason, simulated.job.restarts) == (EndReason.WORKER_LOST, 0)
    assert "Input/output error" in str(simulated.row.detail)


def test_problems_at_the_start_and_at_storing_are_reported_separately(
    simulated: SimulatedRunnerFixture, full_disk: Path, tmp_path: Path
) -> None:
    simulated.start_runner()
    wait_for(simulated.messages, "the first problem")
    full_disk.unlink()
    wait_for(lambda: simulated.key in simulated.engine.attempts, "the start")
    simulated.blobs.root.rename(tmp_path / "aside")
    simulated.blobs.root.write_text("in the way")
    simulated.save_checkpoint(2)
    wait_for(lambda: any("cannot be stored now" in text for text in simulated.messages()), "the second problem")
    assert any("was prepared" in text for text in simulated.messages())


def test_a_socket_in_place_of_the_event_log_does_not_keep_the_attempt_open(
    simulated: SimulatedRunnerFixture, tmp_path: Path, approved: Approved
) -> None:
    attempt = simulated.start_ranks()
    with socket.socket(socket.AF_UNIX) as listener:
        short = tmp_path / "s"
        listener.bind(str(short))
        short.rename(simulated.run.events)
        attempt.end()
        assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.messages() == [approved("messages")]


def test_an_outage_of_the_database_delays_the_end_and_loses_nothing(
    simulated: SimulatedRunnerFixture,
    database: Database,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("worker.attempts.output.recorder.REPORTED_OUTAGE_S", 0.1)
    attempt = simulated.start_ranks()
    with unavailable(database):
        simulated.write_log("the last line")
        attempt.end()
        wait_for(lambda: "trying again" in caplog.text, "the outage is noticed")
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["the last line"]
    (message,) = simulated.messages()
    assert re.fullmatch(r"output of the attempt is stored again, after \d+ s without the database", message)


@pytest.mark.usefixtures("removed_afterwards")
def test_a_damaged_checkpoint_is_skipped_and_its_owner_is_told(simulated: SimulatedRunnerFixture) -> None:
    simulated.run.resume.mkdir(parents=True)
    leave_depth(simulated.run.resume, LEVELS)  # whatever lies there is removed
    for seq, content in enumerate((b"older", b"newer")):
        blob = simulated.blobs.add(BytesIO(content))
        files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
        manifest = Manifest(step=seq + 1, metrics={}, files=files)
        simulated.store.record(simulated.claim, seq=seq, checkpoints=[NewCheckpoint(f"step-{seq}", manifest, files)])
    newest = hashlib.sha256(b"newer").hexdigest()
    simulated.blobs.path(newest).write_bytes(b"noise")
    simulated.start_ranks().end()
    simulated.wait_for_end()
    assert (simulated.run.resume / "state.pt").read_bytes() == b"older"
    assert len([*simulated.run.resume.iterdir()]) == 1
    assert simulated.row.start_step == 1
    damaged, resumed = simulated.messages()
    assert damaged.startswith("1 damaged checkpoints were skipped")
    assert resumed.endswith("(step 1)")


@pytest.mark.parametrize("spec", [{"checkpoint": {"keep_last": 2}}])
def test_after_a_crash_removed_checkpoints_are_deleted_and_unrelayed_ones_are_stored(
    simulated: SimulatedRunnerFixture,
) -> None:
    attempt = simulated.start_ranks()
    simulated.detach()
    for step in (1, 2, 3, 4):
        name = f"step-{step:08d}"
        publish(simulated.run.checkpoints, name, {"state.pt": bytes([step])}, Manifest(step=step, files=[]))
        if step < 4:  # the last one was neither announced nor relayed when the worker died
            manifest = read_record(simulated.run.checkpoints / name / "manifest.json", Manifest)
            assert manifest is not None
            new = NewCheckpoint(name, manifest, manifest.files)
            simulated.store.record(simulated.claim, seq=simulated.row.relay_seq, checkpoints=[new])
    attempt.end()
    simulated.start_runner()
    simulated.wait_for_end()
    rows = simulated.store.read(lambda session: checkpoints.list_newest_first(session, simulated.claim.job_id))
    assert [row.step for row in rows] == [4, 3]
    assert sorted(path.name for path in simulated.run.checkpoints.iterdir()) == ["step-00000003", "step-00000004"]
    announced = [
        event.data["step"] for event in simulated.store.events(simulated.claim.job_id) if event.type == "checkpoint"
    ]
    assert announced == [1, 2, 3, 4]

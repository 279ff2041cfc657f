"""Files of a remote attempt travel beside its lines and metrics, which do not wait for them."""

from collections.abc import Generator
from dataclasses import replace
import errno
import os
from pathlib import Path
from threading import Event

import httpx2
import pytest

from store.blobs import uploads
from store.blobs.writer import BlobWriter
from store.worker.records import HostOffer
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import INVENTORY, SimulatedRunnerFixture, worker_context
from tests.worker.attempts.output.relays import announce
from tests.worker.attempts.output.test_media import show
from tests.worker.engines.memory import MemoryEngine
from tests.worker.remote.conftest import Remote
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import WORK
from torchyard.contract.cluster.devices import DeviceReport
from torchyard.contract.states import JobState
from torchyard.run.publishing import publish
from worker.remote.service import RemoteService

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")


@pytest.fixture
def box(remote: Remote) -> RemoteService:
    joined = remote.join()
    joined.verbs.register("box", HostOffer([SLOT]))
    return joined


@pytest.fixture
def simulated(remote: Remote, box: RemoteService, tmp_path: Path) -> Generator[SimulatedRunnerFixture]:
    """A claimed job of the box, on an engine without processes."""
    code = tmp_path / "code"
    code.mkdir()
    (code / "train.py").touch()
    worker_id, engine = box.verbs.worker_id, MemoryEngine(INVENTORY)
    claim = remote.store.starting(remote.store.submit(config={"code": f"file://{code}"}), worker_id, "cpu-0")
    context = worker_context(tmp_path, remote.database, engine, worker_id=worker_id, allowed=(code,))
    fixture = SimulatedRunnerFixture(remote.store, replace(context, store=box.verbs), engine, claim)
    yield fixture
    fixture.close()


def log_metric(simulated: SimulatedRunnerFixture, step: int) -> None:
    with simulated.run.events.open("a") as events:
        events.write(f'{{"type":"metric","step":{step},"time":1,"values":{{"loss":1.0}}}}\n')


def steps(simulated: SimulatedRunnerFixture) -> list[int]:
    series = simulated.store.series(simulated.claim.job_id)
    return [*series["loss"].steps] if "loss" in series else []


def test_lines_and_metrics_flow_while_a_checkpoint_travels_and_all_is_stored_once(
    simulated: SimulatedRunnerFixture, box: RemoteService
) -> None:
    held, released = Event(), Event()

    def hold(request: httpx2.Request) -> None:
        if request.method == "PUT":
            held.set()
            released.wait()

    box.connection.http.event_hooks["request"].append(hold)
    try:
        attempt = simulated.start_ranks()
        simulated.save_checkpoint(1)
        wait_for(held.is_set, "the checkpoint begins to travel")
        simulated.write_log("one\n")
        log_metric(simulated, 1)
        wait_for(lambda: (simulated.lines(), steps(simulated)) == (["one"], [1]), "what comes behind it")
        simulated.detach()
        simulated.start_runner()
        simulated.write_log("two\n")
        simulated.save_checkpoint(2)
        log_metric(simulated, 2)
        wait_for(
            lambda: (simulated.lines(), steps(simulated)) == (["one", "two"], [1, 2]), "what the next daemon reads"
        )
        simulated.write_log("a last line without an end")
        attempt.end()
        wait_for(lambda: len(simulated.lines()) == 3, "what is read after the end of the ranks")
        assert (simulated.row.checkpoints, simulated.row.ended_at) == (0, None)
    finally:
        released.set()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert (simulated.row.checkpoints, len(simulated.lines()), steps(simulated)) == (2, 3, [1, 2])


def test_a_full_disk_of_the_service_delays_files_alone_and_is_said(
    simulated: SimulatedRunnerFixture, box: RemoteService, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(box.verbs.blobs, "_patience_s", 0.0)
    attempt = simulated.start_ranks()
    with monkeypatch.context() as full:
        full.setattr(uploads, "_FREE_BYTES", 1 << 60)
        simulated.save_checkpoint(1)
        wait_for(simulated.messages, "the owner is told")
        log_metric(simulated, 1)
        wait_for(lambda: steps(simulated) == [1], "what comes behind it")
        assert simulated.row.checkpoints == 0
    wait_for(lambda: simulated.row.checkpoints == 1, "the checkpoint")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    waits, recovered = simulated.messages()
    assert "the disk of the service is full" in waits
    assert recovered == "output of the attempt is stored again"


def test_a_checkpoint_that_is_not_what_its_manifest_says_is_refused_by_the_service_and_said_once(
    simulated: SimulatedRunnerFixture,
) -> None:
    attempt = simulated.start_ranks()
    publish(simulated.run.checkpoints, "wrong", {"state.pt": b"a"}, Manifest(step=1, files=[]))
    (simulated.run.checkpoints / "wrong" / "state.pt").write_bytes(b"b")
    announce(simulated.run, "wrong")
    simulated.save_checkpoint(2)
    wait_for(lambda: simulated.row.checkpoints == 1, "the one that is whole")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    (text,) = simulated.messages()
    assert text.startswith("checkpoint wrong is not listed: its file state.pt does not match its manifest")


def test_a_full_disk_of_the_box_keeps_nothing_back_that_an_attempt_has_left(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: BlobWriter, chunk: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    attempt = simulated.start_ranks()
    monkeypatch.setattr(BlobWriter, "_write", full)
    simulated.save_checkpoint(1)
    simulated.run.media.mkdir(exist_ok=True)
    show(simulated.run)
    (simulated.run.artifacts / "plot.txt").write_text("left")
    (simulated.run.root.parent / WORK).mkdir()
    (simulated.run.root.parent / WORK / "notes.txt").write_text("kept")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    job_id, stored = simulated.claim.job_id, simulated.store.everything()
    assert simulated.row.checkpoints == 1
    assert [row["key"] for row in stored["media"] if row["job_id"] == job_id] == ["a"]
    assert sorted(row["path"] for row in stored["artifacts"]) == ["./notes.txt", "plot.txt"]

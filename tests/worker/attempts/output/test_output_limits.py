"""An attempt that writes more than is stored: the rest is dropped, and the job goes on."""

from dataclasses import replace
import json
from pathlib import Path

from store.blobs.folder import BlobFolder
from store.output.facts import Batch, OutputLimits
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import JobState
from worker.attempts.output.relay import Relay


def limit(simulated: SimulatedRunnerFixture, limits: OutputLimits) -> None:
    simulated.context = replace(simulated.context, limits=limits)


def write_message(simulated: SimulatedRunnerFixture, text: str) -> None:
    with simulated.run.events.open("a") as events:
        events.write(json.dumps({"type": "message", "text": text, "time": 1}) + "\n")


def test_a_log_stays_cut_when_the_next_worker_adopts_the_attempt(simulated: SimulatedRunnerFixture) -> None:
    limit(simulated, OutputLimits(log_bytes=10))
    attempt = simulated.start_ranks()
    simulated.write_log("one\ntwo\nthree\n")
    wait_for(simulated.messages, "the owner is told")
    simulated.detach()
    simulated.write_log("x" * 1_000_000 + "\n")
    simulated.start_runner()
    simulated.save_checkpoint(3)
    write_message(simulated, "saved")
    wait_for(lambda: len(simulated.messages()) == 2, "the message")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.lines() == ["one", "two"]
    assert simulated.row.checkpoints == 1
    notice, said = simulated.messages()
    assert "TORCHYARD_MAX_LOG_BYTES" in notice
    assert said == "saved"


def test_a_flood_of_messages_is_cut_and_what_follows_is_stored(simulated: SimulatedRunnerFixture) -> None:
    limit(simulated, OutputLimits(message_bytes=1000))
    attempt = simulated.start_ranks()
    with simulated.run.events.open("a") as events:
        events.write((json.dumps({"type": "message", "text": "again", "time": 1}) + "\n") * 5_000)
        events.write("not an event\n" * 5_000)
    simulated.save_checkpoint(3)
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert simulated.messages()[:-1] == ["again"] * 9
    assert "TORCHYARD_MAX_MESSAGE_BYTES" in simulated.messages()[-1]
    assert simulated.row.checkpoints == 1


def relay_of(run: RunDir) -> Relay:
    return Relay(run, BlobFolder(run.root.parent / "blobs"), listed=(), world_size=1)


def test_a_relay_does_not_read_a_log_that_is_cut(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.create()
    run.log("rank-0", "stdout").write_text("dropped\n" * 100_000)
    assert relay_of(run).read(logs=False) is None
    assert relay_of(run).read(logs=False, final=True) is None


def test_a_flood_of_progress_becomes_few_events(tmp_path: Path) -> None:
    run = RunDir(tmp_path / "run")
    run.create()
    lines = [{"type": "progress", "step": step, "epoch": step % 2, "time": step * 10**9} for step in range(20_000)]
    run.events.write_text("".join(json.dumps(line) + "\n" for line in lines))
    relay = relay_of(run)
    batches: list[Batch] = []
    while (batch := relay.read()) is not None:
        with storing(relay, batch):
            batches.append(batch)
    assert sum(len(batch.events) for batch in batches) == 5000
    progress = batches[-1].progress
    assert progress is not None
    assert progress["step"] == 19_999

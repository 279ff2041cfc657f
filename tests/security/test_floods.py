"""A job that writes without end stores a bounded part of it, and its owner is told once of each limit."""

from dataclasses import replace
import json
from pathlib import Path
import threading
from typing import Any

import pytest
from sqlalchemy import func, select

from store.attempts import append
from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.output import metrics
from store.output.facts import MAX_SERIES, Batch, MetricPoint, OutputLimits
from store.tables import PointChunk
from store.team import quotas
from tests.api.service import ApiFixture
from tests.worker import eventfiles
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import SimulatedRunnerFixture
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.records import Manifest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason, JobState
from torchyard.run.publishing import publish
from worker.attempts import pace
from worker.attempts.notices import Notices
from worker.attempts.output import lines, publishing, thinning
from worker.attempts.output.recorder import OutputRecorder
from worker.attempts.output.relay import Relay
from worker.attempts.output.thinning import Thinning
from worker.attempts.records import AttemptRecords

POINT = 24


def write_events(run: RunDir, *events: dict[str, Any]) -> None:
    with run.events.open("a") as file:
        file.write("".join(json.dumps({"time": 1, **event}) + "\n" for event in events))


def metric(step: int, **values: float) -> dict[str, Any]:
    return {"type": "metric", "step": step, "values": values}


def limit(simulated: SimulatedRunnerFixture, limits: OutputLimits) -> None:
    simulated.context = replace(simulated.context, limits=limits)


def stored_points(simulated: SimulatedRunnerFixture) -> int:
    return simulated.store.read(lambda session: session.scalar(select(func.sum(PointChunk.count))) or 0)


def stored_bytes(simulated: SimulatedRunnerFixture) -> int:
    return simulated.store.read(lambda session: quotas.stored_bytes(session, simulated.job.owner))


def test_a_flood_of_points_is_cut_counted_and_told_once_and_the_job_goes_on(simulated: SimulatedRunnerFixture) -> None:
    limit(simulated, OutputLimits(point_bytes=100 * POINT))
    attempt = simulated.start_ranks()
    write_events(simulated.run, *(metric(step, loss=float(step)) for step in range(3000)))
    wait_for(simulated.messages, "the owner is told")
    simulated.detach()
    write_events(simulated.run, *(metric(step, loss=float(step), rare=1.0) for step in range(3000, 6000)))
    simulated.start_runner()
    simulated.save_checkpoint(3)
    write_events(simulated.run, {"type": "message", "text": "goes on"})
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert stored_points(simulated) <= 100 + 4
    assert simulated.row.point_bytes == stored_points(simulated) * POINT
    assert stored_bytes(simulated) >= simulated.row.point_bytes
    newest = simulated.store.read(lambda session: metrics.read_latest(session, [simulated.claim.job_id]))
    assert newest == {simulated.claim.job_id: {"loss": 5999.0, "rare": 1.0}}
    notice, said = simulated.messages()
    assert "TORCHYARD_MAX_POINT_BYTES" in notice
    assert said == "goes on"
    assert simulated.row.checkpoints == 1


LIMITS = OutputLimits(point_bytes=100 * POINT)


def record_points(service: ApiFixture, claim: Claim, count: int, *, seq: int = 0) -> frozenset[str]:
    """Stores points as the relay does. Returns which outputs are cut."""
    points = [MetricPoint("loss", step, 0.0, 1) for step in range(count)]
    with service.database.write() as session:
        return append.record(session, claim, Batch(offsets={}, points=points), seq=seq, limits=LIMITS)


def paused(service: ApiFixture, claim: Claim) -> str:
    service.client.post(f"/v1/jobs/{claim.job_id}/pause")
    service.end(claim, reason=EndReason.PAUSED)
    return f"/v1/jobs/{claim.job_id}"


def points_of(service: ApiFixture) -> int:
    with service.database.read() as session:
        return session.scalar(select(func.sum(PointChunk.count))) or 0


def test_attempts_of_one_job_have_one_limit_of_points(service: ApiFixture) -> None:
    """A job that was paused and resumed again and again stored 512 MiB each time."""
    claim = service.start(service.submit()["id"])
    assert record_points(service, claim, 80) == frozenset()
    path = paused(service, claim)
    assert service.client.post(f"{path}/resume").status_code == 202
    again = service.start(claim.job_id)
    assert record_points(service, again, 80) == {"points"}
    assert points_of(service) == 100
    messages = [event["data"]["text"] for event in service.get(f"{path}/events")["data"] if event["type"] == "message"]
    assert len([text for text in messages if "no more of this job's metric points" in text]) == 1


def test_over_the_quota_points_are_thinned_at_once_and_no_job_is_resumed(service: ApiFixture) -> None:
    service.act_as("ada")
    first, second = (service.start(service.submit()["id"], device=f"cpu-{index}") for index in range(2))
    service.record(first, points=[MetricPoint("loss", step, 0.0, 1) for step in range(10)])
    service.act_as("admin")
    assert service.client.put("/v1/quotas/users/ada", json={"stored_bytes": 10 * POINT}).status_code == 204
    service.act_as("ada")
    assert record_points(service, second, 50) == {"points"}
    assert points_of(service) == 10
    assert record_points(service, second, 1, seq=1) == {"points"}, "one of a minute"
    assert points_of(service) == 11
    path = paused(service, first)
    refused = service.client.post(f"{path}/resume")
    assert (refused.status_code, refused.json()["code"]) == (403, "quota_exceeded")
    assert service.get(path)["state"] == "paused"


def test_points_of_event_files_of_tensorboard_count_as_well(simulated: SimulatedRunnerFixture) -> None:
    limit(simulated, OutputLimits(point_bytes=10 * POINT))
    attempt = simulated.start_ranks()
    scalars = eventfiles.scalars("loss", {step: float(step) for step in range(100)})
    eventfiles.write(simulated.run.artifacts / eventfiles.NAME, scalars)
    wait_for(simulated.messages, "the owner is told")
    attempt.end()
    assert simulated.wait_for_end().state == JobState.SUCCEEDED
    assert stored_points(simulated) <= 12
    assert simulated.row.point_bytes == stored_points(simulated) * POINT


def test_points_beyond_the_limit_are_thinned_to_few_a_minute(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(thinning.time, "monotonic", lambda: now)
    thin = Thinning()
    taken = 0
    for second in range(300):
        now += 1
        new = [MetricPoint(f"key-{key}", second, 0.0, 1) for key in range(200)]
        batch = thin.take(Batch(offsets={}, points=new))
        assert {point.step for point in batch.points} <= {second}
        taken += len(batch.points)
        thin.stored()
    assert taken == 200 * 3, "after 1, 3 and 5 minutes"
    now += 600
    many = [MetricPoint(f"other-{key}", 1, 0.0, 1) for key in range(10 * MAX_SERIES)]
    assert len(thin.take(Batch(offsets={}, points=many)).points) <= MAX_SERIES


def test_thinned_points_wait_until_they_are_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(thinning.time, "monotonic", lambda: now)
    thin = Thinning()
    new = Batch(offsets={}, points=[MetricPoint("loss", 1, 0.5, 1)])
    assert thin.take(new).points == []
    thin.stored()
    now += 61
    assert thin.take(Batch(offsets={})).points == new.points
    assert thin.take(Batch(offsets={})).points == new.points, "the transaction failed"
    thin.stored()
    assert not thin


def test_a_flood_is_read_slowly_once_it_is_cut(
    simulated: SimulatedRunnerFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One attempt must not take the worker's processor from the others for lines of which nothing is stored."""
    monkeypatch.setattr(lines, "CHUNK", 4096)
    simulated.run.create()
    write_events(simulated.run, *(metric(step, loss=0.0) for step in range(2500)))
    assert turns(simulated, OutputLimits(point_bytes=POINT)) == [(16, False), (1, False), (1, False)]


@pytest.mark.parametrize(
    "line",
    [
        {"type": "progress", "step": 1, "epoch": 1},
        {"type": "card", "values": {"x": "y" * 30}},
        metric(1, loss=0.0),
    ],
    ids=["progress", "card", "metric"],
)
def test_an_attempt_that_has_used_up_its_share_of_the_processor_is_read_slowly(
    simulated: SimulatedRunnerFixture, line: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    simulated.run.create()
    write_events(simulated.run, *[line] * 2500)
    monkeypatch.setattr(lines, "CHUNK", 4096)
    monkeypatch.setattr(pace, "BURST_S", 1e-9)
    assert turns(simulated, OutputLimits()) == [(16, False), (1, False), (1, False)]


def turns(simulated: SimulatedRunnerFixture, limits: OutputLimits) -> list[tuple[int, bool]]:
    """Returns of three turns how many batches each stored, and whether the next one follows at once."""
    records = AttemptRecords(simulated.context.store, simulated.claim, leaving=threading.Event(), limits=limits)
    records.read()
    output = OutputRecorder(relay_of(simulated.run), records=records, notices=Notices(records), attempts=1)
    found: list[tuple[int, bool]] = []
    for _ in range(3):
        before = simulated.row.relay_seq
        assert output.store_some()
        found.append((simulated.row.relay_seq - before, output.has_more))
    return found


def relay_of(run: RunDir, *, most: int | None = None) -> Relay:
    blobs = BlobFolder(run.root.parent / "blobs")
    return Relay(run, blobs, listed=(), world_size=1, most_checkpoints=most)


def drain(relay: Relay, *, final: bool = False) -> list[Batch]:
    found: list[Batch] = []
    while (batch := relay.read(final=final)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                found.append(batch)
    return found


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def save(run: RunDir, *names: str) -> None:
    for name in names:
        publish(run.checkpoints, name, {"state.pt": name.encode()}, Manifest(step=1, files=[]))


def listed(batches: list[Batch]) -> list[str]:
    return [new.name for batch in batches for new in batch.checkpoints]


def texts(batches: list[Batch]) -> list[str]:
    return [event.data["text"] for batch in batches for event in batch.events]


def test_a_flood_of_checkpoints_is_spaced_and_the_last_is_stored(run: RunDir) -> None:
    names = [f"step-{number:03}" for number in range(40)]
    save(run, *names)
    write_events(run, *({"type": "checkpoint", "name": name} for name in names))
    relay = relay_of(run, most=10)
    batches = drain(relay)
    assert listed(batches) == names[:10]
    (text,) = texts(batches)
    assert "TORCHYARD_MAX_CHECKPOINTS" in text
    assert listed(drain(relay, final=True)) == [names[-1]]
    assert drain(relay, final=True) == []


def test_large_descriptions_of_checkpoints_count_as_several(run: RunDir) -> None:
    names = [f"step-{number}" for number in range(8)]
    metrics = {f"{number:0200}": 0.0 for number in range(100)}
    for name in names:
        publish(run.checkpoints, name, {"state.pt": b"1"}, Manifest(step=1, metrics=metrics, files=[]))
    write_events(run, *({"type": "checkpoint", "name": name} for name in names))
    relay = relay_of(run, most=10)
    assert listed(drain(relay)) == names[:2]
    assert listed(drain(relay, final=True)) == [names[-1]]


def test_announced_checkpoints_that_do_not_exist_do_not_fill_the_memory(run: RunDir) -> None:
    write_events(run, *({"type": "checkpoint", "name": f"none-{number}"} for number in range(500)))
    relay = relay_of(run, most=10)
    assert listed(drain(relay) + drain(relay, final=True)) == []
    assert len(relay._checkpoints.known) <= 12  # pyright: ignore[reportPrivateUsage]


def test_few_folders_that_nobody_announced_are_looked_at(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_UNANNOUNCED", 20)
    for number in range(100):
        (run.checkpoints / f"junk-{number}").mkdir()
    batches = drain(relay_of(run, most=1000), final=True)
    assert len(texts(batches)) == 20


def test_entries_of_a_folder_are_looked_at_up_to_a_limit(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "MOST_FOLDERS", 5)
    save(run, *(f"step-{number}" for number in range(10)))
    assert len(listed(drain(relay_of(run, most=1000), final=True))) == 5

"""A box whose root is hostile speaks the protocol as it likes. It reaches what its own jobs give it."""

from collections.abc import Iterable
from dataclasses import replace
import json
import math
from typing import Any

import httpx2
import pytest
from sqlalchemy import update

from store.attempts.facts import Claim
from store.cluster import worker_tokens, workers
from store.tables import Worker
from store.worker import wire
from store.worker.records import Batch, HostOffer, MetricPoint, NewArtifact, NewCheckpoint, NewEvent, NewLines
from tests.worker.remote.conftest import Remote
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.errors import Conflict, NotAuthorized, ServerError, StaleClaim, Unavailable
from torchyard.contract.telemetry.views import LiveLine
from worker.remote.service import RemoteService

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
GPU = DeviceReport(index=0, uuid="GPU-1", name="A100", kind="cuda")
FILE = ManifestFile(path="state.pt", size=1, sha256="0" * 64)


@pytest.fixture
def box(remote: Remote) -> RemoteService:
    """The hostile box, which has registered."""
    joined = remote.join()
    joined.verbs.register("box", HostOffer([SLOT]))
    return joined


@pytest.fixture
def own(remote: Remote, box: RemoteService) -> Claim:
    return remote.store.starting(remote.store.submit(), box.verbs.worker_id, "cpu-0")


@pytest.fixture
def other(remote: Remote) -> Claim:
    """An attempt of another worker."""
    return remote.store.starting(remote.store.submit(), remote.store.worker("other"), "cpu-0")


def send(remote: Remote, token: str, verb: str, body: Any, **headers: str) -> httpx2.Response:
    known = {wire.PROTOCOL_HEADER: wire.PROTOCOL, wire.BOOT_HEADER: "boot-1", "Authorization": f"Bearer {token}"}
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    url = f"http://127.0.0.1:{remote.port}{wire.PREFIX}/{verb}"
    return httpx2.post(url, content=content, headers=known | headers, timeout=60)


def test_nothing_of_other_workers_and_their_jobs_is_told_or_changed(
    remote: Remote, box: RemoteService, own: Claim, other: Claim
) -> None:
    verbs, job_id = box.verbs, other.job_id
    forged = [other, replace(other, worker_id=own.worker_id), replace(own, job_id=job_id), replace(own, number=9)]
    before = remote.store.everything()
    for claim in forged:
        for ask in (verbs.read, verbs.read_wanted):
            with pytest.raises(StaleClaim):
                ask(claim)
        with pytest.raises(StaleClaim):
            verbs.append(claim, Batch(offsets={}), seq=0)
    for ask_job in (verbs.read_room, verbs.read_secrets, verbs.history.list_files, verbs.history.list_checkpoints):
        with pytest.raises(StaleClaim):
            ask_job(job_id)
    assert verbs.folders.find_known([job_id]) == {}
    assert verbs.renew([other.attempt_id]) == set()
    verbs.folders.store_sizes({job_id: 1 << 40})
    verbs.show([LiveLine(job_id=job_id, attempt=1, rank=0, stream="stdout", text="x")])
    after = remote.store.everything()
    for table in (*before.keys() - {"workers", "device_samples"},):
        assert after[table] == before[table], table


def test_what_no_attempt_can_have_written_is_refused_and_replays_change_nothing(
    remote: Remote, box: RemoteService, own: Claim
) -> None:
    batches: Iterable[Batch] = (
        Batch(offsets={}, points=[MetricPoint("a\nb", 1, 1.0, 1)]),
        Batch(offsets={}, points=[MetricPoint("k" * 201, 1, 1.0, 1)]),
        Batch(offsets={}, points=[MetricPoint("a", -1, 1.0, 1)]),
        Batch(offsets={}, curves={"mine": [MetricPoint("a", 1, 1.0, 1)]}),
        Batch(offsets={}, lines=[NewLines(0, "stdlog", ["x"])]),
        Batch(offsets={}, lines=[NewLines(0, "stdout", ["two\nlines"])]),
        Batch(offsets={}, lines=[NewLines(-1, "stdout", ["x"])]),
        Batch(offsets={}, events=[NewEvent("state", {"to": "succeeded"}, 1)]),
        Batch(offsets={}, events=[NewEvent("message", {"level": "info", "text": "x" * 100_000}, 1)]),
        Batch(offsets={}, progress={"step": "x" * 100_000}),
        Batch(offsets={"a": -1}),
        Batch(offsets={}, artifacts=[NewArtifact("../../etc/passwd", 1, "0" * 64)]),
        Batch(offsets={}, artifacts=[NewArtifact("a.txt", 1, "0" * 64)]),
        Batch(offsets={}, checkpoints=[NewCheckpoint("a", Manifest(step=1, files=[FILE]), [FILE])]),
    )
    for batch in batches:
        with pytest.raises((ServerError, Conflict)):  # the latter for a digest of what it has not uploaded
            box.verbs.append(own, batch, seq=0)
    good = Batch(offsets={"log": 1}, points=[MetricPoint("loss", 1, math.inf, 1)], lines=[NewLines(0, "stdout", ["x"])])
    box.verbs.append(own, good, seq=0)
    before = remote.store.everything()
    box.verbs.append(own, replace(good, offsets={"log": 99}), seq=0)
    with pytest.raises(StaleClaim):
        box.verbs.append(own, good, seq=7)
    assert remote.store.everything() == before


def test_a_box_keeps_the_name_with_which_it_joined(remote: Remote, box: RemoteService) -> None:
    """Else it would get the jobs that ask for another worker by its name, while that one is away."""
    assert box.verbs.register("box-a", HostOffer([SLOT])).name == "box"


def test_a_gpu_of_another_live_worker_is_not_taken(remote: Remote, box: RemoteService) -> None:
    other = remote.store.worker("other")
    remote.store.write(lambda session: workers.heartbeat(session, other, devices=[GPU.to_dict()]))
    with pytest.raises(Conflict, match="belongs to worker other"):
        box.verbs.register("box", HostOffer([SLOT, GPU]))
    with pytest.raises(Unavailable, match="belongs to worker other"):
        box.verbs.heartbeat(HostOffer([GPU]), starts=StartsReport(mode="cold"))
    job_id = remote.store.submit(resources={"device": "cuda"})
    assert [*box.placing.claims([GPU], running=[], may_claim=lambda: True, may_postpone=False)] == []
    assert remote.store.job(job_id).state == "queued"


def test_a_second_host_with_the_token_is_refused_and_the_first_is_warned(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    worker_id = remote.store.worker("box")
    token = remote.token(worker_id)
    first, second = (remote.join(worker_id, token=token, boot=boot) for boot in ("boot-1", "boot-2"))
    first.verbs.register("box", HostOffer([SLOT]))
    with pytest.raises(Conflict, match="another host uses this worker's token"):
        second.verbs.register("box", HostOffer([SLOT]))
    with pytest.raises(Conflict):
        second.verbs.list_open()
    first.verbs.renew([])
    assert "another host tried to use this worker's token" in caplog.text
    remote.store.write(lambda session: worker_tokens.revoke(session, worker_id))
    with pytest.raises(NotAuthorized):
        first.verbs.list_open()
    assert first.verbs.renew([1]) == set()


def test_a_host_that_was_started_again_is_not_taken_for_another_one(
    remote: Remote, caplog: pytest.LogCaptureFixture
) -> None:
    worker_id = remote.store.worker("box")
    token = remote.token(worker_id)
    before, again = (remote.join(worker_id, token=token, boot=boot) for boot in ("boot-1", "boot-2"))
    before.verbs.register("box", HostOffer([SLOT]))
    with pytest.raises(Conflict, match="or this host was restarted"):
        again.verbs.register("box", HostOffer([SLOT]))
    remote.store.write(lambda session: session.execute(update(Worker).values(seen_at=0)))
    again.verbs.register("box", HostOffer([SLOT]))
    again.verbs.renew([])
    assert "another host tried" not in caplog.text


def test_what_is_no_request_of_the_protocol_gets_a_plain_error(remote: Remote, box: RemoteService, own: Claim) -> None:
    token = remote.token(own.worker_id)
    box.verbs  # noqa: B018 - its token has ended: a new one is used here
    register = {"name": "box", "offer": {"devices": [], "shares_cpus_of": None}}
    assert send(remote, token, "register", register).status_code == 200
    claim = {"attempt_id": own.attempt_id, "job_id": own.job_id, "number": 1, "worker_id": own.worker_id}
    assert send(remote, token, "read", {"claim": {**claim, "holder": None}}).status_code == 200
    for verb, body, status in (
        ("read", {"claim": {**claim, "holder": None, "more": 1}}, 422),
        ("read", {"claim": {**claim, "holder": None, "attempt_id": "1"}}, 422),
        ("read", {"claim": {**claim, "holder": None}, "more": 1}, 422),
        ("read", b"[" * 100_000, 422),
        ("read", b"\xff\xfe", 422),
        ("read", b"x" * ((1 << 20) + 1), 413),
        ("renew-all", {}, 404),
        ("claims", {"devices": [{"index": 0}], "running": []}, 422),
        ("heartbeat", {"samples": [{"age_s": 1e999, "devices": []}], "starts": {"mode": "cold"}, "attempts": []}, 422),
        ("folders/known", {"job_ids": ["x"] * 1001}, 422),
    ):
        answer = send(remote, token, verb, body)
        assert answer.status_code == status, (verb, answer.text[:300])
        assert answer.json()["code"]
    assert send(remote, token, "open", {}, **{wire.PROTOCOL_HEADER: "2"}).status_code == 409
    assert send(remote, token, "open", {}, **{wire.BOOT_HEADER: "another"}).status_code == 409
    assert send(remote, "tyw_1_2", "open", {}).status_code == 401
    assert send(remote, "the-admin-token", "open", {}).status_code == 401
    mine = httpx2.get(f"http://127.0.0.1:{remote.port}/v1/jobs", headers={"Authorization": f"Bearer {token}"})
    assert mine.status_code == 401

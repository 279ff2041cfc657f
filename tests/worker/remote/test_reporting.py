"""How often a worker that has joined sends a heartbeat."""

import ssl
from typing import Any

import httpx2
import pytest

from api.server import server
from store.worker import wire
from store.worker.records import HostOffer
from tests.worker.remote.conftest import Remote
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from worker.remote.connection import IDLE_S, Connection
from worker.remote.reporting import EVERY_S, Reporting

SLOT = DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")
COLD = StartsReport(mode="cold")


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_one_request_in_ten_seconds_has_two_samples_and_renews_the_leases(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker_id, clock = remote.store.worker("box"), Clock()
    token = remote.token(worker_id)
    remote.join(worker_id, token=token).verbs.register("box", HostOffer([SLOT]))
    connection = Connection(
        f"http://127.0.0.1:{remote.port}", token=token, boot="boot-1", context=ssl.create_default_context()
    )
    sent: list[wire.Beat] = []
    call = Connection.call

    def record(self: Connection, verb: Any, asked: Any, **more: Any) -> Any:
        sent.append(asked)
        return call(self, verb, asked, **more)

    monkeypatch.setattr(Connection, "call", record)
    reporting = Reporting(connection, clock=clock)
    try:
        for second in range(0, 60, 5):
            clock.now = float(second)
            reporting.observe([SLOT], COLD)
        assert [len(beat.samples) for beat in sent] == [1, 2, 2, 2, 2, 2]
        claim = remote.store.starting(remote.store.submit(), worker_id, "cpu-0")
        sent.clear()
        for second in range(60, 120, 5):
            clock.now = float(second)
            reporting.observe([SLOT], COLD)
            if second % 10 == 0:
                assert reporting.renew([claim.attempt_id]) == {claim.attempt_id}
        # One more is sent at the first renewal, which is due before the next two samples are there.
        assert [(len(beat.samples), beat.attempts) for beat in sent[2:]] == [(2, [claim.attempt_id])] * 5
    finally:
        connection.close()


def test_a_connection_is_kept_over_the_next_heartbeat_and_not_longer_than_the_service_keeps_it() -> None:
    assert EVERY_S < IDLE_S < server.IDLE_S


def test_sizes_of_folders_are_sent_when_they_have_changed(remote: Remote) -> None:
    box, sent = remote.join(), list[str]()

    def note(request: httpx2.Request) -> None:
        sent.append(request.url.path)

    box.verbs.register("box", HostOffer([SLOT]))
    box.connection.http.event_hooks["request"].append(note)
    for sizes in ({}, {}, {"job_1": 1}, {"job_1": 1}, {}):
        box.verbs.folders.store_sizes(sizes)
    assert sent == [wire.SIZES.path] * 3

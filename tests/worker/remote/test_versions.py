"""A worker of the minor version before or after its service works, any other is refused by name."""

import logging

import pytest

from api.auth import workers as served
from store.worker.records import HostOffer
from tests.worker.remote.conftest import Remote
from torchyard.contract.cluster.devices import DeviceReport, StartsReport
from torchyard.contract.errors import Conflict, Unavailable
from worker.remote import connection, reporting

OFFER = HostOffer([DeviceReport(index=0, uuid="cpu-0", name="CPU slot", kind="cpu")])
COLD = StartsReport(mode="cold")


def test_a_worker_registers_whose_minor_version_is_at_most_one_away(
    remote: Remote, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "own_version", lambda: "1.4.2")
    for version in ("1.3.9", "1.4.0", "1.5.0", "unknown"):
        monkeypatch.setattr(connection, "own_version", lambda version=version: version)
        remote.join().verbs.register("box", OFFER)
    for version in ("1.2.9", "1.6.0", "2.4.2"):
        monkeypatch.setattr(connection, "own_version", lambda version=version: version)
        with pytest.raises(Conflict) as refused:
            remote.join().verbs.register("box", OFFER)
        assert f"this machine has Torchyard {version}, and the service 1.4.2" in refused.value.message
        assert "run `torchyard workers update`" in refused.value.message


def test_after_an_update_of_the_service_its_heartbeats_are_refused_and_its_job_goes_on(
    remote: Remote, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(reporting, "EVERY_S", 0.0)
    monkeypatch.setattr(connection, "own_version", lambda: "1.4.0")
    monkeypatch.setattr(served, "own_version", lambda: "1.5.0")
    worker_id = remote.store.worker("box")
    verbs = remote.join(worker_id).verbs
    verbs.register("box", OFFER)
    claim = remote.store.starting(remote.store.submit(), worker_id, "cpu-0")
    monkeypatch.setattr(served, "own_version", lambda: "1.6.0")
    for _ in range(2):
        with pytest.raises(Unavailable, match=r"1\.4\.0, and the service 1\.6\.0"):
            verbs.heartbeat(OFFER, starts=COLD)
    assert verbs.read(claim).spec
    monkeypatch.setattr(served, "own_version", lambda: "1.5.0")
    verbs.heartbeat(OFFER, starts=COLD)
    lines = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1
    assert "run `torchyard workers update` on its machine; this worker gets no jobs" in lines[0]

"""What a worker does, and what its log says, while its service does not answer or sends no wake-ups."""

from collections.abc import Generator
from contextlib import contextmanager
import logging
from pathlib import Path
import threading

import httpx2
import pytest

from store.ids import new_id
from tests.worker.attempt import wait_for
from tests.worker.remote.conftest import Remote
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.errors import Unavailable
from torchyard.contract.states import JobState
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.engines.local.engine import LocalEngine
from worker.outage import KnownOutage, Outage
from worker.remote.wakeups import RemoteWakeups
from worker.settings import Settings


@contextmanager
def idle(remote: Remote, root: Path) -> Generator[list[str]]:
    """Runs the daemon of a box. Yields the paths of what it asks of the service."""
    service, sent = remote.join(new_id("wrk")), list[str]()

    def note(request: httpx2.Request) -> None:
        sent.append(request.url.path.rpartition("/")[2])

    service.connection.http.event_hooks["request"].append(note)
    root.mkdir()
    settings = Settings(data_dir=root)
    slots = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))
    daemon = Daemon(settings, LocalEngine(settings.runs, slots, launcher=TorchrunStandIn()), service)
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        wait_for(lambda: "events" in sent and "claims" in sent, "the first pass")
        yield sent
    finally:
        daemon.leave()
        thread.join(90)
        assert not thread.is_alive()


def test_the_log_has_one_line_when_the_service_is_lost_and_one_when_it_is_back(
    remote: Remote, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def said(level: int) -> list[str]:
        return [
            each.getMessage() for each in caplog.records if each.name.startswith("worker") and each.levelno >= level
        ]

    with idle(remote, tmp_path / "box") as sent, caplog.at_level(logging.INFO):
        remote.stop_api()
        wait_for(lambda: said(logging.WARNING), "the first line")
        failed = len(sent)
        wait_for(lambda: len(sent) >= failed + 2, "two more tries")
        assert len(said(logging.INFO)) == 1, said(logging.INFO)
        assert "the service does not answer" in said(logging.INFO)[0]
        remote.start_api()
        wait_for(lambda: len(said(logging.INFO)) > 1, "the second line")
        opened = sent.count("events")
        wait_for(lambda: sent.count("events") > opened or "heartbeat" in sent[failed:], "the next request")
    assert [line.partition(",")[0] for line in said(logging.INFO)[1:]] == ["the service answers again"]


def test_a_worker_without_wakeups_asks_every_two_seconds_whether_jobs_wait(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def held_up(self: RemoteWakeups) -> None:
        raise Unavailable("a proxy gathers what the service sends")

    with idle(remote, tmp_path / "box") as sent:
        monkeypatch.setattr(RemoteWakeups, "_follow", held_up)
        remote.stop_api()
        remote.start_api()
        wait_for(lambda: sent.count("orders") >= 2, "it to ask")
        job_id = remote.store.submit()
        wait_for(lambda: remote.store.job(job_id).state != JobState.QUEUED, "the job to be claimed")
        assert sent.count("heartbeat") < sent.count("orders")


def test_an_outage_is_told_at_its_first_try_and_at_its_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = iter([100.0, 142.0])
    outage = Outage(meanwhile="jobs go on", over="it answers again", clock=lambda: next(clock))
    with caplog.at_level(logging.INFO):
        outage.end()
        errors = [outage.note(Unavailable(f"try {number}")) for number in range(3)]
        assert outage.note(errors[0]) is errors[0]
        outage.end()
        outage.end()
    assert [type(error) for error in errors] == [KnownOutage] * 3
    assert [record.getMessage() for record in caplog.records] == ["try 0; jobs go on", "it answers again, after 42 s"]

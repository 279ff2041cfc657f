"""Stop requests to an attempt, through its stop file."""

from datetime import timedelta
from pathlib import Path

import pytest

from torchyard.contract.attempts.records import StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from worker.engines.local import stop_requests
from worker.engines.local.stop_requests import StopRequester

CANCELLED, PAUSED, PREEMPTED = EndReason.CANCELLED, EndReason.PAUSED, EndReason.PREEMPTED


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    created = RunDir(tmp_path)
    created.create()
    return created


@pytest.mark.parametrize(
    ("first", "then", "both"),
    [
        ((PAUSED, 3600), (CANCELLED, 3600), (CANCELLED, 3600)),
        ((PAUSED, 3600), (PREEMPTED, 30), (PAUSED, 30)),
        ((PREEMPTED, 30), (CANCELLED, 3600), (CANCELLED, 30)),
        ((EndReason.TIME_LIMIT, 60), (PAUSED, 60), (EndReason.TIME_LIMIT, 60)),
        ((EndReason.TIME_LIMIT, 60), (CANCELLED, 60), (CANCELLED, 60)),
    ],
)
def test_the_stronger_reason_and_the_shorter_grace_count(
    run: RunDir, first: tuple[EndReason, int], then: tuple[EndReason, int], both: tuple[EndReason, int]
) -> None:
    write_record(run.stop, StopRequest(reason=first[0], grace=timedelta(seconds=first[1])))
    StopRequester(run).request(then[0], grace=timedelta(seconds=then[1]))
    assert read_record(run.stop, StopRequest) == StopRequest(reason=both[0], grace=timedelta(seconds=both[1]))


def test_a_repeated_request_is_not_written_again(run: RunDir) -> None:
    requester = StopRequester(run)
    requester.request(CANCELLED, grace=timedelta(seconds=90))
    written = run.stop.stat().st_ino
    for weaker in (CANCELLED, PREEMPTED):
        requester.request(weaker, grace=timedelta(seconds=90))
        assert run.stop.stat().st_ino == written


def test_a_stop_is_overdue_some_time_after_its_shortest_grace(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    requester = StopRequester(run)
    requester.request(PAUSED, grace=timedelta(hours=1))
    monkeypatch.setattr(stop_requests, "OVERDUE_S", -30.0)
    assert not requester.overdue
    requester.request(PREEMPTED, grace=timedelta(seconds=20))
    assert requester.overdue
    assert not requester.stuck
    monkeypatch.setattr(stop_requests, "STUCK_S", -30.0)
    assert requester.stuck

"""A process that outlives its supervisor writes nothing any more when the next attempt of the job starts."""

from collections.abc import Generator
from pathlib import Path
import signal

import pytest

from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.bundles import bundles
from store.db.database import Database
from tests.processes import kill_attempt
from tests.store.fixture import StoreFixture
from tests.worker.attempt import wait_for
from tests.worker.attempts.fixture import INVENTORY, RunnerFixture, worker_context
from tests.worker.bundles.tars import store, tar_of
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.bundles.names import bundle_url
from torchyard.contract.states import EndReason, JobState
from torchyard.host.recordfiles import read_record
from worker.engines.local.engine import LocalEngine
from worker.host import process
from worker.host.untrusted import remove_inside

SURVIVES = b"""
import os, pathlib, signal, sys, time
if pathlib.Path("first").exists():
    print("second", sorted(os.listdir()), flush=True)
    before = pathlib.Path("beats").stat().st_size
    time.sleep(0.5)
    sys.exit(pathlib.Path("beats").stat().st_size - before)
pathlib.Path("first").touch()
if os.fork() == 0:
    os.setsid()
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while True:
    with open("beats", "ab") as file: file.write(b"x")
    time.sleep(0.01)
"""


@pytest.fixture
def service(tmp_path: Path, database: Database) -> Generator[tuple[StoreFixture, LocalEngine, str]]:
    fixture = StoreFixture(database)
    sha256 = store(BlobFolder(tmp_path / "blobs"), tar_of({"train.py": (SURVIVES, False)}))
    fixture.write(lambda session: bundles.add(session, "ada", sha256, size=1, files=1))
    engine = LocalEngine(tmp_path / "runs", INVENTORY, launcher=TorchrunStandIn())
    yield fixture, engine, fixture.submit(config={"code": bundle_url(sha256)}, max_restarts=3)
    remove_inside(tmp_path, "unpacked")


def test_a_rank_that_survives_its_supervisor_is_ended_before_the_next_attempt(
    service: tuple[StoreFixture, LocalEngine, str], tmp_path: Path, database: Database
) -> None:
    fixture, engine, job_id = service
    worker, runners, claims = fixture.worker(), list[RunnerFixture[LocalEngine]](), list[Claim]()

    def start() -> RunnerFixture[LocalEngine]:
        fixture.hold_back(job_id, seconds=-1)
        claims.append(fixture.starting(job_id, worker, f"slot-{len(claims)}"))
        runners.append(RunnerFixture(fixture, worker_context(tmp_path, database, engine), engine, claims[-1]))
        runners[-1].start_runner()
        return runners[-1]

    try:
        first = start()
        beats = first.run.work / "beats"
        wait_for(beats.exists, "the first attempt")
        wait_for(lambda: first.row.launcher is not None, "the supervisor is known")
        first.detach()  # the worker is frozen
        supervisor = read_record(first.run.supervisor, ProcessIdentity)
        assert supervisor is not None
        process.send(supervisor, signal.SIGKILL)
        wait_for(lambda: not process.is_alive(supervisor), "the end of the supervisor")
        fixture.expire(claims[0])
        assert fixture.rescue(claims[0])
        assert process.find(job_id, 1) != []
        second = start()
        assert second.wait_for_end().state == JobState.SUCCEEDED, second.messages()
        assert process.find(job_id, 1) == []
        assert "continues in the folder of attempt 1" in second.messages()
        assert "second ['beats', 'first', 'train.py']" in second.lines()
        assert fixture.attempt(claims[0]).end_reason == EndReason.WORKER_LOST
    finally:
        for claim in claims:
            assert kill_attempt(claim.job_id, claim.number) == []
        for runner in runners:
            runner.close()

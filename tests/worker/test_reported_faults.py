"""A job reports that its GPU failed, and the worker checks it."""

import pytest

from store.cluster import workers
from tests.approved import Approved
from tests.worker.attempt import Attempt, wait_for
from tests.worker.test_daemon import Clock, DaemonFixture, advance_until, fixture, serving
from tests.worker.test_devices import FakeNvml
from torchyard.contract.attempts.rundir import RunDir
from worker.daemon import Daemon
from worker.devices.inventory import discover

__all__ = ["fixture"]

SCRIPT = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.02)
raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""


def _running(fixture: DaemonFixture, daemon: Daemon) -> Attempt:
    """Starts an attempt on the worker's only GPU. It reports a GPU fault as soon as the file `go` exists."""
    fixture.store.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
    claim = fixture.store.starting(fixture.store.submit(max_restarts=5), daemon.id, "GPU-aaaa")
    run = RunDir(fixture.folder / "worker" / "runs" / claim.job_id / "1")
    attempt = Attempt(run, claim.job_id, 1, claimed_at=fixture.store.attempt(claim).started_at)
    attempt.run.create()
    attempt.start(SCRIPT)
    return attempt


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("xids", "restarts", "quarantined"),
    [
        pytest.param([31], 1, False, marks=pytest.mark.thorough),
        ([31, 48], 0, True),
    ],
)
def test_only_a_confirmed_fault_quarantines_the_gpu_and_counts_no_restart(
    fixture: DaemonFixture, xids: tuple[int, ...], restarts: int, quarantined: bool, approved: Approved
) -> None:
    nvml = FakeNvml({"GPU-aaaa": []}, used=1 << 20)
    clock = Clock()
    daemon = fixture.daemon(clock, inventory=discover(0, nvml=nvml, environ={}))
    attempt = _running(fixture, daemon)
    with serving(daemon):
        wait_for(attempt.run.supervisor.exists, "the supervisor")
        wait_for(lambda: fixture.store.job(attempt.job_id).state == "running", "the adoption")
        nvml.xids = {"GPU-aaaa": list(xids)}
        (attempt.run.job / "go").touch()
        wait_for(lambda: len(fixture.store.moves(attempt.job_id)) > 3, "the end of the attempt")
        retried = fixture.store.events(attempt.job_id)[3].data["reason"]["message"]
        assert retried == approved.of_row("retried")
        assert fixture.store.job(attempt.job_id).restarts == restarts
        if quarantined:
            advance_until(
                clock, lambda: "XID 48" in str(fixture.worker_of(daemon).devices[0]["blocked"]), "the quarantine"
            )
        else:
            wait_for(lambda: fixture.store.job(attempt.job_id).attempt == 2, "the retry on the same GPU")

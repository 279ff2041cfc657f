"""A job that says that its GPU failed, and what the worker makes of it."""

import pytest

from store.rows import workers
from tests.worker.attempt import Attempt, wait_for
from tests.worker.test_daemon import Worksite, serving, site
from tests.worker.test_devices import Binding
from torchyard.contract.rundir import RunDir
from worker.daemon import Daemon
from worker.devices.inventory import discover

__all__ = ["site"]

SCRIPT = """
import pathlib, time
while not pathlib.Path("go").exists():
    time.sleep(0.02)
raise RuntimeError("CUDA error: uncorrectable ECC error encountered")
"""


def _running(site: Worksite, daemon: Daemon) -> Attempt:
    """An attempt on the worker's only GPU, which says that the GPU failed once it is told to go on."""
    site.yard.write(lambda session: workers.register(session, daemon.id, name="box", devices=[]))
    claim = site.yard.starting(site.yard.submit(max_restarts=5), daemon.id, "GPU-aaaa")
    attempt = Attempt(RunDir(site.folder / "worker" / "runs" / claim.job_id / "1"), claim.job_id, 1)
    attempt.run.create()
    attempt.start(SCRIPT)
    return attempt


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("xids", "said", "restarts", "quarantined"),
    [
        ([31], "(user_error): RuntimeError: CUDA error: uncorrectable ECC error encountered (the driver", 1, False),
        ([31, 48], "(device_fault): RuntimeError: CUDA error: uncorrectable ECC error encountered;", 0, True),
    ],
)
def test_a_gpu_is_quarantined_and_a_retry_uncounted_only_where_the_driver_confirms_the_fault(
    site: Worksite, xids: tuple[int, ...], said: str, restarts: int, quarantined: bool
) -> None:
    binding = Binding({"GPU-aaaa": []}, used=1 << 20)
    daemon = site.daemon(inventory=discover(0, nvml=binding, environ={}))
    attempt = _running(site, daemon)
    with serving(daemon):
        wait_for(attempt.run.supervisor.exists, "the supervisor")
        wait_for(lambda: site.yard.job(attempt.job_id).state == "running", "the adoption")
        binding.xids = {"GPU-aaaa": list(xids)}
        (attempt.run.job / "go").touch()
        wait_for(lambda: len(site.yard.moves(attempt.job_id)) > 3, "the end of the attempt")
        retried = site.yard.events(attempt.job_id)[3].data["reason"]["message"]
        assert said in retried
        assert site.yard.job(attempt.job_id).restarts == restarts
        if quarantined:
            wait_for(lambda: "XID 48" in str(site.worker_of(daemon).devices[0]["blocked"]), "the quarantine")
        else:
            wait_for(lambda: site.yard.job(attempt.job_id).attempt == 2, "the retry on the same GPU")

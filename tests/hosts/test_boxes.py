"""A box that shares nothing with its service but a link: what it trains arrives once, whatever happens to the link."""

from collections.abc import Generator
from contextlib import contextmanager
import hashlib
import os
from pathlib import Path
from random import Random
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from tests.chaos.proxy import proxy
from tests.cutting import Cut, cutting_proxy, random_cuts
from tests.e2e.service import until
from tests.hosts.lab import Box, Lab
from tests.hosts.proxies import buffering_proxy
from tests.hosts.service import LabService, serving
from tests.hosts.watching import assert_stored_once, expire_lease, is_lost, run_of, steps
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState
from torchyard.host.joined import JOINED_FILE
from trainer.evaluate import evaluate

EPOCHS, CUTS = 4, 12
DIGITS = {
    "trainer": "image-classification",
    "config": {"data": {"source": "digits"}, "training": {"epochs": EPOCHS}, "logging": {"every_steps": 1}},
}
LONG = {"data": {"source": "digits"}, "training": {"epochs": 10_000}}
"""The config of a job that goes on until it is cancelled."""
Curves = dict[str, list[tuple[int, float]]]


@pytest.fixture(scope="module")
def service(lab: Lab) -> Generator[LabService]:
    with serving(lab) as service:
        yield service


@pytest.fixture(scope="module")
def joined(lab: Lab, service: LabService) -> Box:
    """A box that has joined. It may be another test's, which has killed it since."""
    box = lab.box()
    service.join(box)
    return box


@pytest.fixture
def box(lab: Lab, service: LabService, joined: Box) -> Box:
    """A box that has joined the service and takes jobs."""
    service.wait_for_worker(joined)
    return joined


@pytest.fixture(scope="module")
def direct(service: LabService) -> Curves:
    """Returns the curves of the same job, run by the service's own worker."""
    job = service.submit_on(service.own_worker(), **DIGITS)
    service.wait(job.id, JobState.SUCCEEDED)
    return service.curves(job.id)


def test_a_box_that_joined_trains_on_while_its_link_is_down(
    service: LabService, box: Box, direct: Curves, tmp_path: Path
) -> None:
    job = begun(service, box)
    box.cut()
    until(run_of(box, job.id).exit.exists, what="training has ended on the box", context=box.said)
    expire_lease(service, job.id)
    until(lambda: is_lost(service, box), what="the service has lost the box")
    assert service.client.get(job.id).state is JobState.RUNNING, "nothing has been told"
    box.mend()
    done = assert_whole(service, job, direct)
    with service.client as client:
        aliases = {alias for checkpoint in client.jobs.checkpoints(job.id) for alias in checkpoint.aliases}
        assert {f"epoch-{number}" for number in range(1, EPOCHS + 1)} <= aliases
        best = client.jobs.download(job.id, ref="best", to=tmp_path / "best.pt")
    assert done.best is not None
    assert evaluate(best, device="cpu")["loss"] == pytest.approx(done.best.value, rel=1e-4)


@pytest.mark.thorough
def test_a_user_runs_programs_in_a_job_on_a_box(service: LabService, box: Box, tmp_path: Path) -> None:
    job = service.submit_on(box.name, trainer="image-classification", config=LONG)
    service.wait(job.id, JobState.RUNNING)
    (tmp_path / ".torchyard").symlink_to(service.data)
    env = {name: value for name, value in os.environ.items() if not name.startswith("TORCHYARD_")}
    sent = bytes(5_000_000)

    def run(*argv: str) -> subprocess.CompletedProcess[bytes]:
        command = [sys.executable, "-P", "-m", "torchyard", "exec", job.id, "--", *argv]
        env["XDG_CONFIG_HOME"] = str(tmp_path)
        return subprocess.run(command, input=sent, env=env, cwd=tmp_path, capture_output=True, timeout=120, check=False)

    assert run("sh", "-c", "exit 3").returncode == 3
    assert hashlib.sha256(sent).hexdigest() in run("sha256sum").stdout.decode()
    with service.client as client:
        client.jobs.cancel(job.id)
    service.wait(job.id, JobState.CANCELLED)


@pytest.mark.thorough
def test_a_killed_worker_is_started_again_and_adopts_its_job(service: LabService, box: Box, direct: Curves) -> None:
    job = begun(service, box)
    restart_worker(box)
    assert_whole(service, job, direct)


@pytest.mark.thorough
def test_an_api_that_is_killed_holds_nothing_up_for_long(service: LabService, box: Box, direct: Curves) -> None:
    job = begun(service, box)
    os.kill(service.server["processes"]["api"], signal.SIGKILL)
    until(service.is_ready, what="the API is back")
    assert_whole(service, job, direct)


@pytest.mark.thorough
def test_a_box_that_sleeps_for_longer_than_a_lease_goes_on(service: LabService, box: Box, direct: Curves) -> None:
    job = begun(service, box)
    box.signal(signal.SIGSTOP)
    expire_lease(service, job.id)
    until(lambda: is_lost(service, box), what="the service has lost the box")
    box.signal(signal.SIGCONT)
    assert_whole(service, job, direct)


@pytest.mark.thorough
def test_packets_that_are_lost_are_sent_again(service: LabService, box: Box, direct: Curves) -> None:
    box.shape(2, queue_bytes=8 << 10)
    try:
        job = begun(service, box)
        until(lambda: box.dropped() > 20, what="packets are lost")
        until(run_of(box, job.id).exit.exists, what="training has ended on the box", context=box.said)
    finally:
        box.shape()
    assert_whole(service, job, direct)


@pytest.mark.thorough
def test_a_disk_of_the_service_that_is_full_delays_files_alone(service: LabService, box: Box, direct: Curves) -> None:
    full = service.data / "blobs" / "incoming" / "workers"
    shutil.rmtree(full, ignore_errors=True)
    full.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(full)], check=True)
    try:
        job = begun(service, box)
        until(run_of(box, job.id).exit.exists, what="training has ended on the box", context=box.said)
        until(lambda: service.curves(job.id) == direct, what="curves do not wait for files", context=box.said)
        with service.client as client:
            assert client.get(job.id).state is JobState.RUNNING
            assert not [*client.jobs.checkpoints(job.id)]
    finally:
        subprocess.run(["umount", "--lazy", str(full)], check=True)
    assert_whole(service, job, direct)


@pytest.mark.thorough
def test_the_job_of_a_box_that_lost_its_power_goes_on_elsewhere(lab: Lab, service: LabService, box: Box) -> None:
    gate = service.code / "gate"
    script = f"import os, time\nwhile not os.path.exists({str(gate)!r}): time.sleep(0.05)\n"
    both = {"devices_per_node": 2, "worker": service.own_worker()}
    held = service.submit_script("held", script, resources=both)
    service.wait(held.id, JobState.RUNNING)
    box.kill()
    other = lab.box(2)
    service.join(other)
    job = begun(service, other, anywhere=True)
    other.kill()
    expire_lease(service, job.id)
    lab.box().join()
    done = service.wait(job.id, JobState.SUCCEEDED)
    with service.client as client:
        workers = [attempt.worker for attempt in client.jobs.attempts(job.id)]
        assert (done.attempt, sorted(map(str, workers))) == (2, [box.name, other.name])
        client.workers.remove(next(each.id for each in client.workers.list() if each.name == other.name))
    gate.touch()
    service.wait(held.id, JobState.SUCCEEDED)


@pytest.mark.thorough
def test_a_proxy_that_buffers_changes_nothing(lab: Lab, service: LabService, direct: Curves) -> None:
    with buffering_proxy(service, lab.address) as url, joined_for_now(service, lab.box(3), url=url) as box:
        assert_whole(service, service.submit_on(box.name, **DIGITS), direct)


@pytest.mark.thorough
def test_connections_that_are_cut_are_made_again(lab: Lab, service: LabService, direct: Curves) -> None:
    cuts: list[Cut] = []
    between = cutting_proxy(service.server["url"], cuts, host=lab.address)
    with between as url, joined_for_now(service, lab.box(4), url=url) as box:
        cuts += random_cuts(Random(1), CUTS, most=200_000)
        restart_worker(box)  # connections that are there are whole
        service.wait_for_worker(box)
        while len(cuts) > CUTS - 8:
            assert_whole(service, service.submit_on(box.name, **DIGITS), direct)


@pytest.mark.thorough
def test_a_long_way_changes_nothing(lab: Lab, service: LabService, direct: Curves) -> None:
    with proxy(service.port, host=lab.address) as way:
        url = f"https://{lab.address}:{way.port}"
        with joined_for_now(service, lab.box(5), url=url) as box:
            for seconds in (0.001, 0.1):
                way.latency = seconds
                assert_whole(service, service.submit_on(box.name, **DIGITS), direct)


@pytest.mark.thorough
def test_a_box_behind_a_router_that_gets_another_address_goes_on(lab: Lab, service: LabService, direct: Curves) -> None:
    router = lab.router()
    with joined_for_now(service, lab.box(6, router=router)) as box:
        job = begun(service, box)
        router.move()
        assert_whole(service, job, direct)
        assert_whole(service, service.submit_on(box.name, **DIGITS), direct)


@pytest.mark.thorough
def test_of_two_boxes_with_one_code_one_joins(lab: Lab, service: LabService) -> None:
    boxes = (lab.box(7), lab.box(8))
    with service.client as client:
        code = client.workers.code("b7").code
    try:
        started = {box: box.join(service.url, "--code", code) for box in boxes}
        (refused,) = until(
            lambda: [box for box in boxes if started[box].poll() is not None] or None, what="one of them ends"
        )
        assert "the code was used: it is good once" in refused.said()
        service.wait_for_worker(boxes[0])
        assert [box for box in boxes if (box.data / JOINED_FILE).exists()] == [box for box in boxes if box != refused]
    finally:
        boxes[1].kill()
        service.remove(boxes[0])


@pytest.mark.thorough
def test_a_box_joins_and_trains_over_ipv6(direct: Curves) -> None:
    with (
        tempfile.TemporaryDirectory(prefix="lab-") as folder,
        Lab(Path(folder) / "l") as lab,
        serving(lab, host="::") as service,
        joined_for_now(service, lab.box()) as box,
    ):
        assert "[fd00:" in service.url
        assert_whole(service, service.submit_on(box.name, **DIGITS), direct)


@contextmanager
def joined_for_now(service: LabService, box: Box, *, url: str | None = None) -> Generator[Box]:
    """Has the box join, and removes it afterwards. `url`: another way to the service."""
    try:
        service.join(box, url=url)
        yield box
    finally:
        service.remove(box)


def restart_worker(box: Box) -> None:
    """Kills the worker, and waits for the next one."""
    killed = box.worker()
    killed.kill()
    until(lambda: not killed.is_running() and box.worker().pid != killed.pid, what="the next worker", context=box.said)


def begun(service: LabService, box: Box, *, anywhere: bool = False) -> JobView:
    """Submits a job for a box, and returns it once its first steps are stored.

    `anywhere`: other workers may have it.
    """
    job = service.submit_on(None if anywhere else box.name, **DIGITS)
    until(lambda: steps(service, job.id) > 0, what="the first steps", context=box.said)
    return job


def assert_whole(service: LabService, job: JobView, direct: Curves) -> JobView:
    """Waits for the end of the job, of which one attempt has stored everything once."""
    done = service.wait(job.id, JobState.SUCCEEDED)
    assert done.attempt == 1
    assert service.curves(job.id) == direct
    assert_stored_once(service, job.id)
    return done

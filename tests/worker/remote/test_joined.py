"""A daemon that reaches its service over HTTP alone runs a job, whatever restarts meanwhile."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
import threading

from store.announcement import Announcement
from store.blobs.folder import BlobFolder
from store.cluster import workers
from store.ids import new_id
from store.output import artifacts, logs
from tests import line
from tests.worker.attempt import wait_for
from tests.worker.remote.conftest import Remote
from tests.worker.stand_in import TorchrunStandIn
from torchyard.contract.states import JobState
from worker.daemon import Daemon
from worker.devices.inventory import Device, Inventory
from worker.engines.local.engine import LocalEngine
from worker.settings import Settings

SCRIPT = """
import os, pathlib, time, torchyard
run = torchyard.init()
pathlib.Path(os.environ["TORCHYARD_RUN_DIR"], "artifacts", "a.txt").write_text("kept")
for step in range(1, 4):
    run.log({{"loss": 1 / step}}, step=step)
    print("step", step, flush=True)
    while not pathlib.Path({gates!r}, str(step)).exists(): time.sleep(0.01)
"""


@contextmanager
def serving(daemon: Daemon) -> Generator[None]:
    """Runs the daemon during the block. Then it leaves, and its jobs go on."""
    thread = threading.Thread(target=daemon.serve)
    thread.start()
    try:
        yield
    finally:
        daemon.leave()
        thread.join(90)
        assert not thread.is_alive()


def test_a_job_runs_to_its_end_while_the_api_and_the_daemon_are_restarted(remote: Remote, tmp_path: Path) -> None:
    code, gates, store = tmp_path / "code", tmp_path / "gates", remote.store
    code.mkdir()
    gates.mkdir()
    (code / "train.py").write_text(SCRIPT.format(gates=str(gates)))
    settings = Settings(data_dir=tmp_path / "box", allow_paths=str(code))
    settings.root.mkdir()
    worker_id = new_id("wrk")
    token = remote.token(worker_id)

    def daemon() -> Daemon:
        slots = Inventory((Device(0, "cpu-0", "CPU slot", "cpu"),))
        engine = LocalEngine(settings.runs, slots, launcher=TorchrunStandIn())
        return Daemon(settings, engine, remote.join(worker_id, token=token))

    def lines() -> list[str]:
        found = store.read(lambda session: logs.list_after(session, job_id, line=0, limit=100).items)
        return [each.text for each in found]

    job_id = store.submit(config={"code": f"file://{code}"})
    remote.queue.announce(line.told(store.job(job_id)))
    with serving(daemon()):
        remote.queue.announce(Announcement(wakes_workers=True))
        wait_for(lambda: lines() == ["step 1"], "the first step")
        remote.stop_api()
        (gates / "1").touch()
        remote.start_api()
        wait_for(lambda: lines() == ["step 1", "step 2"], "the second step")
    (gates / "2").touch()
    with serving(daemon()):
        wait_for(lambda: len(lines()) == 3, "the third step")
        (gates / "3").touch()
        wait_for(lambda: store.job(job_id).state == JobState.SUCCEEDED, "the end")
    assert lines() == ["step 1", "step 2", "step 3"]
    assert [worker.name for worker, _ in store.read(workers.list_all)] == ["box"]
    assert [*store.series(job_id)["loss"].steps] == [1, 2, 3]
    assert (store.job(job_id).attempt, store.allocations()[0].released_at is not None) == (1, True)
    kept = store.read(lambda session: artifacts.list_after(session, job_id, limit=9))
    assert [each.path for each in kept] == ["a.txt"]
    assert BlobFolder(remote.folder / "service" / "blobs").path(kept[0].sha256).read_text() == "kept"
    assert not (settings.root / "torchyard.db").exists()

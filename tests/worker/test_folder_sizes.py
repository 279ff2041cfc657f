"""What workers tell of the working folders on their hosts: their owners, by the service, and `torchyard doctor`."""

from pathlib import Path

import pytest

from store.attempts import folders
from store.db.database import Database
from store.ids import new_id
from store.worker.folders import HostFolders
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.attempts.rundir import WORK
from worker.cleanup.folders import FolderSizes
from worker.doctor.folders import check_folders
from worker.host.untrusted import remove_inside

MIB = 1 << 20


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def make(runs: Path, *, mib: int) -> str:
    job_id = new_id("job")
    (runs / job_id / WORK).mkdir(parents=True)
    (runs / job_id / WORK / "file").write_bytes(bytes(mib * MIB))
    return job_id


def measured(sizes: FolderSizes, store: StoreFixture) -> dict[str, int]:
    for _ in sizes.measure():
        pass
    return {job_id: size // MIB for job_id, size in store.read(lambda s: folders.read_sizes(s, "wrk_1")).items()}


def test_each_folder_is_measured_again_after_a_while(tmp_path: Path, database: Database) -> None:
    store, clock = StoreFixture(database), Clock()
    sizes = FolderSizes(tmp_path, HostFolders(store_on(database), "wrk_1"), clock=clock)
    stays, goes = make(tmp_path, mib=1), make(tmp_path, mib=2)
    (tmp_path / new_id("job") / "1").mkdir(parents=True)  # of a recipe
    assert measured(sizes, store) == {stays: 1, goes: 2}
    remove_inside(tmp_path, goes)
    (tmp_path / stays / WORK / "more").write_bytes(bytes(3 * MIB))
    assert measured(sizes, store) == {stays: 1, goes: 2}, "too early"
    clock.now = 61
    assert measured(sizes, store) == {stays: 4}


def test_the_next_look_waits_for_many_times_what_one_takes(
    tmp_path: Path, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, clock = StoreFixture(database), Clock()
    sizes = FolderSizes(tmp_path, HostFolders(store_on(database), "wrk_1"), clock=clock)
    job_id = make(tmp_path, mib=1)
    took = iter([0.0, 5.0, 5.0, 5.0])
    with monkeypatch.context() as patch:
        patch.setattr("worker.cleanup.folders.time.thread_time", lambda: next(took))
        assert measured(sizes, store) == {job_id: 1}
    remove_inside(tmp_path, job_id)
    clock.now = 999
    assert measured(sizes, store) == {job_id: 1}
    clock.now = 1001
    assert measured(sizes, store) == {}


def test_the_doctor_names_the_largest_folder_and_warns_of_much(tmp_path: Path) -> None:
    assert [*check_folders(tmp_path, used=1)] == []
    make(tmp_path, mib=1)
    large = make(tmp_path, mib=4)
    (found,) = check_folders(tmp_path, used=100 * MIB)
    size = "4.0 MiB"
    assert (found.status.value, size in found.fact and large in found.fact) == ("ok", True)
    assert found.fact.startswith("2 working folders of scripts: 5.0 MiB, the largest of ")
    (much,) = check_folders(tmp_path, used=8 * MIB)
    assert much.status.value == "warning"
    assert "TORCHYARD_FOLDER_RETENTION" in much.advice

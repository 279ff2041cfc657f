"""The mark of the cluster differs after each change on which a plan depends."""

from itertools import pairwise

from store.cluster.cluster_mark import ClusterMark, read_mark
from store.queue.reservations import Change
from tests.store.fixture import StoreFixture


def test_each_change_on_which_a_plan_depends_changes_the_mark(db: StoreFixture) -> None:
    marks: list[ClusterMark] = []

    def note() -> None:
        marks.append(db.read(read_mark))
        assert db.read(read_mark) == marks[-1]

    note()
    worker = db.worker()
    note()
    job, other = db.submit(), db.submit()
    note()
    claim = db.running(job, worker, "cpu-0")
    note()
    assert db.reserve(Change(worker, "cpu", None, other, due=1, bound=2, since=3), known={(job, worker)})
    note()
    db.complete(claim)
    note()
    db.drain(worker)
    note()
    assert marks[0] == (0, 0, 0, 0)
    assert all(before != after for before, after in pairwise(marks))

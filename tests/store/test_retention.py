"""Retention keeps the newest and the best checkpoints, and removes no blob that others need."""

from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
import pytest
from sqlalchemy import select

from store import housekeeping as cleanup
from store.attempts import append
from store.attempts import state as attempts
from store.attempts.facts import Claim
from store.blobs.folder import BlobFolder
from store.jobs import deletion
from store.output import checkpoints
from store.output.checkpoints_facts import CAPTURED
from store.output.facts import DEFAULTS, Batch, NewCheckpoint
from store.tables import Garbage
from store.team.callers import SERVICE
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint, run_together, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import InvalidCursor, NotFound
from torchyard.contract.states import EndReason


@dataclass(frozen=True)
class Saved:
    """A checkpoint of the model: `number` counts all checkpoints that the job listed."""

    number: int
    attempt: int
    step: int
    value: float | None

    @property
    def age(self) -> tuple[int, int]:
        return self.attempt, self.number


@dataclass
class ExpectedCheckpoints:
    """A simple implementation of the policy, to compare with."""

    keep_last: int
    keep_best: int
    mode: str
    there: set[Saved] = field(default_factory=set[Saved])
    ever: list[Saved] = field(default_factory=list[Saved])
    starts: dict[int, int] = field(default_factory=dict[int, int])

    def put(self, attempt: int, new: list[tuple[int, float | None]]) -> None:
        for step, value in new:
            saved = Saved(len(self.ever), attempt, step, value)
            self.ever.append(saved)
            self.there.add(saved)
        current = [saved for saved in self.there if not self._was_undone(saved)]
        undone = [saved for saved in self.there if self._was_undone(saved)]
        newest = self._newest(current) + self._newest(undone)
        self.there = {*newest[: self.keep_last], *self.best_first(self.there)[: self.keep_best]}

    def best_first(self, among: "set[Saved] | list[Saved]") -> list[Saved]:
        found = [(saved.value, saved) for saved in among if saved.value is not None and math.isfinite(saved.value)]
        found.sort(key=lambda item: item[1].number)
        found.sort(key=lambda item: item[0], reverse=self.mode == "max")
        return [saved for _, saved in found]

    def latest(self) -> Saved:
        return self._newest(self.ever)[0]

    def _newest(self, among: list[Saved]) -> list[Saved]:
        return sorted(among, key=lambda saved: saved.age, reverse=True)

    def _was_undone(self, saved: Saved) -> bool:
        """Whether a later attempt started before this checkpoint."""
        return any(attempt > saved.attempt and start < saved.step for attempt, start in self.starts.items())


VALUES = st.sampled_from([None, math.nan, math.inf, 0.1, 0.2, 0.2, 0.3, 0.4])
BATCHES = st.lists(st.lists(st.tuples(st.integers(1, 9), VALUES), min_size=1, max_size=3), max_size=3)
ATTEMPTS = st.lists(st.tuples(st.integers(0, 9), BATCHES), min_size=1, max_size=3)
"""Each attempt: the step from which it starts, and its batches of checkpoints."""


@quick_on_sqlite
@given(keep_last=st.integers(1, 3), keep_best=st.integers(1, 3), mode=st.sampled_from(["min", "max"]), runs=ATTEMPTS)
@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_sequence_leaves_the_checkpoints_of_the_policy(
    db: StoreFixture,
    keep_last: int,
    keep_best: int,
    mode: str,
    runs: list[tuple[int, list[list[tuple[int, float | None]]]]],
) -> None:
    expected_checkpoints = ExpectedCheckpoints(keep_last, keep_best, mode)
    job_id = submitted(db, keep_last=keep_last, keep_best=keep_best, mode=mode)
    worker = db.worker()
    for number, (start, batches) in enumerate(runs, start=1):
        claim = db.running(job_id, worker)
        db.write(lambda session: attempts.mark_prepared(session, claim, start_step=start))  # noqa: B023 - called at once
        expected_checkpoints.starts[number] = start
        for seq, batch in enumerate(batches):
            first = len(expected_checkpoints.ever)
            new = [new_checkpoint(first + place, *saved) for place, saved in enumerate(batch)]
            db.record(claim, seq=seq, checkpoints=new)
            expected_checkpoints.put(number, batch)
            found = db.read(
                lambda session: checkpoints.list_checkpoints(session, job_id, caller=SERVICE, limit=100).items
            )
            listed = {int(item.name): item.aliases for item in found}
            assert listed.keys() == {saved.number for saved in expected_checkpoints.there}
            # The names lead where they would if nothing had ever been removed.
            assert "latest" in listed[expected_checkpoints.latest().number]
            best = expected_checkpoints.best_first(expected_checkpoints.ever)[:1]
            assert [place for place, aliases in listed.items() if "best" in aliases] == [item.number for item in best]
        db.end(claim, EndReason.PREEMPTED)


def submitted(db: StoreFixture, *, keep_last: int | None, keep_best: int = 1, mode: str = "min") -> str:
    policy = {"keep_last": keep_last, "keep_best": keep_best, "mode": mode, "monitor": "val/loss"}
    return db.submit(checkpoint=policy)


def new_checkpoint(number: int, step: int, value: float | None) -> NewCheckpoint:
    if value is None:
        return checkpoint(str(number), step=step)
    return checkpoint(str(number), step=step, val_loss=value)


def claimed(db: StoreFixture, *, keep_last: int | None, keep_best: int = 1) -> Claim:
    return db.running(submitted(db, keep_last=keep_last, keep_best=keep_best), db.worker())


def add(db: StoreFixture, claim: Claim, *new: NewCheckpoint) -> None:
    db.record(claim, seq=db.attempt(claim).relay_seq, checkpoints=list(new))


def steps(db: StoreFixture, job_id: str) -> list[int]:
    return [row.step for row in db.read(lambda session: checkpoints.list_newest_first(session, job_id))]


def saved(blobs: BlobFolder, step: int, *contents: bytes, loss: float = 0.5) -> NewCheckpoint:
    """Stores a checkpoint with real blobs, the first of them `state.pt`."""
    stored = [blobs.add(BytesIO(content)) for content in contents]
    paths = ["state.pt", *(f"part-{number}" for number in range(1, len(stored)))]
    files = [
        ManifestFile(path=path, size=blob.size, sha256=blob.sha256) for path, blob in zip(paths, stored, strict=True)
    ]
    manifest = Manifest(step=step, epoch=step, metrics={"val/loss": loss}, files=files)
    return NewCheckpoint(f"epoch-{step:04d}", manifest, files)


def stored(blobs: BlobFolder) -> list[bytes]:
    return sorted(path.read_bytes() for path in blobs.root.glob("??/*"))


def garbage(db: StoreFixture) -> int:
    return len(db.read(lambda session: session.scalars(select(Garbage.sha256)).all()))


def test_without_keep_last_all_checkpoints_are_kept(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=None)
    for step in range(1, 8):
        add(db, claim, checkpoint(f"c{step}", step=step, val_loss=1.0))
    assert steps(db, claim.job_id) == [7, 6, 5, 4, 3, 2, 1]
    assert garbage(db) == 0


def test_removed_checkpoints_keep_their_events_and_are_not_listed_again(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=1)
    for step in range(1, 4):
        add(db, claim, checkpoint(f"c{step}", step=step, epoch=step))
    before = [(event.seq, event.data) for event in db.events(claim.job_id)]
    assert [data["step"] for _, data in before if "step" in data] == [1, 2, 3]
    add(db, claim, checkpoint("c1", step=1, epoch=1))
    assert [(event.seq, event.data) for event in db.events(claim.job_id)] == before
    assert steps(db, claim.job_id) == [3]
    known = db.read(lambda session: checkpoints.list_recorded_names(session, claim.job_id, attempt=1))
    assert sorted(known) == ["c1", "c2", "c3"]
    asked = ["c1", "c3", "c9", "é"]
    removed = db.read(lambda s: checkpoints.list_removed(s, claim.job_id, attempt=1, names=asked))
    assert removed == {"c1"}
    assert db.read(lambda s: checkpoints.list_removed(s, claim.job_id, attempt=2, names=asked)) == set()


def test_a_removed_checkpoint_is_not_found_and_the_error_says_why(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=1)
    add(db, claim, checkpoint("c1", step=1, epoch=1))
    (row,) = db.read(lambda session: checkpoints.list_newest_first(session, claim.job_id))
    add(db, claim, checkpoint("c2", step=2, epoch=2))
    for ref in ("epoch-1", "epoch-0001", "step-1", row.id):
        with pytest.raises(NotFound, match=r"no longer: .* \(checkpoint.keep_last 1, checkpoint.keep_best 1\)"):
            db.read(lambda session, ref=ref: checkpoints.resolve(session, db.job(claim.job_id), ref))
    for ref in ("epoch-3", "step-0", "best", "c1", "\x00"):
        with pytest.raises(NotFound, match="has no checkpoint"):
            db.read(lambda session, ref=ref: checkpoints.resolve(session, db.job(claim.job_id), ref))


def test_a_list_continues_after_a_removed_checkpoint(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=2)
    for step in (1, 2, 3):
        add(db, claim, checkpoint(f"c{step}", step=step, val_loss=step))
    second = db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), "step-2")).id
    add(db, claim, checkpoint("c4", step=4))
    assert steps(db, claim.job_id) == [4, 3, 1]
    rest = db.read(
        lambda session: (
            checkpoints.list_checkpoints(session, claim.job_id, caller=SERVICE, limit=100, after=second).items
        )
    )
    assert [item.step for item in rest] == [1]
    other = db.submit()
    with pytest.raises(InvalidCursor):
        db.read(
            lambda session: checkpoints.list_checkpoints(session, other, caller=SERVICE, limit=100, after=second).items
        )


@quick_on_sqlite
def test_a_collection_removes_only_the_blobs_of_removed_checkpoints(db: StoreFixture, blobs: BlobFolder) -> None:
    claim = claimed(db, keep_last=1)
    other = db.running(db.submit(), db.worker())
    add(db, other, saved(blobs, 1, b"one", b"tokenizer"))
    for step, content in enumerate((b"one", b"two", b"three"), start=1):
        add(db, claim, saved(blobs, step, content, b"tokenizer", loss=step))
    assert stored(blobs) == [b"one", b"three", b"tokenizer", b"two"]
    assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 1
    assert (stored(blobs), garbage(db)) == ([b"one", b"three", b"tokenizer"], 0)
    add(db, claim, saved(blobs, 4, b"four", b"tokenizer", loss=0.1))
    db.end(other, EndReason.COMPLETED)
    db.write(lambda session: deletion.delete_job(session, other.job_id))
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert (stored(blobs), garbage(db)) == ([b"four", b"tokenizer"], 0)


def test_a_crash_before_the_commit_removes_nothing_and_after_it_is_recovered(
    db: StoreFixture, blobs: BlobFolder
) -> None:
    claim = claimed(db, keep_last=1)
    add(db, claim, saved(blobs, 1, b"one"))
    before = db.everything()

    def crash(seq: int) -> None:
        with db.database.write() as session:
            append.record(session, claim, Batch(offsets={}, checkpoints=[new]), seq=seq)
            raise KeyboardInterrupt

    new = saved(blobs, 2, b"two", loss=0.1)
    with pytest.raises(KeyboardInterrupt):
        crash(db.attempt(claim).relay_seq)
    assert db.everything() == before
    add(db, claim, new)
    # Whoever would have collected is gone: what is garbage is in the database, for the next one.
    assert cleanup.collect_garbage(store_on(db.database, blobs=BlobFolder(blobs.root))) == 1
    assert (stored(blobs), garbage(db)) == ([b"two"], 0)


def test_jobs_that_remove_the_same_blobs_together_leave_none(db: StoreFixture, blobs: BlobFolder) -> None:
    worker = db.worker()
    for turn in range(2):
        claims = [db.running(submitted(db, keep_last=1), worker, f"slot-{turn}-{place}") for place in range(3)]
        for claim, parts in zip(claims, ((b"a", b"b", b"c"), (b"c", b"b", b"a"), (b"b", b"c", b"a")), strict=True):
            add(db, claim, saved(blobs, 1, *parts))
        *training, ended = claims
        db.end(ended, EndReason.COMPLETED)
        newest = saved(blobs, 2, b"newest", loss=0.1)
        answers = run_together(
            *[partial(add, db, claim, newest) for claim in training],
            partial(db.write, partial(deletion.delete_job, job_id=ended.job_id)),
        )
        assert answers == [None, None, None]
        cleanup.collect_garbage(store_on(db.database, blobs=blobs))
        assert (stored(blobs), garbage(db)) == ([b"newest"], 0)


def test_a_retried_job_removes_its_first_checkpoint_and_the_old_job_keeps_it(
    db: StoreFixture, blobs: BlobFolder
) -> None:
    old = claimed(db, keep_last=1)
    add(db, old, saved(blobs, 1, b"one"))
    db.end(old, EndReason.CANCELLED)
    new = db.retry(old.job_id)
    assert steps(db, new) == [1]
    claim = db.running(new, db.worker())
    add(db, claim, saved(blobs, 2, b"two", loss=0.1))
    assert (steps(db, new), steps(db, old.job_id)) == ([2], [1])
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert stored(blobs) == [b"one", b"two"]


@quick_on_sqlite
def test_a_deleted_job_deletes_its_removed_checkpoints(db: StoreFixture, blobs: BlobFolder) -> None:
    claim = claimed(db, keep_last=1)
    for step, content in enumerate((b"one", b"two"), start=1):
        add(db, claim, saved(blobs, step, content))
    db.end(claim, EndReason.COMPLETED)
    db.write(lambda session: deletion.delete_job(session, claim.job_id))
    assert db.everything()["checkpoints"] == []
    cleanup.collect_garbage(store_on(db.database, blobs=blobs))
    assert (stored(blobs), garbage(db)) == ([], 0)


def at(number: int, *, damaged: bool = False, source: str | None = None, name: str | None = None) -> NewCheckpoint:
    """Returns a checkpoint that was saved at the time `number`, whose step falls as the time grows."""
    new = checkpoint(name or str(number), step=100 - number)
    return replace(new, saved_at=number, damaged=damaged, source=source)


def names(db: StoreFixture, job_id: str) -> list[str]:
    return [row.name for row in db.read(lambda session: checkpoints.list_newest_first(session, job_id))]


def test_the_newest_that_are_kept_are_those_that_were_saved_last(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=2)
    add(db, claim, at(3), at(1), at(2))
    assert names(db, claim.job_id) == ["3", "2"]


def test_a_torn_newest_never_removes_the_last_whole_one(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=1)
    add(db, claim, at(1), at(2))
    for number in (3, 4):
        add(db, claim, at(number, damaged=True))
    assert names(db, claim.job_id) == ["4", "3", "2"]
    add(db, claim, at(5))
    assert names(db, claim.job_id) == ["5"]


def test_of_equal_best_ones_the_one_that_was_saved_first_is_kept(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=1)
    first = replace(checkpoint("first", step=9, val_loss=0.5), saved_at=1)
    second = replace(checkpoint("second", step=3, val_loss=0.5), saved_at=2)
    torn = replace(checkpoint("torn", step=3, val_loss=0.1), saved_at=3, damaged=True)
    add(db, claim, second, first, torn, at(4))
    assert names(db, claim.job_id) == ["4", "first"]


def test_published_ones_and_captured_files_are_counted_apart(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=2)
    add(db, claim, *[at(number) for number in (1, 2, 3)])
    add(db, claim, *[at(number, source=CAPTURED, name=f"captured-f{number}-1-1") for number in (4, 5, 6)])
    assert names(db, claim.job_id) == ["captured-f6-1-1", "captured-f5-1-1", "3", "2"]


@quick_on_sqlite
def test_the_newest_versions_of_a_captured_file_are_kept_by_their_number(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=None)
    last = [at(number, source=CAPTURED, name=f"captured-aa-{number}-1") for number in (1, 2, 3, 4)]
    numbered = [at(10 + number, source=CAPTURED, name=f"captured-b{number}-1-1") for number in range(5)]
    published = [at(20 + number) for number in range(5)]
    add(db, claim, *last, *numbered, *published)
    kept = names(db, claim.job_id)
    assert [name for name in kept if name.startswith("captured-aa")] == [f"captured-aa-{n}-1" for n in (4, 3, 2)]
    assert len(kept) == 3 + 5 + 5


def test_a_torn_version_of_a_captured_file_counts_for_none(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=None)
    torn = at(4, source=CAPTURED, name="captured-aa-4-1", damaged=True)
    last = [at(number, source=CAPTURED, name=f"captured-aa-{number}-1") for number in (1, 2, 3)]
    add(db, claim, *last, torn)
    assert names(db, claim.job_id) == [f"captured-aa-{number}-1" for number in (4, 3, 2, 1)]
    add(db, claim, *[at(number, source=CAPTURED, name=f"captured-aa-{number}-1") for number in (5, 6, 7)])
    assert names(db, claim.job_id) == [f"captured-aa-{number}-1" for number in (7, 6, 5)]


def test_all_versions_are_kept_if_their_number_has_no_limit(db: StoreFixture) -> None:
    claim = claimed(db, keep_last=None)
    last = [at(number, source=CAPTURED, name=f"captured-aa-{number}-1") for number in range(5)]
    batch = Batch(offsets={}, checkpoints=last)
    limits = replace(DEFAULTS, versions=None)
    db.write(lambda session: append.record(session, claim, batch, seq=0, limits=limits))
    assert len(names(db, claim.job_id)) == 5

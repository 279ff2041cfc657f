"""What one attempt, one job and one answer may hold."""

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import insert, select

from store.attempts import append
from store.attempts.facts import Claim
from store.jobs import deletion
from store.jobs import events as job_events
from store.output import checkpoints, logs, metrics, series
from store.output import points as stored_points
from store.output.facts import MAX_SERIES, Batch, MetricPoint, NewCheckpoint, NewEvent, NewLines, OutputLimits
from store.output.metrics import POINT
from store.output.series import PointFilter
from store.pages import PAGE_BYTES
from store.tables import PointChunk, Quota, Series, User
from store.team import quotas
from store.team.callers import SERVICE
from store.team.limits import find_limit
from tests.approved import Approved
from tests.databases import quick_on_sqlite
from tests.store.fixture import StoreFixture, checkpoint, recorded_statements
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import NotFound
from torchyard.contract.states import EndReason
from torchyard.contract.team.roles import Resource


@pytest.fixture
def claim(db: StoreFixture) -> Claim:
    return db.running(db.submit(), db.worker())


def record(db: StoreFixture, claim: Claim, limits: OutputLimits, **batch: Any) -> frozenset[str]:
    new, seq = Batch(offsets={}, **batch), db.attempt(claim).relay_seq
    return db.write(lambda session: append.record(session, claim, new, seq=seq, limits=limits))


def lines(*texts: str, rank: int = 0) -> NewLines:
    return NewLines(rank, "stdout", list(texts))


def said(text: str) -> NewEvent:
    return NewEvent("message", {"level": "info", "text": text}, 1, limited=True)


def messages(db: StoreFixture, job_id: str) -> list[str]:
    return [event.data["text"] for event in db.events(job_id) if event.type == "message"]


def stored_lines(db: StoreFixture, job_id: str) -> list[str]:
    return [line.text for line in db.read(lambda session: logs.list_after(session, job_id, line=0, limit=1000)).items]


def stored_series(db: StoreFixture, job_id: str) -> dict[str, list[float]]:
    return {key: columns.values.tolist() for key, columns in db.series(job_id).items()}


def points(keys: Sequence[str], *, step: int) -> list[MetricPoint]:
    return [MetricPoint(key, step, float(step), step) for key in keys]


def test_a_log_is_cut_at_its_limit_with_one_message(db: StoreFixture, claim: Claim, approved: Approved) -> None:
    limits = OutputLimits(log_bytes=10)
    assert record(db, claim, limits, lines=[lines("aé", "b")]) == frozenset()
    assert db.attempt(claim).log_bytes == 6
    assert record(db, claim, limits, lines=[lines("c", "too long", "d"), lines("e", rank=1)]) == {"log"}
    assert record(db, claim, limits, lines=[lines("f")], events=[said("goes on")]) == {"log"}
    assert stored_lines(db, claim.job_id) == ["aé", "b", "c"]
    notice, other = messages(db, claim.job_id)
    assert notice == approved("notice", job_id=claim.job_id)
    assert other == "goes on"
    assert db.attempt(claim).log_bytes == 8


def test_messages_of_the_job_are_cut_and_nothing_else_is(db: StoreFixture, claim: Claim) -> None:
    limits = OutputLimits(message_bytes=250)
    record(db, claim, limits, events=[said("one"), said("two"), said("three")])
    others = [NewEvent("progress", {"step": 1}, 1), NewEvent("message", {"level": "info", "text": "the service"}, 1)]
    record(db, claim, limits, events=[said("four"), *others], checkpoints=[checkpoint("c", step=1)])
    one, two, notice, service = messages(db, claim.job_id)
    assert (one, two, service) == ("one", "two", "the service")
    assert "messages is stored: the limit of 250 bytes is reached (TORCHYARD_MAX_MESSAGE_BYTES" in notice
    assert [event.type for event in db.events(claim.job_id)].count("checkpoint") == 1


@quick_on_sqlite
def test_points_are_cut_at_their_limit_with_one_message(db: StoreFixture, claim: Claim) -> None:
    limits = OutputLimits(point_bytes=3 * POINT.size + 1)
    assert (
        record(db, claim, limits, points=points("a", step=1), curves={"tensorboard": points("b", step=1)})
        == frozenset()
    )
    assert db.attempt(claim).point_bytes == 2 * POINT.size
    assert record(db, claim, limits, points=points("ac", step=2), events=[said("goes on")]) == {"points"}
    assert stored_series(db, claim.job_id) == {"a": [1.0, 2.0], "b": [1.0]}
    other, notice = messages(db, claim.job_id)
    assert other == "goes on"
    assert "metric points is stored: the limit of 73 bytes is reached (TORCHYARD_MAX_POINT_BYTES" in notice
    assert record(db, claim, limits, points=points("a", step=3)) == {"points"}
    assert stored_series(db, claim.job_id)["a"] == [1.0, 2.0, 3.0], "the worker has thinned them"
    assert db.attempt(claim).point_bytes == 4 * POINT.size
    assert len(messages(db, claim.job_id)) == 2


def test_points_that_are_not_stored_do_not_count(db: StoreFixture, claim: Claim) -> None:
    record(db, claim, OutputLimits(), points=points("a", step=1), curves={"tensorboard": points("ab", step=1)})
    assert db.attempt(claim).point_bytes == 2 * POINT.size


def test_without_limits_everything_is_stored(db: StoreFixture, claim: Claim) -> None:
    limits = OutputLimits(log_bytes=None, message_bytes=None, point_bytes=None)
    record(db, claim, limits, points=points("a", step=1))
    assert record(db, claim, limits, lines=[lines("x" * 100_000)], events=[said("y" * 10_000)]) == frozenset()
    assert (db.attempt(claim).log_bytes, db.attempt(claim).point_bytes) == (100_001, POINT.size)


def test_a_batch_that_was_not_committed_counts_once(db: StoreFixture, claim: Claim) -> None:
    new = Batch(offsets={}, lines=[lines("12345")])

    def crash() -> None:
        with db.database.write() as session:
            append.record(session, claim, new, seq=0, limits=OutputLimits(log_bytes=10))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        crash()
    assert record(db, claim, OutputLimits(log_bytes=10), lines=new.lines) == frozenset()
    assert stored_lines(db, claim.job_id) == ["12345"]


def test_each_attempt_has_its_own_limits(db: StoreFixture, claim: Claim) -> None:
    limits = OutputLimits(log_bytes=2)
    record(db, claim, limits, lines=[lines("a", "b")])
    db.end(claim, EndReason.PREEMPTED)
    second = db.running(claim.job_id, db.worker())
    record(db, second, limits, lines=[lines("c", "d")])
    assert stored_lines(db, claim.job_id) == ["a", "c"]
    assert len(messages(db, claim.job_id)) == 2


def test_a_job_has_at_most_2000_series(db: StoreFixture, claim: Claim, approved: Approved) -> None:
    known = [f"k{number}" for number in range(MAX_SERIES - 1)]
    db.record(claim, seq=0, points=points(known, step=1))
    assert messages(db, claim.job_id) == []
    db.record(claim, seq=1, points=points(["k0", "last", *(f"new{number}" for number in range(9))], step=2))
    db.record(claim, seq=2, points=points(["new0", "k1", "other"], step=3))
    found = stored_series(db, claim.job_id)
    assert found.keys() == {*known, "last"}
    assert (found["k0"], found["k1"], found["last"]) == ([1.0, 2.0], [1.0, 3.0], [2.0])
    named = "new0, new1, new2, new3, new4, …"
    assert messages(db, claim.job_id) == [approved("messages", named=named)]
    assert db.read(lambda session: len(session.scalars(select(PointChunk.series_id)).all())) == MAX_SERIES + 2


def test_a_flood_of_new_keys_in_one_batch_is_cut(db: StoreFixture, claim: Claim) -> None:
    db.record(claim, seq=0, points=points([f"k{number}" for number in range(5_000)], step=1))
    assert len(stored_series(db, claim.job_id)) == MAX_SERIES


@quick_on_sqlite
def test_the_newest_values_of_a_job_are_those_of_its_first_200_series(db: StoreFixture, claim: Claim) -> None:
    other = db.running(db.submit(), db.worker("box-b"), "slot-1")
    db.record(claim, seq=0, points=points(["z", *(f"k{number}" for number in range(300))], step=1))
    db.record(other, seq=0, points=points(["b", "a"], step=2))
    found = db.read(lambda session: metrics.read_latest(session, [claim.job_id, other.job_id]))
    assert list(found[claim.job_id]) == sorted(["z", *(f"k{number}" for number in range(199))])
    assert found[other.job_id] == {"a": 2.0, "b": 2.0}


@quick_on_sqlite
def test_many_series_are_read_with_few_statements(db: StoreFixture, claim: Claim) -> None:
    keys = [f"k{number}" for number in range(MAX_SERIES)]
    for seq in range(2):
        db.record(claim, seq=seq, points=points(keys, step=seq))
    with recorded_statements(db.database) as statements:
        found = stored_series(db, claim.job_id)
    assert found == {key: [0.0, 1.0] for key in sorted(keys)}
    assert len(statements) <= 5


def test_a_long_series_is_read_by_itself(db: StoreFixture, claim: Claim, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "GROUP_POINTS", 10)
    for seq, (key, count) in enumerate([("a", 3), ("b", 12), ("c", 12), ("d", 4), ("e", 4)]):
        db.record(claim, seq=seq, points=[MetricPoint(key, step, 0.0, 0) for step in range(count)])
    keys: list[str] = []
    reads: list[int] = []
    with recorded_statements(db.database) as statements:
        for found in filter(None, series.read(db.database, claim.job_id, PointFilter())):
            keys.append(found[0])
            reads.append(sum("point_chunks" in statement for statement in statements))
    assert keys == ["a", "b", "c", "d", "e"]
    assert reads == [3, 6, 9, 10, 10], "of a long one its two ends and its points; of several their chunks at once"


@quick_on_sqlite
def test_a_long_series_is_read_in_parts_without_a_transaction_between_them(
    db: StoreFixture, claim: Claim, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_points, "PART_POINTS", 5)
    monkeypatch.setattr(stored_points, "_ROWS", 10)  # a part reads at least so many
    monkeypatch.setattr(series, "GROUP_POINTS", 5)
    with db.database.write() as session:
        for seq in range(31):
            two = [MetricPoint("a", 2 * seq + step, 0.5, 0) for step in range(2)]
            append.record(session, claim, Batch(offsets={}, points=two), seq=seq)
    parts = 0
    with recorded_statements(db.database) as statements:
        for found in series.read(db.database, claim.job_id, PointFilter()):
            if found is None:
                parts += 1
                assert db.database.engine.pool.checkedout() == 0  # pyright: ignore[reportAttributeAccessIssue]
            else:
                assert found[1].steps.tolist() == list(range(62))
    assert parts == sum("point_chunks.data" in statement for statement in statements) == 4


def limited(db: StoreFixture, owner: str, **limits: int | None) -> None:
    """Makes the owner a member with these limits. `role=1` is a limit of every member."""
    rows = [
        {"kind": kind, "name": owner if kind == "user" else "member", "resource": "stored_bytes", "limit": limit}
        for kind, limit in limits.items()
    ]
    db.write(lambda session: session.execute(insert(User).values(name=owner, role="member")))
    db.write(lambda session: session.execute(insert(Quota), rows))


def sized(step: int, size: int, *, loss: float = 1.0) -> NewCheckpoint:
    files = [ManifestFile(path="state.pt", size=size, sha256=f"{step:064}")]
    return NewCheckpoint(f"c{step}", Manifest(step=step, epoch=step, metrics={"val/loss": loss}, files=files), files)


def steps(db: StoreFixture, job_id: str) -> list[int]:
    return [row.step for row in db.read(lambda session: checkpoints.list_newest_first(session, job_id))]


@pytest.mark.parametrize(
    ("limits", "expected"),
    [({}, None), ({"role": 5}, 5), ({"role": 5, "user": 9}, 9), ({"role": 5, "user": None}, None), ({"user": 0}, 0)],
)
def test_a_users_own_quota_replaces_that_of_the_role(
    db: StoreFixture, limits: dict[str, int | None], expected: int | None
) -> None:
    if limits:
        limited(db, "ada", **limits)
    assert db.read(lambda session: find_limit(session, "ada", Resource.STORED_BYTES)) == expected
    assert db.read(lambda session: find_limit(session, "ada", Resource.DEVICES)) is None


def test_over_the_quota_the_oldest_checkpoints_of_the_job_go_and_the_best_and_the_latest_stay(db: StoreFixture) -> None:
    limited(db, "ada", user=100)
    older = db.running(db.submit(), db.worker("box-a"), "slot-a")
    for seq in (0, 1):
        db.record(older, seq=seq, checkpoints=[sized(seq + 1, 10)])
    claim = db.running(db.submit(), db.worker("box-b"), "slot-b")
    for seq, loss in enumerate([0.5, 0.1, 0.3, 0.4]):
        db.record(claim, seq=seq, checkpoints=[sized(seq + 1, 25, loss=loss)])
    assert steps(db, claim.job_id) == [4, 3, 2]
    db.record(claim, seq=4, checkpoints=[sized(5, 25, loss=0.6)])
    assert steps(db, claim.job_id) == [5, 4, 2]
    db.record(claim, seq=5, checkpoints=[sized(6, 1000, loss=0.6)])
    assert steps(db, claim.job_id) == [6, 2]
    assert steps(db, older.job_id) == [2, 1]
    with pytest.raises(NotFound, match="no longer: it was removed to keep to the quota of stored bytes"):
        db.read(lambda session: checkpoints.resolve(session, db.job(claim.job_id), "epoch-1"))
    (notice,) = messages(db, claim.job_id)
    assert notice.startswith(
        "checkpoints, models, artifacts, media, metrics, logs, bundles, specs and notes of ada exceed the quota of 100"
        " bytes: the oldest checkpoints"
    )
    assert db.read(lambda session: quotas.stored_bytes(session, "ada")) == 1045
    assert db.read(lambda session: quotas.stored_bytes(session, "bob")) == 0


def test_a_checkpoint_counts_in_each_job_that_lists_it(db: StoreFixture, claim: Claim) -> None:
    db.record(claim, seq=0, checkpoints=[sized(1, 10)])
    db.end(claim, EndReason.CANCELLED)
    db.retry(claim.job_id)
    assert db.read(lambda session: quotas.stored_bytes(session, "ada")) == 20
    db.write(lambda session: deletion.delete_job(session, claim.job_id))
    assert db.read(lambda session: quotas.stored_bytes(session, "ada")) == 10


@quick_on_sqlite
def test_a_page_of_lines_has_at_most_8_mib(db: StoreFixture, claim: Claim) -> None:
    text = "x" * 65_536
    for seq in range(3):
        db.record(claim, seq=seq, lines=[lines(*[text] * 64)])
    most = PAGE_BYTES // len(text)
    first = db.read(lambda session: logs.list_after(session, claim.job_id, line=0, limit=1000))
    assert ([line.line for line in first.items], first.has_more) == (list(range(1, most + 1)), True)
    rest = db.read(lambda session: logs.list_after(session, claim.job_id, line=most, limit=1000))
    assert ([line.line for line in rest.items], rest.has_more) == (list(range(most + 1, 193)), False)
    tail = db.read(lambda session: logs.list_before(session, claim.job_id, line=193, limit=10_000))
    assert [line.line for line in tail.items] == list(range(193 - most, 193))


@quick_on_sqlite
def test_a_page_of_events_has_at_most_8_mib(db: StoreFixture, claim: Claim) -> None:
    big = [NewEvent("checkpoint", {"text": "x" * 1_000_000}, 1) for _ in range(10)]
    db.record(claim, seq=0, events=big)
    seen: list[int] = []
    pages: list[int] = []
    more = True
    while more:
        after = seen[-1] if seen else 0
        found = db.read(
            lambda session, after=after: job_events.list_events(
                session, claim.job_id, caller=SERVICE, after=after, limit=1000
            )
        )
        seen += [event.seq for event in found.items]
        pages.append(sum(event.type == "checkpoint" for event in found.items))
        more = found.has_more
    assert pages == [8, 2]
    assert len(seen) == len(set(seen))
    assert seen == sorted(seen)


def test_series_of_an_older_version_beyond_the_limit_are_still_read(db: StoreFixture, claim: Claim) -> None:
    rows = [
        {"job_id": claim.job_id, "key": f"k{number}", "latest": 1.0, "count": 0} for number in range(MAX_SERIES + 5)
    ]
    db.write(lambda session: session.execute(insert(Series), rows))
    db.record(claim, seq=0, points=points(["k0", "new"], step=1))
    found = stored_series(db, claim.job_id)
    assert len(found) == MAX_SERIES + 5
    assert found["k0"] == [1.0]

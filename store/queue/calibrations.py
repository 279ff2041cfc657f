"""What the scores of past estimates have taught, by the bucket of the wait that a replay said."""

from collections import defaultdict
from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, select, tuple_, update
from sqlalchemy.orm import Session

from scheduling.calibration import BUCKETS, MOST_SCORES, UNTAUGHT, Score, Track, scored
from store.db.prepared import Prepared
from store.db.upsert import upsert
from store.queue.forecasts import Ended
from store.tables import Base, Calibration, Forecast

_LEVELS = Prepared(select(Calibration.bucket, Calibration.level))
_IS_SCORED = (Forecast.bucket == bindparam("of_bucket"), Forecast.scored_at.is_not(None))
_NEWEST = (
    select(Forecast.log_ratio, Forecast.held, Forecast.scored_at)
    .where(*_IS_SCORED)
    .order_by(Forecast.scored_at.desc())
    .limit(MOST_SCORES)
)
_OLDEST_KEPT = (
    select(Forecast.scored_at).where(*_IS_SCORED).order_by(Forecast.scored_at.desc()).offset(MOST_SCORES - 1).limit(1)
)
_KEY = (Forecast.job_id, Forecast.attempt, Forecast.hour)
_FORECASTS = Base.metadata.tables[Forecast.__tablename__]
# By the table, because a session would take a list of values as keys of rows.
_SCORE = (
    update(_FORECASTS)
    .where(
        _FORECASTS.c.job_id == bindparam("of_job"),
        _FORECASTS.c.attempt == bindparam("of_attempt"),
        _FORECASTS.c.hour == bindparam("of_hour"),
        _FORECASTS.c.scored_at.is_(None),
    )
    .values(scored_at=bindparam("at"), log_ratio=bindparam("ratio"), held=bindparam("is_held"))
)


def tracks(session: Session) -> dict[int, Track]:
    """Returns how the estimates of each bucket did, of those of which any was scored."""
    levels = _levels(session)
    return {bucket: _track(session, bucket, levels)[0] for bucket in range(BUCKETS) if bucket in levels}


def learn(session: Session, ended: Sequence[Ended], *, now: int) -> int:
    """Scores forecasts whose jobs have started, in this order. Returns how many.

    Only who has locked the lease may call this: two that score would both begin with the same level.
    """
    levels = _levels(session)
    by_bucket: dict[int, list[Ended]] = defaultdict(list)
    for one in ended:
        if one.started_at is not None:
            by_bucket[one.bucket].append(one)
    for bucket, some in sorted(by_bucket.items()):
        _learn(session, bucket, some, levels, now=now)
    return sum(map(len, by_bucket.values()))


def _levels(session: Session) -> dict[int, float]:
    return {bucket: level for bucket, level in _LEVELS.read(session)}  # noqa: C416 rows


def _learn(session: Session, bucket: int, ended: Sequence[Ended], levels: Mapping[int, float], *, now: int) -> None:
    track, newest = _track(session, bucket, levels)
    # Of no two the same, and never before an older one: the clock may have jumped.
    first = max(now, newest + 1)
    rows: list[dict[str, object]] = []
    for at, one in enumerate(ended, start=first):
        track = _scored(track, one)
        score = track.scores[-1]
        key = {"of_job": one.job_id, "of_attempt": one.attempt, "of_hour": one.hour}
        rows.append({**key, "at": at, "ratio": score.log_ratio, "is_held": score.held})
    session.connection().execute(_SCORE, rows)
    new = upsert(session, Calibration).values(
        bucket=bucket, level=track.level, scored=len(rows), held=track.held, of=track.of
    )
    replaced = {name: new.excluded[name] for name in ("level", "held", "of")}
    statement = new.on_conflict_do_update(
        index_elements=["bucket"], set_={**replaced, "scored": Calibration.scored + len(rows)}
    )
    session.execute(statement)
    _prune(session, bucket)


def _scored(track: Track, one: Ended) -> Track:
    def wait(moment: int | None) -> int | None:
        return None if moment is None else moment - one.made_at

    actual = max(0, (one.started_at or 0) - one.made_at)
    return scored(track, wait_us=one.wait_us, low=wait(one.low), high=wait(one.high), actual_us=actual)


def _track(session: Session, bucket: int, levels: Mapping[int, float]) -> tuple[Track, int]:
    """Returns how the estimates of a bucket did, and when the newest one was scored; 0 if none was."""
    rows = session.execute(_NEWEST, {"of_bucket": bucket}).all()
    scores = tuple(Score(row.log_ratio, row.held) for row in reversed(rows))
    return Track(levels.get(bucket, UNTAUGHT.level), scores), rows[0].scored_at if rows else 0


def _prune(session: Session, bucket: int) -> None:
    """Deletes the scores beyond the newest ones that are kept."""
    newest = session.scalars(_OLDEST_KEPT, {"of_bucket": bucket}).first()
    if newest is None:
        return
    older = select(*_KEY).where(Forecast.bucket == bucket, Forecast.scored_at < newest).order_by(*_KEY)
    # Whoever deletes a job waits for what is locked here, so this waits for nobody.
    keys = [tuple(row) for row in session.execute(older.with_for_update(skip_locked=True))]
    pruned = delete(Forecast).where(tuple_(*_KEY).in_(keys))
    session.execute(pruned, execution_options={"synchronize_session": False})

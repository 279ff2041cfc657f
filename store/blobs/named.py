"""Which blobs a remote worker may read or name: those that its open attempts and its requests to keep files name."""

from collections.abc import Collection, Iterable

from sqlalchemy import BigInteger, cast, func, select, true, union
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.orm import Session
from sqlalchemy.sql.expression import column

from store.tables import (
    Artifact,
    Attempt,
    Bundle,
    BundleUse,
    Checkpoint,
    InitialWeights,
    Job,
    KeepRequest,
    MediaPicture,
)


def find_readable(session: Session, worker_id: str, sha256: str) -> int | None:
    """Returns the size of a blob that the worker may read; None if there is none.

    It may read what its jobs name, and the jobs that these retry: bundles, first weights, checkpoints and files.
    """
    attempts = select(Attempt.job_id).where(Attempt.worker_id == worker_id, Attempt.ended_at.is_(None))
    asked = select(KeepRequest.job_id).where(KeepRequest.worker_id == worker_id, KeepRequest.answered_at.is_(None))
    own = set(session.scalars(union(attempts, asked)))
    retried = select(Job.retry_of).where(Job.id.in_(own), Job.retry_of.is_not(None))
    return find_named(session, own.union(filter(None, session.scalars(retried))), [sha256]).get(sha256)


def find_named(session: Session, job_ids: Collection[str], wanted: Collection[str]) -> dict[str, int]:
    """Returns the sizes of those of `wanted` that the jobs name, by their digests."""
    if not job_ids or not wanted:
        return {}
    found: dict[str, int] = {}
    for table in (Artifact, MediaPicture):
        rows = select(table.sha256, table.size).where(table.job_id.in_(job_ids), table.sha256.in_(wanted))
        found |= {row.sha256: row.size for row in session.execute(rows)}
    uses = select(Bundle.sha256, Bundle.size).join(BundleUse, BundleUse.sha256 == Bundle.sha256)
    own = uses.join(Job, (Job.id == BundleUse.job_id) & (Job.owner == Bundle.owner))
    bundles = own.where(BundleUse.job_id.in_(job_ids), Bundle.sha256.in_(wanted))
    found |= {row.sha256: row.size for row in session.execute(bundles)}
    for table in (Checkpoint, InitialWeights):
        found |= dict(_among_files(session, table, job_ids, wanted))
    return found


def _among_files(
    session: Session, table: type[Checkpoint | InitialWeights], job_ids: Collection[str], wanted: Collection[str]
) -> Iterable[tuple[str, int]]:
    (first, *others) = wanted
    if session.get_bind().dialect.name == "postgresql":
        file = func.jsonb_array_elements(table.files).table_valued(column("value", JSONB))
        sha256, size = file.c.value["sha256"].astext, cast(file.c.value["size"].astext, BigInteger)
        has_first = cast(table.files, JSONB).contains([{"sha256": first}])
    else:
        file = func.json_each(table.files).table_valued("value")
        sha256, size = func.json_extract(file.c.value, "$.sha256"), func.json_extract(file.c.value, "$.size")
        has_first = func.instr(table.files, first) > 0
    lists = select(sha256, size).select_from(table).join(file, true()).where(table.job_id.in_(job_ids))
    # Long lists are searched as they are stored, before they are taken apart.
    rows = session.execute((lists if others else lists.where(has_first)).where(sha256.in_(wanted)))
    return [(str(digest), int(bytes_)) for digest, bytes_ in rows]

"""The working folders of jobs on hosts, and what is stored of jobs."""

from collections.abc import Mapping

from sqlalchemy import delete, func, insert, select, union_all
from sqlalchemy.orm import Session

from store.attempts.folders_facts import DiskUse, FolderFacts, JobUse
from store.tables import Artifact, Checkpoint, Job, Media, Worker, WorkFolder


def read_sizes(session: Session, worker_id: str) -> dict[str, int]:
    """Returns the bytes of each job's folder, as the worker has reported them."""
    query = select(WorkFolder.job_id, WorkFolder.size).where(WorkFolder.worker_id == worker_id)
    return {row.job_id: row.size for row in session.execute(query)}


def replace_sizes(session: Session, worker_id: str, sizes: Mapping[str, int]) -> None:
    """Stores the bytes of all working folders on a worker's host, by job. What has not changed stays as it is."""
    before = read_sizes(session, worker_id)
    changed = [job_id for job_id, size in before.items() if sizes.get(job_id) != size]
    for job_id in changed:
        session.execute(delete(WorkFolder).where(WorkFolder.job_id == job_id, WorkFolder.worker_id == worker_id))
    rows = [
        {"job_id": job_id, "worker_id": worker_id, "size": size}
        for job_id, size in sizes.items()
        if before.get(job_id) != size
    ]
    if rows:
        session.execute(insert(WorkFolder), rows)


def read_disk_use(session: Session, owner: str, *, limit: int) -> DiskUse:
    """Returns what the jobs of an owner take: all together, and the `limit` that take most, the largest first."""
    own = select(Job.id).where(Job.owner == owner)
    stored = union_all(
        *(select(table.job_id, table.size).where(table.job_id.in_(own)) for table in (Checkpoint, Artifact, Media))
    ).subquery()
    by_job = select(stored.c.job_id, func.sum(stored.c.size).label("stored")).group_by(stored.c.job_id).subquery()
    on_hosts = (
        select(WorkFolder.job_id, func.sum(WorkFolder.size).label("folders"))
        .where(WorkFolder.job_id.in_(own))
        .group_by(WorkFolder.job_id)
        .subquery()
    )
    taken = func.coalesce(by_job.c.stored, 0), func.coalesce(on_hosts.c.folders, 0)
    query = (
        select(Job.id, Job.name, Job.state, *taken)
        .outerjoin(by_job, by_job.c.job_id == Job.id)
        .outerjoin(on_hosts, on_hosts.c.job_id == Job.id)
        .where(Job.owner == owner, taken[0] + taken[1] > 0)
    )
    newest = query.subquery()
    columns = [*newest.c]
    totals = session.execute(select(func.count(), func.sum(columns[3]), func.sum(columns[4])).select_from(newest)).one()
    largest = session.execute(query.order_by((taken[0] + taken[1]).desc(), Job.id).limit(limit)).all()
    folders = _folders(session, [row[0] for row in largest])
    jobs = [
        JobUse(job_id, name, state, int(stored), folders.get(job_id, [])) for job_id, name, state, stored, _ in largest
    ]
    count, all_stored, all_folders = totals
    return DiskUse(int(all_stored or 0), int(all_folders or 0), count, jobs)


def _folders(session: Session, job_ids: list[str]) -> dict[str, list[FolderFacts]]:
    query = (
        select(WorkFolder.job_id, Worker.name, WorkFolder.size, WorkFolder.measured_at)
        .join(Worker, Worker.id == WorkFolder.worker_id)
        .where(WorkFolder.job_id.in_(job_ids))
        .order_by(WorkFolder.size.desc(), Worker.name)
    )
    by_job: dict[str, list[FolderFacts]] = {}
    for job_id, name, size, measured_at in session.execute(query):
        by_job.setdefault(job_id, []).append(FolderFacts(name, size, measured_at))
    return by_job

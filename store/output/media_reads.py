"""What jobs show at their steps. All of them raise Unavailable, and NotFound as `store.jobs.reads` does."""

from store.db.database import Snapshots
from store.output import media
from store.output.facts import MediaFilter, MediaPlace, PictureFacts, ShownMedia
from store.team import access
from store.team.callers import Caller


def shown(
    store: Snapshots,
    job_id: str,
    *,
    caller: Caller,
    where: MediaFilter,
    limit: int,
    after: MediaPlace | None,
    keys: bool = True,
) -> ShownMedia:
    """Returns items of the job behind a place, by key, step and number. `keys`: also what the job has in all."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        found = media.page(session, job_id, where=where, limit=limit, after=after)
        return ShownMedia(found, media.keys(session, job_id) if keys else ())


def picture(store: Snapshots, job_id: str, media_id: str, part: str, *, caller: Caller) -> tuple[str, PictureFacts]:
    """Returns a picture, and the key of the item that it belongs to."""
    with store.read() as session:
        access.readable_job(session, job_id, caller)
        return media.picture(session, job_id, media_id, part)

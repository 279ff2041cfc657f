"""Waits for a job to change without holding a thread."""

import asyncio

from starlette.concurrency import run_in_threadpool

from api.auth.access import Access
from api.auth.callers import Principal, check_watcher
from api.streams.live import Live
from store.jobs import show


async def for_version(
    access: Access, live: Live, caller: Principal, job_id: str, *, above: int | None, seconds: float
) -> None:
    """Returns once the job's version is above `above` (None: above its present one), at the latest after `seconds`.

    Raises NotFound, also if the job is deleted meanwhile, and NotAuthorized if the credential ends.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with live.watch(job_id, user=caller.name) as watch:
        version = await run_in_threadpool(_read_version, access, job_id, caller)
        known = version if above is None else above
        while version <= known and not watch.ended and (left := deadline - loop.time()) > 0:
            await watch.wait_for_change(within=left)
            if watch.is_check_due():
                await access.at_once(check_watcher, access, caller, job_id)
            version = await run_in_threadpool(_read_version, access, job_id, caller)


def _read_version(access: Access, job_id: str, caller: Principal) -> int:
    with access.store.read() as session:
        return show.find_version(session, job_id, caller)

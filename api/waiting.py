"""Waiting for a job to change, with no thread held meanwhile."""

import asyncio

from starlette.concurrency import run_in_threadpool

from api.auth import Principal, visible_job
from api.services import Services


async def for_version(parts: Services, user: Principal, job_id: str, *, above: int | None, seconds: float) -> None:
    """Returns once the job's version is above `above` (its present one, for None), at the latest after `seconds`.

    Raises NotFound, also where the job is deleted meanwhile.
    """
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    with parts.live.watch(job_id) as watch:
        version = await run_in_threadpool(_version, parts, user, job_id)
        known = version if above is None else above
        while version <= known and not watch.over and (left := deadline - loop.time()) > 0:
            await watch.changed(within=left)
            version = await run_in_threadpool(_version, parts, user, job_id)


def _version(parts: Services, user: Principal, job_id: str) -> int:
    with parts.store.read() as session:
        return visible_job(session, job_id, user).version

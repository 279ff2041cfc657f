"""Waits for a job, by requests that the server holds back until the job changes."""

import time

from torchyard.client.calls import jobs as calls
from torchyard.client.connection import Connection
from torchyard.contract.jobs.views import JobView

_LONGEST_WAIT_S = 20
"""For this long the server is asked to hold its answer back until the job changes."""


async def wait_for_end(connection: Connection, job_id: str, *, timeout: float | None) -> JobView:  # noqa: ASYNC109 - as in Client
    """Waits until the job has ended, and returns it. `timeout` is in seconds. Raises TimeoutError."""
    deadline = float("inf") if timeout is None else time.monotonic() + timeout
    job = await connection.answer(calls.get(job_id))
    while not job.state.terminal:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"job {job_id} is still {job.state} after {timeout:g} s")
        job = await wait_for_change(connection, job, timeout=left)
    return job


async def wait_for_change(connection: Connection, job: JobView, *, timeout: float = _LONGEST_WAIT_S) -> JobView:  # noqa: ASYNC109 - as in Client
    """Returns the job once its version is another one than that of `job`, or as it is after `timeout` seconds."""
    call = calls.get(job.id, wait=min(timeout, _LONGEST_WAIT_S), after_version=job.version)
    return await connection.answer(call)

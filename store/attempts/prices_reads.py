"""What stops would cost. Nothing is done, and nothing audited. All of them raise Unavailable."""

from collections.abc import Sequence
from typing import Literal

from store.attempts import prices
from store.attempts.prices_facts import StopPrice
from store.cluster import workers
from store.db.database import Snapshots
from store.jobs import intents, jobs
from store.team import access
from store.team.callers import Caller
from torchyard.contract.errors import Forbidden


def of_stop(
    store: Snapshots, action: Literal["cancel", "pause"], job_id: str, *, caller: Caller, now: bool = False
) -> StopPrice | None:
    """Returns the price of a cancel or a pause; None of a job that does not run. `now`: the cancel kills.

    Raises NotFound, Forbidden and Conflict as the action does.
    """
    with store.read() as session:
        access.check_own(session, job_id, caller, ending=now)
        if now and not access.is_readable(session, job_id, caller):
            raise Forbidden(f"you may not read job {job_id}: `POST /v1/jobs/actions` with its id tells the price")
        intents.check_stop(jobs.get(session, job_id), action)
        return next(iter(prices.of_jobs(session, [job_id], now=now)), None)


def of_drain(store: Snapshots, worker_id: str) -> Sequence[StopPrice]:
    """Returns the prices of all jobs that run on the worker, the highest first. Raises NotFound."""
    with store.read() as session:
        workers.get(session, worker_id)
        return prices.on_worker(session, worker_id)

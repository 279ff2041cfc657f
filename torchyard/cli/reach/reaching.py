"""Opens a reach with the client of the command line, whose calls block."""

from collections.abc import Callable
from functools import partial
import time

from torchyard.cli.reach.blocking import Worker
from torchyard.client import Client
from torchyard.client.blocking import ask
from torchyard.client.reaching.meeting import open_meeting
from torchyard.client.reaching.reach import Ended, Gone, Reach
from torchyard.client.waiting import wait_for_change
from torchyard.contract.errors import Conflict, NotFound, TorchyardError
from torchyard.contract.jobs.views import JobView
from torchyard.contract.reach.orders import Order
from torchyard.contract.states import JobState

_LONGEST_END_S = 5.0
"""What runs in an attempt ends a moment before it: for how long that is awaited."""
_FINAL = frozenset(state for state in JobState if state.terminal)


async def open_reach(
    client: Client, job_id: str, order: Order, *, patience: float, tell: Callable[[str], None]
) -> Reach:
    """Has what the order says be started in the job. Raises as `client.reaches.open` does."""
    calls = Worker()
    meeting = await calls(lambda: client.reaches.open(job_id, order))
    return Reach(
        meeting,
        connect=lambda meeting: open_meeting(client.server, meeting),
        meet_again=lambda: calls(lambda: client.reaches.meet_again(meeting.id)),
        patience=patience,
        tell=tell,
    )


async def explained(client: Client, reach: Reach, error: TorchyardError) -> TorchyardError:
    """Returns the error of a reach, or what has become of its job, if that is why."""
    if not isinstance(error, Conflict | Ended | NotFound):
        return error
    within = _LONGEST_END_S if isinstance(error, Gone | NotFound) else 0.0
    job = await Worker()(lambda: _ended(client, reach, within=within))
    if job is None:
        return error
    if job.attempt != reach.attempt:
        return Ended(f"attempt {reach.attempt} has ended; the job is now in attempt {job.attempt}")
    now = "has ended" if job.state in _FINAL else "was stopped"
    return Ended(f"the job {now}: {job.state}, {job.status_reason.message}")


def _ended(client: Client, reach: Reach, *, within: float) -> JobView | None:
    """Returns the job once its attempt has ended. None: it goes on."""
    deadline = time.monotonic() + within
    job = client.get(reach.job_id).view
    while job.state == JobState.RUNNING and job.attempt == reach.attempt:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        job = ask(client, partial(wait_for_change, timeout=left), job)
    return job


async def end(client: Client, reach_id: str) -> None:
    """Has the service end what was started. Raises TorchyardError."""
    await Worker()(lambda: client.reaches.end(reach_id))

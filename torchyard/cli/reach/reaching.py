"""Opens a reach with the client of the command line, whose calls block."""

from collections.abc import Callable

from torchyard.cli.reach.blocking import Worker
from torchyard.client import Client
from torchyard.client.reaching.meeting import open_meeting
from torchyard.client.reaching.reach import Ended, Reach
from torchyard.contract.errors import Conflict, NotFound, TorchyardError
from torchyard.contract.reach.orders import Order
from torchyard.contract.states import JobState

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
    job = (await Worker()(lambda: client.get(reach.job_id))).view
    if job.state == "running" and job.attempt == reach.attempt:
        return error
    now = "has ended" if job.state in _FINAL else "was stopped"
    return Ended(f"the job {now}: {job.state}, {job.status_reason.message}")


async def end(client: Client, reach_id: str) -> None:
    """Has the service end what was started. Raises TorchyardError."""
    await Worker()(lambda: client.reaches.end(reach_id))

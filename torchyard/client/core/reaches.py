"""The operations on reaches: the ways of a user into a running job."""

from torchyard.client.calls import reaches as calls
from torchyard.client.core.base import Core
from torchyard.contract.reach.orders import Order
from torchyard.contract.reach.views import OpenedReachView


class ReachesCore(Core):
    async def open(self, job_id: str, order: Order) -> OpenedReachView:
        """Has something be started inside the sandbox of a running job, and returns where to meet it.

        Raises NotFound, Forbidden unless the job is one's own and the token has the scope `jobs:exec`, and Conflict if
        the job does not run.
        """
        return await self._connection.answer(calls.open_reach(job_id, order))

    async def meet_again(self, reach_id: str) -> OpenedReachView:
        """Returns where to meet what was started, after a cut of the connection. Raises NotFound if it has ended."""
        return await self._connection.answer(calls.meet_again(reach_id))

    async def end(self, reach_id: str) -> None:
        """Ends what was started. Raises NotFound if it has ended."""
        await self._connection.send(calls.end_reach(reach_id))

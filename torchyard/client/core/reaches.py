"""Operations on reaches: shells, programs and ports inside running jobs."""

from torchyard.client.calls import reaches as calls
from torchyard.client.core.base import Core
from torchyard.contract.reach.orders import Order
from torchyard.contract.reach.views import OpenedReachView


class ReachesCore(Core):
    """Operations on reaches: shells, programs and ports inside running jobs."""

    async def open(self, job_id: str, order: Order) -> OpenedReachView:
        """Opens a reach into your own running job.

        Args:
            job_id: The job's id.
            order: The program, terminal, ports or SSH session to open.

        Returns:
            The address of a WebSocket and a secret.

        Raises:
            NotFound: There is no such job.
            Forbidden: The job is another user's, or the token lacks the scope `jobs:exec`.
            Conflict: The job does not run.
        """
        return await self._connection.answer(calls.open_reach(job_id, order))

    async def meet_again(self, reach_id: str) -> OpenedReachView:
        """Reconnects to a reach after the connection was lost.

        Args:
            reach_id: The reach's id.

        Raises:
            NotFound: The reach has ended.
        """
        return await self._connection.answer(calls.meet_again(reach_id))

    async def end(self, reach_id: str) -> None:
        """Ends a reach and its program.

        Args:
            reach_id: The reach's id.

        Raises:
            NotFound: The reach has ended.
        """
        await self._connection.send(calls.end_reach(reach_id))

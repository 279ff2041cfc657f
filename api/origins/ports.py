"""The reaches by which this process connects to ports of jobs: one for each origin."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
import logging

from starlette.concurrency import run_in_threadpool

from api.auth.callers import Principal
from api.origins.reach import Reach
from api.routes.reach_streams import meet
from api.services import Services
from store.reaches import meetings, reaches
from store.reaches.facts import MeetingFacts, OriginFacts
from torchyard.contract.errors import Conflict, TorchyardError, Unavailable
from torchyard.contract.reach.orders import Order
from torchyard.host.channel import Channel, Closed

_CONNECT_S = 40.0
"""The worker may take 30 s to come."""
_IDLE_S = 300.0
"""How long a reach stays without a connection."""

_log = logging.getLogger(__name__)


class Ports:
    """Call everything in the event loop."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._open: dict[str, Reach] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._opening = asyncio.Lock()

    @asynccontextmanager
    async def connected(self, facts: OriginFacts, caller: Principal) -> AsyncGenerator[Channel]:
        """Yields a connection to the port of the origin. Raises Conflict where nothing listens or the job has ended."""
        assert facts.port is not None
        if not facts.is_running:
            raise Conflict("the job has ended, or continues in another attempt: open the port again from its page")
        try:
            async with asyncio.timeout(_CONNECT_S):
                reach = await self._reach(facts, caller)
                channel = await reach.connect(facts.port)
        except TimeoutError:
            raise Unavailable(f"the worker of job {facts.job_id} did not connect") from None
        except Closed as error:
            raise Conflict(f"port {facts.port} of the job cannot be opened: {error}") from None
        try:
            yield channel
        finally:
            reach.disconnect(channel)

    async def _reach(self, facts: OriginFacts, caller: Principal) -> Reach:
        async with self._opening:
            found = self._open.get(facts.name)
            if found is None or found.is_over:
                meeting = await run_in_threadpool(self._begin, facts, caller)
                found = self._open[facts.name] = Reach()
                found.caller = caller
                task = asyncio.create_task(self._run(facts.name, found, meeting))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            return found

    async def _run(self, name: str, reach: Reach, meeting: MeetingFacts) -> None:
        """Carries the reach until it is cut, ended, or was without a connection for a while."""
        idle = asyncio.create_task(_watch_idle(reach))
        try:
            await meet(self._services, reach, meeting, "client")
        except (OSError, Unavailable) as error:
            _log.warning("reach %s cannot be joined: %s", meeting.reach_id, error)
        finally:
            idle.cancel()
            reach.lose("the connection to the job is lost")
            if self._open.get(name) is reach:
                del self._open[name]
        assert reach.caller is not None
        with suppress(TorchyardError):  # it has ended, or the database is away: it ends in a minute
            await run_in_threadpool(self._end, meeting.reach_id, reach.caller)

    def _begin(self, facts: OriginFacts, caller: Principal) -> MeetingFacts:
        by_operators, order = self._services.settings.exec_by_operators, Order(kind="ports")
        with self._services.store.write("reach") as session:
            opened = reaches.open_reach(
                session, facts.job_id, order, caller=caller, login=facts.session, by_operators=by_operators
            )
            found = meetings.find_awaited(session, opened.id, meeting=opened.meeting)
        if found is None:
            raise Conflict("the session has ended")
        return found

    def _end(self, reach_id: str, caller: object) -> None:
        assert isinstance(caller, Principal)
        with self._services.store.write("reach") as session:
            reaches.end(session, reach_id, caller=caller)


async def _watch_idle(reach: Reach) -> None:
    was_used = True
    while was_used or reach.is_used:
        was_used = reach.is_used
        await asyncio.sleep(_IDLE_S)
    reach.lose("nobody used it")

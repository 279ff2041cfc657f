"""Takes an end of a reach to its meeting, has bytes passed on as long as its user may have them, and notes the end."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
import logging
import time
from typing import TypeVar

from sqlalchemy.orm import Session
from starlette.concurrency import run_in_threadpool
from starlette.websockets import WebSocket

from api.auth.callers import count_wrong_proof
from api.reaches import ends
from api.reaches.ends import GOING_AWAY, SocketEnd, StreamEnd
from api.reaches.handshake import NotProved, ask
from api.reaches.meetings import Elsewhere, Visitor
from api.reaches.relay import Passed, Stopped, relay
from api.server.address import client_address
from api.services import Services
from store.reaches import meetings
from store.reaches.facts import End, MeetingFacts
from store.reaches.reaches import MEETING
from store.team.callers import Caller
from torchyard.contract.errors import TooManyRequests, Unavailable
from torchyard.contract.team.roles import Role

T = TypeVar("T")

REFUSED, NOBODY_CAME, ELSEWHERE, ENDED, TOO_OFTEN, AWAY = 4403, 4408, 4409, 4410, 4429, 4503
"""Codes with which the service closes a WebSocket: 4000 more than those of HTTP for the same."""
_NOT_PROVED = "there is no such meeting, or the proof is wrong"
_ABSENT = {
    "client": "the worker of the job did not come within 30 s",
    "worker": "the client did not come within 30 s",
}
"""By the end that has waited."""
_LOOK_S = 5.0
_NOTED_EVERY_S = 10.0
"""Between two notes that the client sends something."""
_STAYS_NOTED_S = 3600.0
"""Between two notes that a client is there, which sends nothing."""

_log = logging.getLogger(__name__)


async def join(websocket: WebSocket, services: Services, reach_id: str, *, meeting: int, end: End) -> None:
    """Has an end prove itself, meet the other one, and be passed on. Returns once that is over, and it is closed."""
    own = SocketEnd(websocket)
    try:
        try:
            proved = await ask(websocket, services.access, reach_id, meeting=meeting, end=end)
        except NotProved:
            await count_wrong_proof(websocket, services.access)
            await own.close(REFUSED, _NOT_PROVED)
            return
        own.greeting = proved.answer
        await _meet(services, proved.facts, own, end)
    except TooManyRequests:
        await own.close(TOO_OFTEN, "too many wrong proofs came from this address: try again later")
    except (Unavailable, OSError) as error:
        _log.warning("reach %s cannot be joined: %s", reach_id, error)
        await own.close(AWAY, "the service cannot do that now: try again")


async def _meet(services: Services, facts: MeetingFacts, own: SocketEnd, end: End) -> None:
    await services.meetings.open()
    with services.meetings.expect() as expected:
        come = partial(meetings.come, facts=facts, end=end, place=expected.place)
        came = await run_in_threadpool(_write, services, come)
        if came is None:
            await own.close(REFUSED, _NOT_PROVED)
            return
        if came.is_first:
            visitor = await _wait(expected.visitor)
            if visitor is None:
                await own.close(NOBODY_CAME, _ABSENT[end])
                return
            try:
                await _pass_on(services, facts, *_ordered(own, visitor.end, end))
            finally:
                visitor.is_done.set()
            return
    try:
        found = await services.meetings.visit(came.place, own)
    except Elsewhere:
        await own.close(ELSEWHERE, "another process of the service has the other end: try again")
        return
    if isinstance(found, StreamEnd):
        await _pass_on(services, facts, *_ordered(own, found, end))
    else:
        await found.is_done.wait()


def _ordered(own: SocketEnd, other: ends.End, end: End) -> tuple[ends.End, ends.End]:
    """Returns the client, and the worker."""
    return (own, other) if end == "client" else (other, own)


async def _wait(visitor: asyncio.Future[Visitor]) -> Visitor | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(MEETING.total_seconds()):
            return await visitor
    return None


async def _pass_on(services: Services, facts: MeetingFacts, client: ends.End, worker: ends.End) -> None:
    """Passes bytes on. The process to which the client has come looks after the meeting, and no other does."""
    passed = Passed()
    caller = _caller(services, facts, client) if isinstance(client, SocketEnd) else None
    until = _forever if caller is None else partial(_watch, services, facts, passed)
    try:
        await relay(client, worker, passed, until=until)
    finally:
        note = partial(_note_end, facts=facts, passed=passed, caller=caller, has_finished=worker.has_finished)
        try:
            await asyncio.shield(run_in_threadpool(_write, services, note))
        except Unavailable as error:
            _log.warning("the end of reach %s is not noted: %s", facts.reach_id, error.message)


def _note_end(
    session: Session, *, facts: MeetingFacts, passed: Passed, caller: Caller | None, has_finished: bool
) -> None:
    if caller is not None:
        meetings.leave(session, facts, to_job=passed.to_job, from_job=passed.from_job, caller=caller)
    if has_finished:
        meetings.finish(session, facts)


async def _watch(services: Services, facts: MeetingFacts, passed: Passed) -> Stopped:
    """Returns once the user may not have the reach any more, or somebody has ended it. Notes that it is in use."""
    noted_at, noted = time.monotonic(), 0
    with services.live.watch_rights(facts.job_id, user=facts.user) as watch:
        while not watch.ended:
            await watch.wait_for_change(within=_LOOK_S)
            try:
                if watch.is_check_due() and not await services.access.at_once(_is_on, services, facts):
                    return Stopped(ENDED, "it was ended, or is not permitted any more")
                quiet_s = time.monotonic() - noted_at
                if quiet_s >= _STAYS_NOTED_S or (passed.to_job > noted and quiet_s >= _NOTED_EVERY_S):
                    note = partial(meetings.note, facts=facts, has_input=passed.to_job > noted)
                    noted_at, noted = time.monotonic(), passed.to_job
                    await run_in_threadpool(_write, services, note)
            except Unavailable:
                pass  # the next look asks again
    return Stopped(GOING_AWAY, "the service stops: join again")


async def _forever() -> Stopped:
    await asyncio.get_running_loop().create_future()
    raise AssertionError


def _is_on(services: Services, facts: MeetingFacts) -> bool:
    with services.store.read() as session:
        return meetings.is_on(session, facts)


def _write(services: Services, change: Callable[[Session], T]) -> T:
    with services.store.write("reach") as session:
        return change(session)


def _caller(services: Services, facts: MeetingFacts, client: SocketEnd) -> Caller:
    scope = client.scope
    address = client_address(scope, services.settings)
    request_id: str = scope["state"]["request_id"]
    return Caller(facts.user, Role(facts.role), token_id=facts.token_id, address=address, request_id=request_id)

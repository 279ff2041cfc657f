"""The WebSocket at which the two ends of a reach meet. It needs no token: both prove that they know its secret."""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
import logging
import time

from starlette.concurrency import run_in_threadpool
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket

from api.auth.callers import check_origin, count_wrong_proof
from api.reaches import ends
from api.reaches.ends import GOING_AWAY, OwnEnd, SocketEnd, StreamEnd
from api.reaches.handshake import NotProved, ask
from api.reaches.meetings import Elsewhere, Visitor
from api.reaches.relay import Passed, Stopped, relay
from api.server.address import client_address
from api.services import Services
from store.ids import is_id
from store.reaches import meetings
from store.reaches.facts import Came, End, MeetingFacts
from store.reaches.reaches import MEETING
from store.team.callers import Caller
from torchyard.contract.errors import TooManyRequests, Unavailable
from torchyard.contract.team.roles import Role

BAD_QUERY, REFUSED, NOBODY_CAME, ELSEWHERE, ENDED, TOO_OFTEN, AWAY = 4400, 4403, 4408, 4409, 4410, 4429, 4503
"""Codes with which the service closes: 4000 more than those of HTTP for the same."""
_ENDS: Mapping[str, End] = {"client": "client", "worker": "worker"}
_PURPOSE = "reach"
_MOST_DIGITS = 9
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


async def stream_reach(websocket: WebSocket) -> None:
    """Passes bytes between a client and what runs for it in a job. Raises Forbidden for a page of another web site."""
    if "origin" in websocket.headers:  # a browser lets any page open a WebSocket
        check_origin(websocket)
    end = _ENDS.get(websocket.query_params.get("end", ""))
    await pass_stream(websocket, websocket.app.state.services, websocket.path_params["reach_id"], end)


async def pass_stream(websocket: WebSocket, services: Services, reach_id: str, end: End | None) -> None:
    """Accepts the WebSocket of an end for the meeting in its query, and passes on what both ends send."""
    meeting = websocket.query_params.get("meeting", "")
    is_number = meeting.isascii() and meeting.isdecimal() and len(meeting) <= _MOST_DIGITS
    await websocket.accept()
    if end is None or not is_number or not is_id(reach_id, "rch"):
        await websocket.close(BAD_QUERY, "write /v1/reaches/ID/stream?meeting=NUMBER&end=client")
        return
    own = SocketEnd(websocket)
    try:
        await _join(websocket, services, own, reach_id, meeting=int(meeting), end=end)
    except TooManyRequests:
        await own.close(TOO_OFTEN, "too many wrong proofs came from this address: try again later")
    except (Unavailable, OSError) as error:
        _log.warning("reach %s cannot be joined: %s", reach_id, error)
        await own.close(AWAY, "the service cannot do that now: try again")


routes = [WebSocketRoute("/v1/reaches/{reach_id}/stream", stream_reach, name="stream_reach")]


async def _join(
    websocket: WebSocket, services: Services, own: SocketEnd, reach_id: str, *, meeting: int, end: End
) -> None:
    """Has an end prove itself, meet the other one, and be passed on. Returns once that is over."""
    try:
        proved = await ask(websocket, services.access, reach_id, meeting=meeting, end=end)
    except NotProved:
        await count_wrong_proof(websocket, services.access)
        await own.close(REFUSED, _NOT_PROVED)
        return
    own.greeting = proved.answer
    await meet(services, own, proved.facts, end)


async def meet(services: Services, own: ends.End, facts: MeetingFacts, end: End) -> None:
    """Has an end that has proved itself meet the other one, and be passed on. Returns once that is over.

    Raises Unavailable and OSError.
    """
    await services.meetings.open()
    with services.meetings.expect() as expected:
        came = await run_in_threadpool(_come, services, facts, end, expected.place)
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
        await own.close(ELSEWHERE, "the service has the other end where it cannot be reached from here: join again")
        return
    if isinstance(found, StreamEnd):
        await _pass_on(services, facts, *_ordered(own, found, end))
    else:
        await found.is_done.wait()


async def _wait(visitor: asyncio.Future[Visitor]) -> Visitor | None:
    with suppress(TimeoutError):
        async with asyncio.timeout(MEETING.total_seconds()):
            return await visitor
    return None


def _ordered(own: ends.End, other: ends.End, end: End) -> tuple[ends.End, ends.End]:
    """Returns the client, and the worker."""
    return (own, other) if end == "client" else (other, own)


async def _pass_on(services: Services, facts: MeetingFacts, client: ends.End, worker: ends.End) -> None:
    """Passes bytes on. The process to which the client has come looks after the meeting, and no other does."""
    passed = Passed()
    caller = _caller(services, facts, client)
    until = _forever if caller is None else partial(_watch, services, facts, passed)
    try:
        await relay(client, worker, passed, until=until)
    finally:
        note = partial(_note_end, services, facts, passed, caller, has_finished=worker.has_finished)
        try:
            await asyncio.shield(run_in_threadpool(note))
        except Unavailable as error:
            _log.warning("the end of reach %s is not noted: %s", facts.reach_id, error.message)


async def _watch(services: Services, facts: MeetingFacts, passed: Passed) -> Stopped:
    """Returns once the user may not have the reach any more, or somebody has ended it. Notes that it is in use."""
    noted_at, noted = time.monotonic(), 0
    with services.live.watch_rights(facts.job_id, user=facts.user) as watch:
        while not watch.ended:
            await watch.wait_for_change(within=_LOOK_S)
            try:
                if watch.is_check_due() and not await services.access.at_once(_is_on, services, facts):
                    return Stopped(ENDED, "it was ended, or is not permitted any more")
                quiet_s, is_used = time.monotonic() - noted_at, passed.to_job > noted
                if quiet_s >= (_NOTED_EVERY_S if is_used else _STAYS_NOTED_S):
                    noted_at, noted = time.monotonic(), passed.to_job
                    await run_in_threadpool(_note, services, facts, has_input=is_used)
            except Unavailable:
                pass  # the next look asks again
    return Stopped(GOING_AWAY, "the service stops: join again")


async def _forever() -> Stopped:
    return await asyncio.get_running_loop().create_future()


def _caller(services: Services, facts: MeetingFacts, client: ends.End) -> Caller | None:
    """Returns who has the reach, as the audit records it; None if the client has come to another process."""
    if isinstance(client, OwnEnd):
        return client.caller
    if not isinstance(client, SocketEnd):
        return None
    address, request_id = client_address(client.scope, services.settings), client.scope["state"]["request_id"]
    return Caller(facts.user, Role(facts.role), token_id=facts.token_id, address=address, request_id=request_id)


def _come(services: Services, facts: MeetingFacts, end: End, place: str) -> Came | None:
    with services.store.write(_PURPOSE) as session:
        return meetings.come(session, facts, end, place=place)


def _is_on(services: Services, facts: MeetingFacts) -> bool:
    with services.store.read() as session:
        return meetings.is_on(session, facts)


def _note(services: Services, facts: MeetingFacts, *, has_input: bool) -> None:
    with services.store.write(_PURPOSE) as session:
        meetings.note(session, facts, has_input=has_input)


def _note_end(
    services: Services, facts: MeetingFacts, passed: Passed, caller: Caller | None, *, has_finished: bool
) -> None:
    with services.store.write(_PURPOSE) as session:
        if caller is not None:
            meetings.leave(session, facts, to_job=passed.to_job, from_job=passed.from_job, caller=caller)
        if has_finished:
            meetings.finish(session, facts)

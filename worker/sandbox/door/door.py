"""The door of an attempt: a process in its sandbox that starts programs for users, while the attempt runs.

Landlock's domain and the filter of system calls are only inherited, so that nobody can enter them later: the door is
forked before there is anything else in the sandbox. Connections come in through one socket, whose other end the
attempt's supervisor has. Nothing goes out through it.
"""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
import os
import select
import socket
from typing import NoReturn

from setproctitle import setproctitle

from torchyard.contract.attempts.rundir import process_title
from torchyard.contract.reach.orders import LONGEST_CALL, Call, Order
from worker.host import forks, process
from worker.sandbox.door.handler import JOIN, OVER, STOP, Handler, Service
from worker.sandbox.door.listeners import Neighbours
from worker.sandbox.door.ports import Ports
from worker.sandbox.door.program import CannotStart, Program, ssh_server
from worker.sandbox.door.refusal import refuse

MOST = 100
"""Reaches that are open at once."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """The attempt that a door is in."""

    job_id: str
    attempt: int
    variables: Callable[[int], Mapping[str, str]]
    """Returns all variables of a rank. Raises OSError."""
    first: int
    """The pid of the process above all of the attempt."""


@dataclass
class _Reach:
    """A reach that was started. `socket`: its handler has the other end."""

    id: str
    socket: socket.socket
    has_ended: bool = False
    """Whether its program has, and its client need not come again."""


class Door:
    """Serves the `calls`: each is a message with a connection. It ends, with all that it has
    started, once the descriptor `ends` is readable, or the calls have no other end."""

    def __init__(self, place: Place, calls: socket.socket, ends: int) -> None:
        self._place = place
        self._ends = ends
        self._calls = calls
        self._reaches: dict[int, _Reach] = {}
        """By the descriptor of their socket."""

    def serve(self) -> NoReturn:
        process.become_subreaper()
        goes_on = True
        while goes_on:
            poll = select.poll()
            for descriptor in (self._calls.fileno(), self._ends, *self._reaches):
                poll.register(descriptor, select.POLLIN)
            ready = [descriptor for descriptor, _ in poll.poll()]
            for descriptor in ready:
                if descriptor in self._reaches:
                    self._hear(descriptor)
            if self._calls.fileno() in ready:
                goes_on = self._take_call()
            goes_on = goes_on and self._ends not in ready
            for _ in process.reap_children():
                pass
        while process.kill_children():
            pass
        os._exit(0)

    def _hear(self, descriptor: int) -> None:
        reach = self._reaches[descriptor]
        if _received(reach.socket) == OVER:
            reach.has_ended = True
        else:
            self._reaches.pop(descriptor).socket.close()

    def _take_call(self) -> bool:
        """Returns whether the attempt goes on."""
        message, descriptors, _, _ = socket.recv_fds(self._calls, LONGEST_CALL, 1)
        if not message:
            return False
        if not descriptors:
            self._stop()
            return True
        with socket.socket(fileno=descriptors[0]) as connection:
            try:
                self._follow(Call.from_json(message), connection)
            except (ValueError, OSError) as error:
                refuse(connection, str(error))
        return True

    def _stop(self) -> None:
        for reach in self._reaches.values():
            _say(reach.socket, STOP)

    def _follow(self, call: Call, connection: socket.socket) -> None:
        """Raises OSError, and ValueError for a call that makes no sense."""
        known = next((reach for reach in self._reaches.values() if reach.id == call.reach), None)
        if call.kind == "join":
            if known is None:
                refuse(connection, "this has ended: nothing of it runs any more")
            else:
                socket.send_fds(known.socket, [JOIN], [connection.fileno()], socket.MSG_DONTWAIT)
        elif known is not None or call.order is None:
            refuse(connection, "it was started before")
        elif len(self._reaches) >= MOST and not self._end_one():
            refuse(connection, f"there are {MOST} shells, programs and forwards in this job, the most that it may have")
        else:
            self._start(call.reach, call.order, connection)

    def _start(self, reach: str, order: Order, connection: socket.socket) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            keep = (theirs.fileno(), connection.fileno())
            forks.fork(lambda: _handle(self._place, order, theirs, connection), keep=keep)
        self._reaches[ours.fileno()] = _Reach(reach, ours)

    def _end_one(self) -> bool:
        """Ends the oldest reach that only waits for a client that has not come again. Returns whether there was one."""
        descriptor = next((descriptor for descriptor, reach in self._reaches.items() if reach.has_ended), None)
        if descriptor is not None:
            self._reaches.pop(descriptor).socket.close()
        return descriptor is not None


def _handle(place: Place, order: Order, door: socket.socket, connection: socket.socket) -> NoReturn:
    setproctitle(process_title(place.job_id, place.attempt, f"reach of rank {order.rank}"))
    process.become_subreaper()
    try:
        service = _service(place, order)
    except (CannotStart, OSError) as error:
        refuse(connection, str(error))
        raise SystemExit from None
    Handler(service, door, connection, in_terminal=order.terminal is not None).serve()
    raise SystemExit


def _service(place: Place, order: Order) -> Service:
    """Raises CannotStart and OSError."""
    if order.kind == "ports":
        return Ports(Neighbours(place.first))
    if order.kind == "ssh":
        return Program.of_server(ssh_server(order.authorized_key, first=place.first), place.variables(order.rank))
    return Program.of_order(order, place.variables(order.rank))


def _received(end: socket.socket) -> bytes:
    try:
        return end.recv(16)
    except OSError:
        return b""


def _say(end: socket.socket, message: bytes) -> None:
    with suppress(OSError):  # the handler has ended
        end.send(message, socket.MSG_DONTWAIT)

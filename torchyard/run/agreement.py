"""Ranks agree on the step at which all of them stop, without a collective in every step.

Each rank counts its calls, one for each step. A rank that has seen the request waits for its device in every later
call, and writes an acknowledgement. When all ranks have, rank 0, in its call number n, names call n + 1 as the last.

Why n + 1 is late enough: a rank reaches call n + 1 only after step n + 1 is complete on its device. That step needs an
all-reduce with rank 0, which rank 0 begins after its call n, in which it named the last call. So every rank that comes
to call n + 1 finds it named. Why n is too early: another rank may have returned from its call n already. Ranks without
a collective in their step may stop some calls apart. They never wait for each other.

All this needs a board where each rank finds at once what another has written: on one host files, else the store of the
process group.
"""

from collections.abc import Callable
import os
import time

from torchyard.contract.attempts.records import ProcessIdentity
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.identity import identity_of
from torchyard.host.untrusted import read_untrusted
from torchyard.run.boards import Board, BoardLost, FileBoard, store_board

POLL_S = 0.2


class StopAgreement:
    """One rank's part in the agreement.

    `local_size`: how many ranks each host has. `synchronize` waits for this rank's device.
    """

    def __init__(
        self,
        run: RunDir,
        *,
        rank: int,
        world_size: int,
        local_size: int,
        synchronize: Callable[[], None],
    ) -> None:
        self.told = False
        """Whether the program was ever told to stop: it may then leave before its work is done."""
        self._run = run
        self._rank = rank
        self._world_size = world_size
        self._local_size = local_size
        self._synchronize = synchronize
        self._board: Board | None = None
        self._calls = 0
        self._requested = False
        self._acknowledged = False
        self._last_call: int | None = None
        self._checked_at = float("-inf")

    def request(self) -> None:
        """Notes a request to stop. Does nothing else, so that a signal handler may call it."""
        self._requested = True

    @property
    def requested(self) -> bool:
        """Whether this rank knows of a request. Raises OSError."""
        self.told |= self._is_requested()
        return self._requested

    @property
    def comes_late(self) -> bool:
        """Whether there is a request, asked by a program that has done its work: it is not told. Raises OSError."""
        return self._is_requested()

    def reached(self) -> bool:
        """Counts one call, and returns whether it is the last one. Raises OSError."""
        last = self._is_last()
        self.told |= last
        return last

    def another_has_failed(self) -> bool:
        """Whether another rank has ended before its program had done its work. Any thread may ask."""
        others = (rank for rank in range(self._world_size) if rank != self._rank)
        return any(self._has_ended(rank) and not self._has_finished(rank) for rank in others)

    def _is_requested(self) -> bool:
        now = time.monotonic()
        if not self._requested and now - self._checked_at >= POLL_S:
            self._checked_at = now
            self._requested = os.path.lexists(self._run.stop) or os.path.lexists(self._run.paused)
        return self._requested

    def _is_last(self) -> bool:
        self._calls += 1
        if not self._is_requested():
            return False
        if self._world_size == 1:
            return True
        self._synchronize()
        try:
            self._last_call = self._last_call or self._agree(self._board_of_ranks())
        except BoardLost:
            return True  # the rank that has the store is gone, or cannot be reached
        return (self._last_call is not None and self._calls >= self._last_call) or self._another_has_ended()

    def _agree(self, board: Board) -> int | None:
        """Does this rank's part. Returns the last call, if it is named. Raises OSError, and BoardLost."""
        if not self._acknowledged:
            self._acknowledged = board.acknowledge(self._rank)
        if self._rank == 0 and board.all_acknowledged():
            board.name_last_call(self._calls + 1)
        return board.last_call()

    def _board_of_ranks(self) -> Board:
        """Returns the board. It is made at the first request only, as it may need torch and a connection."""
        if self._board is None:
            on_one_host = self._local_size >= self._world_size
            found = None if on_one_host else store_board(world_size=self._world_size)
            self._board = found or FileBoard(self._run.agreement, world_size=self._world_size)
        return self._board

    def _another_has_ended(self) -> bool:
        """Whether another rank has ended. There is no agreement without it: the launcher ends the ranks one by one."""
        now = time.monotonic()
        if self._last_call is not None or now - self._checked_at < POLL_S:
            return False
        self._checked_at = now
        return any(self._has_ended(rank) for rank in range(self._world_size) if rank != self._rank)

    def _has_ended(self, rank: int) -> bool:
        if not self._is_here(rank):
            return self._run.of_node(rank // self._local_size).has_ended(rank)
        process = read_untrusted(self._run.ranks / f"{rank}.json", ProcessIdentity)
        return process is not None and identity_of(process.pid) != process

    def _has_finished(self, rank: int) -> bool:
        if not self._is_here(rank):  # a shared disk may show the rank's own file late
            return not self._run.of_node(rank // self._local_size).left_early(rank)
        return os.path.lexists(self._run.finished(rank))

    def _is_here(self, rank: int) -> bool:
        """Whether a rank is on this host. Of another one, the pid says nothing here."""
        return rank // self._local_size == self._rank // self._local_size

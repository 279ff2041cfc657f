"""Answers requests for the stacks of an attempt's ranks, over some turns of its runner: no turn waits for a rank."""

from collections.abc import Callable
from dataclasses import dataclass, field
import logging
import time

from torchyard.contract.telemetry.views import RankStacksView
from worker.attempts.records import AttemptRecords
from worker.engines.base import Engine, Handle, RankStacks

READ_EVERY_S = 0.1
ANSWER_S = 5.0
"""How long a rank may take to write its stacks."""

_NO_ANSWER = RankStacks(note="has not answered")

logger = logging.getLogger(__name__)


class StacksAnswerer:
    """Answers one request after the other."""

    def __init__(self, engine: Engine, records: AttemptRecords) -> None:
        self._engine = engine
        self._records = records
        self._collection: _Collection | None = None
        self._answered: int | None = None

    @property
    def collecting(self) -> bool:
        """Whether the ranks were asked, and the answer is not stored yet."""
        return self._collection is not None

    def take_turn(self, handle: Handle, requested_at: int | None) -> None:
        """Asks the ranks, or stores what they answered. `requested_at`: the newest request that is known.

        Raises what `AttemptRecords.store_stacks` raises.
        """
        if self._collection is None:
            if requested_at is not None and requested_at != self._answered:
                self._collection = _Collection(requested_at, self._ask(handle))
            return
        ranks = self._collection.complete()
        if ranks is None:
            return
        views = [RankStacksView(rank=rank, text=stack.text, note=stack.note) for rank, stack in enumerate(ranks)]
        self._records.store_stacks(self._collection.requested_at, self._collection.taken_at, views)
        self._answered, self._collection = self._collection.requested_at, None

    def _ask(self, handle: Handle) -> Callable[[], list[RankStacks]]:
        """Asks the ranks. An error of the host is their answer: it must not end the attempt."""
        try:
            return self._engine.request_stacks(handle)
        except OSError as error:
            logger.warning("%s: cannot ask for stacks: %s", handle.key.job_id, error)
            failed = [RankStacks(note=f"cannot be asked: {error}")] * handle.world_size
            return lambda: failed


@dataclass
class _Collection:
    """What the ranks have answered so far."""

    requested_at: int
    read: Callable[[], list[RankStacks]]
    taken_at: int = field(default_factory=lambda: time.time_ns() // 1000)
    _deadline: float = field(default_factory=lambda: time.monotonic() + ANSWER_S)
    _next_read: float = 0.0
    _last: list[RankStacks] = field(default_factory=list[RankStacks])

    def complete(self) -> list[RankStacks] | None:
        """Returns the answers when every rank has answered and none writes any more, or after the deadline."""
        now = time.monotonic()
        if now < self._next_read:
            return None
        self._next_read = now + READ_EVERY_S
        try:
            answers = self.read()
        except OSError as error:
            logger.warning("cannot read stacks: %s", error)
            answers = self._last
        settled = answers == self._last and RankStacks() not in answers
        self._last = answers
        if not settled and now < self._deadline:
            return None
        return [_NO_ANSWER if answer == RankStacks() else answer for answer in answers]

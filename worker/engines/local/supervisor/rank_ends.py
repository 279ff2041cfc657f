"""Which ranks of several nodes have ended: each node's supervisor says it, as no other host can ask `/proc`."""

from collections.abc import Callable, Collection
import os
import time

from torchyard.contract.attempts.records import NodePart
from torchyard.contract.attempts.rundir import RunDir
from worker.engines.local.supervisor.ending import log

_LOOK_EVERY_S = 1.0


class RankEnds:
    """What one node says of its ranks, and reads of the others. `run`: the run directory of that node."""

    def __init__(self, run: RunDir, node: NodePart) -> None:
        self._run = run
        self._node = node
        self._unsaid = set(range(node.first_rank, node.first_rank + node.ranks))
        self._next_look = 0.0

    def look(self, find_running: Callable[[], Collection[int]]) -> None:
        """Says which ranks have come up and run no more, at most once a second."""
        if time.monotonic() < self._next_look:
            return
        # Read first: a rank that comes up after the search for processes has not ended.
        came_up = {rank for rank in self._unsaid if os.path.lexists(self._run.ranks / f"{rank}.json")}
        if came_up:
            self._say(came_up - set(find_running()))
        self._next_look = time.monotonic() + _LOOK_EVERY_S

    def say_all(self) -> None:
        """Says that no rank of this node runs, or ever will."""
        self._say(set(self._unsaid))

    def others_may_run(self) -> bool:
        """Whether the supervisor of some other node has not said yet that its ranks have ended."""
        return any(
            not self._run.of_node(node).has_ended(rank)
            for node in range(self._node.nodes)
            if node != self._node.rank
            for rank in range(node * self._node.ranks, (node + 1) * self._node.ranks)
        )

    def _say(self, ranks: Collection[int]) -> None:
        for rank in ranks:
            left_early = not os.path.lexists(self._run.finished(rank))
            try:
                self._run.ended.mkdir(mode=0o700, exist_ok=True)
                (self._run.ended / (f"{rank}" if left_early else f"{rank}.finished")).touch(mode=0o600)
            except OSError as error:
                log(f"the end of rank {rank} cannot be reported to the other nodes: {error}")
            else:
                self._unsaid.discard(rank)

"""Follows one attempt that was started: has its output be stored, and stops and ends it."""

from collections.abc import Callable, Collection, Sequence
import logging
import time

from store.worker.records import AttemptFacts, NodeHeld
from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.states import EndReason, JobState, Reason
from worker.attempts.context import AttemptContext
from worker.attempts.pace import Pace
from worker.attempts.phases import Drained, Undrained, WantedStop
from worker.attempts.prepare import workfolder
from worker.attempts.reading import Reading
from worker.attempts.stacks import READ_EVERY_S
from worker.engines import base
from worker.engines.base import Handle

_QUEUED_S = 2.0
"""While an attempt waits in a cluster's queue, it is looked at so often. The engine reports its end at once."""
_MOST_NAMED = 4
"""Nodes that are named."""
SETTLE_S = 0.1
"""For so long, the start of an attempt waits to be stored with its first output or its end, in one transaction."""

logger = logging.getLogger(__name__)


class Following:
    """Every method raises what the store raises."""

    def __init__(self, attempt: AttemptContext) -> None:
        self._attempt = attempt
        self._handle = Handle(attempt.key, 0)
        self._reading = Reading(attempt)
        self._facts: AttemptFacts | None = None
        self._is_queued = False
        self._nodes: Sequence[base.NodeDevices] = ()
        """What a cluster has given to the attempt, once it is known."""
        self._isolation = ""
        """How the nodes isolate it."""
        self._pace = Pace()
        self._write_begun_at: float | None = None
        """When the handle and the state `running` are written, unless something was written since."""
        self._unwatch: Callable[[], object] = _nothing

    def start(self) -> None:
        """Starts the thread that stores what the attempt writes. Raises RuntimeError if the system has none left."""
        self._reading.start()

    def announced(self, handle: Handle) -> None:
        """Stores the handle of an attempt that is about to be started. Afterwards nobody may know whether it was."""
        if handle == self._handle:
            return
        self._attempt.records.launched_with_next_write(handle.stored)
        self._attempt.records.write_begun()
        self._handle = handle

    def launched(self, handle: Handle, facts: AttemptFacts) -> None:
        """Has the handle of an attempt stored that was just started or found, and follows the attempt."""
        self._attempt.records.launched_with_next_write(handle.stored)
        self._write_soon()
        self.follow(handle, facts)

    def follow(self, handle: Handle, facts: AttemptFacts) -> None:
        """Begins to relay the attempt's output and to watch for its end. The facts may be those of its beginning."""
        self._handle, self._facts = handle, facts
        self._reading.follow(handle, facts)
        self._pace = Pace()
        self._unwatch()
        self._unwatch = self._attempt.worker.engine.watch(handle, self._attempt.instructions.wake)

    def poll(self) -> base.Observation:
        observed = self._attempt.worker.engine.poll(self._handle)
        self._is_queued = isinstance(observed, base.Waiting) and observed.queued
        if isinstance(observed, base.Running) and observed.nodes and not self._nodes:
            self._nodes, self._isolation = observed.nodes, observed.isolation
            held = [NodeHeld(node.host, node.devices) for node in observed.nodes]
            self._attempt.records.nodes_with_next_write(held)
            self._write_soon()
        return observed

    def pause_s(self) -> float:
        """Returns how long to wait before the next poll."""
        pause_s = _QUEUED_S if self._is_queued else self._pace.pause_s()
        if self._reading.has_more:
            pause_s = 0.0
        if self._write_begun_at is not None:
            pause_s = min(pause_s, max(0.0, self._write_begun_at - time.monotonic()))
        return min(pause_s, READ_EVERY_S) if self._reading.answers_stacks else pause_s

    def store_setup_log(self, facts: AttemptFacts) -> None:
        """Stores what the set-up has written by now."""
        self._reading.store_setup_log(facts)

    def store_some(self, *, stacks_requested_at: int | None) -> None:
        """Has what one turn may take be stored, and the newest request for stacks be answered."""
        if self._reading.take_turn(stacks_requested_at=stacks_requested_at):
            self._pace.output_stored()
        if self._write_begun_at is not None and time.monotonic() >= self._write_begun_at:
            self._attempt.records.write_begun()
            self._write_begun_at = None

    def store_rest(self, *, completed: bool) -> Drained | Undrained:
        """Has the next part of what is left be stored, after all processes have ended; `completed`: with success."""
        return self._reading.take_last_turn(completed=completed)

    def mark_running(self) -> None:
        """Has the next write say that every rank has come up."""
        self._attempt.records.running_with_next_write(Reason("running", self._running_message()))
        self._pace.state_changed()
        self._write_soon()

    def request_stop(self, stop: WantedStop) -> None:
        self._attempt.worker.engine.request_stop(self._handle, stop.reason, stop.grace)

    def look_for_stray_memory(self) -> None:
        """Asks the driver what ranks hold on each other's devices. The thread of the observation calls it."""
        self._reading.look_for_stray_memory()

    def kill(self, *, silent: bool) -> None:
        """Kills all processes. Tells the owner if some cannot be killed, unless `silent`."""
        unkillable = self._attempt.worker.engine.kill(self._handle)
        if unkillable is not None and not silent:
            self._attempt.notices.send_once(unkillable)

    def end(self, report: ExitReport, *, requested: Collection[EndReason]) -> None:
        """Writes the attempt's last transaction. `requested`: the stops that the worker asked for."""
        key = self._attempt.key
        state = self._attempt.records.end(report, requested=requested)
        if state is JobState.SUCCEEDED and self._facts is not None:
            workfolder.trim(self._attempt.run, self._facts, self._attempt.worker.bundles)
        logger.info("%s: attempt %d ended: %s; the job is %s", key.job_id, key.number, report.reason, state)

    def close(self) -> None:
        """Ends what this process does for the attempt."""
        self._unwatch()
        self._reading.close()

    def _write_soon(self) -> None:
        self._write_begun_at = self._write_begun_at or time.monotonic() + SETTLE_S

    def _running_message(self) -> str:
        count, nodes = self._handle.world_size, self._nodes
        ranks = "1 process runs" if count == 1 else f"{count} processes run"
        if nodes:
            named = ", ".join(node.host for node in nodes) if len(nodes) <= _MOST_NAMED else f"{len(nodes)} nodes"
            ranks = f"{ranks} on {named}"
        isolation = self._isolation or self._handle.stored.get("isolation")
        return f"{ranks}; {isolation}" if isolation else ranks


def _nothing() -> None:
    pass

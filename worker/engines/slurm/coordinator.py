"""The coordinator of one attempt: starts its nodes, passes requests on to them, and decides how the attempt ended.

One thread serves the network and never touches the shared disk; `control_files` has the other. Who is not heard for
`silence_s` is counted as lost, by both sides, and a node that is lost ends its ranks itself.
"""

from collections.abc import Mapping
import contextlib
from datetime import timedelta
import select
import signal
import socket
import time

from torchyard.contract.attempts.records import ExitReport, StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.engines.slurm import addresses
from worker.engines.slurm.channel import Door, Message
from worker.engines.slurm.control_files import ControlFiles
from worker.engines.slurm.gathering import obstacle, report_of_nodes
from worker.engines.slurm.members import Member, Members
from worker.engines.slurm.merge import merge
from worker.engines.slurm.records import ClusterFiles, ClusterPlan, NodeEnd, NodeFacts
from worker.engines.slurm.step import Step

_TICK_S = 0.5
_MOST_QUOTED = 4
"""Nodes whose logs a report quotes."""
_GRACE_OF_OTHERS = timedelta(seconds=30)
"""What the ranks of other nodes get after one node has failed."""


class Coordinator:
    """Coordinates one attempt. `terminated`: whether Slurm has asked this process to end before it was made."""

    def __init__(
        self, run: RunDir, plan: ClusterPlan, *, key: bytes, environ: Mapping[str, str], terminated: bool = False
    ) -> None:
        self._run = run
        self._plan = plan
        self._key = key
        self._environ = environ
        self._terminated = terminated
        self._files = ControlFiles(ClusterFiles(run), beat_s=plan.timing.beat_s)
        self._members = Members(plan)
        self._asked: StopRequest | None = None
        """What the nodes were asked for."""
        self._stacks = self._files.stacks
        self._must_look = False
        self._awake, self._wake = socket.socketpair()
        for end in (self._awake, self._wake):
            end.setblocking(False)
        signal.set_wakeup_fd(self._wake.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGUSR1, self._look)
        signal.signal(signal.SIGTERM, self._terminate)

    def coordinate(self) -> ExitReport:
        """Runs the attempt, and returns how it ended. When it returns, no rank of it runs on any node."""
        self._follow_termination()
        if self._files.stop is not None:
            return ExitReport(reason=self._files.stop.reason, message="stopped before it started")
        candidates = [addresses.LOOPBACK] if self._plan.nodes == 1 else addresses.candidates(self._plan.rules.interface)
        # All addresses of this host: which of them the other nodes reach, they find out.
        listening = candidates[0] if len(candidates) == 1 else ""
        door = Door(listening, key=self._key, nodes=self._plan.nodes)
        try:
            step = Step(
                self._run,
                nodes=self._plan.nodes,
                addresses=candidates,
                port=door.port,
                key=self._key,
                environ=self._environ,
            )
            try:
                return self._serve(door, step)
            finally:
                self._members.tell_all("leave")
                step.end()
        finally:
            door.close()

    def _serve(self, door: Door, step: Step) -> ExitReport:
        give_up_at = time.monotonic() + self._plan.timing.gather_s
        while True:
            self._wait(door, step)
            for channel in door.admit():
                self._members.add(channel)
            for member, message in self._members.receive():
                self._take(member, message)
            self._follow_termination()
            self._members.beat()
            if not self._members.complete:
                report = self._gather(step, give_up_at)
                if report is not None:
                    return report
                continue
            self._follow_requests()
            parts = self._members.parts()
            if len(parts) == self._plan.nodes:
                return merge(parts, asked=self._requested(), consequences=self._members.consequences)
            self._stop_others(step_ended=step.exit_code is not None)

    def _wait(self, door: Door, step: Step) -> None:
        poll = select.poll()
        own = [self._files.fileno(), self._awake.fileno(), *([step.fileno()] if step.exit_code is None else [])]
        for descriptor in (*door.descriptors(), *self._members.descriptors(), *own):
            poll.register(descriptor, select.POLLIN)
        poll.poll(_TICK_S * 1000)
        self._files.drain()
        with contextlib.suppress(BlockingIOError):
            self._awake.recv(4096)
        if self._must_look:
            self._must_look = False
            self._files.look()

    def _take(self, member: Member, message: Message) -> None:
        try:
            self._understand(member, message)
        except ValueError as error:
            self._members.drop(member, str(error))

    def _understand(self, member: Member, message: Message) -> None:
        match message.kind:
            case "hello":
                self._members.introduce(member, NodeFacts.from_dict(message.body))
                if self._members.complete:
                    self._begin()
            case "end":
                self._members.end(member, NodeEnd.from_dict(message.body))
            case "terminated":
                self._terminated = True
            case _:
                pass

    def _gather(self, step: Step, give_up_at: float) -> ExitReport | None:
        """Returns the report of an attempt whose nodes did not all come up, or None: they may still."""
        stop = self._files.stop
        if stop is not None:
            return ExitReport(reason=stop.reason, message="stopped before its nodes came up")
        if step.exit_code is None and time.monotonic() < give_up_at:
            return None
        missing = self._members.missing()
        what = f"srun has ended with code {step.exit_code}" if step.exit_code is not None else "they gave no sign"
        said = "\n".join(text for text in (step.said, *map(step.said_by, missing[:_MOST_QUOTED])) if text)
        last = said.rpartition("\n")[2]
        message = f"node {', '.join(map(str, missing))} did not come up: {what}" + (f": {last}" if last else "")
        return ExitReport(reason=EndReason.LAUNCH_FAILED, message=message, traceback=said or None)

    def _begin(self) -> None:
        """Gives each node its part, or ends all of them."""
        facts = self._members.facts()
        problem = obstacle(self._plan, facts)
        if problem is not None:
            self._members.refuse(problem)
            return
        write_record(ClusterFiles(self._run).nodes, report_of_nodes(facts))
        first = self._members.member(0)
        master = first.channel.peer_address
        for node in range(self._plan.nodes):
            self._members.tell(node, "part", {"master": master, "port": facts[0].port})

    def _follow_requests(self) -> None:
        stop = self._files.stop
        if self._files.silent_s > self._plan.timing.disk_s and stop is None:
            stop = StopRequest(reason=EndReason.WORKER_LOST, grace=timedelta())
            self._files.stop = stop
        if stop is not None and stop != self._asked:
            self._asked = stop
            self._members.tell_all("stop", stop.to_dict())
        if self._files.stacks != self._stacks:
            self._stacks = self._files.stacks
            self._members.tell_all("stacks")

    def _requested(self) -> EndReason | None:
        """Returns the stop that was asked for: ranks may have read the request before this process has."""
        stop = read_untrusted(self._run.stop, StopRequest) or self._files.stop
        return None if stop is None else stop.reason

    def _stop_others(self, *, step_ended: bool) -> None:
        """Ends the other nodes after one of them has failed, or has reached the time limit."""
        failed = self._members.first_failure()
        if (failed is None and not step_ended) or self._asked is not None:
            return
        reason, grace = EndReason.WORKER_LOST, min(self._plan.stop_grace, _GRACE_OF_OTHERS)
        if failed is not None and failed.reason is EndReason.HANG:
            reason = EndReason.HANG
        elif failed is not None and failed.reason is EndReason.TIME_LIMIT:
            reason, grace = EndReason.TIME_LIMIT, self._plan.stop_grace
        self._members.stop_running(StopRequest(reason=reason, grace=grace))

    def _follow_termination(self) -> None:
        """Stops the attempt if Slurm ends its job. After a failure, that is only what the failure leads to."""
        if self._terminated and self._members.first_failure() is None:
            self._files.request_stop(StopRequest(reason=EndReason.PREEMPTED, grace=self._plan.stop_grace))

    def _look(self, *_: object) -> None:
        self._must_look = True  # a lock must not be taken here: the signal may come while it is held

    def _terminate(self, *_: object) -> None:
        self._terminated = True

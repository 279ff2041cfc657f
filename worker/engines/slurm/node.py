"""`python -P -m worker.engines.slurm.node RUN ADDRESSES PORT`: one node of an attempt. Its input is the attempt's key.

It prepares the node, runs the supervisor of the node's ranks as a child, and keeps in touch with the coordinator. If
that is silent for too long, it ends the ranks: nobody else can.
"""

from collections.abc import Mapping
import os
from pathlib import Path
import select
import signal
import socket
import sys
import time

from torchyard.contract.attempts.records import ExitReport, NodePart, ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.errors import ConfigError, TorchyardError
from torchyard.contract.states import EndReason
from torchyard.host import inspection
from torchyard.host.untrusted import read_untrusted
from worker.engines.local import stacks
from worker.engines.local.stop_requests import StopRequester
from worker.engines.local.supervisor.ending import launch_failure, log
from worker.engines.slurm import oom, sealing
from worker.engines.slurm.batch import read_plan
from worker.engines.slurm.channel import Channel, ChannelClosed, Message, connect
from worker.engines.slurm.preparing import Preparation
from worker.engines.slurm.records import ClusterPlan, NodeEnd
from worker.engines.slurm.supervised import Supervised

_CONNECT_S = 60.0
_TRY_S = 5.0
_TICK_S = 0.5
_LEAVE_S = 60.0
_BY_MEMORY = frozenset({EndReason.KILLED, EndReason.WORKER_LOST, EndReason.LAUNCH_FAILED})
"""What an attempt seems to have ended by if the kernel has killed one of its processes."""


def main() -> None:
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    key = sealing.parse_key(sys.stdin.readline(200))
    inspection.forbid()
    os.umask(0o077)
    run = RunDir(Path(sys.argv[1]))
    try:
        channel = _connect(sys.argv[2].split(","), int(sys.argv[3]), key)
    except ConfigError as error:
        sys.exit(error.message)
    plan = read_plan(run)
    if plan is None:
        sys.exit(f"{run.launch} cannot be read on {socket.gethostname()}: is the data directory on a shared disk?")
    number = int(os.environ["SLURM_NODEID"])
    Node(run, plan, number, channel=channel, key=key).serve()


class Node:
    """One node, from its first word to the coordinator until all its processes have ended."""

    def __init__(self, run: RunDir, plan: ClusterPlan, number: int, *, channel: Channel, key: bytes) -> None:
        self._run = run.of_node(number)
        self._plan = plan
        self._number = number
        self._channel = channel
        self._preparation = Preparation(self._run, plan, number, key=key)
        self._requester = StopRequester(self._run)
        self._supervised: Supervised | None = None
        self._kills = oom.kills()
        self._beaten_at = time.monotonic()
        self._lost = False
        """Whether the coordinator is gone."""
        self._left = False
        """Whether the coordinator has said that nothing is wanted any more."""
        self._terminated = False
        signal.signal(signal.SIGTERM, self._terminate)

    def serve(self) -> None:
        """Serves the coordinator until all is done."""
        self._send("hello", self._preparation.facts(self._channel.own_address).to_dict())
        while not self._left and not self._lost:
            self._turn()
            if self._supervised is not None and self._supervised.ended:
                self._report(self._end_of(self._supervised))
                break
        if self._supervised is not None and not self._supervised.ended:
            self._supervised.kill()  # the coordinator has left, or is gone
        self._preparation.clean_up()
        deadline = time.monotonic() + _LEAVE_S
        while not self._left and not self._lost and time.monotonic() < deadline:
            self._turn()

    def _turn(self) -> None:
        """Waits for news, and follows them."""
        poll = select.poll()
        poll.register(self._channel.fileno(), select.POLLIN)
        if self._supervised is not None and not self._supervised.ended:
            poll.register(self._supervised.fileno(), select.POLLIN)
        poll.poll(_TICK_S * 1000)
        try:
            self._channel.flush()
            for message in self._channel.receive():
                self._follow(message)
        except ChannelClosed as error:
            self._give_up(f"the connection to the coordinator has ended: {error}")
        if time.monotonic() - self._channel.heard_at > self._plan.timing.silence_s:
            self._give_up("the coordinator is silent")
        if time.monotonic() - self._beaten_at >= self._plan.timing.beat_s:
            self._beaten_at = time.monotonic()
            self._send("beat")
        if self._terminated:
            self._terminated = False
            self._send("terminated")

    def _follow(self, message: Message) -> None:
        match message.kind:
            case "part":
                self._start(message.body)
            case "stop":
                self._stop(StopRequest.from_dict(message.body))
            case "stacks":
                self._show_stacks()
            case "leave":
                self._left = True
            case _:
                pass

    def _start(self, body: Mapping[str, object]) -> None:
        if self._supervised is not None:
            return
        try:
            part = self._preparation.part(master=str(body.get("master", "")), port=body.get("port"))
            self._supervised = self._launch(part)
        except TorchyardError as error:
            self._report(ExitReport(reason=EndReason.CONFIG_ERROR, message=error.message))
        except ValueError as error:
            self._report(ExitReport(reason=EndReason.CONFIG_ERROR, message=f"the node's part is none: {error}"))
        except OSError as error:
            self._report(launch_failure(f"the node cannot be prepared: {error}", error))

    def _launch(self, part: NodePart | None) -> Supervised:
        secrets = self._preparation.write(part)
        return Supervised.start(
            self._run,
            secrets,
            listener=self._preparation.take_listener(),
            close=self._channel.close,
        )

    def _stop(self, request: StopRequest) -> None:
        try:
            self._requester.request(request.reason, grace=request.grace)
        except OSError as error:
            log(f"the stop request cannot be written: {error}")
            if self._supervised is not None:
                self._supervised.stop(at_once=not request.grace)

    def _show_stacks(self) -> None:
        supervisor = read_untrusted(self._run.supervisor, ProcessIdentity)
        if supervisor is not None:
            stacks.request_stacks(self._run, supervisor, ranks=self._preparation.ranks)

    def _end_of(self, supervised: Supervised) -> ExitReport:
        """Returns how the node's part ended, after all its processes have."""
        supervised.kill()  # what a supervisor that was killed has left
        report = read_untrusted(self._run.exit, ExitReport)
        if report is None:
            message = f"the supervisor ended with code {supervised.exit_code}, and left no report"
            report = ExitReport(reason=EndReason.WORKER_LOST, message=message)
        if report.reason in _BY_MEMORY and oom.kills() > self._kills:
            message = "the kernel has killed a process, as the memory that Slurm gives was used up"
            hint = "ask for more with resources.memory_gb"
            said = f"{message} ({report.message}): {hint}"
            return ExitReport(
                reason=EndReason.OUT_OF_MEMORY, message=said, rank=report.rank, exit_code=report.exit_code
            )
        return report

    def _report(self, report: ExitReport) -> None:
        finished = all(os.path.lexists(self._run.finished(rank)) for rank in self._preparation.ranks)
        self._send("end", NodeEnd(report=report, finished=finished).to_dict())

    def _give_up(self, why: str) -> None:
        if self._lost:
            return
        self._lost = True
        if self._supervised is not None:  # by signals alone: without a network, the shared disk may hang
            self._supervised.kill()
        log(f"torchyard: {why}; the ranks of this node are ended")

    def _send(self, kind: str, body: Mapping[str, object] | None = None) -> None:
        try:
            self._channel.send(kind, body)
        except ChannelClosed as error:
            self._give_up(f"the connection to the coordinator has ended: {error}")

    def _terminate(self, *_: object) -> None:
        """Slurm ends the step: the coordinator decides how."""
        self._terminated = True


def _connect(addresses: list[str], port: int, key: bytes) -> Channel:
    """Connects to the coordinator at the first of its addresses that answers. Raises ConfigError."""
    deadline, problem = time.monotonic() + _CONNECT_S, "no address"
    while time.monotonic() < deadline:
        for address in addresses:
            try:
                return connect(address, port, key=key, timeout_s=_TRY_S)
            except OSError as error:
                problem = f"{address}:{port}: {error}"
        time.sleep(_TICK_S)
    host = socket.gethostname()
    raise ConfigError(f"{host} does not reach the first node ({problem}): set TORCHYARD_INTERFACE, and allow all ports")


if __name__ == "__main__":
    main()

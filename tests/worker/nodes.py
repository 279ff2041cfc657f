"""An attempt over several nodes, all on this host: a supervisor for each, as a cluster would start them.

The supervisors are forks that have torch already, as those of a warm process: torchrun is a fork, too.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timedelta
import functools
import os
from pathlib import Path
import signal
import socket
from typing import Any, NoReturn

from tests import forked_warm, forks
from tests.forked import ForkedProgram
from tests.worker.attempt import Attempt, wait_for
from torchyard.contract.attempts.records import ExitReport, NodePart, ProcessIdentity, StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.recordfiles import read_record, write_record
from worker.engines.base import ClusterRequest
from worker.engines.local.launch_plans import launch_plan
from worker.engines.local.launchers.command import CommandLauncher
from worker.engines.local.launchers.torchrun import TorchrunLauncher
from worker.engines.local.supervisor.ranks import running_ranks
from worker.host import process
from worker.sandbox.writable import WritableFolders

LOOPBACK = "127.0.0.1"
_PROGRAM = "tests.worker.node"
_LISTENER = 100
"""The descriptor of the socket where the ranks meet."""

forks.preload(*forked_warm.MODULES, _PROGRAM)


def no_names(ip_address: str, /) -> NoReturn:
    """Takes the place of what asks a name server: one without reverse names can take many seconds."""
    raise AssertionError(f"a name server was asked for {ip_address}")


@dataclass
class Nodes:
    """The nodes of `attempt`, each with `ranks` ranks, which `launcher` starts.

    What a cluster's own processes would do, the test does.
    """

    attempt: Attempt
    nodes: int = 2
    ranks: int = 1
    launcher: TorchrunLauncher = field(default_factory=TorchrunLauncher)
    asks_nobody: bool = False
    """Whether torchrun fails when it asks a name server."""
    supervisors: list[ForkedProgram] = field(default_factory=list[ForkedProgram])

    def of(self, node: int) -> RunDir:
        return self.attempt.run.of_node(node)

    def start_job(self, text: str, *, args: Sequence[str] = (), **changes: Any) -> None:
        """Runs `text` as a job's script. `changes`: as of `start_spec`."""
        self.attempt.script(text)
        config = {"code": f"file://{self.attempt.run.root}/code", "args": list(args)}
        self.start_spec({"trainer": "script", "config": config}, **changes)

    def start_spec(
        self,
        document: Mapping[str, Any],
        *,
        resumes: bool = False,
        stall: int = 600,
        time_limit: int = 600,
        grace: int = 30,
    ) -> None:
        """Runs a job with this spec on all nodes. The limits are in seconds."""
        request = ClusterRequest(nodes=self.nodes, devices_per_node=self.ranks, kind="cpu")
        plan = replace(
            self.attempt.plan_of_spec(document, devices=(), resumes=resumes),
            cluster=request,
            stall_timeout=timedelta(seconds=stall),
            time_limit=timedelta(seconds=time_limit),
            stop_grace=timedelta(seconds=grace),
        )
        with socket.create_server((LOOPBACK, 0)) as listener:
            for node in range(self.nodes):
                run = self.of(node)
                run.ctl.mkdir(parents=True)
                own_folders = WritableFolders(self.attempt.run.root / "worker", temporary=self._temporaries(node))
                written = launch_plan(
                    plan,
                    run=run,
                    launcher=CommandLauncher() if plan.is_command else self.launcher,
                    slots=self.ranks,
                    devices=[f"cpu-node-{node}-{slot}" for slot in range(self.ranks)],
                    node=self._part(node, port=listener.getsockname()[1]),
                    confinement=replace(self.attempt.confinement, own_folders=own_folders),
                )
                write_record(run.launch, written)
                self._start(node, listener)

    def told(self, node: int, reason: EndReason, *, grace: int = 30) -> None:
        """Asks the supervisor of one node to stop."""
        write_record(self.of(node).stop, StopRequest(reason=reason, grace=timedelta(seconds=grace)))

    def signal_all(self, number: signal.Signals) -> None:
        """Signals every process of every node at once, as a cluster does."""
        for item in [*self._supervisors(), *self.attempt.running_processes()]:
            process.send(item, number)

    def rank(self, rank: int) -> ProcessIdentity:
        """Returns a rank that runs. One of another node may have its number, as each sandbox counts, and its start."""
        below = process.descendants(self.supervisors[rank // self.ranks].pid)
        return running_ranks(self.attempt.run, below, ranks=[rank])[rank]

    def report(self, node: int) -> ExitReport:
        """Waits until the node's part has ended, and returns its report."""
        wait_for(lambda: self.supervisors[node].poll() is not None, f"the end of node {node}")
        report = read_record(self.of(node).exit, ExitReport)
        assert report is not None, self.of(node).supervisor_log.read_text()
        return report

    def reports(self) -> list[ExitReport]:
        return [self.report(node) for node in range(self.nodes)]

    def _supervisors(self) -> list[ProcessIdentity]:
        found = (read_record(self.of(node).supervisor, ProcessIdentity) for node in range(self.nodes))
        return [item for item in found if item is not None]

    def _temporaries(self, node: int) -> Path:
        folder = self.attempt.run.root / f"temporaries-of-{node}"
        folder.mkdir()
        return folder

    def _part(self, node: int, *, port: int) -> NodePart:
        return NodePart(
            nodes=self.nodes,
            rank=node,
            first_rank=node * self.ranks,
            ranks=self.ranks,
            interface="lo",
            address=LOOPBACK,
            master=LOOPBACK,
            port=port,
        )

    def _start(self, node: int, listener: socket.socket) -> None:
        given = [] if node else [str(_LISTENER)]
        self.supervisors.append(
            ForkedProgram(
                _PROGRAM,
                str(self.attempt.run.root),
                str(node),
                *given,
                env=os.environ,
                cwd=self.attempt.run.root,
                log=self.of(node).supervisor_log,
                prepare=functools.partial(_begin, None if node else listener, asks_nobody=self.asks_nobody),
            )
        )


def _begin(listener: socket.socket | None, *, asks_nobody: bool) -> None:
    os.setsid()
    if listener is not None:
        os.dup2(listener.fileno(), _LISTENER, inheritable=False)
    if asks_nobody:
        socket.gethostbyaddr = no_names

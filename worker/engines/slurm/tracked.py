"""What the engine knows of one attempt besides what Slurm says: its files, and what was asked of it."""

from dataclasses import replace
from datetime import timedelta
import os
import time

from torchyard.contract.attempts.records import ExitReport, StopRequest
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.states import EndReason
from torchyard.host.untrusted import read_tail, read_untrusted
from worker.engines.base import NodeDevices, Running
from worker.engines.local.stop_requests import StopRequester
from worker.engines.slurm.listing import Listings
from worker.engines.slurm.observing import Facts
from worker.engines.slurm.records import ClusterFiles, NodesReport, Timing

_AGAIN_S = 15.0
"""A stop that nobody has followed yet is sent again after so long: a message of Slurm may be lost."""
_LOG_BYTES = 4_000


class Tracked:
    """One attempt that the engine follows. `name`: that of its job in Slurm."""

    def __init__(self, name: str, run: RunDir, *, world_size: int, timing: Timing) -> None:
        self.name = name
        self.run = run
        self.report: ExitReport | None = None
        """How it ended, once that is known."""
        self.requester = StopRequester(run)
        self._files = ClusterFiles(run)
        self._world_size = world_size
        self._timing = timing
        self._beat: tuple[int, float] | None = None
        """The heartbeat's modification time, and when it was first seen."""
        self._ended_since: float | None = None
        self._sent: tuple[StopRequest | None, float] = (None, 0.0)
        self._up: set[int] = set()
        self._seen = Running(0, world_size)
        """With what the nodes have reported, once they have."""

    @property
    def fresh(self) -> bool:
        """Whether the coordinator has shown that it lives. By this host's clock, as that of another one may be wrong.

        The first look at a heartbeat counts as a change: an attempt is not given up because this daemon is new.
        """
        try:
            beat = os.lstat(self._files.heartbeat).st_mtime_ns
        except OSError:
            return False
        now = time.monotonic()
        if self._beat is None or self._beat[0] != beat:
            self._beat = (beat, now)
        return now - self._beat[1] < self._timing.fresh_s

    @property
    def ran(self) -> bool:
        """Whether its coordinator has started."""
        return os.path.lexists(self._files.lock)

    @property
    def requested(self) -> EndReason | None:
        """The stop that was asked for."""
        request = read_untrusted(self.run.stop, StopRequest)
        return None if request is None else request.reason

    @property
    def log(self) -> str:
        """The end of what its batch job has written."""
        return read_tail(self._files.log, _LOG_BYTES).decode("utf-8", "replace")

    def settled(self, *, ended: bool) -> bool:
        """Returns whether its job has been listed as ended for so long that no file of it is hidden any more."""
        if not ended:
            self._ended_since = None
            return False
        if self._ended_since is None:
            self._ended_since = time.monotonic()
        return time.monotonic() - self._ended_since >= self._timing.fresh_s / 2

    def facts(self, listings: Listings, *, submitted: bool) -> Facts:
        """Returns all that is known. `submitted`: whether Slurm has said that it has the job."""
        job = listings.job(self.name)
        return Facts(
            report=read_untrusted(self.run.exit, ExitReport),
            fresh=self.fresh,
            ran=self.ran,
            submitted=submitted,
            requested=self.requested,
            job=job,
            absent=listings.absent(self.name),
            settled=self.settled(ended=job is not None and job.ended),
            problem=listings.problem,
        )

    def running(self) -> Running:
        """Returns how many ranks have come up, and on which devices."""
        missing = [rank for rank in range(self._world_size) if rank not in self._up]
        self._up.update(rank for rank in missing if os.path.lexists(self.run.ranks / f"{rank}.json"))
        if not self._seen.nodes:
            report = read_untrusted(self._files.nodes, NodesReport)
            if report is not None:
                nodes = tuple(NodeDevices(node.host, tuple(node.devices)) for node in report.nodes)
                self._seen = replace(self._seen, nodes=nodes, isolation=report.isolation)
        return replace(self._seen, ranks=len(self._up))

    def request_stop(self, reason: EndReason, *, grace: timedelta) -> bool:
        """Writes the request. Returns whether Slurm must be asked: it is new, or was sent long ago. Raises OSError."""
        self.requester.request(reason, grace=grace)
        request, now = read_untrusted(self.run.stop, StopRequest), time.monotonic()
        if request == self._sent[0] and now - self._sent[1] < _AGAIN_S:
            return False
        self._sent = (request, now)
        return True

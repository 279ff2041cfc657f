"""The engine of a Slurm partition: each attempt is one Slurm job, whose nodes run the supervisor of this service.

The name of the job is the key of the attempt. Whether it was submitted may be unknown for a while: then the engine
looks for the name, and never submits again before Slurm has twice said that it has none.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import timedelta
import functools
import os
from pathlib import Path
import socket
import threading
import time

from torchyard.contract.attempts.records import ExitReport
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.cluster.devices import DeviceReport, PoolReport, StartsReport
from torchyard.contract.errors import ConfigError
from torchyard.contract.reach.orders import Call
from torchyard.contract.states import EndReason
from torchyard.host.failpoints import failpoint
from torchyard.host.recordfiles import write_record
from torchyard.host.untrusted import read_untrusted
from worker.engines import base
from worker.engines.base import AttemptPlan, Handle
from worker.engines.local import stacks
from worker.engines.slurm.cluster_plans import cluster_plan
from worker.engines.slurm.commands import Commands, NoAnswer, Refused
from worker.engines.slurm.listing import Listings
from worker.engines.slurm.names import Names
from worker.engines.slurm.observing import observe
from worker.engines.slurm.others import OtherJobs
from worker.engines.slurm.pool import PoolSettings
from worker.engines.slurm.pool_reports import PoolReports
from worker.engines.slurm.records import ClusterFiles, ClusterPlan, NodeRules, StacksRequest, Timing
from worker.engines.slurm.stopping import Stopping
from worker.engines.slurm.submission import prepare
from worker.engines.slurm.tracked import Tracked
from worker.engines.slurm.watching import ReportWatcher
from worker.host.attempt_key import AttemptKey

_LOOK_S = 60.0
"""How long a start waits for Slurm to list its jobs."""
_KILL_S = 60.0
_POLL_S = 0.2
_KILL_AGAIN_S = 20.0


class SlurmEngine:
    """`runs` contains the run directories, at the same path on all nodes. `rules`: how the nodes prepare themselves.

    `apart_s`: how far apart two lists are by which Slurm surely has no job.
    """

    def __init__(
        self,
        runs: Path,
        *,
        service_id: str,
        pool: PoolSettings,
        rules: NodeRules,
        environ: Mapping[str, str] = os.environ,
        timing: Timing | None = None,
        apart_s: float = 60.0,
        list_every_s: float = 10.0,
    ) -> None:
        self._runs = runs.absolute()
        self._names = Names(service_id, pool.partition)
        self._timing = timing or Timing()
        self._describe = functools.partial(cluster_plan, rules=rules, timing=self._timing, environ=environ)
        self._commands = Commands(environ)
        self._listings = Listings(self._commands.list_jobs, every_s=list_every_s, apart_s=apart_s)
        self._pools = PoolReports(self._commands, pool)
        self._watcher = ReportWatcher()
        self._tracked: dict[AttemptKey, Tracked] = {}
        self._lock = threading.Lock()
        self._others = OtherJobs(self._names)
        self._stopping = Stopping(self._commands, notify=lambda: self._listings.refresh(wait_s=0))

    def pool(self) -> PoolReport:
        """Returns what the partition offers, as Slurm has said within the last minutes. Does not wait."""
        return self._pools.newest()

    def announce(self, plan: AttemptPlan) -> Handle:
        name = self._names.of(plan.key, claimed_at=plan.claimed_at)
        self._track(plan.key, name, plan.world_size)
        return self._handle(plan.key, name, plan.world_size, submitted=False)

    def start(self, plan: AttemptPlan) -> Handle:
        _check(plan)
        announced = self.announce(plan)
        name = str(announced.stored["name"])
        submitted = self._handle(plan.key, name, plan.world_size, submitted=True)
        if self._has_run(plan.key, plan.claimed_at):
            return submitted
        listing = self._listings.refresh(wait_s=_LOOK_S)
        if listing is None:
            raise base.NotStartedYet(f"Slurm does not answer: {self._listings.problem or 'it lists no jobs'}")
        if name in listing.jobs:
            return submitted
        try:
            self._submit(plan, name)
        except Refused as error:
            if error.passes:
                raise base.NotStartedYet(f"Slurm takes no job now: {error}") from None
            raise ConfigError(f"Slurm refuses the job: {error}") from None
        except NoAnswer as error:
            return replace(announced, note=f"Slurm has not said whether it has the job, so it is looked for: {error}")
        finally:
            self._listings.track(name)  # what was listed before says nothing
            self._listings.refresh(wait_s=0)
        return submitted

    def find(self, key: AttemptKey, *, world_size: int, claimed_at: int) -> Handle | None:
        try:
            name = self._names.of(key, claimed_at=claimed_at)
        except ValueError:
            return None
        if self._listings.job(name) is None and not self._has_run(key, claimed_at):
            return None
        self._track(key, name, world_size)
        return self._handle(key, name, world_size, submitted=True)

    def adopt(self, handle: Handle) -> None:
        if handle.stored:
            self._track(handle.key, str(handle.stored["name"]), handle.world_size)

    def poll(self, handle: Handle) -> base.Observation:
        if not handle.stored:
            return base.Absent()
        tracked = self._track(handle.key, str(handle.stored["name"]), handle.world_size)
        if tracked.report is not None:
            return base.Ended(tracked.report)
        facts = tracked.facts(self._listings, submitted=handle.stored.get("submitted") is True)
        state = observe(facts, running=tracked.running, log=lambda: tracked.log)
        if isinstance(state, base.Ended):
            tracked.report = state.report
        return state

    def watch(self, handle: Handle, changed: Callable[[], None]) -> Callable[[], None]:
        return self._watcher.watch(self._run_dir(handle.key).exit, changed)

    def request_stop(self, handle: Handle, reason: EndReason, grace: timedelta) -> None:
        tracked = self._track(handle.key, str(handle.stored["name"]), handle.world_size)
        self._stopping.request(tracked, reason, grace=grace)

    def request_stacks(self, handle: Handle) -> Callable[[], list[base.RankStacks]]:
        tracked = self._track(handle.key, str(handle.stored["name"]), handle.world_size)
        read = stacks.written_since(tracked.run, ranks=range(handle.world_size))
        write_record(ClusterFiles(tracked.run).stacks, StacksRequest(number=time.time_ns()))
        self._stopping.notify(tracked.name)
        return read

    def reach(self, handle: Handle, call: Call) -> socket.socket:
        raise ConfigError("programs and shells cannot be started in jobs of a pool")

    def stray_memory(self, handle: Handle, devices: Sequence[str]) -> list[base.StrayMemory]:
        return []

    def kill(self, handle: Handle) -> str | None:
        """Ends the jobs of the attempt. Waits until Slurm and the heartbeat both say that nothing runs."""
        names = self._names_of(handle)
        if names is None:
            return "Slurm does not answer, so a job of the attempt may still run"
        tracked = [self._track(handle.key, name, handle.world_size) for name in names]
        since = asked_at = time.monotonic()
        for attempt in tracked:
            self._stopping.end(attempt)
        while any(self._may_run(attempt, since=since) for attempt in tracked):
            if time.monotonic() - since > _KILL_S:
                listed = ", ".join(names)
                return f"Slurm has not ended the job of the attempt, which may still run: scancel --name={listed}"
            if time.monotonic() - asked_at > _KILL_AGAIN_S:
                asked_at = time.monotonic()
                for attempt in tracked:
                    self._stopping.end(attempt)
            self._listings.refresh(wait_s=_POLL_S)
            time.sleep(_POLL_S)
        return None

    def end_processes(self, key: AttemptKey) -> str | None:
        return None  # none of them is on this host

    def runs(self, key: AttemptKey) -> bool:
        listing = self._listings.newest
        if listing is None or self._listings.problem is not None:
            return True
        if os.path.lexists(self._run_dir(key).exit):
            return False
        if any(self._names.key_of(name) == key for name, job in listing.jobs.items() if not job.ended):
            return True
        tracked = self._tracked.get(key)
        return tracked is not None and tracked.report is None and tracked.fresh

    def kill_others(self, keep: Collection[AttemptKey]) -> None:
        """Has Slurm cancel each job of this service and pool that belongs to none of `keep`. Waits for nothing."""
        with self._lock:  # attempts that start meanwhile are added by their own threads
            tracked = dict(self._tracked)
        done = {key: item for key, item in tracked.items() if key not in keep and (item.report or not item.fresh)}
        with self._lock:
            forgotten = [key for key, item in done.items() if self._tracked.get(key) is item]
            self._listings.forget([self._tracked.pop(key).name for key in forgotten])
        listing = self._listings.newest
        if listing is None:
            self._listings.refresh(wait_s=0)
            return
        names = {key: item.name for key, item in tracked.items() if key in keep}
        for name in self._others.to_cancel(listing, keep=keep, names=names):
            self._stopping.cancel(name)

    def close(self) -> None:
        """Has the threads of this engine end. What runs in Slurm goes on."""
        self._listings.close()
        self._pools.close()
        self._watcher.close()
        self._stopping.close()

    def starts(self) -> StartsReport:
        return StartsReport(mode="cold", why="Slurm starts them")

    def usage(self) -> dict[AttemptKey, float]:
        return {}

    def capacity(self) -> list[DeviceReport]:
        return []

    def _submit(self, plan: AttemptPlan, name: str) -> None:
        """Writes what the nodes need, and calls sbatch. Raises Refused, NoAnswer, ConfigError and OSError."""
        run = self._run_dir(plan.key)
        described = self._describe(plan, name=name)
        submission = prepare(plan, described, run=run, pool=self.pool())
        failpoint("launch.start.before")
        self._commands.submit(submission)
        failpoint("launch.start.after")

    def _names_of(self, handle: Handle) -> list[str] | None:
        """Returns the names that jobs of the attempt may have, or None if that is not known."""
        if handle.stored:
            return [str(handle.stored["name"])]
        listing = self._listings.refresh(wait_s=_LOOK_S)
        if listing is None:
            return None
        return [name for name in listing.jobs if self._names.key_of(name) == handle.key]

    def _may_run(self, tracked: Tracked, *, since: float) -> bool:
        """Returns whether a job of the attempt may run. `since`: when it was cancelled."""
        if read_untrusted(tracked.run.exit, ExitReport) is not None:
            return False
        listing = self._listings.newest
        if listing is None or listing.begun_at < since or tracked.fresh:
            return True
        job = listing.jobs.get(tracked.name)
        return job is not None and not job.ended

    def _has_run(self, key: AttemptKey, claimed_at: int) -> bool:
        """Returns whether a coordinator has started with this claim."""
        files = ClusterFiles(self._run_dir(key))
        if not os.path.lexists(files.lock) and not os.path.lexists(files.run.exit):
            return False
        plan = read_untrusted(files.plan, ClusterPlan)
        return plan is not None and plan.claimed_at == claimed_at

    def _track(self, key: AttemptKey, name: str, world_size: int) -> Tracked:
        with self._lock:
            tracked = self._tracked.get(key)
            if tracked is not None and tracked.name == name:
                return tracked
            if tracked is not None:
                self._listings.forget([tracked.name])
            tracked = Tracked(name, self._run_dir(key), world_size=world_size, timing=self._timing)
            self._tracked[key] = tracked
        self._listings.track(name)
        return tracked

    def _handle(self, key: AttemptKey, name: str, world_size: int, *, submitted: bool) -> Handle:
        stored = {
            "engine": "slurm",
            "name": name,
            "pool": self._names.partition,
            "submitted": submitted,
            "isolation": "",
        }
        return Handle(key, world_size, stored)

    def _run_dir(self, key: AttemptKey) -> RunDir:
        return RunDir(self._runs / key.job_id / str(key.number))


def _check(plan: AttemptPlan) -> None:
    """Raises ConfigError for what this engine cannot start."""
    if plan.launcher == "warm":
        raise ConfigError("launcher: warm is not possible in a pool: its nodes keep no warm process")

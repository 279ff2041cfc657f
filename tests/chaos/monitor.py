"""Polls the service during faults: double-booked devices, overlapping attempts, and recovery after kills."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import combinations
import threading
import time

from tests.chaos import job_processes
from tests.chaos.faults import Kill
from torchyard.client import Client
from torchyard.contract.cluster.views import WorkerView
from torchyard.contract.errors import NotFound, TorchyardError
from torchyard.contract.jobs.views import JobSummary
from torchyard.contract.states import JobState

_PAUSE_S = 0.25
_ACTIVE = (JobState.STARTING, JobState.RUNNING)


class Monitor(threading.Thread):
    """Polls the service until `close`. `jobs` returns the ids of the accepted jobs."""

    def __init__(self, client: Client, jobs: Callable[[], Collection[str]]) -> None:
        super().__init__(name="watch", daemon=True)
        self.polls = 0
        self.failure: BaseException | None = None
        self.double_booked: set[str] = set()
        self.overlapping: set[tuple[str, int, int]] = set()
        """Job and two of its attempts that ran at the same time, the earlier one first."""
        self.recovered: dict[str, list[float]] = defaultdict(list)
        """Seconds from each kill to the recovery, by target."""
        self._client, self._jobs = client, jobs
        self._kills: list[Kill] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def unrecovered(self) -> int:
        with self._lock:
            return len(self._kills)

    def on_kill(self, kill: Kill) -> None:
        with self._lock:
            self._kills.append(kill)

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        try:
            while not self._closing.wait(_PAUSE_S):
                for job_id, running in job_processes.running_attempts(job_processes.find(self._jobs())).items():
                    self.overlapping |= {(job_id, *pair) for pair in combinations(sorted(running), 2)}
                with suppress(TorchyardError):  # it may be away
                    self._poll()
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error

    def _poll(self) -> None:
        active = [*self._client.jobs.list(state=_ACTIVE, limit=100)]
        self.double_booked |= set(double_booked(active))
        self.polls += 1
        with self._lock:
            kills = list(self._kills)
        if not kills:
            return
        ready, workers = self._client.ready(), {worker.id: worker for worker in self._client.workers.list()}
        now = time.time()
        for kill in kills:
            if kill.job_id is not None:
                healed = self._is_resumed(kill)
            else:
                healed = is_recovered(
                    kill, components={"redis": ready.redis, "postgresql": ready.database}, workers=workers
                )
            if healed:
                self.recovered[kill.target].append(now - kill.at)
                with self._lock:
                    self._kills.remove(kill)

    def _is_resumed(self, kill: Kill) -> bool:
        assert kill.job_id is not None
        try:
            job = self._client.get(kill.job_id).view
        except NotFound:
            return False  # the check of its history reports it if it stays missing
        resting = job.state.terminal or job.state is JobState.PAUSED
        return resting or (job.attempt > kill.attempt and job.state is JobState.RUNNING)


def is_recovered(kill: Kill, *, components: Mapping[str, str], workers: Mapping[str, WorkerView]) -> bool:
    """Returns whether the killed process is replaced. The API is, because it has answered."""
    if kill.worker is not None:
        worker = workers.get(kill.worker)
        if kill.target == "warm process":
            since = worker.starts.since if worker is not None and worker.starts is not None else None
            return since is not None and since.timestamp() > kill.at
        return worker is not None and worker.started_at.timestamp() > kill.at
    return components.get(kill.target, "ok") == "ok"


def double_booked(jobs: Iterable[JobSummary]) -> list[str]:
    """Returns a sentence for each device that two of the jobs hold."""
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in jobs:
        for device in job.devices:
            holders[device.worker, device.uuid].append(job.id)
    return [f"{uuid} of {worker} is held by {held}" for (worker, uuid), held in holders.items() if len(held) > 1]

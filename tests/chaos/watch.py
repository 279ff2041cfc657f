"""Looks at the service while it suffers: is a device held twice, does an attempt run beside another, is it up again."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from itertools import combinations
import threading
import time

from tests.chaos import crew
from tests.chaos.nemesis import Wound
from torchyard.client import Client
from torchyard.contract.errors import NotFound, TorchyardError
from torchyard.contract.job import JobState
from torchyard.contract.views import JobView, WorkerView

_PAUSE_S = 0.25
_ACTIVE = (JobState.STARTING, JobState.RUNNING)


class Watch(threading.Thread):
    """Works until `close`. `jobs` answers the ids of those that are accepted so far."""

    def __init__(self, client: Client, jobs: Callable[[], Collection[str]]) -> None:
        super().__init__(name="watch", daemon=True)
        self.looks = 0
        self.failure: BaseException | None = None
        self.booked_twice: set[str] = set()
        self.side_by_side: set[tuple[str, int, int]] = set()
        """Job and two attempts of it that ran at the same time, the earlier one first."""
        self.recovered: dict[str, list[float]] = defaultdict(list)
        """Seconds from each kill until all was as before, by target."""
        self._client, self._jobs = client, jobs
        self._wounds: list[Wound] = []
        self._lock = threading.Lock()
        self._closing = threading.Event()

    @property
    def open_wounds(self) -> int:
        with self._lock:
            return len(self._wounds)

    def wounded(self, wound: Wound) -> None:
        with self._lock:
            self._wounds.append(wound)

    def close(self) -> None:
        self._closing.set()

    def run(self) -> None:
        try:
            while not self._closing.wait(_PAUSE_S):
                for job_id, running in crew.attempts(crew.muster(self._jobs())).items():
                    self.side_by_side |= {(job_id, *pair) for pair in combinations(sorted(running), 2)}
                with suppress(TorchyardError):  # it may be away
                    self._look()
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error

    def _look(self) -> None:
        active = [*self._client.list(state=_ACTIVE, limit=100)]
        self.booked_twice |= set(booked_twice(active))
        self.looks += 1
        with self._lock:
            wounds = list(self._wounds)
        if not wounds:
            return
        ready, workers = self._client.ready(), {worker.id: worker for worker in self._client.workers()}
        now = time.time()
        for wound in wounds:
            if wound.job_id is not None:
                healed = self._goes_on(wound)
            else:
                healed = is_up(wound, parts={"redis": ready.redis, "postgresql": ready.database}, workers=workers)
            if healed:
                self.recovered[wound.target].append(now - wound.at)
                with self._lock:
                    self._wounds.remove(wound)

    def _goes_on(self, wound: Wound) -> bool:
        assert wound.job_id is not None
        try:
            job = self._client.get(wound.job_id)
        except NotFound:
            return False  # said by the history, if it stays away
        resting = job.state.terminal or job.state is JobState.PAUSED
        return resting or (job.attempt > wound.attempt and job.state is JobState.RUNNING)


def is_up(wound: Wound, *, parts: Mapping[str, str], workers: Mapping[str, WorkerView]) -> bool:
    """Whether what was killed is there again; the API is, as it has answered."""
    if wound.worker is not None:
        worker = workers.get(wound.worker)
        if wound.target == "warm process":
            since = worker.starts.since if worker is not None and worker.starts is not None else None
            return since is not None and since.timestamp() > wound.at
        return worker is not None and worker.started_at.timestamp() > wound.at
    return parts.get(wound.target, "ok") == "ok"


def booked_twice(jobs: Iterable[JobView]) -> list[str]:
    """Of jobs that hold devices at one moment: the devices that two of them hold."""
    holders: dict[tuple[str, str], list[str]] = defaultdict(list)
    for job in jobs:
        for device in job.devices:
            holders[device.worker, device.uuid].append(job.id)
    return [f"{uuid} of {worker} is held by {held}" for (worker, uuid), held in holders.items() if len(held) > 1]

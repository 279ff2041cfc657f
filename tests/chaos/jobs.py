"""Submits short jobs, and pauses, cancels and retries some of them, through the REST client only."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from random import Random
import threading
import time
from typing import Any, Literal, TypeVar

from torchyard.client import Client
from torchyard.contract.errors import Conflict, ServerUnreachable, TorchyardError, Unavailable
from torchyard.contract.jobs.views import JobView
from torchyard.contract.states import JobState

T = TypeVar("T")

Kind = Literal["digits", "script"]
Plan = Literal["run", "cancel", "pause", "retry"]

KINDS: tuple[Kind, ...] = ("digits", "script")
LABEL = "chaos"
"""The label with the key of the submission."""

_PLANS: tuple[Plan, ...] = ("run", "run", "run", "pause", "cancel", "retry")
_PRIORITIES = (0, 0, 0, 5)
"""Jobs of a higher priority may preempt others."""
LAUNCHERS = ("auto", "auto", "torchrun")
_AT_ONCE = 5
_PAUSE_S = 0.25
_LATEST_S = 8.0
"""Longest delay of the owner's action after the start of a job, in seconds."""

SCRIPT = """
import os, time, torchyard

run = torchyard.init()
state = run.resume() or {"step": 0, "value": 0.3}
step, value = state["step"], state["value"]
while step < 120:
    time.sleep(0.05)
    step += 1
    value = 3.9 * value * (1 - value)
    run.log({"train/value": value}, step=step)
    stop = run.should_stop()
    if step % 10 == 0 or stop:
        mark = {"step": step, "value": value, "job": os.environ["TORCHYARD_JOB_ID"]}
        run.save_checkpoint(mark | {"attempt": os.environ["TORCHYARD_ATTEMPT"]}, step=step)
    if stop:
        break
"""

_COMMON: dict[str, Any] = {
    "max_restarts": 1000,
    "stall_timeout": "3m",
}
_DIGITS: dict[str, Any] = {
    "trainer": "image-classification",
    "resources": {"devices_per_node": 2, "device": "cpu"},
    "checkpoint": {"every_steps": 5, "keep_last": 2},
    "config": {
        "data": {"source": "digits"},
        "training": {"epochs": 4, "deterministic": True},
        "logging": {"every_steps": 2},
    },
}


def spec(kind: Kind, *, code: str, label: str) -> dict[str, Any]:
    """Returns the spec to submit. `code`: where SCRIPT is, as train.py."""
    named = _COMMON | {"name": f"chaos-{kind}", "labels": {LABEL: label}}
    if kind == "digits":
        return _DIGITS | named
    return named | {"trainer": "script", "config": {"code": code}, "resources": {"device": "cpu"}}


@dataclass
class ChaosJob:
    """A job, and its owner's action."""

    key: str
    kind: Kind
    plan: Plan
    job_id: str
    state: JobState = JobState.QUEUED
    asked: bool = False
    """Whether the service has accepted the owner's cancel."""
    acts_at: float | None = None
    over: bool = False
    """Whether the job has ended and its owner does nothing more with it."""

    @property
    def ends(self) -> frozenset[JobState]:
        """The allowed final states. A cancel may come after the last step."""
        return frozenset({JobState.SUCCEEDED, *([JobState.CANCELLED] if self.asked else [])})


class JobSubmitter(threading.Thread):
    """Keeps some jobs under way until there were `count` of them, or `close` was called; `errands` are all accepted
    ones, and `complaints` answers that no client should get. It ends when each errand is over. `failure` is what it
    could not cope with.
    """

    def __init__(
        self,
        client: Client,
        *,
        code: str,
        count: int,
        seed: int,
        kinds: Sequence[Kind],
        launchers: Sequence[str],
    ) -> None:
        super().__init__(name="jobs", daemon=True)
        self.chaos_jobs: list[ChaosJob] = []
        self.unexpected_errors: set[str] = set()
        self.failure: BaseException | None = None
        self._client, self._code, self._left, self._kinds = client, code, count, kinds
        self._launchers = launchers
        self._random = Random(f"jobs {seed}")
        self._closing = threading.Event()
        self._given_up = threading.Event()

    def close(self) -> None:
        """Submits nothing more."""
        self._closing.set()

    def give_up(self) -> None:
        """Stops waiting for jobs."""
        self._closing.set()
        self._given_up.set()

    def run(self) -> None:
        try:
            for _ in self._until_given_up():
                self._submit_more()
                for chaos_job in [each for each in self.chaos_jobs if not each.over]:
                    self._attend(chaos_job)
                if all(each.over for each in self.chaos_jobs) and (self._closing.is_set() or not self._left):
                    return
        except _GivenUp:
            return
        except BaseException as error:  # noqa: BLE001 the run fails by it, in its own thread
            self.failure = error

    def _until_given_up(self) -> Generator[None]:
        while not self._given_up.wait(_PAUSE_S):
            yield

    def _submit_more(self) -> None:
        if self._left and not self._closing.is_set() and sum(not each.over for each in self.chaos_jobs) < _AT_ONCE:
            self._left -= 1
            key = f"{len(self.chaos_jobs):04d}"
            kind, plan = self._random.choice(self._kinds), self._random.choice(_PLANS)
            priority = {"priority": self._random.choice(_PRIORITIES), "preemptible": True}
            launcher = {"launcher": self._random.choice(self._launchers)}
            body = spec(kind, code=self._code, label=key) | priority | launcher
            job = self._retry_while_unavailable(lambda: self._client.submit(body, idempotency_key=key))
            self.chaos_jobs.append(ChaosJob(key, kind, plan, job.id))

    def _attend(self, chaos_job: ChaosJob) -> None:
        job = self._retry_while_unavailable(lambda: self._client.get(chaos_job.job_id))
        chaos_job.state = job.state
        if job.state.terminal:
            self._close_errand(chaos_job)
        elif job.state is JobState.PAUSED:
            self._try(lambda: self._client.jobs.resume(chaos_job.job_id))
        elif chaos_job.plan != "run" and job.state is JobState.RUNNING:
            self._disturb(chaos_job)

    def _disturb(self, chaos_job: ChaosJob) -> None:
        chaos_job.acts_at = chaos_job.acts_at or time.monotonic() + self._random.uniform(0, _LATEST_S)
        if chaos_job.asked or time.monotonic() < chaos_job.acts_at:
            return
        ask = self._client.jobs.pause if chaos_job.plan == "pause" else self._client.jobs.cancel
        accepted = self._try(lambda: ask(chaos_job.job_id))
        if accepted and chaos_job.plan == "pause":
            chaos_job.plan = "run"  # only once
        elif accepted:
            chaos_job.asked = True

    def _close_errand(self, chaos_job: ChaosJob) -> None:
        chaos_job.over = True
        if chaos_job.plan == "retry" and chaos_job.state is JobState.CANCELLED:
            key = f"{chaos_job.key}-again"
            again = self._retry_while_unavailable(
                lambda: self._client.jobs.retry(chaos_job.job_id, idempotency_key=key)
            )
            self.chaos_jobs.append(ChaosJob(key, chaos_job.kind, "run", again.id))

    def _try(self, ask: Callable[[], JobView]) -> bool:
        """Returns whether the request was accepted. It is repeated without an answer."""
        try:
            self._retry_while_unavailable(ask)
        except Conflict:
            return False  # the job has ended or continued meanwhile
        return True

    def _retry_while_unavailable(self, ask: Callable[[], T]) -> T:
        while True:
            try:
                return ask()
            except Conflict:
                raise
            except TorchyardError as error:
                if not isinstance(error, Unavailable | ServerUnreachable):
                    self.unexpected_errors.add(f"answered {type(error).__name__}: {error.message}")
                if self._given_up.wait(_PAUSE_S):
                    raise _GivenUp from error


class _GivenUp(Exception):
    """Raised after `give_up`."""

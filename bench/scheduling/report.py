"""What a policy did with a trace, and the targets of the plan beside what was done before."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from bench.scheduling.simulator import US, Job
from bench.scheduling.traces import FLOOD_USER

BIG = 4
"""The fewest devices of a big job."""
_HOUR_US = 3600 * US
_TAU_S = 10.0


@dataclass(frozen=True)
class Result:
    trace: str
    seed: str
    preemptible: float
    policy: str
    mean_wait_hours: float
    """Of all waits of a job together."""
    big_mean_hours: float
    big_max_hours: float
    worst_user_hours: float
    """The mean wait of the user's jobs."""
    others_wait_hours: float
    """The mean wait of the jobs of all users but the one who floods the queue."""
    slowdown: float
    """The mean of wait and run by run, of runs of ten seconds at least."""


@dataclass(frozen=True)
class Target:
    """The largest ratio of the plan's mean over the seeds to that of `today`."""

    figure: str
    at_most: float


@dataclass(frozen=True)
class Verdict:
    trace: str
    preemptible: float
    target: Target
    ratio: float

    @property
    def met(self) -> bool:
        return self.ratio <= self.target.at_most


def result_of(trace: str, seed: str, preemptible: float, policy: str, jobs: Sequence[Job]) -> Result:
    big = [job.waited / _HOUR_US for job in jobs if job.devices >= BIG]
    users: dict[str, list[float]] = defaultdict(list)
    for job in jobs:
        users[job.trace.user].append(job.waited / _HOUR_US)
    return Result(
        trace=trace,
        seed=seed,
        preemptible=preemptible,
        policy=policy,
        mean_wait_hours=fmean(job.waited / _HOUR_US for job in jobs),
        big_mean_hours=fmean(big),
        big_max_hours=max(big),
        worst_user_hours=max(fmean(waits) for waits in users.values()),
        others_wait_hours=fmean(job.waited / _HOUR_US for job in jobs if job.trace.user != FLOOD_USER),
        slowdown=fmean(_slowdown(job) for job in jobs),
    )


def verdicts(results: Iterable[Result]) -> Iterator[Verdict]:
    """Yields how the plan does beside what was done before, of each target."""
    runs: dict[tuple[str, float], dict[str, list[Result]]] = defaultdict(lambda: defaultdict(list))
    for result in results:
        runs[result.trace, result.preemptible][result.policy].append(result)
    for (trace, preemptible), by_policy in runs.items():
        if {"plan", "today"} <= by_policy.keys():
            for target in _targets(trace, preemptible):
                yield Verdict(trace, preemptible, target, _ratio(by_policy, target.figure))


def _targets(trace: str, preemptible: float) -> list[Target]:
    if trace == "kth":
        return [Target("big_max_hours", 0.3)]
    if trace == "flood":
        return [Target("others_wait_hours", 0.35)]
    mean = 0.6 if preemptible >= 0.7 else 0.75 if preemptible >= 0.3 else 1.0
    return [
        Target("mean_wait_hours", mean),
        *([Target("big_mean_hours", 0.75)] if preemptible >= 0.7 else []),
        *([Target("big_max_hours", 1.0)] if preemptible >= 0.7 else []),
        *([Target("worst_user_hours", 0.8)] if preemptible >= 0.7 else []),
    ]


def _ratio(by_policy: Mapping[str, Sequence[Result]], figure: str) -> float:
    ours, before = (fmean(getattr(one, figure) for one in by_policy[policy]) for policy in ("plan", "today"))
    return ours / before if before else float(ours > 0)


def _slowdown(job: Job) -> float:
    wait, run = job.waited / US, job.trace.run
    return max(1.0, (wait + run) / max(run, _TAU_S))

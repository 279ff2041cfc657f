"""Says what it costs to stop jobs: `412 steps, 18 GPU-minutes; resumes at step 3,000`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["cuda", "cpu"]
Saving = Literal["first", "perhaps", "never", "killed"]
"""Whether a job saves a checkpoint at a stop. A script does perhaps, an evaluation never; one that is killed cannot."""

NOTHING_RUNS = "nothing is lost: it does not run"
NO_JOB_RUNS = "nothing is lost: no job runs"
_NOTHING_LOST = "nothing is lost yet"

_NOUNS: Mapping[Kind, str] = {"cuda": "GPU", "cpu": "CPU-slot"}
_SECOND_US = 1_000_000
_MINUTES_FROM_S, _HOURS_FROM_S = 90, 90 * 60
_BEFORE: Mapping[Saving, str] = {
    "first": "it saves first; if it cannot: ",
    "perhaps": "it may save first; if it does not: ",
    "never": "it saves nothing: ",
    "killed": "it is killed and saves nothing: ",
}

_DOING: Mapping[Saving, str] = {
    "first": "it saves a checkpoint; ",
    "perhaps": "it may save a checkpoint; ",
    "never": "it saves nothing; ",
    "killed": "it is killed; ",
}


@dataclass(frozen=True)
class Stake:
    """What a job loses if it stops now without saving."""

    kind: Kind
    device_us: int
    steps: int | None
    """None: it tells none that could be true."""
    resumes_at: int | None
    """The step of its newest checkpoint; None if it has none."""
    is_training: bool = True
    """False while the attempt starts: it has held its devices, and trained nothing."""
    has_folder: bool = False
    """Whether the next attempt finds a working folder, with what this one has left there."""


def saving(trainer: object, mode: object, *, now: bool = False) -> Saving:
    """Returns what a job with this trainer and mode does at a stop. `now`: it is killed."""
    if now:
        return "killed"
    if mode == "evaluate":
        return "never"
    return "perhaps" if trainer == "script" else "first"


def pause_asked(saving: Saving) -> str:
    """Says what a job does that was asked to pause."""
    return {
        "first": "pause requested: the job saves a checkpoint and then gives its devices back",
        "perhaps": "pause requested: the job may save what it has, and then gives its devices back",
    }.get(saving, "pause requested: the job gives its devices back")


def at_stake(stake: Stake, *, ends: bool = False) -> str:
    """Says what is lost, and from where the job goes on, or with `ends`, a retry of it does."""
    return f"{_loss(stake) or 'nothing yet'}; {_going_on(stake, ends=ends)}"


def price_of_stop(stake: Stake, saving: Saving, *, ends: bool = False) -> str:
    """Says whether the job saves before it stops, and what is lost if it does not."""
    if not _loss(stake):
        return f"{_NOTHING_LOST}; {_going_on(stake, ends=ends)}"
    return f"{_BEFORE[saving] if stake.is_training else ''}{at_stake(stake, ends=ends)}"


def stop_asked(stake: Stake, saving: Saving) -> str:
    """Says what a job does that was asked to stop, and what was at stake then."""
    return f"{_DOING[saving] if stake.is_training else ''}at stake: {at_stake(stake)}"


def price_of_unread(stake: Stake) -> str:
    """Says what the stop of a job costs to who may not read it: neither its steps nor whether it saves."""
    loss = _loss(replace(stake, steps=None, is_training=True))
    return f"at most {loss}" if loss else _NOTHING_LOST


def price_of_stops(jobs: int, device_us: Mapping[Kind, int], *, now: bool = False) -> str:
    """Says what stopping several running jobs, or none, costs.

    `device_us`: of all of them by kind. `now`: they are killed.
    """
    if not jobs:
        return NO_JOB_RUNS
    lost = ", ".join(filter(None, (device_time(device_us.get(kind, 0), kind) for kind in _NOUNS)))
    if not lost:
        return f"{jobs:,} jobs run; {_NOTHING_LOST}"
    if now:
        return f"{jobs:,} jobs run, and are killed without saving: {lost}"
    return f"{jobs:,} jobs run; if none of them saves first: {lost}"


def device_time(device_us: int, kind: Kind) -> str:
    """Formats `18 GPU-minutes`, `1 CPU-slot-second`, `1.5 GPU-hours`; empty below a second."""
    seconds = device_us / _SECOND_US
    if seconds < 1:
        return ""
    if seconds < _MINUTES_FROM_S:
        return _counted(round(seconds), f"{_NOUNS[kind]}-second")
    if seconds < _HOURS_FROM_S:
        return _counted(round(seconds / 60), f"{_NOUNS[kind]}-minute")
    hours = seconds / 3600
    return f"{hours:,.1f} {_NOUNS[kind]}-hours" if hours < 10 else _counted(round(hours), f"{_NOUNS[kind]}-hour")


def _loss(stake: Stake) -> str:
    steps = _counted(stake.steps, "step") if stake.steps and stake.is_training else ""
    time = device_time(stake.device_us, stake.kind)
    untrained = "" if stake.is_training or not time else "nothing trained yet"
    return ", ".join(filter(None, (steps, untrained, time)))


def _going_on(stake: Stake, *, ends: bool) -> str:
    who = "a retry " if ends else ""
    if stake.resumes_at is not None:
        return f"{who}resumes at step {stake.resumes_at:,}"
    if stake.has_folder:
        return f"{who}starts with what is in its working folder: no checkpoint is stored"
    return f"{who}starts anew: it has no checkpoint"


def _counted(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

"""Says what it costs to stop jobs: `up to 412 steps (18 GPU-min) are lost; resumes at step 3,000`."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

Kind = Literal["cuda", "cpu"]
Saving = Literal["first", "perhaps", "never", "killed"]
"""Whether a job saves a checkpoint at a stop. A script does perhaps, an evaluation never; one that is killed cannot."""

NOTHING_RUNS = "nothing is lost: the job is not running"
NO_JOB_RUNS = "nothing is lost: no job is running"
_NOTHING_LOST = "nothing is lost yet"

_NOUNS: Mapping[Kind, str] = {"cuda": "GPU", "cpu": "CPU"}
_SECOND_US = 1_000_000
_MINUTES_FROM_S, _HOURS_FROM_S = 90, 90 * 60
_BEFORE: Mapping[Saving, str] = {
    "first": "saves a checkpoint first; if that fails, ",
    "perhaps": "may save a checkpoint first; otherwise ",
    "never": "stops without saving: ",
    "killed": "killed without saving: ",
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
        "first": "pause requested: saves a checkpoint, then releases its devices",
        "perhaps": "pause requested: may save a checkpoint, then releases its devices",
    }.get(saving, "pause requested: releases its devices")


def at_stake(stake: Stake, *, ends: bool = False) -> str:
    """Says what is lost at most, and from where the job goes on, or with `ends`, a retry of it does."""
    before = "no checkpoint yet: up to " if stake.resumes_at is None else "up to "
    return _price(before, stake, ends=ends)


def price_of_stop(stake: Stake, saving: Saving, *, ends: bool = False) -> str:
    """Says whether the job saves before it stops, and what is lost if it does not."""
    if saving == "perhaps" and stake.resumes_at is None:
        return at_stake(stake, ends=ends)
    return _price(_BEFORE[saving], stake, ends=ends)


def price_of_unread(stake: Stake) -> str:
    """Says what the stop of a job costs to who may not read it: neither its steps nor whether it saves."""
    loss = _loss(replace(stake, steps=None))
    return f"up to {_lost(loss)}" if loss else _NOTHING_LOST


def price_of_stops(jobs: int, device_us: Mapping[Kind, int], *, now: bool = False) -> str:
    """Says what stopping several running jobs, or none, costs.

    `device_us`: of all of them by kind. `now`: they are killed.
    """
    if not jobs:
        return NO_JOB_RUNS
    loss = " and ".join(filter(None, (device_time(device_us.get(kind, 0), kind) for kind in _NOUNS)))
    if not loss:
        return f"{jobs:,} running jobs: {_NOTHING_LOST}"
    how = "killed without saving" if now else "if none saves first"
    return f"{jobs:,} running jobs, {how}: {loss} are lost"


def device_time(device_us: int, kind: Kind) -> str:
    """Formats `18 GPU-min`, `1 CPU-s`, `1.5 GPU-h`, of GPUs or CPU slots; empty below a second."""
    seconds = device_us / _SECOND_US
    if seconds < 1:
        return ""
    if seconds < _MINUTES_FROM_S:
        return f"{round(seconds)} {_NOUNS[kind]}-s"
    if seconds < _HOURS_FROM_S:
        return f"{round(seconds / 60)} {_NOUNS[kind]}-min"
    hours = seconds / 3600
    return f"{f'{hours:.1f}' if hours < 10 else f'{round(hours):,}'} {_NOUNS[kind]}-h"


def _price(before: str, stake: Stake, *, ends: bool) -> str:
    loss, goes_on = _loss(stake), _going_on(stake, ends=ends)
    if not loss:
        return f"{_NOTHING_LOST}{goes_on}"
    if not stake.is_training:
        return f"no training yet: {_lost(f'{loss} of startup')}{goes_on}"
    return f"{before}{_lost(loss)}{goes_on}"


def _loss(stake: Stake) -> str:
    """Formats `412 steps (18 GPU-min)`, or one of the two; empty if nothing is lost."""
    steps = f"{stake.steps:,} step{'' if stake.steps == 1 else 's'}" if stake.steps and stake.is_training else ""
    time = device_time(stake.device_us, stake.kind)
    return f"{steps} ({time})" if steps and time else steps or time


def _lost(loss: str) -> str:
    return f"{loss} {'is' if loss.startswith('1 ') else 'are'} lost"


def _going_on(stake: Stake, *, ends: bool) -> str:
    who = "a retry " if ends else ""
    if stake.resumes_at is not None:
        return f"; {who}resumes at step {stake.resumes_at:,}"
    return f"; {who}continues in the working folder" if stake.has_folder else ""

"""A sweep as text: what it is, how far it is, and its ranking."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from torchyard.cli import output
from torchyard.contract.sweeps.arguments import ARGUMENT, described, option_of
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.wire.text import headline
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torchyard.contract.sweeps.views import BestTrial, SweepSummary, SweepView, TrialCounts, TrialView

COLOURS = {
    SweepState.RUNNING: "36",
    SweepState.PAUSED: "33",
    SweepState.CANCELLING: "35",
    SweepState.FINISHED: "32",
    SweepState.CANCELLED: "35",
    SweepState.FAILED: "31",
}
_COUNTED = ("succeeded", "running", "queued", "paused", "failed", "cancelled", "waiting")
_LONGEST = 24
"""Characters of a value in the ranking."""


def paint_state(line: str, state: SweepState) -> str:
    """Colours the name of the state in `line` if stdout is a terminal."""
    return line.replace(state, terminal.paint(state, COLOURS[state], sys.stdout), 1)


def lines_of(sweep: SweepView) -> list[str]:
    """Returns the lines that say what a sweep is, and how far."""
    keys = ", ".join(map(short_keys([*sweep.spec.parameters]).__getitem__, sweep.spec.parameters))
    parallel = f", {sweep.max_parallel} at once" if sweep.max_parallel is not None else ""
    rows = [
        ("sweep", sweep.name),
        ("id", sweep.id),
        ("owner", f"{sweep.owner}, visible to {sweep.visibility}"),
        ("state", f"{sweep.state}: {headline(sweep.status_reason.message)}"),
        ("method", f"{sweep.method}{f' over {keys}' if keys else ''}{parallel}"),
        ("arguments", ", ".join(described(key, style) for key, style in sweep.spec.styles.items())),
        ("metric", f"{sweep.monitor}, {sweep.mode}"),
        ("trials", counts(sweep.trials)),
        ("best", best(sweep.best) if sweep.best is not None else ""),
        ("created", output.moment(sweep.created_at)),
        ("finished", output.moment(sweep.finished_at) if sweep.finished_at is not None else ""),
    ]
    lines = [output.hanging(f"{label:<11}{terminal.plain(text)}") for label, text in rows if text]
    return [paint_state(line, sweep.state) if line.startswith("state") else line for line in lines]


def counts(trials: TrialCounts) -> str:
    """Formats `3 of 9: 2 running, 4 waiting`: how many have ended, and where the others are."""
    found = [f"{number} {name}" for name in _COUNTED if (number := getattr(trials, name))]
    return f"{ended(trials)} of {trials.total} finished" + (f": {', '.join(found)}" if found else "")


def ended(trials: TrialCounts) -> int:
    """Returns how many trials have ended, however they ended."""
    return trials.succeeded + trials.failed + trials.cancelled


def best(found: BestTrial) -> str:
    """Formats `0.9833 of trial 3: lr 0.001, seed 1`."""
    point = point_text(found.point)
    return f"{terminal.number(found.value)} of trial {found.trial}{f': {point}' if point else ''}"


def point_text(point: Mapping[str, Any]) -> str:
    """Formats a point for people: `lr 0.001, seed 1`."""
    names = short_keys([*point])
    return ", ".join(f"{names[key]} {value_text(value)}" for key, value in point.items())


def ranking(trials: Sequence[TrialView], *, keys: Sequence[str]) -> list[str]:
    """Returns a table of trials, one column a key, with the reason of those that failed."""
    names = short_keys(keys)
    failed = any(trial.error for trial in trials)
    rungs = any(trial.rung is not None for trial in trials)
    headers = (
        *("RANK", "TRIAL", "STATE", "VALUE", *(names[key] for key in keys)),
        *(("RUNG",) if rungs else ()),
        *("STEP", "JOB"),
        *(("ERROR",) if failed else ()),
    )
    rows = [
        (
            *("" if trial.rank is None else str(trial.rank), str(trial.number), trial.state),
            "" if trial.value is None else terminal.number(trial.value),
            *(_cell(trial, key) for key in keys),
            *(("" if trial.rung is None else str(trial.rung),) if rungs else ()),
            *(str(trial.step) if trial.step else "", trial.job_id or "deleted"),
            *((headline(trial.error or ""),) if failed else ()),
        )
        for trial in trials
    ]
    heading, *lines = output.table(headers, rows)
    return [heading, *(output.paint_state(line, trial.state) for line, trial in zip(lines, trials, strict=True))]


def _cell(trial: TrialView, key: str) -> str:
    """Formats a value of a trial's point, of which a long one is not told."""
    if trial.point_omitted:
        return "…"
    return value_text(trial.point[key]) if key in trial.point else ""


def trial_keys(sweep: SweepView, trials: Sequence[TrialView]) -> list[str]:
    """Returns what varies: the keys of the spec, else those of the first trial."""
    return [*sweep.spec.parameters] or [*(trials[0].point if trials else ())]


def summaries(sweeps: Sequence[SweepSummary]) -> list[str]:
    """Returns a table of sweeps."""
    headers = ("ID", "NAME", output.OWNER, "STATE", "FINISHED", "FAILED", "METRIC", "METHOD", "AGE")
    rows = [
        (
            *(sweep.id, sweep.name, sweep.owner, sweep.state, f"{ended(sweep.trials)} of {sweep.trials.total}"),
            *(str(sweep.trials.failed or ""), f"{sweep.monitor}, {sweep.mode}"),
            *(sweep.method, terminal.age(sweep.created_at)),
        )
        for sweep in sweeps
    ]
    heading, *lines = output.table(headers, rows)
    return [heading, *(paint_state(line, sweep.state) for line, sweep in zip(lines, sweeps, strict=True))]


def short_keys(keys: Sequence[str]) -> dict[str, str]:
    """Returns a name for each key: `--lr` of an argument, else as many of its last words as no other key has."""
    return {key: option_of(key) if key.startswith(ARGUMENT) else _short(key, {*keys} - {key}) for key in keys}


def value_text(value: Any) -> str:
    """Formats a value of a point: numbers as they were set, texts as they are, else JSON."""
    if isinstance(value, float):
        return terminal.setting(value)
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _short(key: str, others: set[str]) -> str:
    words = key.split(".")
    ends = (".".join(words[-count:]) for count in range(1, len(words)))
    return next((end for end in ends if not any(f".{other}".endswith(f".{end}") for other in others)), key)

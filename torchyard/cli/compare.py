"""The command `compare`: puts jobs side by side, with what differs between their specs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobsArgument, Json, connect
from torchyard.contract.wire.codec import json_number
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.contract.jobs.views import JobView
    from torchyard.contract.telemetry.curves import CurvesView

_MOST_JOBS = 50
_MOST_KEYS = 8
"""The most metrics that are shown if none is named."""
_ABSENT = "-"


def compare(
    jobs: JobsArgument,
    *,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Show this metric. Repeatable.")] = None,
    as_json: Json = False,
) -> None:
    """Compare jobs: states, metrics and settings."""
    if not 2 <= len(jobs) <= _MOST_JOBS:
        raise typer.BadParameter(f"give 2 to {_MOST_JOBS} jobs")
    with connect() as client:
        found = [*{job.id: job for job in (client.get(ref).view for ref in jobs)}.values()]
        latest = _latest(client.jobs.curves([job.id for job in found]))
        silent = next((job.id for job in found if not (latest[job.id] or job.best or key or as_json)), None)
        offered = None if silent is None else output.offered_metric(client.jobs.advice(silent))
    known = {name for values in latest.values() for name in values}
    if absent := {*(key or ())} - known:
        terminal.note(output.no_such_metric(absent, known, whose="These jobs have"))
        raise typer.Exit(1)
    keys = key or _shared(latest)
    differing = _differing([_flat(job.spec.model_dump(mode="json")) for job in found])
    if as_json:
        return terminal.write(json.dumps(_document(found, keys, latest, differing)))
    shown = keys if key else keys[:_MOST_KEYS]
    headings = ("ID", "NAME", "STATE", "BEST", *map(terminal.plain, shown))
    heading, *lines = output.table(headings, [_row(job, shown, latest[job.id]) for job in found])
    terminal.write(heading)
    for line, job in zip(lines, found, strict=True):
        terminal.write(output.paint_state(line, output.state(job)))
    if len(keys) > len(shown):
        terminal.note(f"{len(keys) - len(shown)} more common metrics. Choose some with --key.")
    if offered is not None:
        terminal.note(f"{silent}: {offered}")
    if not differing:
        return terminal.note("Their specs are equal.")
    rows = [(setting, *map(_text, values)) for setting, values in differing.items()]
    for line in ("", *output.table(("SETTING", *_labels(found)), rows)):
        terminal.write(line)
    return None


def _latest(found: CurvesView) -> dict[str, dict[str, float]]:
    """Returns the newest value of each metric, by job."""
    return {job.job_id: {one.key: one.latest for one in job.keys} for job in found.jobs}


def _shared(latest: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Returns the metrics that all jobs have."""
    first, *others = latest.values()
    return [key for key in first if all(key in other for other in others)]


def _flat(value: Any, path: str = "") -> dict[str, Any]:
    """Returns the settings of a spec by their dotted names, without its own name."""
    if not isinstance(value, dict) or not value:
        return {path: value}
    flat: dict[str, Any] = {}
    for key, inner in value.items():  # pyright: ignore[reportUnknownVariableType] - of a spec, as JSON
        flat |= _flat(inner, f"{path}.{key}" if path else str(key))  # pyright: ignore[reportUnknownArgumentType]
    flat.pop("name", None)
    return flat


def _differing(specs: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Returns the settings that differ, each with its value in every spec; None where it has none."""
    settings = dict.fromkeys(setting for spec in specs for setting in spec)
    values = {setting: [spec.get(setting) for spec in specs] for setting in settings}
    return {setting: row for setting, row in values.items() if any(value != row[0] for value in row)}


def _row(job: JobView, keys: Sequence[str], latest: Mapping[str, float]) -> tuple[str, ...]:
    best = f"{terminal.number(job.best.value)} {job.best.metric}" if job.best is not None else _ABSENT
    values = (terminal.number(latest[key]) if key in latest else _ABSENT for key in keys)
    return (job.id, job.name, output.state(job), best, *values)


def _labels(jobs: Sequence[JobView]) -> list[str]:
    """Returns the jobs' names, or their ids where names are equal."""
    names = [terminal.plain(job.name) for job in jobs]
    return names if len(set(names)) == len(names) else [job.id for job in jobs]


def _text(value: Any) -> str:
    if value is None:
        return _ABSENT
    return value if isinstance(value, str) else json.dumps(value)


def _document(
    jobs: Sequence[JobView],
    keys: Sequence[str],
    latest: Mapping[str, Mapping[str, float]],
    differing: Mapping[str, Sequence[Any]],
) -> dict[str, Any]:
    rows = [
        {
            **job.model_dump(mode="json", include={"id", "name", "state", "best"}),
            "metrics": {key: json_number(latest[job.id][key]) for key in keys if key in latest[job.id]},
        }
        for job in jobs
    ]
    return {"jobs": rows, "spec": differing}

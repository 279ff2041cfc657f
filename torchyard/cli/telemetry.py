"""Commands that print a job's output and its metrics."""

from __future__ import annotations

import json
import math
from pathlib import Path
import shlex
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from torchyard.cli import output
from torchyard.cli.arguments import JobArgument, Json, connect, moment
from torchyard.contract.wire.text import csv_of
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Callable

    from torchyard.contract.telemetry.views import (
        EventView,
        LogCurvesView,
        LogLine,
        MetricsView,
        SeriesView,
        StoredKind,
    )

_MOST_POINTS = 100_000


def logs(
    job: JobArgument,
    *,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Print new lines until the job finishes.")] = False,
    rank: Annotated[int | None, typer.Option(min=0, help="Only this rank's lines.")] = None,
    tail: Annotated[
        int | None, typer.Option(min=1, max=10_000, help="Only the last N lines (and new ones with --follow).")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="TIME", help="Only lines since TIME: 10m (ago), or a date.")
    ] = None,
    timestamps: Annotated[bool, typer.Option("--timestamps", "-t", help="Begin each line with its UTC time.")] = False,
    grep: Annotated[
        str | None,
        typer.Option("--grep", metavar="PATTERN", help="Only lines that contain PATTERN, with line numbers."),
    ] = None,
    context: Annotated[
        int,
        typer.Option("--context", "-C", min=0, max=1000, metavar="N", help="With --grep: also N lines around each."),
    ] = 0,
    regex: Annotated[
        bool, typer.Option("--regex", help="With --grep: PATTERN is a regular expression (RE2 syntax).")
    ] = False,
    case: Annotated[bool, typer.Option("--case", help="With --grep: match case.")] = False,
    as_json: Json = False,
) -> None:
    """Print a job's output.

    With --follow, exits with 1 if the job fails, and prints events of the service on stderr. With --grep, exits with
    1 if nothing matches.
    """
    _check_search(wanted=grep is not None, options=context > 0 or regex or case, others=follow or tail is not None)
    begin = moment(since) if since is not None else None
    shown = _formatter(with_rank=rank is None, with_time=timestamps, as_json=as_json)
    if not (follow or begin is not None or grep is not None):
        return _print_stored(job, None if as_json else shown, tail=tail, rank=rank)
    from torchyard.cli.follow import Watch, detachable, exit_code
    from torchyard.client.blocking import ask
    from torchyard.client.core.telemetry import lines_before
    from torchyard.contract.telemetry.views import EventView, LiveLine, LogLine

    with connect() as client:
        found = client.get(job).view
        last = first = ask(client, lines_before, found.id, begin) if begin is not None else 0
        if grep is not None:
            from torchyard.cli.grep import Nearby, Place, print_matches

            place, nearby = Place(), Nearby(client, found.id, rank=rank, context=context)
            matches = client.jobs.search_logs(
                found.id, grep, regex=regex, case=case, rank=rank, after=first, searched=place.show
            )
            if print_matches(matches, nearby, place, with_time=timestamps, as_json=as_json):
                return None
            terminal.note("No line matches.")
            raise typer.Exit(1)
        if tail is not None or not follow:
            for line in client.jobs.logs(found.id, tail=tail, rank=rank, after=first):
                if line.line > first:
                    last, begin = line.line, line.time
                    terminal.write(shown(line))
                    sys.stdout.flush()
        if not follow:
            return terminal.note("No output.") if last == first else None
        with detachable(found), Watch(log=shown) as watch:
            only: list[StoredKind] = ["log"] if as_json else ["log", "message", "state"]
            for item in client.jobs.stream(found.id, after=last, only=only, live=watch.shows_live and not as_json):
                line = item.view
                if isinstance(line, EventView) and (begin is None or line.time > begin) and _is_told(line):
                    watch.show(line)
                # A line's position is never below its number.
                is_new = isinstance(line, LiveLine) or (isinstance(line, LogLine) and line.line > last)
                if isinstance(line, LogLine | LiveLine) and is_new and rank in {None, line.rank}:
                    watch.show(line)
            ended = client.get(found.id).view
            if exit_code(ended) and not as_json:
                watch.show(ended)
        raise typer.Exit(exit_code(ended))


def _check_search(*, wanted: bool, options: bool, others: bool) -> None:
    """Raises BadParameter for options of --grep without it, and for others that do not go with it."""
    if not wanted and options:
        raise typer.BadParameter("-C, --regex and --case need --grep")
    if wanted and others:
        raise typer.BadParameter("--grep searches stored lines: omit --follow and --tail")


def _print_stored(job: str, shown: Callable[[LogLine], str] | None, *, tail: int | None, rank: int | None) -> None:
    from torchyard.cli.plain import Reader

    found = False
    with Reader() as reader:
        job_id = reader.job(job).id
        if shown is None:
            texts = (_json_line(line) for line in reader.lines_as_json(job_id, tail=tail, rank=rank))
        else:
            texts = (shown(line) for line in reader.lines(job_id, tail=tail, rank=rank))
        for text in texts:
            found = True
            terminal.write(text)
            sys.stdout.flush()
    if not found:
        terminal.note("No output.")


def _json_line(line: dict[str, Any]) -> str:
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def _is_told(event: EventView) -> bool:
    """Returns whether it is a message, or says why an attempt has ended that another one follows."""
    before, to = event.data.get("from"), event.data.get("to")
    return event.type != "state" or (before not in {None, "queued"} and to in {"queued", "paused"})


def _formatter(*, with_rank: bool, with_time: bool, as_json: bool) -> Callable[[LogLine], str]:
    """Returns what makes the text of a line of output."""
    if as_json:
        return lambda line: line.model_dump_json()
    return lambda line: output.log_line(line, with_rank=with_rank, with_time=with_time)


def metrics(
    job: JobArgument,
    *,
    key: Annotated[list[str] | None, typer.Option("--key", "-k", help="Only this metric. Repeatable.")] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw each metric over the steps.")] = False,
    as_csv: Annotated[
        bool, typer.Option("--csv", help="Print every point as CSV: key,step,value,time,attempt.")
    ] = False,
    tensorboard: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write every point to a TensorBoard file in DIR.")
    ] = None,
    from_log: Annotated[
        str | None,
        typer.Option(metavar="PATTERN", help="First extract metrics from a finished job's log, with this expression."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Print a job's metrics: last, min and max, or the curves."""
    every = as_csv or as_json or tensorboard is not None
    if plot + as_csv + as_json + (tensorboard is not None) > 1:
        raise typer.BadParameter("use only one of --plot, --csv, --tensorboard and --json")
    with connect() as client:
        found = client.get(job).view
        if from_log is not None:
            _say_made(client.jobs.make_log_curves(found.id, from_log))
        view = client.jobs.metrics(found.id, keys=key or (), max_points=_MOST_POINTS if every else None)
        if absent := {*(key or ())} - {series.key for series in view.data}:
            known = [item.key for one in client.jobs.curves([found.id]).jobs for item in one.keys]
            terminal.note(output.no_such_metric(absent, known, whose="This job has"))
            raise typer.Exit(1)
        offered = None if view.data or every else output.offered_metric(client.jobs.advice(found.id))
    if every and not as_json and view.max_points < _MOST_POINTS:
        terminal.note(f"Shows at most {view.max_points} points of each metric. For all points of one: --key NAME")
    if as_json:
        return output.write_json(view)
    if as_csv:
        return _write_csv(view)
    if not view.data:
        terminal.note("No metrics." if found.state.terminal else "No metrics yet.")
        return None if offered is None else terminal.note(offered)
    if tensorboard is not None:
        from torchyard.cli.tensorboard import write_events

        terminal.write(str(write_events(tensorboard, found, view.data)))
        return terminal.note(f"Open it: tensorboard --logdir {shlex.quote(str(tensorboard))}")
    if plot:
        from torchyard.cli.plot import draw

        monitor = found.spec.checkpoint.monitor
        monitored_first = sorted(view.data, key=lambda series: series.key != monitor)
        return terminal.write("\n\n".join(draw(series) for series in monitored_first))
    for line in output.table(("METRIC", "LAST", "STEP", "MIN", "MAX", "SOURCE"), [_row(item) for item in view.data]):
        terminal.write(line)
    return None


def _write_csv(view: MetricsView) -> None:
    rows = (
        (series.key, point.step, point.value, point.time.isoformat(), point.attempt)
        for series in view.data
        for point in series.points
    )
    terminal.write(csv_of([("key", "step", "value", "time", "attempt"), *rows]).rstrip("\n"))


def _say_made(made: LogCurvesView) -> None:
    if made.points:
        terminal.note(f"Extracted {made.points} points: {', '.join(made.keys)}.")
    if made.known:
        terminal.note(f"Unchanged metrics: {', '.join(made.known)}.")
    if not made.points and not made.known:
        terminal.note("The pattern matches no number in the log.")
    if not made.complete:
        terminal.note("The log is too long: only its first part was searched.")


def _row(series: SeriesView) -> tuple[str, ...]:
    latest = series.points[-1]
    # NaN is never the least or greatest value.
    values = [point.value for point in series.points if not math.isnan(point.value)] or [latest.value]
    return (
        series.key,
        terminal.number(latest.value),
        str(latest.step),
        terminal.number(min(values)),
        terminal.number(max(values)),
        series.source,
    )

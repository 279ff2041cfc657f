"""Formats jobs for the command line: JSON, tables, and one-line summaries."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
import json
import os
from pathlib import Path
import shutil
import sys
import textwrap
from typing import TYPE_CHECKING, Any

from torchyard.cli.columns import GAP, fitted
from torchyard.client.shortids import shortened
from torchyard.contract.states import SKIPPED, JobState, shown_state
from torchyard.contract.wire.text import headline
from torchyard.host import terminal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pydantic import BaseModel

    from torchyard.contract.advice import AdviceView
    from torchyard.contract.jobs.views import ErrorView, HeldDevice, JobSummary, JobView, ProgressView
    from torchyard.contract.recipes.script import Git
    from torchyard.contract.telemetry.views import LogLine

    Found = BaseModel | Mapping[str, Any] | Sequence[BaseModel] | Sequence[Mapping[str, Any]]

COLOURS: Mapping[str, str] = {
    JobState.QUEUED: "yellow",
    JobState.STARTING: "cyan",
    JobState.RUNNING: "cyan",
    JobState.PAUSED: "yellow",
    JobState.SUCCEEDED: "green",
    JobState.FAILED: "red",
    JobState.CANCELLED: "magenta",
    SKIPPED: "magenta",
}
OWNER = "OWNER"
"""The column of a table that says whose job a row is about."""
_SGR = {"red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_LABEL = 11
"""The column in which the text begins of a line that has a label."""
_LOSS = "train/loss"
_MOST_METRICS = 8
"""The most metrics on one line."""


def show(found: Found, lines: Iterable[str], *, as_json: bool, nothing: str = "", notes: Iterable[str] = ()) -> None:
    """Writes what was found: as one JSON document, or for people the lines, and below them the notes on stderr.

    Where nothing was found, people get the note `nothing`, if there is one.
    """
    if as_json:
        return write_json(found)
    if nothing and not found:
        return terminal.note(nothing)
    for line in lines:
        terminal.write(line)
    for text in notes:
        terminal.note(text)
    return None


def do_each(
    ids: Iterable[str],
    act: Callable[[str], object],
    done: str,
    *,
    as_json: bool,
    names: Mapping[str, str] | None = None,
) -> None:
    """Does something to each, and writes `ID  removed` once it is done, or all the ids as one JSON document.

    `names` has what stands in place of an id.
    """
    acted: list[str] = []
    for each in ids:
        act(each)
        acted.append(each)
        if not as_json:
            terminal.write(f"{(names or {}).get(each, each)}  {done}")
    if as_json:
        write_json({done: acted})


def write_json(value: Found) -> None:
    """Writes one JSON document, on one line. What is in a list or a table may be models."""
    if isinstance(value, (Sequence, Mapping)):
        terminal.write(json.dumps(value, default=_plain))
    else:
        terminal.write(value.model_dump_json())


def _plain(model: BaseModel) -> Any:
    return model.model_dump(mode="json")


def command() -> str:
    """Returns the command by which the user can call this program from the working directory."""
    own = Path(sys.executable).parent / "torchyard"
    found = shutil.which("torchyard")
    if found is not None and Path(found).resolve() == own.resolve():
        return "torchyard"
    return os.path.relpath(own) if own.is_relative_to(Path.cwd()) else str(own)


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, indent: str = "", short: bool = True) -> list[str]:
    """Returns the lines of a table. The first columns are those that matter most.

    A terminal gets as much as fits: short ids, unless `short` is false, no empty column, and long cells truncated. A
    wider one never shows less of any cell. In a pipe, lines are complete. The column OWNER is omitted where there are
    no two owners.
    """
    cells = [list(headers), *([terminal.plain(cell) for cell in row] for row in rows)]
    if OWNER in headers and len({row[headers.index(OWNER)] for row in cells[1:]} - {""}) < 2:
        cells = _without(OWNER, cells)
    columns = _columns()
    if columns < float("inf"):
        cells = fitted(_with_short_ids(cells) if short else cells, int(columns) - len(indent))
    return [f"{indent}{line}" for line in _aligned(cells)]


def hanging(line: str) -> str:
    """Returns a line such as `advice     TEXT` as a terminal shows it: wrapped at words, below where the text begins.

    In a pipe, it is one line.
    """
    columns = _columns()
    if len(line) <= columns:
        return line
    label = line[:_LABEL] if line[:_LABEL].endswith(GAP) else ""
    indent = " " * (_LABEL if label else len(GAP))
    wrapped = textwrap.wrap(
        line[len(label) :],
        max(10, int(columns) - len(label)),
        subsequent_indent="" if label else indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return label + f"\n{indent if label else ''}".join(wrapped)


def explained(commands: Sequence[tuple[str, str]]) -> list[str]:
    """Returns lines of commands, each with its explanation behind it, or below it where a terminal is too narrow."""
    width = max((len(command) for command, _ in commands), default=0)
    if any(width + len(GAP) + len(what) > _columns() for _, what in commands):
        return [
            line
            for command, what in commands
            for line in (command, *(terminal.paint(part, "2", sys.stdout) for part in hanging(f"  {what}").split("\n")))
        ]
    return [f"{command:<{width}}{GAP}{terminal.paint(what, '2', sys.stdout)}" for command, what in commands]


def labels(job: JobSummary) -> str:
    """Returns the labels of a job on one line."""
    return ", ".join(f"{key}={value}" for key, value in job.labels.items())


def state(job: JobSummary | JobView) -> str:
    """Returns the state of the job as people read it."""
    return shown_state(job.state, job.status_reason.code)


def paint_state(line: str, state: str) -> str:
    """Colours the name of the state in `line` if stdout is a terminal."""
    return line.replace(state, terminal.paint(state, _SGR[COLOURS[state]], sys.stdout), 1)


def private_job(owner: str) -> str:
    """Describes a job of another user, of which the server says no more."""
    return f"a job of {owner}"


def metrics(values: dict[str, float]) -> str:
    """Formats `key value` pairs on one line."""
    return GAP.join(f"{key} {terminal.number(value)}" for key, value in values.items())


def offered_metric(advice: AdviceView) -> str | None:
    """Returns the step that makes curves of numbers in the log of a job without metrics; None if none is offered."""
    return None if advice.metric_pattern is None else terminal.plain(advice.steps[-1])


def no_such_metric(absent: Iterable[str], known: Iterable[str], *, whose: str) -> str:
    """Says which metrics are absent, and which there are."""
    names, there = (", ".join(terminal.plain(key) for key in sorted(keys)) for keys in (absent, known))
    return f"unknown metric {names}. {whose} {there or 'no metrics'}."


def short_progress(job: JobSummary) -> str:
    """Formats the known parts of `epoch 2/3, 67%`."""
    now = job.progress
    epoch = f"epoch {now.epoch}{f'/{now.epochs}' if now.epochs else ''}" if now.epoch is not None else ""
    return ", ".join(part for part in (epoch, f"{now.fraction:.0%}" if now.fraction is not None else "") if part)


def progress(job: JobSummary) -> str:
    """Formats the known parts of `epoch 2/3, step 54/81, loss 0.31, about 8 s left`."""
    return progress_of(job.progress, loss=job.metrics.get(_LOSS), ended=job.state.terminal)


def progress_of(now: ProgressView, *, loss: float | None, ended: bool = False) -> str:
    """Formats progress as `progress` does, with the given loss."""
    parts = [
        f"epoch {now.epoch}{f'/{now.epochs}' if now.epochs else ''}" if now.epoch is not None else "",
        f"step {now.step}{f'/{now.total_steps}' if now.total_steps else ''}" if now.step else "",
        f"loss {terminal.number(loss)}" if loss is not None else "",
        f"{terminal.duration(now.eta_seconds)} left" if now.eta_seconds and not ended else "",
    ]
    return ", ".join(part for part in parts if part)


def live(now: ProgressView, metrics_now: dict[str, float]) -> str:
    """Formats progress and the newest metrics: `step 54/81, loss 0.31  val/accuracy 0.9`."""
    others = {terminal.plain(key): metrics_now[key] for key in sorted(metrics_now)[:_MOST_METRICS] if key != _LOSS}
    return GAP.join(part for part in (progress_of(now, loss=metrics_now.get(_LOSS)), metrics(others)) if part)


def error(failed: ErrorView) -> str:
    """Formats an error as `message (code, rank 1, exit code 1)`."""
    message = headline(failed.message)
    return f"{message} ({ending(failed)})" if message else ending(failed)


def ending(failed: ErrorView) -> str:
    """Formats how an attempt ended: `user_error, rank 1, exit code 1`."""
    where = f", rank {failed.rank}" if failed.rank is not None else ""
    code = f", exit code {failed.exit_code}" if failed.exit_code is not None else ""
    return f"{failed.code}{where}{code}"


def reason(job: JobSummary) -> str:
    """Says on one line how a job failed, or why it is in its state."""
    return (headline(job.error.message) if job.error is not None else "") or headline(job.status_reason.message)


def awaited(name: str, on: str) -> str:
    """Returns a job of `after`, and how it must end: `prep`, `prep (failed)`."""
    return name if on == "succeeded" else f"{name} ({on})"


def after(job: JobView) -> list[str]:
    """Returns a line for each job that must have ended before this one starts: `prep  running  must have succeeded`."""
    rows = [[each.name or each.job_id, each.state or "unknown", f"needed: {each.on}"] for each in job.after]
    return [line.rstrip() for line in _aligned(rows)]


def count(number: int, what: str) -> str:
    """Formats `1 file`, `2 files`."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def held(devices: Sequence[HeldDevice]) -> list[str]:
    """Returns a line for each node of a job: `CPU slot #0, CPU slot #1`, in a pool `n1: GPU #0, GPU #1`."""
    nodes: dict[int, list[HeldDevice]] = {}
    for device in devices:
        nodes.setdefault(device.node, []).append(device)
    return [
        ("" if first.host is None else f"{first.host}: ")
        + ", ".join(f"{device.name} #{device.index}" for device in (first, *others))
        for first, *others in (nodes[number] for number in sorted(nodes))
    ]


def git(found: Git) -> str:
    """Formats `3f2a91c04b main, dirty`."""
    parts = (f"{found.commit[:10]} {found.branch or ''}".rstrip(), "dirty" if found.dirty else "")
    return ", ".join(part for part in parts if part)


def git_of(job: JobView) -> str:
    """Formats the commit that a script's code comes from, if the job says so."""
    found: Git | None = getattr(job.spec.config, "git", None)  # a script alone has it
    return git(found) if found is not None else ""


def moment(time: datetime) -> str:
    """Formats a time as `2026-01-31 12:00:00 UTC (3 d 4 h ago)`, or as `… UTC (in 3 d 4 h)`."""
    left = (time - datetime.now(UTC)).total_seconds()
    distance = f"in {terminal.duration(left)}" if left > 0 else terminal.ago(time)
    return f"{time:%Y-%m-%d %H:%M:%S} UTC ({distance})"


def message(data: Mapping[str, Any]) -> str:
    """Returns the text of a message, with the time in it, if it has one, in this machine's zone."""
    text = str(data["text"])
    if "until" not in data:
        return text
    try:
        until = datetime.fromisoformat(str(data["until"]))
    except ValueError:
        return text
    return text.replace(f"until {until.astimezone(UTC):%Y-%m-%d %H:%M} UTC", f"until {_soon(until.astimezone())}")


def _soon(time: datetime) -> str:
    days = (time.date() - datetime.now().astimezone().date()).days
    named = {0: "today", 1: "tomorrow"}.get(days, f"{time:%Y-%m-%d}")
    return f"{named} {time:%H:%M}"


def log_line(line: LogLine, *, with_rank: bool = True, with_time: bool = False) -> str:
    """Formats a line of a job's output after the rank that wrote it, and after its time."""
    source = "launcher" if line.rank is None else f"rank {line.rank}"
    time = line.time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    before = " ".join(part for part, shown in ((time, with_time), (f"{source} |", with_rank)) if shown)
    return f"{terminal.paint(before, '2', sys.stdout)} {line.text}" if before else line.text


def _without(header: str, cells: list[list[str]]) -> list[list[str]]:
    column = cells[0].index(header)
    return [[*row[:column], *row[column + 1 :]] for row in cells]


def _aligned(cells: list[list[str]]) -> list[str]:
    widths = [max(len(cell) for cell in column) for column in zip(*cells, strict=True)]
    return [GAP.join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cells]


def _columns() -> float:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else float("inf")


def _with_short_ids(cells: list[list[str]]) -> list[list[str]]:
    short = shortened(cell for row in cells for cell in row)
    return [[short.get(cell, cell) for cell in row] for row in cells]

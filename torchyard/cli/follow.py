"""Shows a job while it runs: a line for each event, and a progress bar in a terminal."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from datetime import UTC, datetime
import math
import os
import re
import sys
import time
from typing import Any, Self, TextIO

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TaskID, TextColumn
from rich.text import Text
import typer

from torchyard.cli import output
from torchyard.client import Update
from torchyard.contract.attempts.last_error import unmarked
from torchyard.contract.jobs.views import JobView, ProgressView
from torchyard.contract.states import JobState
from torchyard.contract.telemetry.views import EventView, LiveLine, LogLine, MetricView
from torchyard.host import terminal

_PROGRESS_INTERVAL_S = 2.0
"""Seconds between two lines of progress if stderr is not a terminal."""
_BAR_WIDTH = 16
_REMEMBERED = 1000
"""Lines of the log in which is looked for what an event, or the traceback at the end, says again."""
_EXIT = {JobState.FAILED: 1, JobState.CANCELLED: 3}


def exit_code(job: JobView) -> int:
    """Returns the exit code of a command that followed the job."""
    return _EXIT.get(job.state, 0)


@contextmanager
def detachable(job: JobView) -> Generator[None]:
    """Makes Ctrl-C in the block print how to follow the job again, and exit with 130. The job continues."""
    try:
        yield
    except KeyboardInterrupt:
        command = output.command()
        terminal.note(f"\nStopped following. {job.name} continues.")
        terminal.note(f"  follow it  {command} logs {job.id} -f\n  stop it    {command} cancel {job.id}")
        raise typer.Exit(130) from None


class Watch:
    """Prints what `Client.jobs.follow` yields: events and progress to stderr, log lines to stdout.

    `log` formats a log line. Without it, log lines are not printed. `waited`: why the job waited at first was shown.
    """

    def __init__(self, *, log: Callable[[LogLine], str] | None = None, waited: bool = False) -> None:
        self._log = log
        self._waited = waited
        self._console = Console(stderr=True, highlight=False)
        self._terminal = self._console.is_terminal
        self._bar = _Bar(self._console)
        self._task: TaskID | None = None
        self._printed = 0.0
        self._step = 0
        self._progress = ProgressView()
        self._metrics: dict[str, float] = {}
        self._beside_log = self.shows_live or _one_file(sys.stdout, sys.stderr)
        self._lines: deque[str] = deque(maxlen=_REMEMBERED)
        """The newest lines of the log that are on the same screen as the events. A recipe writes its epochs to both."""

    def __enter__(self) -> Self:
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._terminal:
            self._bar.stop()

    @property
    def shows_live(self) -> bool:
        """Whether events and log lines are in one terminal, where lines that have no end so far can be replaced."""
        return self._terminal and sys.stdout.isatty()

    def show(self, update: Update) -> None:
        """Prints one update."""
        if isinstance(update, JobView):
            self._show_job(update)
        elif isinstance(update, EventView) and update.type == "progress":
            self._progress = ProgressView.model_validate(update.data)
            self._show_progress()
        elif isinstance(update, EventView):
            self._show_event(update)
        elif isinstance(update, MetricView):
            self._show_metric(update)
        elif self._log is not None and isinstance(update, LiveLine):
            self._bar.show(update, self._log(_unnumbered(update)) if update.text else None)
        elif self._log is not None and isinstance(update, LogLine):
            self._bar.show(update, None)
            self._show_log(self._log(update))
            if self._beside_log:
                self._lines.append(update.text)

    def _show_job(self, job: JobView) -> None:
        if job.state.terminal:
            self._remove_bar()
            self._print(_ending(job, traceback=not self._has_shown_traceback(job)))

    def _show_metric(self, point: MetricView) -> None:
        self._metrics[point.key] = point.value
        if self._progress.step < point.step and not self._progress.total_steps:
            self._progress = self._progress.model_copy(update={"step": point.step})
        self._show_progress()

    def _show_progress(self) -> None:
        """Shows how far the job is and its newest metrics: in a terminal one line, which changes."""
        now = self._progress
        text = _fitting(
            output.live(now, self._metrics), self._console.width - _BAR_WIDTH - 1 if self._terminal else None
        )
        if self._terminal:
            if self._task is None:
                self._task = self._bar.add_task("", total=now.total_steps, completed=now.step, text=text)
            self._bar.update(self._task, total=now.total_steps, completed=now.step, text=text)
        elif now.step not in {0, self._step} and time.monotonic() - self._printed >= _PROGRESS_INTERVAL_S:
            self._printed, self._step = time.monotonic(), now.step
            self._print(Text(f"          {text}"))

    def _remove_bar(self) -> None:
        if self._task is not None:
            self._bar.remove_task(self._task)
            self._task = None

    def _show_event(self, event: EventView) -> None:
        data = event.data
        line = stamp(event.time)
        if event.type == "state":
            state = JobState(data["to"])
            if state != JobState.RUNNING:
                self._remove_bar()
                self._bar.forget_all()
            self._waited = self._waited and state == JobState.QUEUED
            if state.terminal or self._waited:
                return  # the job itself follows, and has more to print; or it was shown
            line.append(f"{state:<10}", style=output.COLOURS[state])
            line.append_text(_safe(f" {data['reason']['message']}"))
        elif self._is_in_log(event):
            return
        elif event.type == "checkpoint":
            line.append_text(_safe(_checkpoint(data)))
        elif event.type == "message":
            style = {"warning": "yellow", "error": "red"}.get(data["level"], "")
            line.append_text(_safe(output.message(data), style=style))
        else:
            return
        self._print(line)

    def _show_log(self, text: str) -> None:
        if self.shows_live:
            self._print(_safe(text))  # the console prints above the bar
        else:
            terminal.write(text)
            sys.stdout.flush()

    def _is_in_log(self, event: EventView) -> bool:
        """Whether a line of the log on the screen says what the event says."""
        data = event.data
        if event.type == "message":
            return data["level"] == "info" and any(line.endswith(data["text"]) for line in self._lines)
        if event.type == "checkpoint":
            epoch = re.compile(rf"\bepoch {data['epoch']}/[0-9]+  step {data['step']}\b")
            return any(map(epoch.search, self._lines))
        return False

    def _has_shown_traceback(self, job: JobView) -> bool:
        """Whether the log on the screen has every line of the job's traceback. It may have more between them."""
        lines = job.error.traceback.splitlines() if job.error is not None and job.error.traceback else []
        shown = {unmarked(line).strip() for line in self._lines}
        return all(line.strip() in shown for line in lines if line.strip())

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class _Bar(Progress):
    """The progress bar, below the lines of output that have no end so far. Only a terminal shows it."""

    def __init__(self, console: Console) -> None:
        self._lines: dict[tuple[int | None, str], str] = {}
        columns = (
            BarColumn(bar_width=_BAR_WIDTH, complete_style="cyan", finished_style="cyan", pulse_style="cyan"),
            TextColumn("{task.fields[text]}", markup=False),
        )
        # stdout is not redirected: it may be a pipe.
        super().__init__(*columns, console=console, transient=True, redirect_stdout=False, redirect_stderr=False)

    def get_renderables(self) -> Iterable[RenderableType]:
        for text in list(self._lines.values()):  # another thread draws
            line = _safe(text)
            line.truncate(self.console.width, overflow="ellipsis")
            yield line
        yield from super().get_renderables()

    def show(self, line: LiveLine | LogLine, text: str | None) -> None:
        """Shows the newest text of a line that has no end so far, None for one that has ended, in its place."""
        known = self._lines.pop((line.rank, line.stream), None)
        if text is not None:
            self._lines[line.rank, line.stream] = text
        if text != known and self.live.is_started:
            self.refresh()

    def forget_all(self) -> None:
        self._lines.clear()


def _one_file(one: TextIO, other: TextIO) -> bool:
    """Whether both streams are one file or pipe, as after `2>&1`."""
    try:
        return os.path.sameopenfile(one.fileno(), other.fileno())
    except OSError:  # io.UnsupportedOperation too: there is no file
        return False


def _unnumbered(line: LiveLine) -> LogLine:
    """Returns the line of the log that it would be now."""
    return LogLine(line=0, time=datetime.now(UTC), **line.model_dump(include={"attempt", "rank", "stream", "text"}))


def _checkpoint(data: dict[str, Any]) -> str:
    metrics = {key: float(value) for key, value in data["metrics"].items() if key.startswith("val/")}
    values = output.metrics({key: value for key, value in metrics.items() if not math.isnan(value)} or metrics)
    where = f"epoch {data['epoch']}" if data["epoch"] is not None else f"step {data['step']}"
    file = data.get("file")  # of one that the program wrote by itself, whose step is often not known: 0
    if file is None:
        return f"{where:<10} {values or 'checkpoint saved'}"
    known = f"{where:<10} " if data["epoch"] is not None or data["step"] else ""
    return f"{known}checkpoint saved: {file}{f'  {values}' if values else ''}"


def _ending(job: JobView, *, traceback: bool) -> Text:
    line = stamp(job.finished_at or job.created_at)
    state = output.state(job)
    line.append(f"{state:<10}", style=output.COLOURS[state])
    if job.started_at is not None and job.finished_at is not None:
        line.append(f" after {terminal.duration((job.finished_at - job.started_at).total_seconds())}")
    if job.error is not None:
        line.append_text(_safe(f": {output.reason(job)}"))
        if job.error.traceback and traceback:
            line.append("\n").append_text(_safe(job.error.traceback.rstrip(), style="dim"))
    return line


def _fitting(text: str, width: int | None) -> str:
    return text if width is None or len(text) <= width else f"{text[: width - 1]}…"


def _safe(text: str, *, style: str = "") -> Text:
    """Returns a job's text with its colours and no other control characters."""
    return Text.from_ansi(terminal.shown(text), style=style)


def stamp(moment: datetime) -> Text:
    """Returns the time of day that a line begins with."""
    return Text.assemble((f"{moment.astimezone():%H:%M:%S}  ", "dim"))

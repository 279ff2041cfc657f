"""Shows a sweep while its trials run: a table that changes, or a line for each trial that ends."""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import UTC, datetime
import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.text import Text
import typer

from torchyard.cli import output
from torchyard.cli.follow import stamp
from torchyard.cli.sweeps import table
from torchyard.contract.sweeps.spec import SweepState
from torchyard.contract.wire.text import headline
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.client import Client
    from torchyard.contract.sweeps.views import SweepView, TrialView

_REFRESH_S = 2.0
_SHOWN = 10
"""Trials in the table that changes: the best ones."""
_BAR = 24
_EXIT = {SweepState.FAILED: 1, SweepState.CANCELLED: 3}


def follow(client: Client, sweep: SweepView) -> SweepView:
    """Shows the sweep until it has ended, and returns it then."""
    console = Console(stderr=True, highlight=False)
    with _detachable(sweep):
        return _redrawn(client, sweep, console) if console.is_terminal else _written(client, sweep, console)


def exit_code(sweep: SweepView) -> int:
    """Returns the exit code of a command that followed the sweep: 1 if no trial has succeeded, too."""
    return _EXIT.get(sweep.state, int(sweep.trials.succeeded == 0))


@contextmanager
def _detachable(sweep: SweepView) -> Generator[None]:
    """Makes Ctrl-C in the block print how to follow the sweep again, and exit with 130. The sweep continues."""
    try:
        yield
    except KeyboardInterrupt:
        command = output.command()
        terminal.note(f"\nStopped following. {sweep.name} continues.")
        terminal.note(
            f"  follow it  {command} sweep show {sweep.id} -f\n  stop it    {command} sweep cancel {sweep.id}"
        )
        raise typer.Exit(130) from None


def _redrawn(client: Client, sweep: SweepView, console: Console) -> SweepView:
    with Live(console=console, auto_refresh=False, transient=True) as live:

        def show(now: SweepView) -> None:
            best = [*client.sweeps.trials(now.id, limit=_SHOWN)]
            text = Text.from_ansi("\n".join(_screen(now, best)), no_wrap=True, overflow="ellipsis")
            live.update(text, refresh=True)

        return _until_ended(client, sweep, show)


def _written(client: Client, sweep: SweepView, console: Console) -> SweepView:
    said: set[int] = set()
    before: list[SweepView] = []

    def show(now: SweepView) -> None:
        if not before or now.trials != before[-1].trials:  # only then may another trial have ended
            ended = [one for one in client.sweeps.trials(now.id, sort="number") if one.state.terminal]
            for trial in (one for one in ended if one.number not in said):
                console.print(stamp(datetime.now(UTC)).append(_ending(trial, now.monitor)), soft_wrap=True)
            said.update(trial.number for trial in ended)
        if not before or now.state != before[-1].state:
            line = f"{now.state:<10} {headline(now.status_reason.message)}"
            console.print(stamp(datetime.now(UTC)).append(terminal.plain(line)), soft_wrap=True)
        before[:] = [now]

    return _until_ended(client, sweep, show)


def _until_ended(client: Client, sweep: SweepView, show: Callable[[SweepView], None]) -> SweepView:
    while True:
        show(sweep)
        if sweep.state.ended:
            return sweep
        time.sleep(_REFRESH_S)
        sweep = client.sweeps.get(sweep.id)


def _screen(sweep: SweepView, best: list[TrialView]) -> list[str]:
    trials = sweep.trials
    full = round(_BAR * table.ended(trials) / max(1, trials.total))
    heading = f"{sweep.name}  {sweep.state}: {headline(sweep.status_reason.message)}"
    lines = [
        table.paint_state(terminal.plain(heading), sweep.state),
        f"{'█' * full}{'░' * (_BAR - full)}  {table.counts(trials)}",
    ]
    return [*lines, *(table.ranking(best, keys=table.trial_keys(sweep, best)) if best else ())]


def _ending(trial: TrialView, monitor: str) -> str:
    point = table.point_text(trial.point)
    value = f"  {monitor} {terminal.number(trial.value)}" if trial.value is not None else ""
    why = f"  {headline(trial.error)}" if trial.error else ""
    return terminal.plain(f"trial {trial.number} {trial.state}{value}{f'  {point}' if point else ''}{why}")

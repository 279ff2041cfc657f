"""Shows the progress of a download or an upload."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Self

import typer

from torchyard.host import terminal

if TYPE_CHECKING:
    from rich.progress import Progress


class Transfer:
    """Prints how many bytes an earlier transfer left, and in a terminal shows a bar on stderr.

    Ctrl-C in the block prints how many bytes are kept, if the same command `continues`, and exits with 130. `what`
    names the bar.
    """

    def __init__(self, what: str = "checkpoint", *, upload: bool = False, continues: bool = True) -> None:
        self._what = what
        self._kind = "upload" if upload else "download"
        self._continues = continues
        self._bar: Progress | None = None
        self._shown = False
        self._done = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            kept = f"{terminal.size(self._done)} stay: run the same command to continue the {self._kind}."
            terminal.note(f"\nStopped. {kept if self._continues else 'Nothing was saved.'}")
            raise typer.Exit(130) from None

    def show(self, done: int, total: int) -> None:
        """Shows the number of bytes so far. The first call counts the bytes of an earlier transfer."""
        self._done = done
        if not self._shown and done < total:  # of a transfer with nothing left to do, nothing is shown
            if done:
                terminal.note(f"Continuing after {terminal.size(done)} of {terminal.size(total)}.")
            self._bar = self._started(done, total) if sys.stderr.isatty() else None
        self._shown = True
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=done)

    def _started(self, done: int, total: int) -> Progress:
        from rich.console import Console  # which takes long to import: only who has a bar to show waits for it
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

        bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(complete_style="cyan", finished_style="cyan", pulse_style="cyan"),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=Console(stderr=True),
            transient=True,
        )
        bar.add_task(self._what, total=total, completed=done)
        bar.start()
        return bar

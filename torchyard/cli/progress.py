"""Shows the progress of a download or an upload."""

from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TaskID, TextColumn, TransferSpeedColumn
import typer

from torchyard.contract import terminal


class Transfer:
    """Prints how many bytes an earlier transfer left, and in a terminal shows a bar on stderr.

    Ctrl-C in the block prints how many bytes are kept, and exits with 130. `what` names the bar.
    """

    def __init__(self, what: str = "checkpoint", *, upload: bool = False) -> None:
        self._what = what
        self._kind = "upload" if upload else "download"
        console = Console(stderr=True)
        self._terminal = console.is_terminal
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(complete_style="cyan", finished_style="cyan", pulse_style="cyan"),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            console=console,
            transient=True,
        )
        self._task: TaskID | None = None
        self._done = 0

    def __enter__(self) -> Self:
        if self._terminal:
            self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._terminal:
            self._bar.stop()
        if kind is not None and issubclass(kind, KeyboardInterrupt):
            terminal.note(
                f"\nStopped. {terminal.size(self._done)} are kept: the same command continues the {self._kind}."
            )
            raise typer.Exit(130) from None

    def show(self, done: int, total: int) -> None:
        """Shows the number of bytes so far. The first call counts the bytes of an earlier transfer."""
        if self._task is None:
            self._task = self._bar.add_task(self._what, total=total, completed=done)
            if 0 < done < total:
                terminal.note(f"Continues after {terminal.size(done)} of {terminal.size(total)}.")
        self._done = done
        self._bar.update(self._task, completed=done)

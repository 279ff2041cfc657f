"""Shows how far predictions are."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
import sys


@contextmanager
def shown(total: int, *, wanted: bool) -> Generator[Callable[[int], None]]:
    """Shows a bar on stderr in the block, if it is `wanted` and stderr is a terminal.

    Gives a function that counts what is done.
    """
    if not (wanted and sys.stderr.isatty()):
        yield lambda count: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("predicting"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)

"""The `torchyard` command. Writes data to stdout, and messages to stderr.

Exit codes: 0 success, 1 failure, 2 the arguments are wrong, 3 the followed job was cancelled, 4 not authorized, 124 the
time is over.
"""

import io
import os
import shutil
import sys
from typing import Annotated
import warnings

import typer

from torchyard.cli.usage import CommandLine
from torchyard.contract.errors import NotAuthorized, TorchyardError
from torchyard.contract.wire.version import own_version
from torchyard.host import terminal


def _print_version(wanted: bool) -> None:
    if wanted:
        terminal.write(f"torchyard {own_version()}")
        raise typer.Exit()


_NARROW = 52
"""Columns below which click would write lines of help that are too long."""

app = typer.Typer(
    name="torchyard",
    cls=CommandLine,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Submit distributed PyTorch training jobs, watch them, fetch their checkpoints."""


def main() -> None:
    """Runs the command line and exits."""
    _prepare_streams()
    warnings.showwarning = _show_warning
    try:
        columns = shutil.get_terminal_size().columns
        app(prog_name="torchyard", terminal_width=columns - 1 if columns < _NARROW else None)
    except TorchyardError as error:
        terminal.note(f"error: {error}")
        sys.exit(4 if isinstance(error, NotAuthorized) else 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:  # a full disk, a file without read permission
        what = error.strerror or str(error)
        terminal.note(f"error: {error.filename}: {what}" if error.filename else f"error: {what}")
        sys.exit(1)


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    terminal.note(f"warning: {message}")


def _prepare_streams() -> None:
    """Replaces characters that the terminal's encoding lacks by `?`, and a closed stream by the null device."""
    sys.stdout = sys.stdout or open(os.devnull, "w")  # noqa: SIM115, PTH123 - open until the process ends
    sys.stderr = sys.stderr or open(os.devnull, "w")  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")

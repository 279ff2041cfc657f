"""The `torchyard` command. Writes data to stdout, and messages to stderr.

Exit codes: 0 success, 1 failure, 2 the arguments are wrong, 3 the followed job was cancelled, 4 not authorized, 124 the
time is over.
"""

import io
import os
import sys
from typing import Annotated
import warnings

import typer

from torchyard.cli import (
    audit,
    checkpoints,
    cluster,
    compare,
    copying,
    data,
    device_hours,
    du,
    editing,
    environments,
    export,
    host,
    jobs,
    keeping,
    listing,
    login,
    models,
    notify,
    page,
    predict,
    quota,
    schedules,
    secrets,
    stacks,
    submission,
    telemetry,
    tokens,
    top,
    users,
    wait,
    why,
)
from torchyard.cli.narrowing import narrowed
from torchyard.cli.run import commands as own
from torchyard.cli.run import config
from torchyard.cli.sweeps import commands as sweeps
from torchyard.cli.up import commands as local
from torchyard.cli.usage import OwnWords
from torchyard.contract.errors import NotAuthorized, TorchyardError
from torchyard.contract.version import own_version
from torchyard.host import terminal


def _print_version(wanted: bool) -> None:
    if wanted:
        terminal.write(f"torchyard {own_version()}")
        raise typer.Exit()


app = typer.Typer(
    name="torchyard",
    cls=OwnWords,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
# What follows the program are its own arguments, also those that look like options.
app.command("run", context_settings={"allow_interspersed_args": False})(own.run)
for command in (
    *(local.up, local.demo),
    *(config.init, config.config),
    *(submission.validate, submission.submit, submission.retry),
    *(top.top, listing.ps, cluster.queue, jobs.show, why.why, wait.wait),
    *(telemetry.logs, telemetry.metrics, compare.compare, stacks.stacks),
    *(checkpoints.checkpoints, checkpoints.download, copying.cp, keeping.keep, predict.predict, export.export),
    *(jobs.pause, jobs.resume, jobs.cancel, jobs.share, jobs.rm),
    *(editing.edit, editing.star, editing.archive),
    *(cluster.workers, environments.envs, device_hours.usage, du.du, cluster.drain, cluster.undrain),
    *(login.login, login.logout, login.servers, login.whoami, audit.audit),
    *(host.doctor, host.backup, host.restore),
):
    app.command()(command)
app.command("open")(page.open_page)
for name, group in (
    ("sweep", sweeps.sweep),
    ("schedules", schedules.schedules),
    ("data", data.data),
    ("models", models.models),
    ("users", users.users),
    ("tokens", tokens.tokens),
    ("quota", quota.quota),
    ("secrets", secrets.secrets),
    ("notify", notify.notify),
):
    app.add_typer(group, name=name)


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
        narrowed(app, sys.argv[1:])(prog_name="torchyard")
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

"""The commands for plain `ssh`, `scp` and `rsync`: what they need of this machine, and their way into a job."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from torchyard.cli.arguments import connect
from torchyard.cli.reach.programs import require_posix
from torchyard.contract.errors import ConfigError
from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.cli.reach.sshkeys import Keys
    from torchyard.client import Client

SUFFIX = ".torchyard"
"""Of the hosts that are jobs."""
_BLOCK = """\
Host *{suffix}
    User torchyard
    ProxyCommand {proxy} ssh-proxy -- '%n'
    KnownHostsCommand {known} ssh-proxy --known-host %H -- %n
    UserKnownHostsFile none
    GlobalKnownHostsFile none
    StrictHostKeyChecking yes
    IdentityFile "{keys}/%n"
    IdentitiesOnly yes
    PreferredAuthentications publickey
    ForwardAgent no
    ForwardX11 no
    UpdateHostKeys no
    CanonicalizeHostname no"""


def ssh_config() -> None:
    """Print the ~/.ssh/config entry that lets ssh reach jobs.

    `ssh JOB.torchyard`, `scp` and `rsync` then reach your running jobs, without a login on the host.
    """
    import shlex

    from torchyard.cli.reach.sshkeys import folder

    require_posix()
    words = [sys.executable, "-P", "-m", "torchyard"]
    known = " ".join(f'"{word}"' for word in words)
    terminal.write(_BLOCK.format(suffix=SUFFIX, proxy=shlex.join(words), known=known, keys=folder()))


def ssh_proxy(
    host: Annotated[str, typer.Argument(metavar="JOB", help="The job, as JOB.torchyard.")],
    *,
    known_host: Annotated[
        str | None,
        typer.Option(metavar="HOST", help="Print the SSH host key for a host of this name."),
    ] = None,
) -> None:
    """Connect ssh to a running job (ssh runs this).

    Set it up with `torchyard ssh-config`.
    """
    from torchyard.cli.reach.sshkeys import Keys

    require_posix()
    job = host.removesuffix(SUFFIX)
    if not job or "/" in job or job.startswith("."):
        raise ConfigError(f"{job!r} is not the name of a job: write `ssh JOB{SUFFIX}`")
    keys = Keys(f"{job}{SUFFIX}")
    if known_host is not None:
        if (line := keys.host_key()) is not None:
            terminal.write(f"{known_host} {line}")
        return
    with connect() as client:
        raise typer.Exit(_proxy(client, job, keys))


def _proxy(client: Client, job: str, keys: Keys) -> int:
    import asyncio

    from torchyard.cli.reach.proxying import proxy

    return asyncio.run(proxy(client, client.get(job).id, keys))

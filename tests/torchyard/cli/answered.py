"""Runs commands against a server that answers as documented."""

from pathlib import Path
from subprocess import CompletedProcess

from tests.torchyard.cli.invocation import environment, run_in_process
from tests.torchyard.client.fake_server import TOKEN, FakeServer


def run(server: FakeServer | None, *arguments: str, stdin: str = "", cwd: Path | None = None) -> CompletedProcess[str]:
    """Runs a command in this process, for which the server, if any, is the service."""
    return run_in_process(arguments, environment_of(server), stdin=stdin, cwd=cwd)


def environment_of(server: FakeServer | None) -> dict[str, str]:
    """Returns an environment that names the server."""
    return environment(None if server is None else server.url, TOKEN)


def is_clean_error(done: CompletedProcess[str]) -> bool:
    """Returns whether the command has told an error, and nothing else."""
    return done.stdout == "" and "rror: " in done.stderr and "Traceback" not in done.stderr

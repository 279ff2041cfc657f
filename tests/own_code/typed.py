"""Commands as one types them in the folder of one's project, without a new Python for each."""

from pathlib import Path

from tests.e2e.service import Service
from tests.torchyard.cli.invocation import environment, run_in_process


def torchyard(service: Service, folder: Path, *arguments: str) -> tuple[str, str]:
    """Runs one command, which must succeed. Returns its output, and what it told on stderr."""
    server = service.server
    done = run_in_process(arguments, environment(server["url"], server["token"]), cwd=folder)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout, done.stderr

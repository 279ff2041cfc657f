"""The start of a job's command: `python -P -u -m torchyard.run.command --command FIRST_RANK RANKS EXECUTABLE [ARGS…]`.

The command starts its own ranks. For the service this process is all of them: its record has the name of each, and its
output is that of the first.
"""

import os
from pathlib import Path
import shutil
import signal
import sys
from typing import NoReturn

from torchyard.contract.attempts.rundir import Env, RunDir
from torchyard.contract.errors import ConfigError
from torchyard.host.identity import identity_of
from torchyard.run import rank


def main() -> NoReturn:
    """Becomes the command in `sys.argv`. Records why it cannot."""
    first, ranks, command, arguments = int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5:]
    run_dir = RunDir.of_job(Path(os.environ[Env.RUN_DIR]))
    rank.redirect(run_dir, first)
    identity = identity_of(os.getpid())
    if identity is None:
        sys.exit("/proc does not show this process")
    for number in range(first, first + ranks):
        rank.write(run_dir.ranks / f"{number}.json", identity)
    try:
        rank.ask_for_secrets()
        _become(command, arguments)
    except Exception as error:  # noqa: BLE001 whatever it is, the job's owner shall know
        rank.record_error(run_dir, first, error)
        sys.excepthook(type(error), error, error.__traceback__)
        sys.exit(1)


def _become(command: str, arguments: list[str]) -> NoReturn:
    """Executes the command. Raises ConfigError if that is not possible."""
    own = str(Path(sys.executable).parent)
    path = os.environ.get("PATH", os.defpath)
    if own not in path.split(os.pathsep):  # the environment's own programs come first, activated or not
        os.environ["PATH"] = path = f"{own}{os.pathsep}{path}"
    beside = Path.cwd() / command
    found = str(beside) if beside.is_file() else shutil.which(command, path=path) if "/" not in command else None
    if found is None:
        raise ConfigError(f"there is no {command} in the code folder, and no such program on PATH")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execve(found, [command, *arguments], os.environ)  # noqa: S606 no shell is wanted
    except OSError as error:
        raise ConfigError(
            f"{command} cannot be executed: {error.strerror}. A script must be executable, and begin with #!"
        ) from None


if __name__ == "__main__":
    main()

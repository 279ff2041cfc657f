"""The service of this user on this machine: `run` starts it where no server is known, `up --detach` where one asks."""

from collections.abc import Callable
import json
import os
from pathlib import Path
import signal
import subprocess
import sys
import time

from torchyard.cli.up import programs
from torchyard.cli.up.datadir import DataDir, last_lines
from torchyard.cli.up.held import say_who_holds_gpus
from torchyard.client.localserver import MOST_BYTES, read_server
from torchyard.client.logins import Login
from torchyard.contract.attempts.rundir import Env
from torchyard.contract.errors import ConfigError, Conflict, ServerUnreachable, Unavailable
from torchyard.host import privatefile, terminal
from torchyard.host.datadir import SERVER_FILE, own_data_dir
from torchyard.host.disk import NETWORKED, file_system

IDLE = "1h"
"""After so long without a job and without a question, it ends."""
_START_S = 90.0
_STOP_S = 70.0
_POLL_S = 0.02
_LOG = "up.log"


def start(
    data_dir: Path | None = None,
    *,
    options: tuple[str, ...] = (),
    say: Callable[[str], None] = terminal.note,
    meanwhile: Callable[[], None] = lambda: None,
) -> Login:
    """Starts the service on the data directory, by default this user's own, and returns it when it accepts jobs.

    One that runs already is returned as it is; of two that start at once, one serves. `say` is called with what the
    user is told of another worker that holds GPUs, and `meanwhile` once while the service starts. Raises ConfigError
    inside a job, on a network disk, and where the folder is not this user's; Unavailable if the service does not start.
    """
    if os.environ.get(Env.JOB_ID):
        raise ConfigError("a job cannot start a service: set TORCHYARD_URL and TORCHYARD_TOKEN in the job")
    programs.check_installed()
    root = (data_dir or own_data_dir()).absolute()
    if (running := find(root)) is not None:
        return running
    _prepare(root)
    log = root / "logs" / _LOG
    say_who_holds_gpus(say)
    started = _spawn(root, log, options)
    deadline = time.monotonic() + _START_S
    meanwhile()
    while (running := find(root)) is None:
        if started.poll() is not None and (running := _wait_for_other(root)) is None:
            raise Unavailable(f"the service did not start on {root}, see {log}\n{last_lines(log)}")
        if time.monotonic() > deadline:
            raise Unavailable(f"the service on {root} is not ready after {_START_S:g} s, see {log}")
        time.sleep(_POLL_S)
    return running


def found_dir(data_dir: Path | None = None) -> Path:
    """Returns the named data directory, else `.torchyard` here if a service runs on it, else the user's own."""
    if data_dir is not None:
        return data_dir.absolute()
    here = Path(".torchyard").absolute()
    return here if find(here) is not None else own_data_dir().absolute()


def find(data_dir: Path) -> Login | None:
    """Returns the service that runs on the data directory, None if none does. Raises ConfigError."""
    try:
        return read_server(data_dir)
    except ServerUnreachable:  # a file that a killed one has left
        return None


def stop(data_dir: Path) -> bool:
    """Ends the service on the data directory, as Ctrl-C does. Returns False if none runs. Raises Unavailable."""
    pid = _holder(data_dir)
    if find(data_dir) is None or pid is None:
        return False
    os.kill(pid, signal.SIGTERM)
    deadline = time.monotonic() + _STOP_S
    while find(data_dir) is not None or _is_alive(pid):
        if time.monotonic() > deadline:
            raise Unavailable(f"the service on {data_dir} (pid {pid}) did not end within {_STOP_S:g} s")
        time.sleep(_POLL_S)
    return True


def is_held(data_dir: Path) -> bool:
    """Returns whether an `up` holds the data directory, also one that starts or stops."""
    try:
        DataDir(data_dir).check_free()
    except Conflict:
        return True
    return False


def _prepare(root: Path) -> None:
    nearest = next(folder for folder in (root, *root.parents) if folder.is_dir())
    if (kind := file_system(nearest)) in NETWORKED:
        raise ConfigError(
            f"{root} is on a network disk ({kind}), which can corrupt the database: choose a folder "
            "on a local disk with `torchyard up --detach --data-dir DIR`, or set XDG_DATA_HOME"
        )
    try:
        DataDir(root).create()
    except OSError as error:
        raise ConfigError(f"{root} cannot be made: {error.strerror or error}") from None


def _spawn(root: Path, log: Path, options: tuple[str, ...]) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "torchyard", "up", "--data-dir", str(root), *options]
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )


def _wait_for_other(root: Path) -> Login | None:
    """Returns the service that another process starts here at the same moment, None if there is none."""
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        if (running := find(root)) is not None:
            return running
        if not is_held(root):
            return None
        time.sleep(_POLL_S)
    return None


def _holder(data_dir: Path) -> int | None:
    try:
        with privatefile.open_own(data_dir / SERVER_FILE) as file:
            pid = json.loads(file.read(MOST_BYTES))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return pid if isinstance(pid, int) and pid > 1 else None


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

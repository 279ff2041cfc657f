"""The command `join`: makes this machine a worker of another machine's service, and runs that."""

from __future__ import annotations

import contextlib
import getpass
import os
from pathlib import Path
import shlex
import shutil
import sys
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer

from torchyard.host import terminal

if TYPE_CHECKING:
    from torchyard.host.joined import Joined

_KEY_FILE = "join.key"
"""A file of the data directory, until the machine has joined."""
_GPUS = Path("/proc/driver/nvidia/gpus")


def join(
    url: Annotated[
        str | None, typer.Argument(metavar="[URL]", help="The service's address. Default: the one joined last.")
    ] = None,
    *,
    code: Annotated[
        str | None, typer.Option(metavar="CODE", help="The code printed by `workers add`. Needed once.")
    ] = None,
    data_dir: Annotated[
        Path | None,
        typer.Option("--data-dir", help="The data directory. Default: ~/.local/share/torchyard-worker."),
    ] = None,
    cpu_slots: Annotated[
        int | None, typer.Option(min=0, help="CPU slots to offer if there is no GPU.", show_default=False)
    ] = None,
    allow_path: Annotated[
        list[str] | None,
        typer.Option(
            metavar="DIR[:rw]",
            help="Let jobs read file:// data and code in this folder; with :rw, also write. Repeatable.",
        ),
    ] = None,
    systemd: Annotated[
        bool, typer.Option("--systemd", help="Print a systemd unit that starts it. Start nothing.")
    ] = False,
) -> None:
    """Run this machine as a worker of another machine's service.

    Runs in the foreground until Ctrl-C. After the first time, no code is needed.
    """
    from torchyard.cli.up import installing
    from torchyard.cli.up.folders import allowed_folders
    from torchyard.cli.up.remote import Options, RemoteWorker
    from torchyard.host.joined import joined_data_dir

    root = (data_dir or joined_data_dir()).absolute()
    folders = allowed_folders(allow_path or ())
    options = [f"--data-dir={root}"]
    options += [f"--cpu-slots={cpu_slots}"] if cpu_slots is not None else []
    options += [f"--allow-path={folder}{':rw' if writable else ''}" for folder, writable in folders.items()]
    worker = RemoteWorker(Options(root, cpu_slots, folders), say=terminal.note)
    worker.check()
    joined = _known(root, url) if code is None else _redeem(root, url, code)
    terminal.note(f"{joined.name} is a worker of {joined.url}: {_has(root)}.")
    python = installing.python_of(joined, root, say=terminal.note)
    command = [str(python), "-P", "-m", "torchyard", "join", *options]
    lasting = [str(installing.lasting(root, python)), *command[1:]]
    if systemd:
        return terminal.write(_unit(lasting))
    if python != Path(sys.executable):
        _become(command)
    terminal.note(f"Ready. Ctrl-C stops it. Its log: {worker.data.logs}/worker.log")
    terminal.note(f"Start it again with: {shlex.join(lasting)}")
    worker.run(lambda: _become([str(installing.newest(root)), *command[1:]]))
    return terminal.note("Stopped.")


def _known(root: Path, url: str | None) -> Joined:
    """Returns what the machine has joined before. Raises ConfigError."""
    from torchyard.contract.errors import ConfigError
    from torchyard.host.joined import known

    joined = known(root)
    if url is not None and url.rstrip("/") != joined.url:
        raise ConfigError(f"this machine has joined {joined.url}, not {url[:200]!r}: omit the address")
    return joined


def _redeem(root: Path, url: str | None, code: str) -> Joined:
    """Makes this machine a worker, and returns what it has joined. Raises what `joining.redeem` does, and OSError."""
    from torchyard.client import joining
    from torchyard.contract.errors import ConfigError
    from torchyard.contract.team.codes import parse_code
    from torchyard.host.joined import JOINED_FILE, Joined, save

    if url is None:
        raise ConfigError("give the address of the service before --code: torchyard join https://HOST:PORT --code CODE")
    if (root / "torchyard.db").exists():
        raise ConfigError(f"{root} is the data directory of a service: choose another with --data-dir")
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = joining.redeem(url, parse_code(code), kind="worker", key=_key(root))
    view = found.view
    joined = Joined(
        url=joining.address_of(url),
        worker_id=view.worker_id or "",
        name=view.name,
        token=view.token,
        certificate=found.certificate,
    )
    save(root / JOINED_FILE, joined)
    (root / _KEY_FILE).unlink(missing_ok=True)
    return joined


def _key(root: Path) -> str:
    """Returns the key by which this machine sends its code, also if it sends it again. Raises OSError."""
    from torchyard.client import joining
    from torchyard.host.privatefile import open_own, write_private

    path = root / _KEY_FILE
    with contextlib.suppress(FileNotFoundError), open_own(path) as file:
        return file.read(100).decode("ascii", "replace")
    write_private(path, key := joining.new_key())
    return key


def _has(root: Path) -> str:
    """Says what this machine has."""
    gpus = list(_GPUS.iterdir()) if _GPUS.is_dir() else []
    models: list[str] = []
    for gpu in gpus:
        with contextlib.suppress(OSError):
            lines = (gpu / "information").read_text(encoding="utf-8", errors="replace").splitlines()
            models += [line.partition(":")[2].strip() for line in lines if line.startswith("Model:")]
    devices = f"{len(gpus)} × {' and '.join(sorted(set(models))) or 'GPU'}" if gpus else "no GPU"
    version = ".".join(map(str, sys.version_info[:3]))
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    free = terminal.size(shutil.disk_usage(root).free)
    return f"{devices}, {len(os.sched_getaffinity(0))} CPUs, Python {version}, {free} free in {root}"


def _become(command: list[str]) -> NoReturn:
    sys.stdout.flush()
    os.execv(command[0], command)  # noqa: S606


def _unit(command: list[str]) -> str:
    """Returns a unit of systemd that runs the worker as this user."""
    words = " ".join(_quoted(word) for word in command)
    return f"""\
# /etc/systemd/system/torchyard-worker.service
[Unit]
Wants=network-online.target
After=network-online.target

[Service]
User={getpass.getuser()}
ExecStart={words}
Restart=always
# SIGTERM has the running jobs save and go back to the queue. After a crash they go on, and the next start adopts them.
KillMode=process
TimeoutStopSec=90

[Install]
WantedBy=multi-user.target"""


def _quoted(word: str) -> str:
    """Returns the word as systemd reads it."""
    escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return escaped if escaped == word and " " not in word else f'"{escaped}"'

"""Commands for a service's host. Each replaces this process by a program that reads `TORCHYARD_*` variables."""

from collections.abc import Mapping
import os
from pathlib import Path
import sys
from typing import Annotated, Never

import typer

from torchyard.cli.arguments import Json
from torchyard.cli.up import programs, redis_server

DataDir = Annotated[Path | None, typer.Option(help="The data directory. Default: TORCHYARD_DATA_DIR, else .torchyard.")]
ExaminedDir = Annotated[
    Path | None,
    typer.Option(
        "--data-dir", help="The data directory. Default: TORCHYARD_DATA_DIR, else the one of `torchyard status`."
    ),
]
Database = Annotated[
    str | None,
    typer.Option(metavar="URL", help="The SQL database. Default: TORCHYARD_DATABASE_URL, else the data directory's."),
]
Redis = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Redis. Default: TORCHYARD_REDIS_URL, else the data directory's."),
]


def doctor(
    *, data_dir: ExaminedDir = None, database: Database = None, redis: Redis = None, as_json: Json = False
) -> None:
    """Check this machine, and print how to fix each problem.

    Checks devices, PyTorch, disk, database, Redis, clock and limits. On a joined machine, also the connection to the
    service. Needs no running service. Exits with 1 if a check fails.
    """
    if data_dir is None and not os.environ.get("TORCHYARD_DATA_DIR"):
        data_dir = _of_service() or _of_joined()
    settings = _settings(data_dir=data_dir, database=database, redis=redis)
    arguments = _json(as_json)
    folder = Path(settings.get("TORCHYARD_DATA_DIR") or ".torchyard").absolute() / "redis"
    if not settings.get("TORCHYARD_REDIS_URL") and folder.exists():
        arguments += ["--embedded-redis", str(redis_server.socket_in(folder))]
    _replace_process("worker.doctor", arguments, settings)


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A new or empty folder.")],
    *,
    data_dir: DataDir = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Back up the database and the checkpoints.

    Works while the service runs. DEST is complete when it has a manifest.json. On the same file system, checkpoints
    are hard links: copy DEST to another disk.
    """
    _replace_process(
        "store.backup", ["make", str(target), *_json(as_json)], _settings(data_dir=data_dir, database=database)
    )


def restore(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder written by `torchyard backup`.")],
    *,
    data_dir: DataDir = None,
    database: Database = None,
    check: Annotated[bool, typer.Option("--check", help="Verify the backup. Restore nothing.")] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Skip damaged checkpoints and restore everything else.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Restore a backup.

    Needs a new data directory and an empty database. Verifies every checkpoint.
    """
    skip = ["--skip-damaged"] if skip_damaged and not check else []
    arguments = ["check" if check else "restore", str(source), *skip, *_json(as_json)]
    _replace_process("store.backup", arguments, _settings(data_dir=data_dir, database=database))


def _of_service() -> Path | None:
    """Returns the data directory of the service that runs here, as `status` finds it; None if none runs."""
    from torchyard.cli.up import own

    found = own.found_dir()
    return None if own.find(found) is None else found


def _of_joined() -> Path | None:
    """Returns the data directory of this user's worker of another machine's service; None if there is none."""
    from torchyard.host.joined import JOINED_FILE, joined_data_dir

    found = joined_data_dir()
    return found if (found / JOINED_FILE).exists() else None


def _json(as_json: bool) -> list[str]:
    return ["--json"] if as_json else []


def _settings(*, data_dir: Path | None, database: str | None, redis: str | None = None) -> dict[str, str]:
    """Returns the environment, with the given options as its variables."""
    given = {
        "TORCHYARD_DATA_DIR": str(data_dir) if data_dir is not None else None,
        "TORCHYARD_DATABASE_URL": database,
        "TORCHYARD_REDIS_URL": redis,
    }
    return {**os.environ, **{name: value for name, value in given.items() if value is not None}}


def _replace_process(module: str, arguments: list[str], environment: Mapping[str, str]) -> Never:
    """Replaces this process by `python -P -m MODULE`. Raises ConfigError and OSError."""
    sys.stdout.flush()
    command = programs.argv(module, *arguments)
    os.execve(command[0], command, dict(environment))  # noqa: S606

"""Commands about this host and what it keeps. Each becomes a program of its own, set by `TORCHYARD_*` variables."""

from collections.abc import Mapping
import os
from pathlib import Path
import sys
from typing import Annotated, Never

import typer

from torchyard.cli.arguments import Json
from torchyard.cli.up import programs, redis_server

DataDir = Annotated[
    Path | None, typer.Option(help="Where everything is kept; else TORCHYARD_DATA_DIR, else .torchyard.")
]
Database = Annotated[
    str | None,
    typer.Option(metavar="URL", help="SQL database; else TORCHYARD_DATABASE_URL, else the data directory's."),
]
Redis = Annotated[
    str | None, typer.Option(metavar="URL", help="Redis; else TORCHYARD_REDIS_URL, else the data directory's.")
]


def doctor(*, data_dir: DataDir = None, database: Database = None, redis: Redis = None, as_json: Json = False) -> None:
    """Check this host, and say how to mend what is wrong.

    Devices, PyTorch, disk, database, Redis, clock, limits. No server needs to run. Exit code 1 if something failed.
    """
    settings = _settings(data_dir=data_dir, database=database, redis=redis)
    arguments = _json(as_json)
    folder = Path(settings.get("TORCHYARD_DATA_DIR") or ".torchyard").absolute() / "redis"
    if not settings.get("TORCHYARD_REDIS_URL") and folder.exists():
        arguments += ["--embedded-redis", str(redis_server.socket_in(folder))]
    _become("worker.doctor", arguments, settings)


def backup(
    target: Annotated[Path, typer.Argument(metavar="DEST", help="A new folder, or an empty one.")],
    *,
    data_dir: DataDir = None,
    database: Database = None,
    as_json: Json = False,
) -> None:
    """Back up the database and the checkpoints, while the service runs.

    DEST is whole once it has its manifest.json. On the same file system the checkpoints in it are hard links: copy it
    elsewhere.
    """
    _become("store.backup", ["make", str(target), *_json(as_json)], _settings(data_dir=data_dir, database=database))


def restore(
    source: Annotated[Path, typer.Argument(metavar="SOURCE", help="A folder that `backup` made.")],
    *,
    data_dir: DataDir = None,
    database: Database = None,
    check: Annotated[bool, typer.Option("--check", help="Read and verify the backup, restore nothing.")] = False,
    skip_damaged: Annotated[
        bool, typer.Option("--skip-damaged", help="Restore all the rest where checkpoints in it are damaged.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Put a backup back, into a new data directory and an empty database. Every checkpoint is verified."""
    skip = ["--skip-damaged"] if skip_damaged and not check else []
    arguments = ["check" if check else "restore", str(source), *skip, *_json(as_json)]
    _become("store.backup", arguments, _settings(data_dir=data_dir, database=database))


def _json(as_json: bool) -> list[str]:
    return ["--json"] if as_json else []


def _settings(*, data_dir: Path | None, database: str | None, redis: str | None = None) -> dict[str, str]:
    """The environment, with what was given in its place."""
    given = {
        "TORCHYARD_DATA_DIR": str(data_dir) if data_dir is not None else None,
        "TORCHYARD_DATABASE_URL": database,
        "TORCHYARD_REDIS_URL": redis,
    }
    return {**os.environ, **{name: value for name, value in given.items() if value is not None}}


def _become(module: str, arguments: list[str], environment: Mapping[str, str]) -> Never:
    """Replaces this process by the program. Raises ConfigError and OSError."""
    sys.stdout.flush()
    os.execve(sys.executable, programs.argv(module, *arguments), dict(environment))  # noqa: S606

"""`python -P -m migrations [upgrade | downgrade | current | check] [REVISION]`, on `TORCHYARD_DATABASE_URL`."""

import argparse
from pathlib import Path
import sys

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.settings import Settings
from torchyard.contract.errors import TorchyardError
from torchyard.host.datadir import make_files_private

_ACTIONS = ("upgrade", "downgrade", "current", "check")


def main() -> int:
    arguments = _parser().parse_args()
    make_files_private()
    try:
        settings = Settings.load()
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _run(configuration(settings.database), arguments.action, arguments.revision)
    except DBAPIError as error:
        print(f"error: {' '.join(str(error.orig).split())}", file=sys.stderr)  # noqa: T201 - the program's own message
        return 1
    except (CommandError, SQLAlchemyError, TorchyardError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the program's own message
        return 1
    return 0


def configuration(url: str) -> Config:
    """Returns Alembic's configuration for the database at `url`."""
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["url"] = url
    return config


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="migrations", description="Brings the database's tables to a revision.")
    parser.add_argument("action", nargs="?", default="upgrade", choices=_ACTIONS)
    parser.add_argument("revision", nargs="?", default="head")
    return parser


def _run(config: Config, action: str, revision: str) -> None:
    if action == "upgrade":
        config.attributes["compares"] = False
        command.upgrade(config, revision)
    elif action == "downgrade":
        command.downgrade(config, "base" if revision == "head" else revision)
    elif action == "current":
        command.current(config)
    else:
        command.check(config)


if __name__ == "__main__":
    sys.exit(main())

"""What Alembic does with the database's tables."""

from pathlib import Path
import sys

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy.exc import DBAPIError, SQLAlchemyError

from store.settings import Settings
from torchyard.contract.errors import TorchyardError


def carry_out(action: str, revision: str) -> int:
    """Does it on the database that `TORCHYARD_*` variables name. Returns the program's exit code, and prints errors."""
    try:
        settings = Settings.load()
        settings.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _run(configuration(settings.database), action, revision)
    except DBAPIError as error:
        print(f"error: {' '.join(str(error.orig).split())}", file=sys.stderr)  # noqa: T201 - the program's own message
        return 1
    except (CommandError, SQLAlchemyError, TorchyardError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - the program's own message
        return 1
    return 0


def configuration(url: str) -> Config:
    """Returns Alembic's configuration for the database at `url`."""
    config = Config(stdout=sys.stdout)  # as it is now: Alembic's default is that of its import
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["url"] = url
    return config


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

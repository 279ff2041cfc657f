"""`python -P -m migrations [upgrade | downgrade | current | check] [REVISION]`, on `TORCHYARD_DATABASE_URL`."""

import argparse
import os
import sys

from migrations.looking import is_current
from torchyard.host.datadir import make_files_private

_ACTIONS = ("upgrade", "downgrade", "current", "check")


def main() -> int:
    arguments = _parser().parse_args()
    make_files_private()
    # Each start of the service asks for this, and nearly always there is nothing to do.
    is_upgrade = (arguments.action, arguments.revision) == ("upgrade", "head")
    if is_upgrade and is_current(os.environ.get("TORCHYARD_DATABASE_URL", "")):
        return 0
    from migrations.actions import carry_out  # imports Alembic and SQLAlchemy

    return carry_out(arguments.action, arguments.revision)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="migrations", description="Brings the database's tables to a revision.")
    parser.add_argument("action", nargs="?", default="upgrade", choices=_ACTIONS)
    parser.add_argument("revision", nargs="?", default="head")
    return parser


if __name__ == "__main__":
    sys.exit(main())

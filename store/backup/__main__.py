"""`python -P -m store.backup make DEST | restore SOURCE | check SOURCE`, set by `TORCHYARD_*` variables.

stdout has the result, stderr notes for people. The exit code is 1 after a failure, and if a backup is complete but for
blobs that the store itself lacks.
"""

import argparse
from collections.abc import Collection
from pathlib import Path
import signal
import sys
from types import FrameType

from sqlalchemy.exc import DBAPIError

from store.backup.contents import BackupManifest
from store.backup.make import make
from store.backup.restore import check, restore
from store.blobs.folder import BlobFolder
from store.settings import Settings
from torchyard.contract.errors import TorchyardError
from torchyard.host import terminal

_SHOWN = 5
_NAMES = {"sqlite": "SQLite", "postgresql": "PostgreSQL"}
_WHY = {
    "make": "were missing or damaged in the store already, and are not in the backup",
    "restore": "were missing or damaged, and are not restored",
    "check": "are missing or damaged",
}


def main() -> int:
    arguments = _parser().parse_args()
    signal.signal(signal.SIGTERM, _exit)
    try:
        return _run(arguments)
    except DBAPIError as error:
        terminal.note(f"error: {' '.join(str(error.orig).split())}")
        return 1
    except (TorchyardError, OSError) as error:
        terminal.note(f"error: {error}")
        return 1
    except KeyboardInterrupt:
        terminal.note("Stopped; everything written so far was removed.")
        return 130


def _exit(_number: int, _frame: FrameType | None) -> None:
    sys.exit(143)  # what was written is removed first


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="store.backup", description="Backs up the database and its blobs.")
    actions = parser.add_subparsers(dest="action", required=True)
    for name in ("make", "restore", "check"):
        action = actions.add_parser(name)
        action.add_argument("folder", type=Path)
        action.add_argument("--json", action="store_true")
        if name == "restore":
            action.add_argument("--skip-damaged", action="store_true")
    return parser


def _run(arguments: argparse.Namespace) -> int:
    settings, folder = Settings.load(), arguments.folder
    blobs, left_out = BlobFolder(settings.blobs), list[str]()
    if arguments.action == "make":
        manifest = make(settings.database, blobs, folder)
        left_out = manifest.damaged
    elif arguments.action == "check":
        manifest, left_out = check(folder)
    else:
        skip = arguments.skip_damaged
        manifest, left_out = restore(settings.database, settings.root, blobs, folder, skip_damaged=skip)
    if arguments.json:
        terminal.write(manifest.to_json())
    else:
        terminal.write(f"{folder}  {_summary(manifest)}")
    if left_out:
        shown = ", ".join(left_out[:_SHOWN]) + (", …" if len(left_out) > _SHOWN else "")
        terminal.note(f"warning: {len(left_out)} blobs {_WHY[arguments.action]}: {shown}")
    if arguments.action == "restore":
        terminal.note("Restored. Jobs that were running return to the queue half a minute after a worker has started.")
        if secrets := manifest.rows.get("secrets", 0):
            terminal.note(
                f"A backup has no key: bring {settings.secret_key_file} or TORCHYARD_SECRET_KEY from where the"
                f" {secrets} secrets were set, or have them set again."
            )
    return 1 if _is_news(arguments.action, left_out, manifest) else 0


def _is_news(action: str, left_out: Collection[str], manifest: BackupManifest) -> bool:
    """Returns whether a backup leaves blobs out, or a check misses blobs that the backup does not name as missing."""
    if action == "make":
        return bool(left_out)
    return action == "check" and not set(left_out) <= set(manifest.damaged)


def _summary(manifest: BackupManifest) -> str:
    counts = ", ".join(f"{manifest.rows.get(table, 0)} {table}" for table in ("jobs", "checkpoints"))
    moment = manifest.made_at.strftime("%Y-%m-%d %H:%M:%S UTC")
    blobs = f"{manifest.blobs} blobs of {terminal.size(manifest.bytes)}"
    return f"{moment}, {_NAMES[manifest.database]} at revision {manifest.revision}: {counts}, {blobs}"


if __name__ == "__main__":
    sys.exit(main())

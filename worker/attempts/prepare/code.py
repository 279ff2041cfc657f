"""Prepares what a job's spec names as bundles and mounts: links to folders that it reads."""

from collections.abc import Sequence
from pathlib import Path

from torchyard.contract.bundles import bundles_of
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import ScriptSpec, Spec
from worker.attempts.prepare import sources
from worker.bundles.cache import BundleCache, Check

CODE = "config.code"
"""The field whose bundle a program gets a copy of."""
_MOUNT = "config.mounts."


def prepare(
    spec: Spec, *, run: RunDir, bundles: BundleCache, owner: str, allowed: Sequence[Path], check: Check = lambda: None
) -> dict[str, Path]:
    """Writes the links into a new run directory, and returns the unpacked bundles by field.

    `check`: as for `BundleCache.fetch`. Raises DataError if a bundle or a folder is missing or not allowed, and
    OSError.
    """
    trees = {field: bundles.fetch(sha256, owner=owner, check=check) for field, sha256 in bundles_of(spec).items()}
    if isinstance(spec, ScriptSpec) and spec.config.mounts:
        run.mounts.mkdir(mode=0o700)
        for name, url in spec.config.mounts.items():
            folder = trees.get(f"{_MOUNT}{name}") or sources.resolve(url, allowed)
            if not folder.is_dir():
                raise DataError(f"the mount {name} is not a folder: {folder}")
            (run.mounts / name).symlink_to(folder)
    return trees

"""Prepares what a job's spec names as bundles and mounts: the attempt's own copy of its code, and links to the rest."""

from collections.abc import Sequence
from pathlib import Path

from torchyard.contract.bundles import bundles_of
from torchyard.contract.errors import DataError
from torchyard.contract.rundir import RunDir
from torchyard.contract.spec import ScriptSpec, Spec
from torchyard.host import disk
from worker.attempts import sources
from worker.bundles.cache import BundleCache, Check
from worker.bundles.copying import copy_tree
from worker.host import rundirs
from worker.host.untrusted import remove_inside

_CODE = "config.code"
_MOUNT = "config.mounts."


def prepare(
    spec: Spec, *, run: RunDir, bundles: BundleCache, owner: str, allowed: Sequence[Path], check: Check = lambda: None
) -> dict[str, Path]:
    """Writes the copy and the links into a new run directory, and returns the bundles that are read in place, by field.

    `check`: as for `BundleCache.fetch`. Raises DataError if a bundle or a folder is missing or not allowed, and
    OSError.
    """
    trees = {field: bundles.fetch(sha256, owner=owner, check=check) for field, sha256 in bundles_of(spec).items()}
    code = trees.pop(_CODE, None)
    if code is not None:
        disk.require_free_space(run.job, rundirs.size(code, unlock=False))
        copy_tree(code, run.code, check=check)
    if isinstance(spec, ScriptSpec) and spec.config.mounts:
        run.mounts.mkdir(mode=0o700)
        for name, url in spec.config.mounts.items():
            folder = trees.get(f"{_MOUNT}{name}") or sources.resolve(url, allowed)
            if not folder.is_dir():
                raise DataError(f"the mount {name} is not a folder: {folder}")
            (run.mounts / name).symlink_to(folder)
    return trees


def remove_copy(run: RunDir) -> bool:
    """Removes the attempt's copy of its code, with what its program has written there. False: something is left."""
    return remove_inside(run.root, *rundirs.code_path(run))

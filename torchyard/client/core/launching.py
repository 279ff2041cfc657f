"""Packs a folder, and makes the spec of the job that runs a program of it."""

from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
import re
from typing import Any
import warnings

from torchyard.client.packing import git
from torchyard.client.packing.bundle import Bundle, pack
from torchyard.client.references import DATA
from torchyard.contract.bundles.mounting import paths_in
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes.script import MOST_PATH
from torchyard.contract.wire.text import printable

Mounts = Mapping[str, str | Path]
"""By name or path: a folder to pack, `data:NAME`, or a `bundle:sha256:…` or `file:///…` URL."""

_URL = ("bundle:", "file://", DATA)


@dataclass(frozen=True)
class PackedJob:
    """The spec of a job, and what is uploaded before it is submitted: the code, and the mounts that are folders."""

    spec: dict[str, Any]
    code: Bundle
    mounts: Mapping[str, Bundle]


@contextmanager
def packed_job(
    folder: str | Path,
    config: Mapping[str, Any],
    more: Mapping[str, Any],
    *,
    needed: str | None,
    max_size: int,
    max_mount_size: int | None = None,
    include: Sequence[str] = (),
    repeatable: bool = False,
) -> Generator[PackedJob]:
    """Packs the folder, and whole the mounts that are folders. Yields the spec of the job, and what was packed.

    `config` is that of a script without its code, with `Mounts`; `more` has the other keys of the spec, and the name
    unless it is the folder's. Names that only a server knows stay: `with_ids` replaces them. The sizes are in bytes, of
    a mount `max_size` too unless it has its own. `repeatable`: the same code makes the same spec, whatever else lies in
    the folder.

    Raises ConfigError for mounts that are no paths of the folder, and if the requirements are not among the files, and
    as `pack` does.
    """
    mounts = {place: str(source) for place, source in config.get("mounts", {}).items()}
    folders = {place: Path(source) for place, source in mounts.items() if not source.startswith(_URL)}
    with ExitStack() as opened:
        code = opened.enter_context(
            pack(folder, needed=needed, max_size=max_size, include=include, mounted=_paths_in(mounts))
        )
        _require_requirements(config.get("requirements"), code, Path(folder))
        most = max_size if max_mount_size is None else max_mount_size
        packed = {
            place: opened.enter_context(pack(source.expanduser().absolute(), max_size=most, asks_git=False))
            for place, source in folders.items()
        }
        whole = {
            **config,
            **_of_code(code, Path(folder)),
            "mounts": {**mounts, **{place: bundle.url for place, bundle in packed.items()}},
        }
        if repeatable:
            del whole["left_out"]
        spec = {
            "trainer": "script",
            **more,
            "name": more.get("name") or _name_of(Path(folder).resolve()),
            "config": {key: value for key, value in whole.items() if value},
        }
        yield PackedJob(spec, code, packed)


def program_of(program: str, *, module: bool) -> dict[str, str]:
    """Returns the key of `config` that names the program: a file, a module, or a command."""
    if module:
        return {"module": program}
    return {"entrypoint" if program.endswith(".py") else "command": program}


def warn_of_ignored(bundle: Bundle) -> None:
    """Warns of what git leaves out of the folder."""
    for each in bundle.left_out:
        if each.by == ".gitignore":
            warnings.warn(f"left out by .gitignore: {each}: include=[{each.name!r}], or a mount", stacklevel=2)


def _paths_in(mounts: Mapping[str, str]) -> list[str]:
    try:
        return paths_in(mounts)
    except ValueError as error:
        raise ConfigError(f"mounts: {error}") from None


def _require_requirements(name: str | None, code: Bundle, folder: Path) -> None:
    if name not in (None, "script") and name not in code.files:
        raise ConfigError(f"{name}, which has the requirements, is not among the files of {folder}")


def _of_code(code: Bundle, folder: Path) -> dict[str, Any]:
    """Returns the keys of `config` that say what the code is, and where it comes from."""
    origin = git.origin(folder, code.files)
    return {
        "code": code.url,
        "left_out": [printable(path) for path in code.missed if len(path) <= MOST_PATH],
        "git": None if origin is None else origin.model_dump(),
    }


def _name_of(folder: Path) -> str:
    """Returns the folder's name with `-` for each character that a job's name cannot have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).lstrip("._-")[:100] or "run"

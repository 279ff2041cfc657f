"""Makes a job of a folder: what `Client.run` packs, uploads and submits."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
import re
from typing import Any
import warnings

from torchyard.client.core.bundles import BundlesCore
from torchyard.client.packing import git
from torchyard.client.packing.bundle import Bundle, pack
from torchyard.client.references import DATA
from torchyard.contract.bundles.mounting import paths_in
from torchyard.contract.bundles.names import MAX_PACKED_BYTES, bundle_url
from torchyard.contract.errors import ConfigError
from torchyard.contract.recipes.script import MOST_PATH
from torchyard.contract.wire.text import printable

Mounts = Mapping[str, str | Path]
"""By name or path: a folder to pack, `data:NAME`, or a `bundle:sha256:…` or `file:///…` URL."""

_URL = ("bundle:", "file://", DATA)


def is_folder(source: str) -> bool:
    """Returns whether a mount is a folder of this machine."""
    return not source.startswith(_URL)


async def upload_code(
    bundles: BundlesCore,
    folder: str | Path,
    *,
    needed: str | None,
    mounts: Mounts,
    requirements: str | None = None,
    max_size: int = MAX_PACKED_BYTES,
    include: Sequence[str] = (),
) -> dict[str, Any]:
    """Packs and uploads the folder and the mounts. Returns the keys of `config` that say what they are.

    All is packed before anything is sent, mounts whole; of the folder, a warning says what git leaves out. Raises as
    `pack`, `code_config` and `BundlesCore.upload` do.
    """
    urls = {name: str(source) for name, source in mounts.items()}
    with ExitStack() as open_bundles:
        code = open_bundles.enter_context(
            pack(folder, needed=needed, max_size=max_size, include=include, mounted=_paths_in(urls))
        )
        _warn(code)
        config = code_config(code, folder=Path(folder), requirements=requirements)
        packed = {
            name: open_bundles.enter_context(pack(source, max_size=max_size, asks_git=False))
            for name, source in urls.items()
            if is_folder(source)
        }
        named = {
            name: bundle_url((await bundles.named(source.removeprefix(DATA))).sha256)
            for name, source in urls.items()
            if source.startswith(DATA)
        }
        for bundle in (code, *packed.values()):
            await bundles.upload(bundle)
    return {**config, "mounts": {**urls, **named, **{name: bundle.url for name, bundle in packed.items()}}}


def _paths_in(mounts: Mapping[str, str]) -> list[str]:
    try:
        return paths_in(mounts)
    except ValueError as error:
        raise ConfigError(f"mounts: {error}") from None


def code_config(bundle: Bundle, *, folder: Path, requirements: str | None) -> dict[str, Any]:
    """Returns the keys of `config` that say what the code is, and where it comes from.

    Raises ConfigError if the requirements are not among the files.
    """
    if requirements not in (None, "script") and requirements not in bundle.files:
        raise ConfigError(f"{requirements}, which has the requirements, is not among the files of {folder}")
    origin = git.origin(folder, bundle.files)
    return {
        "code": bundle.url,
        "requirements": requirements,
        "left_out": [printable(path) for path in bundle.missed if len(path) <= MOST_PATH],
        "git": None if origin is None else origin.model_dump(),
    }


def _warn(bundle: Bundle) -> None:
    for each in bundle.left_out:
        if each.by == ".gitignore":
            warnings.warn(f"left out by .gitignore: {each}: include=[{each.name!r}], or a mount", stacklevel=2)


def program_of(program: str, *, module: bool) -> dict[str, str]:
    """Returns the key of `config` that names the program: a file, a module, or a command."""
    if module:
        return {"module": program}
    return {"entrypoint" if program.endswith(".py") else "command": program}


def script_spec(
    *, name: str | None, folder: str | Path, resources: Mapping[str, Any], more: Mapping[str, Any]
) -> dict[str, Any]:
    """Returns the spec of a job of one's own program, without its `config`. Its `resources` go before these.

    Raises ConfigError if `more` has what another argument sets.
    """
    for key in ("trainer", "config"):
        if key in more:
            raise ConfigError(f"{key} is not an argument of run: submit a whole spec instead")
    return {
        "trainer": "script",
        "name": name or name_of(Path(folder).resolve()),
        **more,
        "resources": {**resources, **more.get("resources", {})},
    }


def arguments(args: Sequence[object]) -> list[str]:
    """Returns the program's arguments as text, numbers too."""
    return [str(item) for item in args]


def name_of(folder: Path) -> str:
    """Returns the folder's name with `-` for each character that a job's name cannot have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).lstrip("._-")[:100] or "run"

"""Makes a job of a folder: what `Client.run` packs, uploads and submits."""

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
import re
from typing import Any

from torchyard.client.bundles import BundlesCore
from torchyard.client.packing import MAX_SIZE, pack
from torchyard.contract.errors import ConfigError

Mounts = Mapping[str, str | Path]
"""By name: a folder to pack, or a `bundle:sha256:…` or `file:///…` URL."""

_URL = ("bundle:", "file://")


async def upload_code(
    bundles: BundlesCore, folder: str | Path, *, needed: str | None, mounts: Mounts, max_size: int = MAX_SIZE
) -> tuple[str, dict[str, str]]:
    """Packs and uploads the folder and the mounts. Returns the code's URL, and those of the mounts by name.

    All is packed before anything is sent. Raises as `pack` and `BundlesCore.upload` do.
    """
    urls = {name: str(source) for name, source in mounts.items()}
    with ExitStack() as open_bundles:
        code = open_bundles.enter_context(pack(folder, needed=needed, max_size=max_size))
        packed = {
            name: open_bundles.enter_context(pack(source, max_size=max_size))
            for name, source in urls.items()
            if not source.startswith(_URL)
        }
        for bundle in (code, *packed.values()):
            await bundles.upload(bundle)
    return code.url, {**urls, **{name: bundle.url for name, bundle in packed.items()}}


def program_of(program: str, *, module: bool) -> dict[str, str]:
    """Returns the key of `config` that names the program: a file, a module, or a command."""
    if module:
        return {"module": program}
    return {"entrypoint" if program.endswith(".py") else "command": program}


def script_spec(*, name: str | None, folder: str | Path, devices: int, more: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the spec of a job of one's own program, without its `config`.

    Raises ConfigError if `more` has what another argument sets.
    """
    for key in ("trainer", "config"):
        if key in more:
            raise ConfigError(f"{key} is not an argument of run: submit a whole spec instead")
    resources: Mapping[str, Any] = more.get("resources", {})
    return {
        "trainer": "script",
        "name": name or _name_of(Path(folder).resolve()),
        **more,
        "resources": {"devices_per_node": devices, **resources},
    }


def arguments(args: Sequence[object]) -> list[str]:
    """Returns the program's arguments as text, numbers too."""
    return [str(item) for item in args]


def _name_of(folder: Path) -> str:
    """Returns the folder's name with `-` for each character that a job's name cannot have."""
    return re.sub(r"[^A-Za-z0-9._-]+", "-", folder.name).lstrip("._-")[:100] or "run"

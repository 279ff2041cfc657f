"""The data that a program finds: folders of this machine are pushed first, and names are looked up."""

from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

import typer

from torchyard.cli import output
from torchyard.cli.run.upload import left_out, packed, upload
from torchyard.client import Client
from torchyard.client.core.launching import is_folder
from torchyard.client.packing.bundle import Bundle
from torchyard.client.references import DATA
from torchyard.contract.bundles import mounting
from torchyard.contract.bundles.names import bundle_url
from torchyard.host import terminal

PUSHED_BYTES = 2 << 30
"""The most that is packed of one folder, as by `data push`."""


@contextmanager
def packed_mounts(mounts: Mapping[str, str], *, folder: Path, max_size: int) -> Generator[dict[str, Bundle]]:
    """Packs the mounts that are folders of this machine, by their places. Raises as `pack` does."""
    with ExitStack() as stack:
        found: dict[str, Bundle] = {}
        for place, source in mounts.items():
            if is_folder(source):
                path = folder / Path(source).expanduser()
                most = max(max_size, PUSHED_BYTES)
                found[place] = stack.enter_context(packed(path, max_size=most, asks_git=False))
        yield found


def paths_of(mounts: Mapping[str, str]) -> list[str]:
    """Returns the paths of the folder at which mounts lie. Raises BadParameter for wrong ones."""
    try:
        return mounting.paths_in(mounts)
    except ValueError as error:
        raise typer.BadParameter(f"--mount: {error}") from None


def urls_of(client: Client, mounts: Mapping[str, str], pushed: Mapping[str, Bundle]) -> dict[str, str]:
    """Returns what names each mount in a spec. Raises NotFound for data of no such name."""
    return {
        place: pushed[place].url
        if place in pushed
        else bundle_url(client.bundles.named(source.removeprefix(DATA)).sha256)
        if source.startswith(DATA)
        else source
        for place, source in mounts.items()
    }


def push(client: Client, pushed: Mapping[str, Bundle]) -> None:
    """Uploads what the server does not have of the folders, and says what it does."""
    for place, bundle in pushed.items():
        terminal.note(f"{place}: {output.count(len(bundle.files), 'file')}, {terminal.size(bundle.size)}")
        for line in left_out(bundle):
            terminal.note(f"left out   {terminal.plain(line)}")
        upload(client, bundle)

"""The operations on bundles."""

from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import TYPE_CHECKING

from torchyard.client.calls import files as calls
from torchyard.client.core.base import Core
from torchyard.client.download import OnProgress, PartFile
from torchyard.client.references import find_data
from torchyard.client.upload import OnUpload
from torchyard.contract.bundles.views import BundleView
from torchyard.contract.errors import NotFound
from torchyard.contract.files.views import CheckpointFile

if TYPE_CHECKING:
    from torchyard.client.packing.bundle import Bundle


class BundlesCore(Core):
    """Operations over one connection. The caller's own bundles are all that the service shows."""

    async def upload(
        self,
        bundle: "Bundle",
        *,
        progress: OnUpload | None = None,
        on_copied: Callable[[int], None] | None = None,
    ) -> BundleView:
        """Uploads what the service does not have of the bundle, over as many connections as that takes.

        Sends nothing if the service has it all. What other bundles of yours have is copied there; `on_copied` is called
        with those bytes. Raises TooLarge, QuotaExceeded, ConfigError or InvalidBundle if a file has changed since it
        was packed, OSError, and ServerUnreachable if the connection is lost for longer than `patience`.
        """
        return await self._connection.upload(bundle, on_progress=progress, on_copied=on_copied)

    def list(self, *, limit: int | None = None) -> AsyncGenerator[BundleView]:
        """Yields one's bundles and unfinished uploads, newest first."""
        return self._connection.pages(calls.bundles(limit=limit), limit=limit)

    async def get(self, sha256: str) -> BundleView:
        """Returns the bundle, or what has arrived of it. Raises NotFound."""
        return await self._connection.answer(calls.bundle(sha256))

    async def named(self, name: str) -> BundleView:
        """Returns one's complete bundle of that name. Raises NotFound."""
        return await find_data(self._connection, name)

    async def name(self, sha256: str, name: str) -> BundleView:
        """Gives a complete bundle a name, in place of another one of yours that has it. Raises NotFound."""
        return await self._connection.answer(calls.name_bundle(sha256, name))

    async def delete(self, sha256: str) -> None:
        """Deletes the bundle, or what has arrived of it. Raises NotFound, and Conflict while a job needs it."""
        await self._connection.send(calls.delete_bundle(sha256))

    async def download(self, sha256: str, to: str | Path = ".", *, progress: OnProgress | None = None) -> Path:
        """Fetches the tar of a complete bundle, and returns the path that it wrote: `to`, or if that is a folder, a
        file in it.

        The file is written whole, with the right sha256, or not at all; a later download continues one that failed.
        Raises NotFound, OSError, Conflict if another process downloads the same file, and ServerError.
        """
        view = await self.get(sha256)
        if view.state != "complete":
            raise NotFound(f"{view.received} of {view.size} bytes of bundle {sha256} have arrived: upload the rest")
        target = Path(to)
        if target.is_dir():  # noqa: ASYNC240 - as short as every other access to the file
            target /= f"bundle-{sha256[:12]}.tar"
        expected = CheckpointFile(path=f"bundle {sha256}", size=view.size, sha256=sha256)
        with PartFile(target, expected, progress) as part:
            await self._connection.fill(part, calls.bundle_content_path(sha256))
            part.finish()
        return target

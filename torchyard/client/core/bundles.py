"""Operations on bundles: uploaded code and data."""

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
    """Operations on your bundles: uploaded code and data. A bundle is named by the sha256 of its tar."""

    async def upload(
        self,
        bundle: "Bundle",
        *,
        progress: OnUpload | None = None,
        on_copied: Callable[[int], None] | None = None,
    ) -> BundleView:
        """Uploads the parts of a bundle that the service does not have. `client.run` calls it for you.

        Args:
            bundle: A packed folder.
            progress: Called with the bytes so far and in all.
            on_copied: Called with the bytes that the service copied from your other bundles.

        Raises:
            TooLarge: The bundle is above the service's limit.
            QuotaExceeded: The bundle exceeds your quota.
            ConfigError: A file cannot be read.
            InvalidBundle: A file has changed since it was packed.
            ServerUnreachable: The connection was lost for longer than `patience`.
        """
        return await self._connection.upload(bundle, on_progress=progress, on_copied=on_copied)

    def list(self, *, limit: int | None = None) -> AsyncGenerator[BundleView]:
        """Yields your bundles and unfinished uploads, newest first.

        Args:
            limit: Maximum number of bundles; None: all.

        Example:
            >>> {bundle.state for bundle in client.bundles.list()} <= {"complete", "partial"}
            True
        """
        return self._connection.pages(calls.bundles(limit=limit), limit=limit)

    async def get(self, sha256: str) -> BundleView:
        """Returns a bundle, complete or partial.

        Args:
            sha256: The sha256 of its tar.

        Raises:
            NotFound: You have no such bundle.
        """
        return await self._connection.answer(calls.bundle(sha256))

    async def named(self, name: str) -> BundleView:
        """Returns your complete bundle with a name.

        Args:
            name: The name.

        Raises:
            NotFound: You have no such bundle.
        """
        return await find_data(self._connection, name)

    async def name(self, sha256: str, name: str) -> BundleView:
        """Names a complete bundle. Your other bundle with this name loses it.

        Args:
            sha256: The sha256 of its tar.
            name: The name.

        Raises:
            NotFound: You have no such bundle.
        """
        return await self._connection.answer(calls.name_bundle(sha256, name))

    async def delete(self, sha256: str) -> None:
        """Deletes a bundle, complete or partial.

        Args:
            sha256: The sha256 of its tar.

        Raises:
            NotFound: You have no such bundle.
            Conflict: An unfinished job needs it.
        """
        await self._connection.send(calls.delete_bundle(sha256))

    async def download(self, sha256: str, to: str | Path = ".", *, progress: OnProgress | None = None) -> Path:
        """Downloads the tar of a complete bundle, as `client.jobs.download` does.

        Args:
            sha256: The sha256 of its tar.
            to: A path, or a folder.
            progress: Called with the bytes so far and in all.

        Returns:
            The path of the file.

        Raises:
            NotFound: You have no such bundle, or it is not complete.
            Conflict: Another process downloads the same file.
            ServerError: The bytes have another sha256.
            OSError: The file cannot be written.
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

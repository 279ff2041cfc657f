"""Operations on models. `ref` is `NAME` (your model) or `OWNER/NAME`, optionally with `@VERSION`."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
import json
from pathlib import Path
from urllib.parse import quote

from torchyard.client.calls.call import JSON, LARGE_PAGE, Call, given, segment
from torchyard.client.core.base import Core
from torchyard.client.download import OnProgress
from torchyard.client.fetching import fetch
from torchyard.client.references import find_checkpoint
from torchyard.contract.models.names import ModelRef
from torchyard.contract.models.views import ModelVersionSummary, ModelVersionView, ModelView
from torchyard.contract.team.roles import Visibility
from torchyard.contract.team.views import MeView
from torchyard.contract.wire.view import Page, View


class ModelsCore(Core):
    """Operations on models. A `ref` is `NAME` (your model) or `OWNER/NAME`, optionally with `@VERSION`.

    Each raises NotFound, InvalidRequest for a `ref` that is not valid, and Forbidden if it changes another user's
    model.
    """

    _own_name: str | None = None

    def list(self, *, owner: str | None = None, name: str | None = None) -> AsyncGenerator[ModelView]:
        """Yields the models that you may read, by owner and name.

        Args:
            owner: Only this user.
            name: Only this name.

        Example:
            >>> added = client.models.add("cracks", job.id)
            >>> [(model.name, model.newest.version) for model in client.models.list(name="cracks")]
            [('cracks', 1)]
        """
        params = {"owner": owner, "name": name, "limit": LARGE_PAGE}
        return self._connection.pages(Call(Page[ModelView], "GET", "/v1/models", params))

    async def get(self, ref: str) -> ModelView:
        """Returns a model and its newest version.

        Args:
            ref: The model; its version has no effect.
        """
        owner, name, _ = await self._parsed(ref)
        return await self._connection.answer(Call(ModelView, "GET", _path(owner, name)))

    async def versions(self, ref: str) -> AsyncGenerator[ModelVersionSummary]:
        """Yields the versions of a model, newest first.

        Args:
            ref: The model.
        """
        owner, name, _ = await self._parsed(ref)
        call = Call(Page[ModelVersionSummary], "GET", f"{_path(owner, name)}/versions", {"limit": LARGE_PAGE})
        async with aclosing(self._connection.pages(call)) as versions:
            async for version in versions:
                yield version

    async def version(self, ref: str) -> ModelVersionView:
        """Returns a version and its model card.

        Args:
            ref: The model with a version; without one, the newest.
        """
        return await self._connection.answer(Call(ModelVersionView, "GET", _version_path(*await self._parsed(ref))))

    async def add(
        self, name: str, job_id: str, ref: str | None = None, *, visibility: Visibility | None = None
    ) -> ModelVersionView:
        """Saves a checkpoint as the next version of your model. The first version creates the model.

        If the newest version already has this checkpoint, it returns that version.

        Args:
            name: The name of the model.
            job_id: The job's id.
            ref: The checkpoint: `best`, `latest`, `epoch-N`, `step-N` or an id; None: the best one, else the newest.
            visibility: `private` or `team`; None: the server's default, or that of the model.

        Raises:
            QuotaExceeded: The files exceed your quota.
            Conflict: The model has another visibility.

        Example:
            >>> version = client.models.add("digits", job.id, "best")
            >>> version.name, version.version
            ('digits', 1)
        """
        checkpoint = await find_checkpoint(self._connection, job_id, ref)
        content = json.dumps(given({"name": name, "from": f"{job_id}/{checkpoint.id}", "visibility": visibility}))
        call = Call(ModelVersionView, "POST", "/v1/models", content=content, headers=JSON)
        return await self._connection.answer(call)

    async def share(self, ref: str, visibility: Visibility) -> ModelView:
        """Changes who may read a model with all its versions.

        Args:
            ref: The model.
            visibility: `team` or `private`.
        """
        owner, name, _ = await self._parsed(ref)
        content = json.dumps({"visibility": visibility})
        return await self._connection.answer(
            Call(ModelView, "PATCH", _path(owner, name), content=content, headers=JSON)
        )

    async def remove(self, ref: str) -> None:
        """Deletes a version, or a model with all its versions. Version numbers are never reused.

        Args:
            ref: With `@VERSION`, this version; without it, the model.
        """
        owner, name, number = await self._parsed(ref)
        path = _path(owner, name) if number is None else _version_path(owner, name, number)
        await self._connection.send(Call(View, "DELETE", path, repeatable=False))

    async def download(
        self, ref: str, *, file: str | None = None, to: str | Path = ".", on_progress: OnProgress | None = None
    ) -> Path:
        """Downloads a version: its `state.pt`, its `folder`, or one file of it, as `client.jobs.download` does.

        Args:
            ref: The model with a version; without one, the newest.
            file: The path of one file.
            to: A path, or a folder.
            on_progress: Called with the bytes so far and in all.

        Returns:
            The path of the file or folder.

        Example:
            >>> added = client.models.add("walls", job.id)
            >>> client.models.download("walls@1", to="walls.pt").read_bytes()
            b'state'
        """
        version = await self.version(ref)
        named = str(ModelRef(version.owner, version.name, version.version))
        whole = _version_path(version.owner, version.name, version.version)
        path = f"{whole}/download" + ("" if file is None else f"?file={quote(file, safe='')}")
        name, of = f"{version.name}-v{version.version}", f"model {named}"
        return await fetch(self._connection, path, version, of=of, file=file, to=to, name=name, on_progress=on_progress)

    async def _parsed(self, text: str) -> tuple[str, str, int | None]:
        """Returns owner, name and version of what the text names. The server is asked once who oneself is."""
        ref = ModelRef.parse(text)
        if ref.owner is None and self._own_name is None:
            self._own_name = (await self._connection.answer(Call(MeView, "GET", "/v1/me"))).name
        return ref.owner or self._own_name or "", ref.name, ref.version


def _version_path(owner: str, name: str, number: int | None) -> str:
    return f"{_path(owner, name)}/versions/{'latest' if number is None else number}"


def _path(owner: str, name: str) -> str:
    return f"/v1/models/{segment(owner)}/{segment(name)}"

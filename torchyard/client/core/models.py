"""The operations on models. Each names one as `NAME` (one's own) or `OWNER/NAME`, with `@VERSION` behind it."""

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
    """Operations on models. Each raises NotFound, InvalidRequest for what names no model, and Forbidden if it changes
    one of another user.
    """

    _own_name: str | None = None

    def list(self, *, owner: str | None = None, name: str | None = None) -> AsyncGenerator[ModelView]:
        """Yields the models that one may read, by owner and name: all, those of one owner, or those with this name."""
        params = {"owner": owner, "name": name, "limit": LARGE_PAGE}
        return self._connection.pages(Call(Page[ModelView], "GET", "/v1/models", params))

    async def get(self, ref: str) -> ModelView:
        """Returns a model with its newest version, whichever version `ref` names."""
        owner, name, _ = await self._parsed(ref)
        return await self._connection.answer(Call(ModelView, "GET", _path(owner, name)))

    async def versions(self, ref: str) -> AsyncGenerator[ModelVersionSummary]:
        """Yields the versions of a model, newest first."""
        owner, name, _ = await self._parsed(ref)
        call = Call(Page[ModelVersionSummary], "GET", f"{_path(owner, name)}/versions", {"limit": LARGE_PAGE})
        async with aclosing(self._connection.pages(call)) as versions:
            async for version in versions:
                yield version

    async def version(self, ref: str) -> ModelVersionView:
        """Returns the version that `ref` names, else the newest, with its card."""
        return await self._connection.answer(Call(ModelVersionView, "GET", _version_path(*await self._parsed(ref))))

    async def add(
        self, name: str, job_id: str, ref: str | None = None, *, visibility: Visibility | None = None
    ) -> ModelVersionView:
        """Keeps a checkpoint of a job as the next version of one's own model `name`, and returns the version. The first
        one makes the model, with this `visibility` or the server's. `ref` is one of `jobs.checkpoint`.

        If the newest version has this checkpoint already, it returns that. Raises QuotaExceeded, and Conflict for
        another visibility than the model has.
        """
        checkpoint = await find_checkpoint(self._connection, job_id, ref)
        content = json.dumps(given({"name": name, "from": f"{job_id}/{checkpoint.id}", "visibility": visibility}))
        call = Call(ModelVersionView, "POST", "/v1/models", content=content, headers=JSON)
        return await self._connection.answer(call)

    async def share(self, ref: str, visibility: Visibility) -> ModelView:
        """Changes who may read a model with all its versions: `team` or `private`. Returns the model."""
        owner, name, _ = await self._parsed(ref)
        content = json.dumps({"visibility": visibility})
        return await self._connection.answer(
            Call(ModelView, "PATCH", _path(owner, name), content=content, headers=JSON)
        )

    async def remove(self, ref: str) -> None:
        """Removes the version that `ref` names, else the model with all its versions. No number is given again."""
        owner, name, number = await self._parsed(ref)
        path = _path(owner, name) if number is None else _version_path(owner, name, number)
        await self._connection.send(Call(View, "DELETE", path, repeatable=False))

    async def download(
        self, ref: str, *, file: str | None = None, to: str | Path = ".", on_progress: OnProgress | None = None
    ) -> Path:
        """Fetches the `state.pt` of the version that `ref` names, else of the newest (of one with a `folder` the folder
        with all files), or its `file` of that path. Returns the path that it wrote: `to`, or if that is a folder, the
        server's name in it.

        It is written whole or continued as by `jobs.download`, and raises what that does.
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

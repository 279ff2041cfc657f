"""Calls about checkpoints, artifacts and bundles."""

from collections.abc import Sequence
import json
from urllib.parse import quote

from torchyard.client.calls.call import JSON, LARGE_PAGE, LONGEST_PAGE, Call, Params, job_path, segment
from torchyard.client.upload import Packed
from torchyard.contract.bundles.views import BundleView, FoundParts
from torchyard.contract.files.views import ArtifactView, CheckpointView, KeepView
from torchyard.contract.media.views import MediaView
from torchyard.contract.wire.view import Page, View


def checkpoints(job_id: str) -> Call[Page[CheckpointView]]:
    return Call(Page[CheckpointView], "GET", f"{job_path(job_id)}/checkpoints")


def checkpoint(job_id: str, ref: str) -> Call[CheckpointView]:
    return Call(CheckpointView, "GET", _checkpoint_path(job_id, ref))


def artifacts(job_id: str, *, path: str | None) -> Call[Page[ArtifactView]]:
    return Call(Page[ArtifactView], "GET", f"{job_path(job_id)}/artifacts", {"path": path, "limit": LARGE_PAGE})


def kept_files(job_id: str, *, path: str | None) -> Call[Page[ArtifactView]]:
    return Call(Page[ArtifactView], "GET", f"{job_path(job_id)}/kept", {"path": path, "limit": LARGE_PAGE})


def ask_to_keep(job_id: str, paths: Sequence[str]) -> Call[KeepView]:
    content = json.dumps({"paths": [*paths]})
    return Call(KeepView, "POST", f"{job_path(job_id)}/keep", content=content, headers=JSON)


def keep(job_id: str) -> Call[KeepView]:
    return Call(KeepView, "GET", f"{job_path(job_id)}/keep")


def media(job_id: str, *, keys: Sequence[str]) -> Call[Page[MediaView]]:
    params: Params = {"key": [*keys], "keys": "false", "limit": LARGE_PAGE}
    return Call(Page[MediaView], "GET", f"{job_path(job_id)}/media", params)


def bundles(*, limit: int | None) -> Call[Page[BundleView]]:
    size = LONGEST_PAGE if limit is None else max(1, min(limit, LONGEST_PAGE))
    return Call(Page[BundleView], "GET", "/v1/bundles", {"limit": size})


def bundle(sha256: str) -> Call[BundleView]:
    return Call(BundleView, "GET", bundle_path(sha256))


def bundle_named(name: str) -> Call[Page[BundleView]]:
    return Call(Page[BundleView], "GET", "/v1/bundles", {"name": name})


def name_bundle(sha256: str, name: str) -> Call[BundleView]:
    content = json.dumps({"name": name})
    return Call(BundleView, "PUT", f"{bundle_path(sha256)}/name", content=content, headers=JSON)


def find_parts(digests: Sequence[str]) -> Call[FoundParts]:
    content = json.dumps({"parts": [*digests]})
    return Call(FoundParts, "POST", "/v1/bundles/parts", content=content, headers=JSON)


def copy_bundle(packed: Packed, offset: int, *, source: str, start: int, end: int) -> Call[BundleView]:
    params: Params = {"size": packed.size, "offset": offset, "source": source, "start": start, "length": end - offset}
    return Call(BundleView, "POST", f"{bundle_path(packed.sha256)}/copy", params)


def delete_bundle(sha256: str) -> Call[View]:
    return Call(View, "DELETE", bundle_path(sha256), repeatable=False)


def file_path(job_id: str, ref: str, file: str | None) -> str:
    """Returns the path of a checkpoint's file; without a name, of its `state.pt`."""
    checkpoint = _checkpoint_path(job_id, ref)
    return f"{checkpoint}/download" if file is None else f"{checkpoint}/files/{quote(file)}"


def artifact_path(job_id: str, path: str, *, kept: bool = False) -> str:
    return f"{job_path(job_id)}/{'kept' if kept else 'artifacts'}/{quote(path)}"


def picture_path(job_id: str, media_id: str, part: str) -> str:
    return f"{job_path(job_id)}/media/{segment(media_id)}/{segment(part)}"


def bundle_path(sha256: str) -> str:
    return f"/v1/bundles/{segment(sha256)}"


def bundle_content_path(sha256: str) -> str:
    return f"{bundle_path(sha256)}/content"


def _checkpoint_path(job_id: str, ref: str) -> str:
    return f"{job_path(job_id)}/checkpoints/{segment(ref)}"

"""Checkpoints of as many files as one may have, for `bench.costs.cases`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from api.present.checkpoints import checkpoint
from api.transfers.blobs import tar_of
from api.transfers.files import Span
from store.blobs import Blobs
from store.facts.checkpoints import CAPTURED, CheckpointFacts, sent_of
from store.facts.output import NewCheckpoint
from torchyard.contract.checkpointfiles import MOST_FILES, MOST_PATHS_BYTES, check_paths
from torchyard.contract.records import Manifest, ManifestFile

Prepare = Callable[[], object]

_NAME = MOST_PATHS_BYTES // MOST_FILES - len("00000/")


def _files() -> list[Mapping[str, Any]]:
    paths = [f"{number:05}/{'x' * _NAME}" for number in range(MOST_FILES)]
    return [{"path": path, "size": 1, "sha256": f"{number:064}"} for number, path in enumerate(paths)]


def manifest() -> Prepare:
    """What a worker does with the list of files before it copies them, and when it stores it."""
    text = Manifest(step=1, files=[ManifestFile(**file) for file in _files()]).to_json()

    def read() -> None:
        found = Manifest.from_json(text)
        check_paths([file.path for file in found.files])
        sent_of(NewCheckpoint("a", found, found.files).entries, of="a")

    return read


def answer() -> Prepare:
    files = _files()
    facts = CheckpointFacts(
        "ckpt_1", 1, "a", None, False, 1, {}, None, files, 1, sent_of(files, of="a"), CAPTURED, 0, False, None, 1
    )
    checkpoint(replace(facts, files=files[:2])).model_dump_json()  # the view is built once a process
    return lambda: checkpoint(facts).model_dump_json()


def part_of_a_tar() -> Prepare:
    files, blobs = _files(), Blobs(Path("/blobs"))

    def place() -> None:
        layout = tar_of(blobs, files)
        for _ in layout.placed(Span(layout.size - 1_000_000, layout.size)):
            pass

    return place

"""Checkpoints with the largest number of files, for `bench.costs.cases`."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import create_engine, insert

from api.routes.checkpoints import checkpoint_view
from api.transfers.blobs import tar_of
from api.transfers.files import Span
from store.blobs import named
from store.blobs.folder import BlobFolder
from store.blobs.uploads import MOST_FILES as MOST_UPLOADS
from store.blobs.uploads import WorkerUploads
from store.blobs.writer import Blob
from store.db.database import Database
from store.db.tables import Base, load_all
from store.output.checkpoints_facts import CAPTURED, CheckpointFacts, sent_of
from store.output.facts import NewCheckpoint
from store.tables import Checkpoint
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.files.paths import MOST_FILES, MOST_PATHS_BYTES, check_paths
from worker.attempts.capture import folders as found
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.files.matching import Search
from worker.attempts.files.writers import open_for_writing

Prepare = Callable[[], object]

_CHECKPOINTS = 20
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
        id="ckpt_1",
        attempt=1,
        name="a",
        epoch=None,
        end_of_epoch=False,
        step=1,
        metrics={},
        monitored=None,
        files=files,
        files_bytes=1,
        sent=sent_of(files, of="a"),
        source=CAPTURED,
        saved_at=1,
        damaged=False,
        remeasured=None,
        created_at=datetime.now(UTC),
    )
    checkpoint_view(replace(facts, files=files[:2])).model_dump_json()  # the view is built once a process
    return lambda: checkpoint_view(facts).model_dump_json()


def part_of_a_tar() -> Prepare:
    files, blobs = _files(), BlobFolder(Path("/blobs"))

    def place() -> None:
        layout = tar_of(blobs, files)
        for _ in layout.cut(Span(layout.size - 1_000_000, layout.size)):
            pass

    return place


def look() -> Prepare:
    """What the worker does with a folder that is at rest: it finds its files, and asks who has one open."""
    job = TemporaryDirectory()  # it is removed with its process
    folder = Path(job.name) / "work" / "out" / "checkpoint-1"
    folder.mkdir(parents=True)
    for number in range(MOST_FILES):
        (folder / f"{number:05}").touch()

    def find() -> None:
        for match in found.find(Search(Path(job.name)), ("work",), ["out/*"]):
            open_for_writing(Path(job.name), match.files if isinstance(match, FolderMatch) else [match])

    return find


def named_blob() -> Prepare:
    """What the API does to know whether a remote worker may read a blob: here, its job has saved it last."""
    folder = TemporaryDirectory()  # it is removed with its process
    url = f"sqlite:///{folder.name}/a.db"
    load_all()
    files = _files()
    rows = [
        {"id": f"ckpt_{number}", "job_id": "job_1", "attempt": 1, "name": f"{number}", "end_of_epoch": False, "step": 1}
        | {"metrics": {}, "files": [*files[1:], {**files[0], "sha256": f"{number}".rjust(64, "f")}]}
        for number in range(_CHECKPOINTS)
    ]
    with create_engine(url).begin() as connection:  # it asks for no job
        Base.metadata.create_all(connection)
        connection.execute(insert(Checkpoint), rows)
    database = Database(url)

    def find() -> None:
        assert folder.name
        with database.read() as session:
            named.find_named(session, ["job_1"], [f"{_CHECKPOINTS - 1}".rjust(64, "f")])

    return find


def upload_beside_others() -> Prepare:
    """What the API does at the first part of an upload of a remote worker, which has many others."""
    folder = TemporaryDirectory()
    uploads = WorkerUploads(BlobFolder(Path(folder.name)), "wrk_1")
    others = Path(folder.name) / "incoming" / "workers" / "wrk_1" / "job_1"
    others.mkdir(parents=True)
    for number in range(MOST_UPLOADS - 1):
        (others / f"{number:064}.1.part").touch()

    new = map(str, count(MOST_UPLOADS))

    def begin() -> None:
        assert folder.name  # it stays until its process ends
        blob = Blob(next(new).zfill(64), 1)
        file = uploads.open("job_2", blob, offset=0)
        assert file is not None
        file.close()
        file.path.unlink()

    return begin

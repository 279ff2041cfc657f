"""The time to restore a working folder of 2 GiB, beside `rsync -a`, or `cp -a` if rsync is not installed:
`python -m bench.restoring`.

The folder is restored as on another host: each file is copied out of the blobs, and its digest is compared. The peer
copies the same files from a folder and compares nothing. Both read from the kernel's cache. With `TMPDIR=/dev/shm` they
also write to memory.
"""

from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from random import Random
import resource
import shutil
import subprocess
import time

from bench import table
from bench.service import scratch
from bench.table import Row
from store.blobs.folder import BlobFolder
from worker.attempts.prepare import restoring
from worker.attempts.prepare.restoring import Stored, StoredFile

CHECKPOINTS, CHECKPOINT_BYTES = 64, 16 << 20
FILES, FILE_BYTES = 2048, 512 << 10
REPEATS = 3
_CLASSES = 16
"""So many contents of each size are stored; a file of each is copied as often as it is named."""


def measure() -> Iterator[Row]:
    with scratch() as folder:
        blobs, source = BlobFolder(folder / "blobs"), folder / "source"
        blobs.root.mkdir()
        stored = _fill(source, blobs)
        ours, theirs = list[tuple[float, float]](), list[tuple[float, float]]()
        for number in range(REPEATS + 1):
            mine, other = _restored(stored, folder / "ours", blobs), _copied(source, folder / "theirs")
            if number:  # the first one fills the cache
                ours.append(mine)
                theirs.append(other)
    size = f"{(CHECKPOINTS * CHECKPOINT_BYTES + FILES * FILE_BYTES) >> 30} GiB in {CHECKPOINTS + FILES:,} files"
    peer = " ".join(_command())
    wall, other = [each for each, _ in ours], [each for each, _ in theirs]
    yield Row(f"restore a working folder of {size}", "s", wall, peer=peer, theirs=other, ratio_at_most=2.0)
    used, other = [each for _, each in ours], [each for _, each in theirs]
    yield Row("– CPU time", "CPU s", used, peer=peer, theirs=other, ratio_at_most=1.5)


def _fill(source: Path, blobs: BlobFolder) -> list[list[Stored]]:
    random, stored = Random(0), list[list[Stored]]()
    for name, count, size in (("out/{}.pt", CHECKPOINTS, CHECKPOINT_BYTES), ("results/{}.bin", FILES, FILE_BYTES)):
        contents = [random.randbytes(size) for _ in range(_CLASSES)]
        digests = [blobs.add(BytesIO(content)).sha256 for content in contents]
        for number in range(count):
            path = name.format(number)
            (source / path).parent.mkdir(parents=True, exist_ok=True)
            (source / path).write_bytes(contents[number % _CLASSES])
            stored.append([_stored(path, digests[number % _CLASSES], size)])
    return stored


def _stored(path: str, sha256: str, size: int) -> Stored:
    return Stored(
        root="work",
        path=path,
        files=[StoredFile(path, sha256, size, time.time_ns())],
        order=(1, 1, 1, path),
        is_checkpoint=path.endswith(".pt"),
    )


def _restored(stored: list[list[Stored]], folder: Path, blobs: BlobFolder) -> tuple[float, float]:
    """Returns the seconds and the processor seconds."""
    folder.mkdir()
    began, used = time.perf_counter(), time.process_time()
    restored = restoring.restore(stored, folders={"work": folder}, blobs=blobs)
    spent = time.perf_counter() - began, time.process_time() - used
    assert (restored.checkpoints, restored.files) == (CHECKPOINTS, FILES)
    shutil.rmtree(folder)
    return spent


def _copied(source: Path, folder: Path) -> tuple[float, float]:
    began, used = time.perf_counter(), _of_children()
    subprocess.run([*_command(), f"{source}/.", folder], check=True)
    spent = time.perf_counter() - began, _of_children() - used
    shutil.rmtree(folder)
    return spent


def _command() -> list[str]:
    return ["cp" if shutil.which("rsync") is None else "rsync", "-a"]


def _of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    table.main(measure)

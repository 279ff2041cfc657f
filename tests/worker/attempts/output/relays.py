"""Relays of a run directory, and what they have read of it."""

from collections.abc import Generator
from contextlib import contextmanager
import hashlib
from pathlib import Path
import time

from store.blobs.folder import BlobFolder
from store.blobs.writer import BlobWriter
from store.output.facts import Batch
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record
from worker.attempts.output.relay import Relay, RelayState


def relay_of(run: RunDir, *, offsets: dict[str, int] | None = None, listed: tuple[str, ...] = ()) -> Relay:
    return Relay(
        run, BlobFolder(run.root.parent / "blobs"), state=RelayState.of(offsets or {}), listed=listed, world_size=2
    )


def drain(relay: Relay, *, final: bool = False) -> list[Batch]:
    batches: list[Batch] = []
    while (batch := relay.read(final=final)) is not None or relay.copying:
        if batch is not None:
            store(relay, batch)
            batches.append(batch)
    return batches


def drain_all(relay: Relay, *, final: bool) -> list[Batch]:
    """As `drain`, but goes on after a call that finds nothing yet."""
    found: list[Batch] = []
    for _ in range(10):
        found += drain(relay, final=final)
    return found


def next_curves(relay: Relay) -> Batch:
    """Reads until there are points of a file with curves, and stores what it reads."""
    until = time.monotonic() + 120
    while time.monotonic() < until:
        if (batch := relay.read()) is not None:
            store(relay, batch)
            if any(batch.curves.values()):
                return batch
    raise AssertionError("no curves were read")


@contextmanager
def storing(relay: Relay, batch: Batch) -> Generator[None]:
    """Stores the blobs of the batch that was read last. What the block does is its commit."""
    for blob in relay.blobs:
        assert isinstance(blob, BlobWriter)
        BlobFolder(blob.path.parents[1]).publish_all([blob])
    yield
    relay.note_stored(batch)


def store(relay: Relay, batch: Batch) -> None:
    with storing(relay, batch):
        pass


def write_checkpoint(run: RunDir, name: str, *, content: bytes = b"state", digest: str | None = None) -> None:
    folder = run.checkpoints / name
    folder.mkdir()
    (folder / "state.pt").write_bytes(content)
    sha256 = digest or hashlib.sha256(content).hexdigest()
    file = ManifestFile(path="state.pt", size=len(content), sha256=sha256)
    write_record(folder / "manifest.json", Manifest(step=7, epoch=1, metrics={"val/loss": 0.5}, files=[file]))


def announce(run: RunDir, name: str) -> None:
    with run.events.open("a") as file:
        file.write(f'{{"type":"checkpoint","name":"{name}","time":1}}\n')


def rows(batches: list[Batch]) -> list[str]:
    return [line for batch in batches for chunk in batch.lines for line in chunk.lines]


def texts(batches: list[Batch]) -> list[str]:
    return [event.data["text"] for batch in batches for event in batch.events]


@contextmanager
def little_memory(mebibytes: int) -> Generator[None]:
    """Fails if this process needs more additional memory than that at any moment of the block."""

    def status(name: str) -> int:
        found = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name))
        return int(found.split()[1])

    Path("/proc/self/clear_refs").write_text("5")  # resets the peak to the present size
    before = status("VmRSS")
    yield
    assert status("VmHWM") - before < mebibytes * 1024


@contextmanager
def little_read(mebibytes: int) -> Generator[None]:
    """Fails if this process reads more than that from files in the block."""

    def read() -> int:
        return int(Path("/proc/self/io").read_text().split()[1])  # rchar

    before = read()
    yield
    assert read() - before < mebibytes << 20

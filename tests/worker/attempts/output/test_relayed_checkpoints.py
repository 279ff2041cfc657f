"""The relay lists a checkpoint once its files are stored, and none that is not what it says."""

import errno
import hashlib
import os
from pathlib import Path
import re

import pytest

from store.blobs.folder import BlobFolder
from store.blobs.writer import BlobWriter
from tests.approved import Approved
from tests.worker.attempts.output.relays import (
    announce,
    drain,
    little_read,
    relay_of,
    rows,
    store,
    storing,
    texts,
    write_checkpoint,
)
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record


def test_an_announced_checkpoint_is_in_the_blob_store_before_it_is_listed(run: RunDir) -> None:
    write_checkpoint(run, "epoch-0001", content=b"weights")
    announce(run, "epoch-0001")
    relay = relay_of(run)
    (batch,) = drain(relay)
    (listed,) = batch.checkpoints
    assert (listed.name, listed.manifest.epoch, listed.manifest.metrics) == ("epoch-0001", 1, {"val/loss": 0.5})
    assert BlobFolder(run.root.parent / "blobs").path(listed.files[0].sha256).read_bytes() == b"weights"
    assert drain(relay, final=True) == []


def test_a_checkpoint_whose_announcement_was_lost_is_found_at_the_end(run: RunDir) -> None:
    write_checkpoint(run, "epoch-0001")
    write_checkpoint(run, "epoch-0002")
    (run.checkpoints / ".half-written").mkdir()
    relay = relay_of(run, listed=("epoch-0001",))
    assert drain(relay) == []
    (batch,) = drain(relay, final=True)
    assert [new.name for new in batch.checkpoints] == ["epoch-0002"]


def test_an_unannounced_folder_with_an_invalid_name_is_not_listed(run: RunDir) -> None:
    for name in ("x" * 101, "two words", os.fsdecode(b"\xff"), "good"):
        write_checkpoint(run, name)
    batches = drain(relay_of(run), final=True)
    assert [new.name for batch in batches for new in batch.checkpoints] == ["good"]
    assert [text.endswith("is not listed: its name is not a valid checkpoint name") for text in texts(batches)] == [
        True
    ] * 3


def test_a_checkpoint_that_does_not_match_its_manifest_is_not_listed(run: RunDir, tmp_path: Path) -> None:
    write_checkpoint(run, "wrong", digest="0" * 64)
    (run.checkpoints / "bare").mkdir()
    write_checkpoint(run, "linked")
    (run.checkpoints / "linked" / "state.pt").unlink()
    (run.checkpoints / "linked" / "state.pt").symlink_to("/etc/passwd")
    escaping = run.checkpoints / "escaping"
    escaping.mkdir()
    (escaping / "manifest.json").write_text('{"step":1,"files":[{"path":"../../config.json","size":1,"sha256":"0"}]}')
    for name in ("wrong", "bare", "linked", "escaping", "absent"):
        announce(run, name)
    batches = drain(relay_of(run), final=True)
    assert all(not batch.checkpoints for batch in batches)
    warnings = texts(batches)
    assert len(warnings) == 5
    for name in ("wrong", "bare", "linked", "escaping", "absent"):
        assert any(text.startswith(f"checkpoint {name} is not listed: ") for text in warnings)


def files_of(run: RunDir) -> list[str]:
    blobs = run.root.parent / "blobs"
    return [path.name for path in blobs.rglob("*") if path.is_file() and path.name != "lock"]


@pytest.mark.parametrize(
    ("size", "listed", "count"),
    [
        (6 << 30, 1, 1),
        (1, 1, 1000),
        (1 << 42, 1 << 42, 1),
    ],
)
def test_a_checkpoint_with_a_wrong_size_is_refused_without_reading_it(
    run: RunDir, size: int, listed: int, count: int, approved: Approved
) -> None:
    folder = run.checkpoints / "one"
    folder.mkdir()
    with (folder / "state.pt").open("wb") as file:
        file.truncate(size)
    entry = ManifestFile(path="state.pt", size=listed, sha256=hashlib.sha256(b"\0").hexdigest())
    write_record(folder / "manifest.json", Manifest(step=1, files=[entry] * count))
    announce(run, "one")
    with little_read(1):
        (text,) = texts(drain(relay_of(run)))
    assert re.sub(r"at most \d+$", "at most what the disk has", text) == approved.of_row("text")
    assert files_of(run) == []


def test_a_checkpoint_whose_digest_is_wrong_leaves_no_blob(run: RunDir, approved: Approved) -> None:
    write_checkpoint(run, "one", content=b"state", digest="0" * 64)
    announce(run, "one")
    (text,) = texts(drain(relay_of(run)))
    assert text == approved("text")
    assert files_of(run) == []


@pytest.mark.parametrize("announced", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_lines_and_metrics_go_on_while_a_large_checkpoint_is_copied(run: RunDir, announced: bool) -> None:
    write_checkpoint(run, "one", content=bytes(80 << 20))
    if announced:
        announce(run, "one")
    run.log("rank-0", "stdout").write_text("a line\n")
    with run.events.open("a") as events:
        events.write('{"type":"metric","step":1,"time":1,"values":{"a":1}}\n')
    relay = relay_of(run)
    first = relay.read(final=True)
    assert first is not None
    assert (rows([first]), [point.step for point in first.points], first.checkpoints) == (["a line"], [1], [])
    store(relay, first)
    assert relay.read(final=True) is None
    assert relay.copying
    relay.close()
    relay = relay_of(run, offsets=first.offsets)  # a later worker
    batches = drain(relay, final=True)
    assert (rows(batches), [point for batch in batches for point in batch.points]) == ([], [])
    (new,) = [new for batch in batches for new in batch.checkpoints]
    assert files_of(run) == [new.files[0].sha256]


def test_a_disk_of_blobs_that_is_full_keeps_no_line_back(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: BlobWriter, chunk: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    write_checkpoint(run, "one")
    announce(run, "one")
    run.log("rank-0", "stdout").write_text("a line\n")
    relay = relay_of(run)
    with monkeypatch.context() as patched:
        patched.setattr(BlobWriter, "_write", full)
        first = relay.read()
        assert first is not None
        assert (rows([first]), first.checkpoints, isinstance(relay.error, OSError)) == (["a line"], [], True)
        store(relay, first)
        with pytest.raises(OSError, match="No space left"):
            relay.read()
    (batch,) = drain(relay)
    assert ([new.name for new in batch.checkpoints], relay.error) == (["one"], None)


def test_a_discarded_copy_leaves_nothing(run: RunDir) -> None:
    write_checkpoint(run, "one", content=bytes(80 << 20))
    announce(run, "one")
    relay = relay_of(run)
    relay.read()
    assert relay.copying
    relay.close()
    assert files_of(run) == []


def test_a_batch_with_a_checkpoint_that_was_not_stored_is_read_again(run: RunDir) -> None:
    write_checkpoint(run, "one")
    announce(run, "one")
    relay = relay_of(run)
    batch = relay.read()
    assert batch is not None
    with pytest.raises(OSError, match="away"), storing(relay, batch):
        raise OSError("the database is away")
    (again,) = drain(relay)
    assert [new.name for new in again.checkpoints] == ["one"]


def test_the_files_of_a_checkpoint_keep_their_names(run: RunDir) -> None:
    folder = run.checkpoints / "epoch-0001"
    deep = "/".join("abcdefghijklmno")
    files = {
        "state.index.json": b"{}",
        "epoch=1 é.ckpt": b"x" * 700_000,
        ".metadata": b"",
        f"{deep}/__0_0.distcp": b"1",
    }
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    listed = [
        ManifestFile(path=name, size=len(content), sha256=hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    ]
    write_record(folder / "manifest.json", Manifest(step=7, epoch=1, files=listed))
    announce(run, folder.name)
    (saved,) = [item for batch in drain(relay_of(run)) for item in batch.checkpoints]
    assert saved.entries == [file.to_dict() for file in listed]

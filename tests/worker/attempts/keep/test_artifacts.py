"""Files that an attempt left in its folder `artifacts`, whatever they are."""

from collections.abc import Sequence
import os
from pathlib import Path
import shutil

import pytest

from store.blobs.folder import BlobFolder
from store.output.facts import Batch, NewArtifact, OutputLimits, Room, StoredArtifact
from tests.approved import Approved
from tests.disks import mounted
from tests.worker.attempts.output.relays import drain, store, texts
from torchyard.contract.attempts.rundir import RunDir
from worker.attempts.keep.artifacts import Artifacts
from worker.attempts.output.relay import Relay, RelayState


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    return run


def relay_of(
    run: RunDir,
    *,
    stored: Sequence[StoredArtifact] = (),
    left: int | None = None,
    offsets: dict[str, int] | None = None,
    limits: OutputLimits | None = None,
) -> Relay:
    blobs = BlobFolder(run.root.parent / "blobs")
    files = Artifacts(run, blobs, room=lambda: Room(stored, left), limits=limits or OutputLimits())
    return Relay(run, blobs, state=RelayState.of(offsets or {}), listed=(), world_size=1, left=[files])


def paths(batches: list[Batch]) -> list[str]:
    return [item.path for batch in batches for item in batch.artifacts]


def write(run: RunDir, path: str, content: bytes = b"x") -> Path:
    file = run.artifacts / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(content)
    return file


def test_files_are_stored_once_all_processes_have_ended_and_their_bytes_are_there(run: RunDir) -> None:
    write(run, "plots/loss.png", b"png")
    write(run, ".hidden", b"")
    relay = relay_of(run)
    assert drain(relay) == []
    batches = drain(relay, final=True)
    found = {item.path: item for batch in batches for item in batch.artifacts}
    assert sorted(found) == [".hidden", "plots/loss.png"]
    with BlobFolder(run.root.parent / "blobs").open(found["plots/loss.png"].sha256) as blob:
        assert blob.read() == b"png"
    assert texts(batches) == []
    assert drain(relay, final=True) == []
    assert drain(relay_of(run, offsets=batches[-1].offsets), final=True) == []


def test_no_files_make_no_batch(run: RunDir) -> None:
    assert drain(relay_of(run), final=True) == []
    run.artifacts.rmdir()
    assert drain(relay_of(run), final=True) == []


def test_a_batch_that_was_not_stored_is_copied_again(run: RunDir) -> None:
    write(run, "a", b"a")
    relay = relay_of(run)
    first = relay.read(final=True)
    second = relay.read(final=True)
    assert first is not None
    assert second is not None
    assert first.artifacts == second.artifacts
    store(relay, second)
    assert relay.read(final=True) is None
    assert [*(run.root.parent / "blobs" / "incoming").iterdir()] == []


def test_a_restarted_worker_stores_what_is_left(run: RunDir) -> None:
    for number in range(100):
        write(run, f"{number:03}", b"%d" % number)
    relay = relay_of(run)
    batch = relay.read(final=True)
    assert batch is not None
    store(relay, batch)
    relay.close()
    assert 0 < len(batch.artifacts) < 100
    stored = [StoredArtifact(item.path, 2, item.size, item.modified_ns) for item in batch.artifacts]
    rest = paths(drain(relay_of(run, stored=stored, offsets=batch.offsets), final=True))
    assert sorted([*paths([batch]), *rest]) == [f"{number:03}" for number in range(100)]


def test_what_is_no_plain_file_is_left_out_with_one_message(run: RunDir, tmp_path: Path, approved: Approved) -> None:
    outside = tmp_path / "secret"
    outside.write_text("secret")
    write(run, "kept")
    (run.artifacts / "link").symlink_to(outside)
    (run.artifacts / "folder-link").symlink_to(tmp_path)
    os.link(outside, run.artifacts / "second-name")
    os.mkfifo(run.artifacts / "pipe")
    write(run, "line\nbreak")
    write(run, "turned\u202eround")
    (Path(os.fsdecode(os.fsencode(run.artifacts) + b"/\xff"))).touch()
    write(run, "/".join(["deep"] * 17))
    batches = drain(relay_of(run), final=True)
    assert paths(batches) == ["kept"]
    (text,) = texts(batches)
    assert text == approved("text")
    for part in (
        "link (a link)",
        "pipe (no regular file)",
        "second-name (has other names)",
        "line\ufffdbreak (its path",
    ):
        assert part in text
    assert "secret" not in text
    assert "\n" not in text


def test_a_folder_that_is_a_link_is_not_followed(run: RunDir, tmp_path: Path, approved: Approved) -> None:
    run.artifacts.rmdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "file").touch()
    run.artifacts.symlink_to(tmp_path / "elsewhere")
    batches = drain(relay_of(run), final=True)
    assert paths(batches) == []
    assert texts(batches) == [approved("texts")]


def test_many_that_are_left_out_are_counted_and_few_are_named(run: RunDir) -> None:
    for number in range(30):
        (run.artifacts / f"{number:02}").symlink_to("x")
    (text,) = texts(drain(relay_of(run), final=True))
    assert text.count("(a link)") == 10
    assert text.endswith(", and 20 more")


def test_a_job_has_so_many_files_and_bytes_over_all_attempts(run: RunDir, approved: Approved) -> None:
    for name in ("a", "b", "c"):
        write(run, name, b"12345")
    before = [StoredArtifact("a", 1, 5), StoredArtifact("old", 1, 5)]
    few = drain(relay_of(run, stored=before, limits=OutputLimits(artifacts=3)), final=True)
    assert paths(few) == ["a", "b"]
    assert texts(few)[0] == approved("texts")
    small = drain(relay_of(run, stored=before, limits=OutputLimits(artifact_bytes=14)), final=True)
    assert paths(small) == ["a"]
    assert "more than TORCHYARD_MAX_ARTIFACT_BYTES" in texts(small)[0]


def test_a_sparse_file_of_a_terabyte_is_left_out_and_others_are_not(run: RunDir) -> None:
    with write(run, "huge").open("r+b") as file:
        file.truncate(1 << 40)
    write(run, "small")
    batches = drain(relay_of(run), final=True)
    assert paths(batches) == ["small"]
    assert "huge (" in texts(batches)[0]


def test_what_the_quota_has_no_room_for_is_left_out(run: RunDir, approved: Approved) -> None:
    write(run, "a", b"12345")
    write(run, "b", b"1")
    batches = drain(relay_of(run, left=3), final=True)
    assert paths(batches) == ["b"]
    assert texts(batches)[0] == approved("texts")
    assert paths(drain(relay_of(run, stored=[StoredArtifact("a", 1, 4)], left=2), final=True)) == ["a", "b"]


def test_a_file_that_changes_or_vanishes_after_the_look_is_left_out(run: RunDir, approved: Approved) -> None:
    grown, gone = write(run, "grown"), write(run, "gone")
    write(run, "kept")
    blobs = BlobFolder(run.root.parent / "blobs")
    asked: list[int] = []

    def room() -> Room:
        """Is asked before the look, and between the look and the copies."""
        asked.append(1)
        if len(asked) == 2:
            with grown.open("ab") as file:
                file.write(b"more")
            gone.unlink()
        return Room((), None)

    relay = Relay(run, blobs, listed=(), world_size=1, left=[Artifacts(run, blobs, room=room)])
    batches = drain(relay, final=True)
    assert paths(batches) == ["kept"]
    assert texts(batches)[0] == approved("texts")


def test_an_artifact_of_many_parts_is_copied_over_several_turns(run: RunDir) -> None:
    write(run, "large", bytes(70 << 20))
    relay = relay_of(run)
    assert relay.read(final=True) is None
    assert relay.copying
    (batch,) = drain(relay, final=True)
    assert [(item.path, item.size) for item in batch.artifacts] == [("large", 70 << 20)]
    modified_ns = (run.artifacts / "large").stat().st_mtime_ns
    assert batch.artifacts == [NewArtifact("large", 70 << 20, batch.artifacts[0].sha256, modified_ns=modified_ns)]


def test_a_disk_that_is_full_meanwhile_keeps_nothing_and_all_is_stored_once_it_has_room(
    run: RunDir, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(run, "large", bytes(3_000_000))
    write(run, "small", b"a")
    monkeypatch.setattr("worker.attempts.output.relay.COPY_LIMIT", 2_000_000)
    blobs = tmp_path / "blobs"
    blobs.mkdir()
    with mounted(blobs, kibibytes=4000):
        relay = relay_of(run)
        assert relay.read(final=True) is None and relay.copying
        (blobs / "filler").write_bytes(bytes(shutil.disk_usage(blobs).free))
        for _ in range(2):
            with pytest.raises(OSError, match="No space left"):
                relay.read(final=True)
            assert [*(blobs / "incoming").iterdir()] == []
        (blobs / "filler").unlink()
        batches = drain(relay, final=True)
        assert (sorted(paths(batches)), texts(batches)) == (["large", "small"], [])

"""Files that a script wrote become checkpoints once they are complete, and nothing else does."""

import errno
import os
from pathlib import Path
import time

import pytest

from store.blobs.folder import BlobFolder, DiskSpace
from store.output.checkpoints_facts import CAPTURED
from store.output.facts import Batch
from tests.approved import Approved
from tests.worker import eventfiles
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record
from worker.attempts.capture import capturing
from worker.attempts.files.matching import Search
from worker.attempts.output.relay import Relay
from worker.host.mask import Mask
from worker.host.workfolders import WorkRecord


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"look_s": 0.0})


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "run")
    run.create()
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=1))
    (run.work / "out").mkdir(parents=True)
    return run


def relay_of(run: RunDir, *patterns: str, known: tuple[str, ...] = (), limit: int = 1 << 30) -> Relay:
    blobs = BlobFolder(run.root.parent / "blobs")
    blobs.root.mkdir(exist_ok=True)
    return Relay(run, blobs, listed=(), captured=known, world_size=1, patterns=patterns, checkpoint_limit=limit)


def no_space(_: BlobFolder) -> DiskSpace:
    return DiskSpace(total=1 << 40, free=0)


def look(relay: Relay, *, final: bool = False, completed: bool = False) -> list[Batch]:
    """Reads and stores until there is nothing to do now."""
    found: list[Batch] = []
    while (batch := relay.read(final=final, completed=completed)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                pass
            found.append(batch)
    return found


def captured(batches: list[Batch]) -> list[tuple[str, int]]:
    assert all(new.source == CAPTURED for batch in batches for new in batch.checkpoints)
    return [(new.files[0].path, new.files[0].size) for batch in batches for new in batch.checkpoints]


def warnings(batches: list[Batch]) -> list[str]:
    return [event.data["text"] for batch in batches for event in batch.events]


def test_a_file_is_captured_when_two_looks_found_it_the_same(run: RunDir) -> None:
    file = run.work / "out" / "epoch=1.pt"
    relay = relay_of(run, "out/*.pt")
    file.write_bytes(b"half")
    assert look(relay) == []
    file.write_bytes(b"half and half")
    assert look(relay) == []
    batches = look(relay)
    assert captured(batches) == [("out/epoch=1.pt", 13)]
    (new,) = batches[0].checkpoints
    assert relay._blobs.path(new.files[0].sha256).read_bytes() == b"half and half"  # pyright: ignore[reportPrivateUsage]
    assert look(relay) == look(relay, final=True) == []


def test_a_file_that_is_open_for_writing_waits_for_its_writer_or_the_end(run: RunDir) -> None:
    relay = relay_of(run, "*.pt")
    with (run.work / "a.pt").open("wb", buffering=0) as writer:
        writer.write(b"part")
        assert captured(look(relay) + look(relay) + look(relay)) == []
    with (run.work / "a.pt").open("rb"):  # a reader does no harm
        assert captured(look(relay)) == [("a.pt", 4)]
    with (run.work / "b.pt").open("wb", buffering=0) as writer:
        writer.write(b"part")
        assert captured(look(relay, final=True)) == [("b.pt", 4)]


def test_a_file_that_is_replaced_is_captured_again_at_the_end_and_once_across_restarts(run: RunDir) -> None:
    file = run.artifacts / "last.pt"
    relay = relay_of(run, "last.pt")
    file.write_bytes(b"one")
    look(relay)
    first = look(relay)
    assert captured(first) == [("last.pt", 3)]
    file.write_bytes(b"three")
    assert captured(look(relay) + look(relay)) == []  # too soon
    relay = relay_of(run, "last.pt", known=(first[0].checkpoints[0].name,))
    assert captured(look(relay, final=True)) == [("last.pt", 5)]


def test_the_step_is_the_newest_that_was_reported(run: RunDir) -> None:
    eventfiles.write(run.artifacts / eventfiles.NAME, eventfiles.scalars("loss", {7: 0.5}))
    (run.artifacts / "a.pt").write_bytes(b"x")
    found = look(relay_of(run, "a.pt"), final=True)
    assert [new.manifest.step for batch in found for new in batch.checkpoints] == [7]


def test_what_came_with_the_code_and_what_is_no_plain_file_is_left_out(run: RunDir, approved: Approved) -> None:
    folder = run.work / "out"
    (folder / "old.pt").write_bytes(b"x")
    came_ns = (folder / "old.pt").stat().st_mtime_ns
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=came_ns))
    outside = run.root.parent / "outside.pt"
    outside.write_bytes(b"secret")
    (folder / "link.pt").symlink_to(outside)
    (folder / "folder.pt").symlink_to(run.root.parent)
    os.link(outside, folder / "second.pt")
    os.utime(outside, ns=(2**62, 2**62))
    os.mkfifo(folder / "pipe.pt")
    (folder / "empty.pt").touch()
    found = look(relay_of(run, "out/*.pt", "out/folder.pt/*"), final=True)
    assert captured(found) == []
    assert warnings(found) == [approved("warnings")]


def test_a_file_that_is_too_large_is_left_out_with_one_warning(run: RunDir) -> None:
    (run.artifacts / "big.pt").write_bytes(b"x" * 100)
    (run.artifacts / "small.pt").write_bytes(b"x")
    relay = relay_of(run, "*.pt", limit=99)
    found = look(relay, final=True)
    assert captured(found) == [("small.pt", 1)]
    assert "at most 99" in warnings(found)[0]
    assert look(relay, final=True) == []


def test_a_file_that_changes_while_it_is_copied_is_captured_as_it_is_later(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.attempts.output.relay.COPY_LIMIT", 1 << 20)
    file = run.artifacts / "a.pt"
    file.write_bytes(b"x" * (3 << 20))
    relay = relay_of(run, "a.pt")
    relay.read()
    assert relay.read() is None and relay.copying
    with file.open("ab") as writer:
        writer.write(b"more")
    assert captured(look(relay) + look(relay)) == []
    assert captured(look(relay)) == [("a.pt", (3 << 20) + 4)]


def test_a_full_disk_delays_it_and_loses_neither_the_file_nor_the_output(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    (run.artifacts / "a.pt").write_bytes(b"x")
    relay = relay_of(run, "a.pt")
    with monkeypatch.context() as patch:
        patch.setattr(BlobFolder, "disk_space", no_space)
        look(relay)
        run.log("rank-0", "stdout").write_text("goes on\n")
        found = look(relay)
        assert [line.lines for batch in found for line in batch.lines] == [["goes on"]]
        assert "retrying" in warnings(found)[-1]
        with pytest.raises(OSError) as caught:
            look(relay, final=True)
        assert caught.value.errno == errno.ENOSPC
    assert captured(look(relay, final=True)) == [("a.pt", 1)]


def test_in_the_end_the_newest_thousand_files_are_captured(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(capturing, "MOST_AT_END", 3)
    for number in range(5):
        (run.artifacts / f"{number}.pt").write_bytes(b"x")
        os.utime(run.artifacts / f"{number}.pt", ns=(0, 10 + number))
    found = look(relay_of(run, "*.pt"), final=True, completed=True)
    assert [path for path, _ in captured(found)] == ["2.pt", "3.pt", "4.pt"]
    assert warnings(found)[0] == approved("warnings")


def test_beyond_a_thousand_files_of_a_job_the_newest_is_captured_in_each_pause(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, approved: Approved
) -> None:
    monkeypatch.setattr(capturing, "MOST_AT_WILL", 3)
    now, came_ns = 1000.0, time.time_ns()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=came_ns))
    relay = relay_of(run, "*.pt", known=("captured-a-1-1", "captured-a-2-1"))

    def write(number: int) -> list[Batch]:
        (run.artifacts / f"{number}.pt").write_bytes(b"x")
        os.utime(run.artifacts / f"{number}.pt", ns=(0, 2**61 + number))
        return look(relay) + look(relay)

    assert captured(write(1)) == [("1.pt", 1)]  # the third one
    first = write(2)
    assert captured(first) == [("2.pt", 1)]
    assert warnings(first) == [approved("warnings")]
    assert captured(write(3) + write(4)) == []
    now += 31
    assert captured(look(relay)) == [("4.pt", 1)]
    assert [path for path, _ in captured(look(relay, final=True))] == ["3.pt"]  # nothing is lost in the end


@pytest.mark.parametrize(("age_s", "pause_s"), [(0, 30.0), (3600, 30.0), (86_400, 172.8), (10_000_000, 3600.0)])
def test_a_file_is_captured_again_after_a_pause_that_grows_with_the_age_of_the_job(
    run: RunDir, monkeypatch: pytest.MonkeyPatch, age_s: int, pause_s: float
) -> None:
    now = 1000.0
    monkeypatch.setattr(time, "monotonic", lambda: now)
    began = time.time_ns() - age_s * 10**9
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=began))
    relay, file = relay_of(run, "last.pt"), run.artifacts / "last.pt"
    file.write_bytes(b"one")
    assert captured(look(relay) + look(relay)) == [("last.pt", 3)]
    file.write_bytes(b"three")
    now += pause_s - 1
    assert captured(look(relay) + look(relay)) == []
    now += 2
    assert captured(look(relay)) == [("last.pt", 5)]


def test_a_file_with_a_secret_in_its_name_takes_no_more_memory_each_time_that_it_is_written(
    run: RunDir, approved: Approved
) -> None:
    known, told = set[str](), list[str]()
    mask = Mask(["a secret value"])
    found = capturing.Capturing(
        run, BlobFolder(run.root / "blobs"), ["*.pt"], known=known, limit=1, mask=mask, look_s=0
    )
    path = run.artifacts / "a secret value.pt"
    path.write_bytes(b"x")
    for _ in range(3):
        os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
        found.take(1, step=0, final=True, taken=(), warn=told.append)
    assert known == set()
    assert told == [approved("told")]


def test_patterns_match_within_names_and_across_folders(tmp_path: Path) -> None:
    for path in ("a.pt", "x/b.pt", "x/y/c.pt", "x/.hidden.pt", ".git/d.pt", "x/y/e.txt"):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(b"x")

    def found(*patterns: str) -> list[str]:
        return sorted("/".join(parts) for parts in Search(tmp_path).find((), patterns))

    assert found("*.pt") == ["a.pt"]
    assert found("**/*.pt") == ["a.pt", "x/b.pt", "x/y/c.pt"]
    assert found("x/*", "?.pt") == ["a.pt", "x/b.pt"]
    assert found("x/**/[ce].*", ".git/*") == [".git/d.pt", "x/y/c.pt", "x/y/e.txt"]
    assert found("./x//b.pt") == ["x/b.pt"]


def test_a_pattern_of_many_folders_ends(tmp_path: Path) -> None:
    tmp_path.joinpath(*(["a"] * 11)).mkdir(parents=True)
    assert Search(tmp_path).find((), ["/".join(["**", "a"] * 40)] * 2) == {}

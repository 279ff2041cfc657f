"""Captured files have the time of their saving, which orders them; and each is one checkpoint, whatever its names."""

import os
from pathlib import Path
import time

import pytest

from store.blobs.folder import BlobFolder
from store.output.facts import Batch, CapturedFile, NewCheckpoint
from tests.approved import Approved
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.host.recordfiles import write_record
from worker.attempts.capture import capturing
from worker.attempts.capture.captured import Candidate
from worker.attempts.output.relay import Relay
from worker.host.workfolders import WorkRecord


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"look_s": 0.0, "mask": None})


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    run = RunDir(tmp_path / "job" / "1")
    run.create()
    write_record(run.work_record, WorkRecord(attempt=1, claimed_at=1, came_ns=1))
    (run.work / "out").mkdir(parents=True)
    return run


@pytest.fixture
def out(run: RunDir) -> Path:
    return run.work / "out"


def relay_of(run: RunDir, *patterns: str) -> Relay:
    blobs = BlobFolder(run.root.parent.parent / "blobs")
    blobs.root.mkdir(exist_ok=True)
    return Relay(run, blobs, listed=(), world_size=1, patterns=patterns)


def look(relay: Relay, *, final: bool = False) -> list[NewCheckpoint]:
    return [new for batch in batches(relay, final=final) for new in batch.checkpoints]


def batches(relay: Relay, *, final: bool = False) -> list[Batch]:
    found: list[Batch] = []
    while (batch := relay.read(final=final, completed=final)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                found.append(batch)
    return found


def newest_last(found: list[NewCheckpoint]) -> list[str]:
    return [new.files[0].path for new in sorted(found, key=lambda new: new.saved_at)]


def write(path: Path, *, at: int, content: bytes = b"x") -> None:
    path.write_bytes(content)
    os.utime(path, ns=(at, at))


def test_numbered_files_that_were_saved_in_one_tick_are_in_the_order_of_their_numbers(run: RunDir, out: Path) -> None:
    for number in range(1, 12):
        write(out / f"epoch_{number}.pt", at=1_000_000)
    found = look(relay_of(run, "out/*.pt"), final=True)
    assert newest_last(found) == [f"out/epoch_{number}.pt" for number in range(1, 12)]
    assert len({new.saved_at for new in found}) == 11
    assert min(new.saved_at for new in found) == 1_000_000


def test_a_newer_file_is_newer_than_a_best_one(run: RunDir, out: Path) -> None:
    write(out / "model_best.pth.tar", at=1_000_000)
    write(out / "checkpoint.pth.tar", at=2_000_000)
    assert newest_last(look(relay_of(run, "out/*.tar"), final=True)) == [
        *("out/model_best.pth.tar", "out/checkpoint.pth.tar")
    ]


def test_a_time_that_has_not_come_yet_counts_as_that_of_the_look(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "touched.pt", at=2**62)
    first = look(relay) + look(relay)
    assert first[0].saved_at <= time.time_ns()
    write(out / "later.pt", at=time.time_ns())
    assert newest_last(first + look(relay) + look(relay)) == ["out/touched.pt", "out/later.pt"]


def test_a_file_with_two_names_in_the_folder_is_captured_once_with_both(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "last.pt", at=1_000_000)
    os.link(out / "last.pt", out / "epoch-3.pt")
    found = look(relay) + look(relay)
    (file,) = [file for new in found for file in new.files]
    assert isinstance(file, CapturedFile)
    assert (file.path, file.links, file.size) == ("out/epoch-3.pt", ["out/last.pt"], 1)
    assert look(relay, final=True) == []


def test_of_a_file_with_very_many_names_few_are_listed(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "last.pt", at=1_000_000)
    for number in range(100):
        os.link(out / "last.pt", out / f"{number:03}.pt")
    (file,) = [file for new in look(relay) + look(relay) for file in new.files]
    assert isinstance(file, CapturedFile)
    assert (file.path, file.links) == ("out/000.pt", [f"out/{number:03}.pt" for number in range(1, 17)])


def test_a_look_at_very_many_files_of_two_names_each_takes_steps_by_their_number(
    run: RunDir, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared, inode = list[object](), capturing._inode

    def noted(item: Candidate) -> tuple[int, int]:
        compared.append(item)
        return inode(item)

    monkeypatch.setattr(capturing, "_inode", noted)
    for number in range(200):
        write(out / f"{number}.pt", at=1_000_000 + number)
        os.link(out / f"{number}.pt", out / f"best-{number}.pt")
    look(relay_of(run, "out/*.pt"))
    assert len(compared) < 10 * 400


def test_what_is_left_out_for_good_is_remembered_within_a_limit(
    run: RunDir, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "_MOST_REFUSED", 5)
    known = set[str]()
    blobs = BlobFolder(run.root.parent.parent / "blobs")
    found = capturing.Capturing(run, blobs, ["out/*.pt"], known=known, limit=0, look_s=0.0)
    for number in range(20):
        write(out / "a.pt", at=1_000_000 + number)
        for _ in range(3):
            assert found.take(1, step=0, final=False, taken=(), warn=lambda _: None) == []
    assert len(known) == 5


def test_the_next_file_that_takes_a_name_is_another_checkpoint_and_the_first_stays_one(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "epoch-3.pt", at=1_000_000)
    os.link(out / "epoch-3.pt", out / "last.pt")
    assert len(look(relay) + look(relay)) == 1
    (out / "last.pt").unlink()
    write(out / "epoch-4.pt", at=2_000_000)
    os.link(out / "epoch-4.pt", out / "last.pt")
    again = look(relay) + look(relay) + look(relay, final=True)
    assert [new.files[0].path for new in again] == ["out/epoch-4.pt"]


def test_a_file_that_gets_a_second_name_after_it_was_captured_is_not_captured_again(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "last.pt", at=1_000_000)
    assert len(look(relay) + look(relay)) == 1
    os.link(out / "last.pt", out / "a-best.pt")
    assert look(relay) + look(relay) + look(relay, final=True) == []


def test_a_file_with_a_name_outside_is_never_captured(run: RunDir, out: Path, approved: Approved) -> None:
    outside = run.root.parent.parent / "outside.pt"
    write(outside, at=1_000_000)
    os.link(outside, out / "a.pt")
    os.link(outside, out / "b.pt")
    relay = relay_of(run, "out/*.pt")
    found = batches(relay) + batches(relay) + batches(relay, final=True)
    assert [new for batch in found for new in batch.checkpoints] == []
    assert [event.data["text"] for batch in found for event in batch.events] == [approved("warnings")]


def test_a_file_that_gets_a_name_outside_before_it_is_copied_is_not_captured(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    write(out / "a.pt", at=1_000_000)
    look(relay)
    os.link(out / "a.pt", run.root.parent.parent / "outside.pt")
    assert look(relay) + look(relay, final=True) == []


def test_two_patterns_for_one_file_capture_it_once(run: RunDir, out: Path) -> None:
    write(out / "a.pt", at=1_000_000)
    assert len(look(relay_of(run, "out/*.pt", "**/a.pt", "./out/a.pt"), final=True)) == 1


def test_the_path_of_a_file_is_listed_as_it_is(run: RunDir, out: Path) -> None:
    deep = out / "a b" / "c" / "d" / "e" / "f"
    deep.mkdir(parents=True)
    write(deep / "epoch=1-\u03bb=2.ckpt", at=1_000_000)
    write(run.artifacts / "last.ckpt", at=2_000_000)
    write(out / "x\n.ckpt", at=3_000_000)
    files = [new.files[0].to_dict() for new in look(relay_of(run, "**/*.ckpt"), final=True)]
    digest = files[0]["sha256"]
    of = {"size": 1, "sha256": digest}
    assert files == [
        {"path": "out/a b/c/d/e/f/epoch=1-\u03bb=2.ckpt", **of, "modified_ns": 1_000_000},
        {"path": "last.ckpt", **of, "root": "artifacts", "modified_ns": 2_000_000},
        {"path": "out/x_.ckpt", **of},
    ]


@pytest.mark.parametrize("kind", ["a pipe", "a link", "a folder", "nothing"])
def test_what_takes_the_place_of_a_checkpoint_is_none(run: RunDir, out: Path, kind: str) -> None:
    relay, path = relay_of(run, "out/*.pt"), out / "a.pt"
    write(path, at=1_000_000)
    look(relay)
    path.unlink()
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a link":
        path.symlink_to("/etc/hostname")
    elif kind == "a folder":
        path.mkdir()
    assert look(relay) + look(relay) + look(relay, final=True) == []


def test_a_file_that_shrinks_while_it_is_read_is_captured_as_it_is_later(
    run: RunDir, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("worker.attempts.output.relay.COPY_LIMIT", 1 << 20)
    relay = relay_of(run, "out/*.pt")
    write(out / "a.pt", at=1_000_000, content=b"x" * (3 << 20))
    relay.read()
    assert relay.read() is None and relay.copying
    os.truncate(out / "a.pt", 10)
    os.utime(out / "a.pt", ns=(1_000_000, 1_000_000))
    assert [new.files[0].size for new in look(relay) + look(relay) + look(relay)] == [10]


def test_a_file_that_is_rewritten_all_the_time_waits_for_the_end(run: RunDir, out: Path) -> None:
    relay = relay_of(run, "out/*.pt")
    found: list[NewCheckpoint] = []
    for number in range(1, 6):
        write(out / "a.pt", at=1_000_000 * number)
        found += look(relay)
    assert found == []
    assert [new.saved_at for new in look(relay, final=True)] == [5_000_000]

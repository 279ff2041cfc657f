"""A folder that a script wrote becomes one checkpoint when all of its files are whole."""

import io
import os
from pathlib import Path
import zipfile

import pytest

from store.blobs.folder import BlobFolder
from store.output.checkpoints_facts import CAPTURED
from store.output.facts import Batch, NewCheckpoint
from tests.worker.attempts.output.relays import storing
from torchyard.contract.attempts.rundir import RunDir
from torchyard.contract.files import paths
from torchyard.host.recordfiles import write_record
from worker.attempts.capture import capturing, folders
from worker.attempts.capture.folders import FolderMatch
from worker.attempts.files.matching import Search
from worker.attempts.output.relay import Relay
from worker.host.mask import Mask
from worker.host.workfolders import WorkRecord

SAFETENSORS = b"\2\0\0\0\0\0\0\0{}"
MODEL = {"config.json": b"{}", "model.safetensors": SAFETENSORS}
LATER = 1 << 33
"""Seconds since the epoch: after the start of each attempt."""
DCP = {"__0_0.distcp": b"rank 0", "__1_0.distcp": b"rank 1", ".metadata": b"where"}


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


def relay_of(run: RunDir, *patterns: str, mask: Mask | None = None, limit: int = 1 << 30) -> Relay:
    blobs = BlobFolder(run.root.parent.parent / "blobs")
    blobs.root.mkdir(exist_ok=True)
    return Relay(run, blobs, listed=(), world_size=1, patterns=patterns, mask=mask or Mask(), checkpoint_limit=limit)


def look(relay: Relay, *, final: bool = False, completed: bool = False) -> list[Batch]:
    found: list[Batch] = []
    while (batch := relay.read(final=final, completed=completed)) is not None or relay.copying:
        if batch is not None:
            with storing(relay, batch):
                found.append(batch)
    return found


def saved(batches: list[Batch]) -> list[NewCheckpoint]:
    return [new for batch in batches for new in batch.checkpoints]


def texts(batches: list[Batch]) -> list[str]:
    return [event.data["text"] for batch in batches for event in batch.events]


def contents(run: RunDir, new: NewCheckpoint) -> dict[str, bytes]:
    blobs = BlobFolder(run.root.parent.parent / "blobs")
    return {file.path: blobs.path(file.sha256).read_bytes() for file in new.files}


def write(folder: Path, files: dict[str, bytes]) -> dict[str, bytes]:
    """Writes files in this order. Returns them by their paths below the working folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    return {f"out/{folder.name}/{name}": content for name, content in files.items()}


def zipped(content: bytes) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("data.pkl", content)
    return file.getvalue()


@pytest.mark.parametrize("pattern", ["out/*", "out/*/*", "out/step=1", "**/*"])
def test_a_folder_becomes_one_checkpoint_with_the_names_of_its_files(run: RunDir, pattern: str) -> None:
    relay = relay_of(run, pattern)
    expected = write(run.work / "out/step=1", {**DCP, "deep/er/ü.json": b"{}"})
    os.utime(run.work / "out/step=1/.metadata", ns=(2**61, 2**61))
    assert look(relay) == []
    (new,) = saved(look(relay))
    assert contents(run, new) == expected
    assert [file.path for file in new.files] == sorted(expected)
    assert (new.source, new.damaged) == (CAPTURED, False)
    assert look(relay) == look(relay, final=True) == []


def test_a_folder_without_its_last_file_waits_until_that_is_written(run: RunDir) -> None:
    relay = relay_of(run, "out/*")
    write(run.work / "out/step-1", {name: DCP[name] for name in ("__0_0.distcp", "__1_0.distcp")})
    assert saved(look(relay) + look(relay) + look(relay)) == []
    write(run.work / "out/step-1", {".metadata": b"where"})
    (new,) = saved(look(relay) + look(relay))
    assert contents(run, new) == {f"out/step-1/{name}": content for name, content in DCP.items()}
    assert not new.damaged


def test_a_folder_that_nothing_seals_rests_over_three_looks(run: RunDir) -> None:
    relay = relay_of(run, "out/mine")
    write(run.work / "out/mine", {"a": b"1"})
    assert saved(look(relay) + look(relay)) == []
    write(run.work / "out/mine", {"b": b"2"})
    assert saved(look(relay) + look(relay)) == []
    (new,) = saved(look(relay))
    assert contents(run, new) == {"out/mine/a": b"1", "out/mine/b": b"2"}


def test_a_folder_of_which_a_file_is_open_for_writing_waits(run: RunDir) -> None:
    relay = relay_of(run, "out/*")
    write(run.work / "out/step-1", DCP)
    os.utime(run.work / "out/step-1/.metadata", ns=(2**61, 2**61))
    with (run.work / "out/step-1/__1_0.distcp").open("rb+"):
        assert saved(look(relay) + look(relay) + look(relay)) == []
    assert len(saved(look(relay))) == 1


@pytest.mark.parametrize("final", [False, True])
def test_a_folder_with_a_torn_file_is_damaged_in_the_end_and_nothing_before(run: RunDir, final: bool) -> None:
    relay = relay_of(run, "out/*")
    files = {"model.safetensors": zipped(b"x"), "optimizer.pt": zipped(b"o" * 500)[:-10], "trainer_state.json": b"{}"}
    expected = write(run.work / "out/checkpoint-1", {**files, "model.safetensors": SAFETENSORS})
    if not final:
        assert saved(look(relay) + look(relay) + look(relay) + look(relay)) == []
        return
    (new,) = saved(look(relay, final=True, completed=True))
    assert (new.damaged, contents(run, new)) == (True, expected)


@pytest.mark.parametrize(
    ("files", "completed", "damaged"),
    [
        (DCP, False, False),
        ({name: DCP[name] for name in ("__0_0.distcp", "__1_0.distcp")}, True, True),
        ({"__0_0.distcp": b"", ".metadata": b"1"}, True, True),
        ({"config.json": b"{}", "pytorch_model.bin": zipped(b"1")}, True, False),
        ({"config.json": b"{}", "pytorch_model.bin": zipped(b"1")}, False, True),
    ],
)
def test_a_folder_that_was_there_at_the_end_is_whole_if_that_can_be_told(
    run: RunDir, files: dict[str, bytes], completed: bool, damaged: bool
) -> None:
    write(run.work / "out/step-1", files)
    if ".metadata" in files:
        os.utime(run.work / "out/step-1/.metadata", ns=(2**61, 2**61))
    (new,) = saved(look(relay_of(run, "out/*"), final=True, completed=completed))
    assert new.damaged is damaged


@pytest.mark.parametrize(
    ("newest", "whole"),
    [
        ({**MODEL, "optimizer.pt": zipped(b"2")}, 3),
        ({**MODEL}, 2),
        ({**MODEL, "optimizer.pt": zipped(b"2")[:-1]}, 2),
        ({**MODEL, "optimizer.pt": b"its bytes do not tell"}, 2),
        ({**MODEL, "optimizer.pt": zipped(b"2"), "more.pt": zipped(b"3")}, 1),
    ],
    ids=["all", "a file is missing", "torn", "not told", "others lack a file"],
)
def test_a_folder_that_was_just_written_is_whole_as_those_beside_it_are(
    run: RunDir, newest: dict[str, bytes], whole: int
) -> None:
    files = {**MODEL, "optimizer.pt": b"its bytes do not tell"}
    for number, folder in enumerate((files, files, newest)):
        write(run.work / "out" / f"step-{number}", folder)
        for place, name in enumerate(folder):
            os.utime(run.work / "out" / f"step-{number}" / name, (LATER + 1000 * number + place,) * 2)
    stored = saved(look(relay_of(run, "out/*"), final=True))
    assert [not new.damaged for new in stored].count(True) == whole
    assert stored[-1].damaged == (whole == 2)


def test_what_an_attempt_before_left_says_nothing_of_a_folder(run: RunDir) -> None:
    files = {**MODEL, "optimizer.pt": zipped(b"2")}
    for number, time_s in enumerate((1000, LATER)):
        write(run.work / "out" / f"step-{number}", files)
        for name in files:
            os.utime(run.work / "out" / f"step-{number}" / name, (time_s, time_s))
    run.brought.write_text("{}")  # when the attempt was prepared
    assert [new.damaged for new in saved(look(relay_of(run, "out/*"), final=True))] == [True, True]


def test_a_folder_that_changes_while_it_is_copied_is_not_stored_as_it_never_was(run: RunDir) -> None:
    relay = relay_of(run, "out/*")
    folder = run.work / "out/step-1"
    files = {f"__{number:02}_0.distcp": b"x" for number in range(100)}
    write(folder, {**files, ".metadata": b"1"})
    look(relay)
    first = relay.read(final=False)
    assert first is None and relay.copying
    (folder / "__00_0.distcp").write_bytes(b"y")  # it was copied already
    found: list[Batch] = []
    for _ in range(40):
        found += look(relay)
        if saved(found):
            break
        (folder / ".metadata").write_bytes(b"2")
        os.utime(folder / ".metadata", ns=(2**61, 2**61))
    (new,) = saved(found)
    assert contents(run, new)["out/step-1/__00_0.distcp"] == b"y"
    assert contents(run, new)["out/step-1/.metadata"] == b"2"


def test_a_folder_is_captured_again_when_it_has_changed(run: RunDir) -> None:
    relay = relay_of(run, "out/last")
    write(run.work / "out/last", {"a": b"1", "b": b"2"})
    (first,) = saved(look(relay, final=True, completed=True))
    (run.work / "out/last/b").unlink()
    write(run.work / "out/last", {"a": b"3"})
    (second,) = saved(look(relay, final=True, completed=True))
    assert contents(run, second) == {"out/last/a": b"3"}
    assert first.name.split("-")[1] == second.name.split("-")[1]
    assert first.name != second.name


def test_folders_have_the_order_of_their_saving(run: RunDir) -> None:
    for step in (9, 10, 11):
        write(run.work / f"out/checkpoint-{step}", {"trainer_state.json": b"{}"})
        os.utime(run.work / f"out/checkpoint-{step}/trainer_state.json", ns=(10**18, 10**18))
    found = saved(look(relay_of(run, "out/*"), final=True, completed=True))
    assert [new.files[0].path.split("/")[1] for new in sorted(found, key=lambda new: new.saved_at)] == [
        *("checkpoint-9", "checkpoint-10", "checkpoint-11")
    ]


def test_a_folder_that_cannot_be_stored_is_told_once(run: RunDir) -> None:
    relay = relay_of(run, "out/*", limit=100)
    write(run.work / "out/checkpoint-1", {"trainer_state.json": b"x" * 101})
    write(run.work / "out/checkpoint-2", {"trainer_state.json": b"x", "a\\b": b"x"})
    write(run.work / "out/checkpoint-3", {"trainer_state.json": b"x", "\x1b[2J": b"x"})
    write(run.work / "out/checkpoint-4", {"trainer_state.json": b"x"})
    (run.work / os.fsdecode(b"out/checkpoint-4/\xff")).write_bytes(b"x")
    write(run.work / "out/checkpoint-5", {"trainer_state.json": b"x", "/".join([c * 200 for c in "abcde"]): b"x"})
    write(run.work / "out/checkpoint-6", {"trainer_state.json": b"x"})
    outside = run.root.parent.parent / "outside"
    outside.write_bytes(b"secret")
    os.link(outside, run.work / "out/checkpoint-6/linked")
    found = look(relay, final=True, completed=True)
    assert saved(found) == []
    said = texts(found)
    assert len(said) == 6
    assert all("was not stored as a checkpoint" in text and "\x1b" not in text for text in said)
    assert look(relay, final=True) == []


def test_a_hard_link_within_the_jobs_folder_does_no_harm(run: RunDir) -> None:
    expected = write(run.work / "out/checkpoint-1", {"trainer_state.json": b"{}", "model": b"m"})
    os.link(run.work / "out/checkpoint-1/model", run.work / "out/checkpoint-1/same")
    (new,) = saved(look(relay_of(run, "out/*"), final=True, completed=True))
    assert contents(run, new) == {**expected, "out/checkpoint-1/same": b"m"}


def test_what_is_no_file_is_left_out_and_told(run: RunDir) -> None:
    folder = run.work / "out/checkpoint-1"
    expected = write(folder, {"trainer_state.json": b"{}"})
    (folder / "link").symlink_to("/etc/passwd")
    os.mkfifo(folder / "pipe")
    found = look(relay_of(run, "out/*"), final=True, completed=True)
    assert contents(run, saved(found)[0]) == expected
    assert texts(found) == ["out/checkpoint-1/link is a link or not a file: its checkpoint is stored without it"]


def test_a_folder_with_the_value_of_a_secret_in_a_name_is_left_out(run: RunDir) -> None:
    write(run.work / "out/checkpoint-1", {"trainer_state.json": b"{}", "hunter2hunter2": b""})
    found = look(relay_of(run, "out/*", mask=Mask(["hunter2hunter2"])), final=True, completed=True)
    assert saved(found) == []
    assert "hunter2" not in "".join(texts(found))


def test_too_many_files_are_told(run: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(paths, "MOST_FILES", 2)
    write(run.work / "out/checkpoint-1", {"trainer_state.json": b"{}", "a": b"", "b": b""})
    found = look(relay_of(run, "out/*"), final=True, completed=True)
    assert saved(found) == []
    assert texts(found) == [
        "out/checkpoint-1 was not stored as a checkpoint: it has 3 files: a checkpoint has at most 2"
    ]


def test_a_file_of_a_captured_folder_counts_as_captured(run: RunDir) -> None:
    write(run.work / "out/step-1", DCP)
    relay = relay_of(run, "out/*")
    [folder] = folders.find(Search(run.root.parent), ("work",), ["out/*"])
    assert isinstance(folder, FolderMatch)
    assert [relay.is_captured(file) for file in folder.files] == [False] * 3
    look(relay, final=True, completed=True)
    assert [relay.is_captured(file) for file in folder.files] == [True] * 3
    (run.work / "out/step-1/__0_0.distcp").write_bytes(b"changed since")
    [changed] = folders.find(Search(run.root.parent), ("work",), ["out/*"])
    assert isinstance(changed, FolderMatch)
    assert [relay.is_captured(file) for file in changed.files] == [True, False, True]


def test_a_folder_of_deepspeed_is_captured_once_though_latest_names_the_next(run: RunDir) -> None:
    relay = relay_of(run, "out/*")
    for step in (10, 20):
        write(run.work / f"out/global_step{step}", {"mp_rank_00_model_states.pt": zipped(b"m")})
        (run.work / "out/latest").write_text(f"global_step{step}")
        (new,) = saved([batch for _ in range(4) for batch in look(relay)])
        assert [file.path for file in new.files] == [f"out/global_step{step}/mp_rank_00_model_states.pt", "out/latest"]
    assert look(relay, final=True) == []


def test_a_folder_of_very_many_files_counts_as_several_checkpoints(
    run: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(capturing, "MOST_AT_WILL", 4)
    monkeypatch.setattr(capturing, "MOST_AT_END", 4)
    for number in range(4):
        write(run.work / f"out/checkpoint-{number}", {f"{name:03}": b"x" for name in range(40)})
        write(run.work / f"out/checkpoint-{number}", {"trainer_state.json": b"{}"})
    relay = relay_of(run, "out/*")
    found = look(relay) + look(relay) + look(relay)
    assert [new.files[0].path.split("/")[1][-1] for new in saved(found)] == ["0", "1", "3"]  # two, and the newest
    assert "4 files of config.checkpoints were stored" in "".join(texts(found))
    for number in range(4, 8):
        write(run.work / f"out/checkpoint-{number}", {f"{name:03}": b"x" for name in range(40)})
        write(run.work / f"out/checkpoint-{number}", {"trainer_state.json": b"{}"})
    last = saved(look(relay, final=True, completed=True))
    assert [new.files[0].path.split("/")[1] for new in last] == ["checkpoint-6", "checkpoint-7"]

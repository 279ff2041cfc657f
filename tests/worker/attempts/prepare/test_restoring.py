"""On another host, and where the folder is gone, an attempt finds the code and what was stored of earlier ones."""

from collections.abc import Generator
from dataclasses import replace
from io import BytesIO
import os
from pathlib import Path

import pytest

from store.blobs.folder import BlobFolder
from store.db.database import Database
from store.tables import Checkpoint
from tests.disks import mounted
from tests.worker.attempt import wait_for
from tests.worker.attempts.hosts import CODE, Hosts
from tests.worker.bundles.tars import read_tree
from torchyard.contract.states import EndReason, JobState
from worker.attempts.capture import capturing
from worker.attempts.prepare import restoring
from worker.attempts.prepare.restoring import Stored, StoredFile
from worker.host.untrusted import remove_inside

TIME = 1_700_000_000_123_456_789


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capturing, "LOOK_SHARE", 0)
    monkeypatch.setattr(capturing, "_AGAIN_S", 0.0)
    monkeypatch.setattr(capturing.Capturing.__init__, "__kwdefaults__", {"mask": None, "look_s": 0.0})


@pytest.fixture
def hosts(tmp_path: Path, database: Database) -> Generator[Hosts]:
    config = {"checkpoints": ["out/*.pt", "best.pt", "lib/*.py"]}
    made = Hosts.with_job(tmp_path, database, config=config, max_restarts=20)
    yield made
    made.close()
    for name in ("a", "b"):
        remove_inside(tmp_path / name, "unpacked")


def save(hosts: Hosts, path: str, content: bytes, *, at: int | None = None) -> None:
    """Writes a file into the working folder, at a time of its own, and waits until it is captured."""
    file = hosts.write(path, content)
    if at is not None:
        os.utime(file, ns=(at, at))
    time_ns = file.stat().st_mtime_ns
    wait_for(lambda: any(f"-{time_ns:x}-" in row["name"] for row in rows(hosts)), path)


def rows(hosts: Hosts) -> list[dict[str, str]]:
    return [
        {"name": row.name, "sha256": row.files[0]["sha256"]}
        for row in hosts.store.read(lambda session: session.query(Checkpoint).all())
    ]


def test_the_newest_version_of_each_file_is_put_back_with_its_time(hosts: Hosts) -> None:
    hosts.start("a")
    later = hosts.last.run.work_record.stat().st_mtime_ns + 10**12
    save(hosts, "out/a.pt", b"old", at=later)
    save(hosts, "out/a.pt", b"new", at=later + 1)
    save(hosts, "lib/a.py", b"a = 2", at=later + 2)
    (hosts.last.run.artifacts / "plots").mkdir()
    (hosts.last.run.artifacts / "plots" / "loss.png").write_bytes(b"plot")
    hosts.write("cache/big", b"kept by name")
    hosts.end()
    hosts.start("b")
    work = hosts.last.run.work
    changed = {"lib/a.py": (b"a = 2", False), "out/a.pt": (b"new", False), "cache/big": (b"kept by name", False)}
    assert read_tree(work) == {**CODE, **changed}
    assert (work / "out" / "a.pt").stat().st_mtime_ns == later + 1
    assert (hosts.last.run.artifacts / "plots" / "loss.png").read_bytes() == b"plot"
    (told,) = [text for text in hosts.messages() if text.startswith("restored")]
    assert told == "restored 2 checkpoints and 2 files (24 B) of attempt 1"
    before = len(rows(hosts))
    hosts.end()
    hosts.start("b")
    assert read_tree(hosts.last.run.work) == {**CODE, **changed}
    hosts.end(EndReason.COMPLETED)
    assert len(rows(hosts)) == before, "nothing is captured again"


def test_what_was_not_kept_is_said(hosts: Hosts) -> None:
    hosts.start("a")
    hosts.write("small", b"x")
    with hosts.write("cache/big", b"").open("r+b") as file:
        file.truncate(65 << 20)
    hosts.end()
    hosts.start("b")
    assert read_tree(hosts.last.run.work) == {**CODE, "small": (b"x", False)}
    told = "restored 1 file (1 B) of attempt 1; not captured: cache/ (1 file, 65.0 MiB)"
    assert told in hosts.messages()


@pytest.mark.thorough
def test_a_host_that_had_the_job_before_gets_what_the_last_one_stored(hosts: Hosts) -> None:
    hosts.start("a")
    later = hosts.last.run.work_record.stat().st_mtime_ns + 10**12
    save(hosts, "out/a.pt", b"1", at=later)
    hosts.end()
    hosts.start("b")
    save(hosts, "out/a.pt", b"22", at=later + 10)
    hosts.end()
    hosts.start("a")
    assert (hosts.last.run.work / "out" / "a.pt").read_bytes() == b"22"
    assert "restored 1 checkpoint (2 B) of attempt 2" in hosts.messages()


def test_a_damaged_version_gives_way_to_the_one_before(hosts: Hosts) -> None:
    hosts.start("a")
    later = hosts.last.run.work_record.stat().st_mtime_ns + 10**12
    save(hosts, "best.pt", b"whole", at=later)
    save(hosts, "best.pt", b"lost", at=later + 1)
    lost = hosts.last.blobs.path(rows(hosts)[-1]["sha256"])
    lost.chmod(0o600)
    lost.write_bytes(b"rot")
    hosts.end()
    hosts.start("b")
    assert (hosts.last.run.work / "best.pt").read_bytes() == b"whole"
    assert (hosts.last.run.work / "best.pt").stat().st_mtime_ns == later


def test_a_job_waits_while_its_checkpoints_do_not_fit(hosts: Hosts, tmp_path: Path) -> None:
    hosts.start("a")
    save(hosts, "out/a.pt", bytes(3 << 20))
    hosts.end()
    with mounted(tmp_path / "b" / "runs", kibibytes=8192):
        ballast = tmp_path / "b" / "runs" / "ballast"
        ballast.write_bytes(bytes(3 << 20))
        hosts.claim("b").start_runner()
        wait_for(
            lambda: any("the checkpoints of the job take 3.0 MiB" in text for text in hosts.messages()), "the reason"
        )
        assert hosts.store.job(hosts.job_id).state == JobState.STARTING
        ballast.unlink()
        wait_for(lambda: hosts.last.key in hosts.last.engine.attempts, "the start")
        assert (hosts.last.run.work / "out" / "a.pt").stat().st_size == 3 << 20
        hosts.end()
        hosts.last.detach()


def _stored(path: str, content: bytes, blobs: BlobFolder, *, is_checkpoint: bool = True) -> Stored:
    blob = blobs.add(BytesIO(content))
    return Stored(
        root="work",
        path=path,
        files=[StoredFile(path, blob.sha256, blob.size, TIME)],
        order=(1, 1, TIME, path),
        is_checkpoint=is_checkpoint,
    )


def test_what_has_no_place_is_said(tmp_path: Path) -> None:
    blobs, folder = BlobFolder(tmp_path / "blobs"), tmp_path / "work"
    blobs.root.mkdir()
    (folder / "a" / "b").mkdir(parents=True)
    (folder / "file").touch()
    files = [_stored(path, b"x", blobs) for path in ("a", "file/x", "a/c", "\udcff.pt")]
    restored = restoring.restore([[each] for each in files], folders={"work": folder}, blobs=blobs)
    assert restored.message(of="attempt 3") == ("restored 2 checkpoints (2 B) of attempt 3; not put back: a, file/x")
    assert "\udcff.pt" in {path.name for path in folder.iterdir()}


def test_files_that_do_not_fit_are_said_and_checkpoints_come_first(tmp_path: Path) -> None:
    blobs, folder = BlobFolder(tmp_path / "blobs"), tmp_path / "work"
    blobs.root.mkdir()
    checkpoint, file = _stored("c.pt", b"c", blobs), _stored("f.bin", bytes(1 << 20), blobs, is_checkpoint=False)
    with mounted(folder, kibibytes=2048):
        restored = restoring.restore([[checkpoint], [file]], folders={"work": folder}, blobs=blobs)
        assert restored.message(of="attempt 1") == (
            "restored 1 checkpoint (1 B) of attempt 1; not put back: f.bin (1.0 MiB: the disk has no room)"
        )


def test_the_other_names_of_a_file_are_links_to_it(tmp_path: Path) -> None:
    blobs, folder = BlobFolder(tmp_path / "blobs"), tmp_path / "work"
    blobs.root.mkdir()
    first = _stored("out/1.pt", bytes(3 << 20), blobs)
    names = [replace(first, path=path, files=[replace(first.files[0], path=path)]) for path in ("best.pt", "a/last.pt")]
    versions = [[first], *([each] for each in names)]
    assert restoring.needed_for(versions) == 3 << 20
    with mounted(folder, kibibytes=8192):
        restored = restoring.restore(versions, folders={"work": folder}, blobs=blobs)
        assert (restored.checkpoints, restored.left_out) == (3, [])
        found = [(folder / path).stat() for path in ("out/1.pt", "best.pt", "a/last.pt")]
        assert [(each.st_ino, each.st_nlink, each.st_mtime_ns) for each in found] == [(found[0].st_ino, 3, TIME)] * 3
        assert sorted(path.name for path in folder.iterdir()) == ["a", "best.pt", "out"]


def test_a_name_is_no_link_to_what_has_taken_the_place_of_its_file(tmp_path: Path) -> None:
    blobs, folder = BlobFolder(tmp_path / "blobs"), tmp_path / "work"
    blobs.root.mkdir()
    folder.mkdir()
    first = _stored("out/a.pt", b"file", blobs)
    name = replace(first, path="best.pt", files=[replace(first.files[0], path="best.pt")])
    files = [_stored(f"out/{each}.pt", b"folder", blobs).files[0] for each in "ab"]
    whole = replace(_stored("out", b"", blobs), files=files)
    restoring.restore([[first], [whole], [name]], folders={"work": folder}, blobs=blobs)
    found = read_tree(folder)
    assert found == {"out/a.pt": (b"folder", False), "out/b.pt": (b"folder", False), "best.pt": (b"file", False)}


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a//b", "a/../../x", "a/\0", ""])
def test_no_path_leads_out_of_the_folder(path: str) -> None:
    assert not restoring.is_path(path)


def test_a_folder_that_is_one_checkpoint_is_put_back_whole_or_not(tmp_path: Path) -> None:
    blobs, folder = BlobFolder(tmp_path / "blobs"), tmp_path / "work"
    blobs.root.mkdir()
    folder.mkdir()
    older, newer = (
        replace(_stored("step", b"", blobs), files=[file for text in texts for file in _stored(*text, blobs).files])
        for texts in ([("step/a", b"1"), ("step/b", b"1")], [("step/a", b"2"), ("step/b", b"22")])
    )
    lost = blobs.path(newer.files[1].sha256)
    lost.chmod(0o600)
    lost.unlink()
    restored = restoring.restore([[newer, older]], folders={"work": folder}, blobs=blobs)
    assert (restored.checkpoints, restored.size) == (1, 2)
    assert read_tree(folder) == {"step/a": (b"1", False), "step/b": (b"1", False)}

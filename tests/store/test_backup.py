"""Backups of a store in use, and their restoration."""

from collections.abc import Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
import hashlib
from io import BytesIO
import json
import os
from pathlib import Path
import shutil
import signal
import stat
import subprocess
from tempfile import TemporaryDirectory
import threading

import pytest

from store import housekeeping as cleanup
from store.attempts import lease as leases
from store.backup import dump
from store.backup.contents import Folder, read_manifest
from store.backup.make import make
from store.backup.restore import check, restore
from store.blobs import puts
from store.blobs.folder import BlobFolder
from store.bundles import bundles
from store.db.database import Database
from store.jobs import deletion
from store.models import models
from store.models.facts import ModelVersionFacts, NewVersion
from store.notifications import deliver, fan_out, targets
from store.notifications.facts import NewTarget
from store.output import artifacts, media
from store.output.facts import DEFAULTS, MetricPoint, NewArtifact, NewCheckpoint, NewLines, NewMedia, PictureFacts
from store.secret_keys import SecretKeys
from store.service_identity import ServiceIdentity
from store.team.callers import SERVICE, Caller
from tests import forked, forks
from tests.api.service import ApiFixture
from tests.approved import Approved
from tests.databases import (
    Databases,
    PostgreSQLDatabases,
    SQLiteDatabases,
    quick_on_postgresql,
    quick_on_sqlite,
)
from tests.e2e.service import until
from tests.sessions import write
from tests.store.fixture import StoreFixture, store_on
from torchyard.contract.attempts.records import Manifest, ManifestFile
from torchyard.contract.errors import ConfigError, Conflict, NotFound, StaleClaim, Unavailable
from torchyard.contract.notifications.kinds import EventKind
from torchyard.contract.states import EndReason, JobState
from torchyard.contract.team.roles import Role

STATE = os.urandom(300_000)

forks.preload("store.backup.make", "store.backup.restore", "torchyard.cli")


@pytest.fixture(autouse=True)
def clients(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Puts the server's pg_dump and pg_restore first in PATH."""
    databases = request.getfixturevalue("databases") if "databases" in request.fixturenames else None
    if isinstance(databases, PostgreSQLDatabases):
        monkeypatch.setenv("PATH", f"{databases.binaries}:{os.environ['PATH']}")


@dataclass
class Store:
    """A database with its blobs, and a folder for backups."""

    url: str
    db: StoreFixture
    blobs: BlobFolder
    folder: Path

    @property
    def target(self) -> Path:
        return self.folder / "backup"

    @property
    def away(self) -> BlobFolder:
        """The restored blobs, of a data directory that does not exist yet."""
        return BlobFolder(self.folder / "restored" / "blobs")


@pytest.fixture
def store(database_url: str, db: StoreFixture, blobs: BlobFolder, tmp_path: Path) -> Store:
    return Store(database_url, db, blobs, tmp_path)


def saved(blobs: BlobFolder, content: bytes, *, step: int = 1) -> NewCheckpoint:
    blob = blobs.add(BytesIO(content))
    files = [ManifestFile(path="state.pt", size=blob.size, sha256=blob.sha256)]
    return NewCheckpoint(f"step-{step}", Manifest(step=step, files=files), files)


def trained(db: StoreFixture, blobs: BlobFolder, *contents: bytes) -> str:
    """Returns an ended job with one checkpoint for each content."""
    claim = db.running(db.submit(), db.worker())
    points, lines = [MetricPoint("train/loss", 1, float("nan"), 1)], [NewLines(0, "stdout", ["hello \N{SNOWMAN}"])]
    digests = [hashlib.sha256(content).hexdigest() for content in contents]
    while True:
        put = db.read(lambda session: puts.begin(session, digests))
        new = [saved(blobs, content, step=step) for step, content in enumerate(contents, start=1)]
        with suppress(Conflict):  # the same bytes were removed meanwhile
            db.record(claim, seq=0, put=put, points=points, lines=lines, checkpoints=new)
            break
    db.end(claim, EndReason.COMPLETED)
    return claim.job_id


def restored(url: str, source: Path, blobs: BlobFolder, *, skip_damaged: bool = False) -> list[str]:
    return restore(url, blobs.root.parent, blobs, source, skip_damaged=skip_damaged)[1]


def blobs_listed(db: StoreFixture) -> set[str]:
    return {file["sha256"] for row in db.everything()["checkpoints"] for file in row["files"]}


def keep_model(store: Store, content: bytes) -> ModelVersionFacts:
    """Keeps a checkpoint as a model of ada's, and deletes its job."""
    job_id = trained(store.db, store.blobs, content)
    keeper = store_on(store.db.database, blobs=store.blobs)
    wanted = NewVersion("digits", job_id, "latest", None, "private", Caller("ada", Role.MEMBER))
    kept, _ = write(keeper, models.add_version, wanted)
    store.db.write(lambda session: deletion.delete_job(session, job_id))
    return kept


def assert_whole(blobs: BlobFolder, wanted: set[str], scratch: Path) -> None:
    for sha256 in wanted:
        assert blobs.copy_out(sha256, scratch / sha256), sha256
    shutil.rmtree(scratch)
    scratch.mkdir()


@contextmanager
def opened(url: str) -> Generator[StoreFixture]:
    with closing(Database(url)) as database:
        yield StoreFixture(database)


@quick_on_postgresql
def test_a_restored_backup_has_every_row_and_every_byte(store: Store, databases: Databases) -> None:
    db, blobs, away = store.db, store.blobs, store.away
    job_id = trained(db, blobs, STATE, b"later")
    trained(db, blobs, b"later", b"")
    blobs.add(BytesIO(b"nobody refers to this"))
    code = blobs.add(BytesIO(b"the code of a job"))
    db.write(lambda session: bundles.add(session, "ada", code.sha256, size=code.size, files=1))
    left = store.blobs.add(BytesIO(b"left"))
    new = NewArtifact("a", left.size, left.sha256)
    db.write(lambda session: artifacts.add(session, job_id, attempt=1, new=[new]))
    shown = store.blobs.add(BytesIO(b"a picture"))
    picture = PictureFacts("image", "image/png", shown.size, shown.sha256, 1, 1)
    item = NewMedia("a", "image", 1, 0, pictures=[picture])
    db.write(lambda session: media.add(session, job_id, attempt=1, new=[item], limits=DEFAULTS))
    kept = keep_model(store, b"of a job that is gone")
    manifest = make(store.url, blobs, store.target)
    assert (manifest.rows["jobs"], manifest.rows["checkpoints"], manifest.rows["bundles"]) == (2, 4, 1)
    total = len(STATE) + 5 + code.size + left.size + shown.size + kept.size
    assert (manifest.blobs, manifest.bytes, manifest.damaged) == (7, total, [])
    assert check(store.target) == (manifest, [])
    with databases.empty() as url:
        assert restored(url, store.target, away) == []
        with opened(url) as again:
            rows = again.everything()
            assert len(rows.pop("blob_holds")) == 1  # that of the backup, which runs out in minutes
            assert rows == {table: found for table, found in db.everything().items() if table != "blob_holds"}
            service = ApiFixture(away.root.parent, again.database, "unix:///nowhere/redis.sock")
            with service.client:
                answer = service.client.get(f"/v1/jobs/{job_id}/checkpoints/step-1/download")
                service.queue.close()
            assert answer.content == STATE
    assert len([*away.root.glob("??/*")]) == 7
    assert away.path(shown.sha256).read_bytes() == b"a picture"
    assert away.path(code.sha256).read_bytes() == b"the code of a job"
    assert away.path(kept.main_file["sha256"]).read_bytes() == b"of a job that is gone"


@quick_on_sqlite
def test_a_restored_service_is_the_same_one(store: Store, databases: Databases) -> None:
    trained(store.db, store.blobs, STATE)
    service = ServiceIdentity(store.db.database, store.blobs).require()
    assert make(store.url, store.blobs, store.target).service == service
    with databases.empty() as url:
        restored(url, store.target, store.away)
        with opened(url) as again:
            assert ServiceIdentity(again.database, BlobFolder(store.away.root)).require() == service
            with pytest.raises(ConfigError, match=f"whose blobs are in .*:{store.away.root}"):
                ServiceIdentity(again.database, BlobFolder(store.folder / "third")).require()


@quick_on_sqlite
def test_only_its_owner_can_read_a_backup(
    database_url: str, db: StoreFixture, blobs: BlobFolder, tmp_path: Path
) -> None:
    trained(db, blobs, STATE)
    target = tmp_path / "here" / "backup"
    make(database_url, blobs, target)
    others = [path.name for path in (target, *target.rglob("*")) if stat.S_IMODE(path.stat().st_mode) & 0o077]
    assert others == []
    blob = next(target.glob("blobs/??/*"))
    assert blob.stat().st_nlink == 2, "on one file system it costs no space"


@pytest.mark.thorough
@quick_on_postgresql
def test_a_backup_beside_writes_and_deletions_has_every_listed_blob(
    database_url: str, db: StoreFixture, blobs: BlobFolder, databases: Databases, tmp_path: Path
) -> None:
    stop, collected = threading.Event(), list[int]()

    def churn(name: str) -> None:
        number = 0
        while not stop.is_set():
            number += 1
            job_id = trained(db, blobs, f"{name} {number}".encode(), b"shared")
            db.write(lambda session: deletion.delete_job(session, job_id))  # noqa: B023
            collected.append(cleanup.collect_garbage(store_on(db.database, blobs=blobs)))

    trained(db, blobs, STATE)
    (tmp_path / "scratch").mkdir()
    with ThreadPoolExecutor() as pool:
        others = [pool.submit(churn, name) for name in ("a", "b")]
        for number in range(2):
            before = len(collected)
            make(database_url, blobs, tmp_path / f"backup-{number}")
            until(lambda before=before: len(collected) > before, what="the others go on")
        stop.set()
        for other in others:
            other.result(60)
    assert any(collected)
    for number in range(2):
        away = BlobFolder(tmp_path / f"restored-{number}" / "blobs")
        with databases.empty() as url:
            assert restored(url, tmp_path / f"backup-{number}", away) == []
            with opened(url) as again:
                assert_whole(away, blobs_listed(again), tmp_path / "scratch")


@quick_on_sqlite
def test_no_blob_of_the_snapshot_is_removed_before_it_is_copied(
    database_url: str, db: StoreFixture, blobs: BlobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job_id = trained(db, blobs, STATE)
    take, collected = dump.dump, list[int]()

    def delete_at_once(url: str, path: Path) -> dump.Snapshot:
        found = take(url, path)
        db.write(lambda session: deletion.delete_job(session, job_id))
        collected.append(cleanup.collect_garbage(store_on(db.database, blobs=blobs)))
        return found

    monkeypatch.setattr(dump, "dump", delete_at_once)
    assert make(database_url, blobs, tmp_path / "backup").damaged == []
    assert collected == [0]
    assert check(tmp_path / "backup")[1] == []
    assert cleanup.collect_garbage(store_on(db.database, blobs=blobs)) == 1


@quick_on_sqlite
def test_a_restored_running_job_resumes_and_its_old_worker_cannot_write(store: Store, databases: Databases) -> None:
    db, blobs, away = store.db, store.blobs, store.away
    claim = db.running(db.submit(max_restarts=0), db.worker())
    db.record(claim, seq=0, checkpoints=[saved(blobs, STATE, step=7)])
    make(store.url, blobs, store.target)
    db.record(claim, seq=1, lines=[NewLines(0, "stdout", ["after the backup"])])
    with databases.empty() as url:
        restored(url, store.target, away)
        with opened(url) as again:
            assert again.job(claim.job_id).state == JobState.RUNNING
            with pytest.raises(StaleClaim):
                again.record(claim, seq=2)
            again.expire(claim)  # half a minute later
            assert again.read(leases.list_expired) == [claim]
            assert again.rescue(claim)
            job = again.job(claim.job_id)
            assert (job.state, job.restarts, job.reason_code) == (JobState.QUEUED, 0, "retrying")
            second = again.starting(claim.job_id, again.worker("box-b"))
            assert (second.number, again.attempt(second).start_step) == (2, 7)


def test_a_backup_or_restore_needs_an_empty_target(
    store: Store, databases: Databases, tmp_path: Path, approved: Approved
) -> None:
    blobs, away = store.blobs, store.away
    make(store.url, blobs, store.target)
    with pytest.raises(Conflict) as raised:
        make(store.url, blobs, store.target)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    with pytest.raises(Conflict, match=r"already|not empty"):
        restored(store.url, store.target, away)
    away.root.mkdir(parents=True)
    (away.root.parent / "token").touch()
    with databases.empty() as url:
        with pytest.raises(Conflict) as raised:
            restored(url, store.target, away)
        assert str(raised.value) == approved("not empty restore", tmp_path=tmp_path)
        with pytest.raises(Conflict, match="is not empty"):
            make(store.url, blobs, away.root.parent)
        dump.check_empty(url)


def test_remaining_sqlite_files_prevent_a_restore(sqlite: SQLiteDatabases, blobs: BlobFolder, tmp_path: Path) -> None:
    away = BlobFolder(tmp_path / "restored" / "blobs")
    with sqlite.migrated() as url, sqlite.empty() as target, opened(url) as db:
        trained(db, blobs, STATE)
        make(url, blobs, tmp_path / "backup")
        trained(db, blobs, b"later")  # while the database is open, this is in its -wal
        for suffix in ("-wal", "-shm"):
            left = Path(f"{target.removeprefix('sqlite:///')}{suffix}")
            shutil.copy(f"{url.removeprefix('sqlite:///')}{suffix}", left)
            with pytest.raises(Conflict, match=f"remaining files of one: .*{suffix}"):
                restored(target, tmp_path / "backup", away)
            assert not away.root.exists()
            left.unlink()
        restored(target, tmp_path / "backup", away)


def test_a_restore_that_differs_from_the_manifest_is_undone(
    store: Store, databases: Databases, approved: Approved
) -> None:
    trained(store.db, store.blobs, STATE)
    ServiceIdentity(store.db.database, store.blobs).require()
    manifest = make(store.url, store.blobs, store.target)
    lie = replace(manifest, rows={**manifest.rows, "jobs": 7})
    Folder(store.target).manifest.write_text(lie.to_json())
    with databases.empty() as url:
        with pytest.raises(ConfigError) as raised:
            restored(url, store.target, store.away)
        assert str(raised.value) == approved("message")
        dump.check_empty(url)
        assert [*store.away.root.glob("??/*")] == []
        Folder(store.target).manifest.write_text(manifest.to_json())
        assert restored(url, store.target, store.away) == []


def test_a_missing_or_empty_database_cannot_be_backed_up(
    databases: Databases, blobs: BlobFolder, tmp_path: Path
) -> None:
    with databases.empty() as url, pytest.raises((NotFound, Unavailable), match=r"there is no database|no tables"):
        make(url, blobs, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


@quick_on_sqlite
def test_damaged_blobs_are_found_and_not_restored(
    store: Store, databases: Databases, tmp_path: Path, approved: Approved
) -> None:
    db, blobs, away = store.db, store.blobs, store.away
    trained(db, blobs, STATE, b"other")
    make(store.url, blobs, store.target)
    blob = max((store.target).glob("blobs/??/*"), key=lambda path: path.stat().st_size)
    blob.unlink()
    blob.write_bytes(STATE[:-1] + bytes([STATE[-1] ^ 1]))
    assert check(store.target)[1] == [blob.name]
    with databases.empty() as url:
        with pytest.raises(ConfigError, match=blob.name):
            restored(url, store.target, away)
        dump.check_empty(url)
        assert [*away.root.glob("??/*")] == []
        assert restored(url, store.target, away, skip_damaged=True) == [blob.name]
        assert [path.read_bytes() for path in away.root.glob("??/*")] == [b"other"]
    folder = Folder(store.target)
    with folder.dump.open("r+b") as file:
        file.write(b"!")
    with pytest.raises(ConfigError) as raised:
        check(folder.root)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    folder.manifest.unlink()
    with pytest.raises(NotFound, match=r"no manifest\.json"):
        check(folder.root)


@quick_on_sqlite
def test_blobs_missing_in_the_store_are_named_and_the_rest_is_kept(store: Store, databases: Databases) -> None:
    db, blobs, away = store.db, store.blobs, store.away
    trained(db, blobs, STATE, b"other", b"third")
    large, small = sorted(blobs.root.glob("??/*"), key=lambda path: -path.stat().st_size)[:2]
    large.unlink()
    small.write_bytes(b"longer than it was")
    manifest = make(store.url, blobs, store.target)
    assert set(manifest.damaged) == {large.name, small.name}
    done = run("make", store.folder / "again", store.url, blobs)
    assert (done.returncode, "2 blobs were missing or damaged in the store already" in done.stderr) == (1, True)
    assert check(store.folder / "again")[0].damaged == manifest.damaged
    with databases.empty() as url:
        assert set(restored(url, store.target, away)) == {large.name, small.name}


@quick_on_sqlite
def test_a_folder_without_the_blobs_is_refused_and_not_created(
    store: Store, tmp_path: Path, approved: Approved
) -> None:
    trained(store.db, store.blobs, STATE)
    with pytest.raises(NotFound) as raised:
        make(store.url, store.away, store.target)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
    assert not store.target.exists() and not store.away.root.exists()


@quick_on_sqlite
def test_a_killed_backup_cannot_be_restored(store: Store, tmp_path: Path, approved: Approved) -> None:
    db, blobs, away = store.db, store.blobs, store.away
    trained(db, blobs, STATE)
    done = run("make", store.target, store.url, blobs, TORCHYARD_FAILPOINTS="record.manifest.rename=kill")
    assert done.returncode == -signal.SIGKILL
    with pytest.raises(NotFound, match="never finished"):
        restored(store.url, store.target, away)
    with pytest.raises(Conflict) as raised:
        make(store.url, blobs, store.target)
    assert str(raised.value) == approved("message", tmp_path=tmp_path)


@quick_on_sqlite
def test_a_dump_that_does_not_fit_leaves_nothing(store: Store) -> None:
    trained(store.db, store.blobs, STATE)
    assert_nothing_left(store.url, store.blobs, store.target, room=20_000)
    make(store.url, store.blobs, store.target)


def test_a_copy_that_does_not_fit_leaves_nothing(sqlite: SQLiteDatabases, blobs: BlobFolder) -> None:
    with sqlite.migrated() as url, opened(url) as db, TemporaryDirectory(dir="/dev/shm") as elsewhere:
        if Path(elsewhere).stat().st_dev == blobs.root.parent.stat().st_dev:
            pytest.skip("there is no second file system")
        trained(db, blobs, os.urandom(1_000_000))
        target = Path(elsewhere, "backup")
        assert_nothing_left(url, blobs, target, room=500_000)
        make(url, blobs, target)
        assert check(target)[1] == []


def assert_nothing_left(url: str, blobs: BlobFolder, target: Path, *, room: int) -> None:
    """Tries a backup in which no file can exceed `room` bytes, and checks that nothing is left."""
    done = run("make", target, url, blobs, room=room)
    assert done.returncode == 1, done.stderr
    assert done.stderr.startswith("error: ") and "Traceback" not in done.stderr
    assert not target.exists()


def test_pg_dump_reads_the_listed_snapshot_and_gets_no_password_on_its_command_line(
    postgresql: PostgreSQLDatabases, blobs: BlobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = tmp_path / "bin" / "pg_dump"
    slow.parent.mkdir()
    slow.write_text(
        f'#!/bin/sh\necho "$PGPASSWORD" "$@" > {tmp_path}/begun\nwhile [ ! -e {tmp_path}/go ]; do sleep 0.02; done\n'
        f'exec {postgresql.binaries}/pg_dump "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{slow.parent}:{postgresql.binaries}:{os.environ['PATH']}")
    with postgresql.migrated() as url, opened(url) as db, ThreadPoolExecutor() as pool:
        trained(db, blobs, b"before")
        secret = url.replace("postgres@", "postgres:s3%20cret@")
        making = pool.submit(make, secret, blobs, tmp_path / "backup")
        until(lambda: (tmp_path / "begun").exists() or making.done(), what="pg_dump has begun")
        trained(db, blobs, b"meanwhile")
        (tmp_path / "go").touch()
        assert making.result(60).rows["jobs"] == 1
        password, options = (tmp_path / "begun").read_text().split("--no-password")
        assert (password.strip(), "cret" in options) == ("s3 cret", False)
        with postgresql.empty() as empty:
            restored(empty, tmp_path / "backup", BlobFolder(tmp_path / "restored" / "blobs"))


def test_without_pg_dump_the_error_says_what_to_install(
    postgresql: PostgreSQLDatabases, blobs: BlobFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with postgresql.migrated() as url, pytest.raises(ConfigError, match="pg_dump is not in PATH: install"):
        make(url, blobs, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_backup_restores_only_into_the_same_kind_of_database(
    sqlite: SQLiteDatabases, postgresql: PostgreSQLDatabases, blobs: BlobFolder, tmp_path: Path
) -> None:
    away = BlobFolder(tmp_path / "restored" / "blobs")
    with sqlite.migrated() as url:
        make(url, blobs, tmp_path / "backup")
    with postgresql.empty() as url, pytest.raises(ConfigError, match="one of SQLite, and this database is PostgreSQL"):
        restored(url, tmp_path / "backup", away)


def test_the_command_line_makes_and_restores_backups(
    sqlite: SQLiteDatabases, blobs: BlobFolder, tmp_path: Path
) -> None:
    data, target = blobs.root.parent, tmp_path / "backup"
    with sqlite.migrated() as url, opened(url) as db:
        trained(db, blobs, STATE)
        made = torchyard("backup", target, "--data-dir", data, "--database", url)
    assert (made.returncode, made.stderr) == (0, "")
    assert made.stdout.startswith(f"{target}  ") and "1 jobs, 1 checkpoints, 1 blobs of 293.0 KiB" in made.stdout
    again = torchyard("restore", target, "--data-dir", tmp_path / "new", "--json")
    assert (again.returncode, json.loads(again.stdout)["rows"]["jobs"]) == (0, 1)
    assert read_manifest(Folder(target)).to_json() == again.stdout.strip()
    refused = torchyard("restore", target, "--data-dir", tmp_path / "new")
    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"error: {tmp_path / 'new'} is not empty")
    with opened(f"sqlite:///{tmp_path / 'new' / 'torchyard.db'}") as db:
        assert blobs_listed(db) == {path.name for path in (tmp_path / "new").glob("blobs/??/*")}


def torchyard(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return forked.run("torchyard.cli", *map(str, arguments), env=_plain(), cwd=Path.cwd())


def run(
    action: str, folder: Path, url: str, blobs: BlobFolder, *, room: int | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    """Runs the program; with `room`, none of its files can exceed that many bytes."""
    settings = {"TORCHYARD_DATABASE_URL": url, "TORCHYARD_DATA_DIR": str(blobs.root.parent), **environment}
    return forked.run("store.backup", action, str(folder), env=_plain() | settings, cwd=Path.cwd(), file_bytes=room)


def _plain() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("TORCHYARD_")}


@quick_on_sqlite
def test_what_was_to_be_told_is_not_told_again_by_a_restored_service(store: Store, databases: Databases) -> None:
    live = store_on(store.db.database, blobs=store.blobs)
    live.secret_keys = SecretKeys("0" * 64, store.folder / "no-file")
    new = NewTarget("admin", "hook", "webhook", "https://example.com/", kinds=[EventKind.JOB_CANCELLED])
    write(live, targets.add, live.secret_keys, new, caller=SERVICE)
    for _ in range(2):
        store.db.cancel(store.db.submit(owner="admin"))
        write(live, fan_out.fan_out, "admin", most=1)
    store.db.cancel(store.db.submit(owner="admin"))
    make(store.url, store.blobs, store.target)
    with databases.empty() as url:
        restored(url, store.target, store.away)
        with closing(Database(url)) as database:
            there = StoreFixture(database).everything()
            assert write(store_on(database), deliver.claim, store_on(database).secret_keys, count=10, lease_s=60) == []
    assert there["signals"] == []
    assert [(row["next_at"], row["error"]) for row in there["messages"]] == [
        (None, "the service was restored from a backup")
    ] * 2
    assert [row["name"] for row in there["notification_targets"]] == ["hook"]
    assert len(store.db.everything()["signals"]) == 1

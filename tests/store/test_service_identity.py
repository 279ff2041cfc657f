"""The database and the folder of blobs of one service, on both databases, with real folders."""

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from io import BytesIO
from pathlib import Path
import shutil

import pytest
from sqlalchemy import text

from store import housekeeping as cleanup
from store.blobs import garbage
from store.blobs.folder import BlobFolder, FolderAway
from store.bundles import bundles
from store.db.database import Database
from store.queue.announcing import Queue
from store.service_identity import ServiceIdentity, service_id
from store.settings import Settings
from store.store import Store
from tests import line
from tests.servers import administered, redis_server
from tests.store.fixture import StoreFixture, run_together, store_on
from torchyard.contract.errors import ConfigError, NotMigrated


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "blobs"


def start(database: Database, folder: Path) -> str:
    """Does what a program does that starts on the database and the folder."""
    return ServiceIdentity(database, BlobFolder(folder)).require()


def upload(db: StoreFixture, folder: Path, content: bytes = b"code") -> str:
    """Stores a bundle, and returns its sha256."""
    blob = BlobFolder(folder).add(BytesIO(content))
    db.write(lambda session: bundles.add(session, "ada", blob.sha256, size=blob.size, files=1))
    return blob.sha256


def test_the_first_program_marks_the_folder_and_the_next_ones_find_it(database: Database, folder: Path) -> None:
    first = start(database, folder)
    assert (folder / "service").read_text() == f"{first}\n"
    assert start(database, folder) == first == service_id(database)


def test_programs_that_start_together_agree(database_url: str, folder: Path) -> None:
    databases = [Database(database_url) for _ in range(4)]
    found = run_together(*((lambda database=database: start(database, folder)) for database in databases))
    for database in databases:
        database.close()
    assert len(set(found)) == 1
    assert [path.name for path in folder.iterdir()] == ["service"]


def test_of_programs_that_start_together_on_two_folders_one_is_refused(database_url: str, tmp_path: Path) -> None:
    with closing(Database(database_url)) as one, closing(Database(database_url)) as two:
        found = run_together(lambda: start(one, tmp_path / "a"), lambda: start(two, tmp_path / "b"))
    assert sorted(isinstance(result, ConfigError) for result in found) == [False, True]
    assert len([*tmp_path.glob("?/service")]) == 1


@pytest.mark.parametrize("there", ["nothing", "empty", "another's"])
def test_a_program_with_another_folder_is_refused_and_changes_nothing(
    database: Database, folder: Path, tmp_path: Path, there: str
) -> None:
    own = start(database, folder)
    other = tmp_path / "other"
    if there != "nothing":
        other.mkdir()
    if there == "another's":
        BlobFolder(other).mark("svc_another")
    before = [*other.rglob("*")]
    with pytest.raises(ConfigError) as caught:
        start(database, other)
    for part in (str(other), own, f":{folder}", "svc_another" if there == "another's" else "no file `service`"):
        assert part in caught.value.message
    assert ([*other.rglob("*")], other.exists()) == (before, there != "nothing")


def test_a_new_database_does_not_take_the_folder_of_another_service(database: Database, folder: Path) -> None:
    BlobFolder(folder).mark("svc_another")
    with pytest.raises(ConfigError, match="svc_another"):
        start(database, folder)
    assert BlobFolder(folder).owner == "svc_another"


def test_a_program_that_ended_before_the_database_knew_the_folder_is_followed_by_the_next(
    database: Database, folder: Path
) -> None:
    BlobFolder(folder).mark(own := service_id(database))
    assert start(database, folder) == own


def test_a_database_without_tables_is_refused_with_what_to_run(empty_url: str, folder: Path) -> None:
    with closing(Database(empty_url)) as database, pytest.raises(NotMigrated, match="run `python -P -m migrations`"):
        start(database, folder)
    assert not folder.exists()


@pytest.mark.parametrize(
    ("needed", "advice"),
    [("0060", "bring them to 0060 by the last"), ("0061", "run `python -P -m migrations`")],
)
def test_older_tables_are_refused_with_what_to_do(
    database: Database, folder: Path, monkeypatch: pytest.MonkeyPatch, needed: str, advice: str
) -> None:
    monkeypatch.setattr("store.db.revision.REVISION", needed)
    with database.write() as session:
        before = text("UPDATE alembic_version SET version_num = :found")
        session.execute(before, {"found": "0056" if needed == "0060" else "0060"})
    with pytest.raises(NotMigrated, match=advice):
        start(database, folder)
    assert not folder.exists()


def gone(folder: Path) -> None:
    shutil.move(folder, folder.with_name("elsewhere"))


def away(folder: Path) -> None:
    """Leaves what a mount point is without its file system: an empty folder."""
    gone(folder)
    folder.mkdir()


def anothers(folder: Path) -> None:
    away(folder)
    BlobFolder(folder).mark("svc_another")


@pytest.mark.parametrize("change", [away, anothers, gone])
def test_a_folder_that_vanishes_is_not_taken_for_an_empty_one(
    database: Database, folder: Path, change: Callable[[Path], object]
) -> None:
    blobs = BlobFolder(folder)
    kept = blobs.add(BytesIO(b"kept")).sha256
    ServiceIdentity(database, blobs).require()
    change(folder)
    before = {path for path in folder.rglob("*") if path.name != "service"}
    calls: list[Callable[[], object]] = [
        blobs.create,
        blobs.disk_space,
        blobs.remove_abandoned,
        lambda: blobs.uploads,
        lambda: blobs.open(kept),
        lambda: blobs.has(kept, size=4),
        lambda: blobs.copy_out(kept, folder.with_name("copy")),
        lambda: blobs.publish(folder.with_name("new"), kept),
        lambda: blobs.remove(kept, in_time=lambda: True),
    ]
    for call in calls:
        with pytest.raises(FolderAway, match="still mounted"):
            call()
    assert {path for path in folder.rglob("*") if path.name != "service"} == before == set()


def test_no_blob_of_another_service_is_collected(database: Database, folder: Path) -> None:
    blobs, db = BlobFolder(folder), StoreFixture(database)
    sha256 = blobs.add(BytesIO(b"equal in both")).sha256
    ServiceIdentity(database, blobs).require()
    db.write(lambda session: garbage.add_blobs(session, [sha256]))
    anothers(folder)
    theirs = BlobFolder(folder)
    theirs.add(BytesIO(b"equal in both"))
    with pytest.raises(FolderAway):
        cleanup.collect_garbage(store_on(database, blobs=blobs))
    assert theirs.has(sha256, size=13)
    shutil.rmtree(folder)
    shutil.move(folder.with_name("elsewhere"), folder)
    assert cleanup.collect_garbage(store_on(database, blobs=blobs)) == 1  # the row was kept meanwhile


def test_a_store_without_its_own_blobs_neither_reads_nor_writes(
    database: Database, database_url: str, folder: Path, tmp_path: Path
) -> None:
    start(database, folder)
    settings = Settings(data_dir=tmp_path / "other", database_url=database_url)
    with closing(Store.of(settings, program="test")) as store:
        with pytest.raises(ConfigError), store.read():
            pass
        with pytest.raises(ConfigError), store.write("other"):
            pass


def test_two_services_share_one_redis(tmp_path: Path) -> None:
    with redis_server(tmp_path) as url, administered(url) as redis:
        one, two = (Queue(url, service=lambda service=service: service) for service in ("svc_one", "svc_two"))
        with closing(one), closing(two), closing(one.listener()) as woken, closing(two.listener()) as other:
            for listener in (woken, other):
                listener.wait(10)  # ends when the subscription is confirmed
            one.announce(replace(line.queued("job_1"), wakes_workers=True))
            assert woken.wait(120)
            assert not other.wait(0)
            assert (line.waiting(one), line.waiting(two)) == (["job_1"], [])
            assert two.upkeep.begin("a-worker"), "it removes all that is there of its own"
            assert line.waiting(one) == ["job_1"]
        keys = {str(key, "ascii") for key in redis.scan_iter()}  # pyright: ignore[reportUnknownMemberType]
        assert all(key.startswith(("torchyard:svc_one:line:", "torchyard:svc_two:line:")) for key in keys)

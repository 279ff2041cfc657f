"""Real programs that meet another service's blobs, or a database of another version, do not start."""

from contextlib import closing
import os
from pathlib import Path
import signal
import subprocess

from alembic import command
from pydantic import SecretStr
import pytest

from migrations.actions import configuration
from store.blobs.folder import BlobFolder
from store.cluster import workers
from store.db.database import Database
from store.secret_keys import SecretKeys
from store.service_identity import ServiceIdentity
from store.team import secrets
from store.team.callers import SERVICE
from tests import forked
from tests.api.service import TOKEN
from tests.databases import quick_on_sqlite
from tests.servers import free_port
from tests.store.fixture import StoreFixture
from tests.worker.attempt import wait_for
from torchyard.contract.errors import ConfigError
from worker.doctor import services
from worker.doctor.findings import Status
from worker.settings import Settings


def environment(data_dir: Path, database_url: str) -> dict[str, str]:
    settings = {
        "TORCHYARD_DATA_DIR": str(data_dir),
        "TORCHYARD_DATABASE_URL": database_url,
        "TORCHYARD_REDIS_URL": f"unix://{data_dir}/absent.sock",
        "TORCHYARD_CPU_SLOTS": "1",
        "TORCHYARD_LAUNCHER": "torchrun",
        "TORCHYARD_TOKEN": TOKEN,
        "TORCHYARD_PORT": str(free_port()),
    }
    return os.environ | settings


def run(program: str, *arguments: str, data_dir: Path, database_url: str) -> subprocess.CompletedProcess[str]:
    return forked.run(program, *arguments, env=environment(data_dir, database_url), cwd=data_dir)


@pytest.fixture
def service(database_url: str, tmp_path: Path) -> str:
    """The id of a service whose blobs are in the folder `own`."""
    with closing(Database(database_url)) as database:
        return ServiceIdentity(database, BlobFolder(tmp_path / "own" / "blobs")).require()


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A data directory whose folder `blobs` was not mounted."""
    folder = tmp_path / "worker"
    (folder / "blobs").mkdir(parents=True)
    return folder


@quick_on_sqlite
@pytest.mark.parametrize("program", ["worker", "controller", pytest.param("api", marks=pytest.mark.thorough)])
def test_a_program_whose_blobs_are_not_mounted_says_what_to_mount_where(
    program: str, service: str, database: Database, database_url: str, data_dir: Path
) -> None:
    done = run(program, data_dir=data_dir, database_url=database_url)
    assert done.returncode == 1, done.stderr
    said = next(line for line in done.stderr.splitlines() if " ERROR " in line)
    for part in (f"mount that folder at {data_dir / 'blobs'}", f"{data_dir.with_name('own')}/blobs", service):
        assert part in said
    assert "Traceback" not in done.stderr
    assert [*(data_dir / "blobs").iterdir()] == []
    assert StoreFixture(database).read(workers.list_all) == []


def test_a_backup_with_another_services_blobs_is_refused(service: str, database_url: str, data_dir: Path) -> None:
    target = data_dir / "backup"
    done = run("store.backup", "make", str(target), data_dir=data_dir, database_url=database_url)
    assert (done.returncode, target.exists()) == (1, False)
    assert done.stderr.startswith(f"error: {data_dir / 'blobs'} is not the folder of this service's blobs")
    assert service in done.stderr


def test_the_doctor_names_the_service_and_finds_another_folder(
    database: Database, database_url: str, tmp_path: Path, data_dir: Path
) -> None:
    own = Settings(data_dir=tmp_path / "own", database_url=database_url)
    assert "no id yet" in services.check_service(own).fact
    assert not own.blobs.exists()
    service = ServiceIdentity(database, BlobFolder(own.blobs)).require()
    found = services.check_service(own)
    assert found.status is Status.OK and service in found.fact
    found = services.check_service(Settings(data_dir=data_dir, database_url=database_url))
    assert found.status is Status.FAILED and f"mount that folder at {data_dir / 'blobs'}" in found.fact


@pytest.mark.parametrize("program", ["worker", "controller"])
def test_a_program_that_meets_no_tables_says_what_to_run(program: str, empty_url: str, data_dir: Path) -> None:
    done = run(program, data_dir=data_dir, database_url=empty_url)
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1]
    assert " ERROR the database" in last and "run `python -P -m migrations`" in last
    assert "Traceback" not in done.stderr


def test_an_api_that_meets_no_tables_says_so_once_and_serves_when_they_are_migrated(
    empty_url: str, data_dir: Path
) -> None:
    log = data_dir / "api.log"
    log.touch()
    api = forked.ForkedProgram("api", env=environment(data_dir, empty_url), cwd=data_dir, log=log)
    try:
        wait_for(lambda: "run `python -P -m migrations`" in log.read_text(), "the sentence")
        command.upgrade(configuration(empty_url), "head")
        wait_for((data_dir / "blobs" / "service").exists, "the service's id")
    finally:
        api.send_signal(signal.SIGTERM)
        assert api.wait(60) == 0
    assert log.read_text().count("run `python -P -m migrations`") == 1


def test_the_doctor_finds_that_a_host_lacks_the_key_of_secrets_and_makes_none(
    database: Database, database_url: str, tmp_path: Path, data_dir: Path
) -> None:
    api, worker = (
        Settings(data_dir=folder, database_url=database_url, secret_key=SecretStr(""))
        for folder in (tmp_path / "own", data_dir)
    )
    assert [*services.check_secrets(worker)] == []
    api.root.mkdir()
    keys = SecretKeys("", api.secret_key_file)
    with database.write() as session:
        secrets.put(session, keys, "TOKEN", "s3cret", caller=SERVICE)
        row = secrets.named(session, "admin", ["TOKEN"])["TOKEN"]
    assert [found.status for found in services.check_secrets(api)] == [Status.OK]
    (found,) = services.check_secrets(worker)
    assert (found.status, row.key_id in found.fact) == (Status.FAILED, True)
    with pytest.raises(ConfigError, match="the same TORCHYARD_SECRET_KEY"):
        SecretKeys("", worker.secret_key_file).decrypt(row.value, key_id=row.key_id, owner="admin", name="TOKEN")
    assert not worker.secret_key_file.exists()

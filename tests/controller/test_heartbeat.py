"""Whether a controller runs is in the database, and told by its own check and by the doctor."""

import os
from pathlib import Path

from sqlalchemy import insert, update

from controller.duties import Heartbeat
from store.cluster import stats
from store.db.database import now_us
from store.store import Store
from store.tables import Service
from tests import forks
from tests.approved import Approved
from tests.forked import run
from tests.store.fixture import StoreFixture
from worker.doctor import services
from worker.doctor.findings import Status
from worker.settings import Settings

MINUTES_US = 61_000_000

forks.preload("controller.duties")


def checked(database_url: str, folder: Path) -> int:
    """Returns the exit code of the controller's own check."""
    env = os.environ | {"TORCHYARD_DATABASE_URL": database_url, "TORCHYARD_DATA_DIR": str(folder)}
    return run("controller", "--check", env=env, cwd=folder).returncode


def test_a_controller_that_runs_is_told_from_one_that_has_ended(
    db: StoreFixture, store: Store, database_url: str, tmp_path: Path, *, approved: Approved
) -> None:
    db.write(lambda session: session.execute(insert(Service).values(id="svc_tests")))
    settings = Settings(data_dir=tmp_path, database_url=database_url, redis_url="redis://127.0.0.1:1")
    assert db.read(stats.collect).controller_age is None
    found = services.check_controller(settings, embedded=None)
    assert (found.status, found.fact) == (Status.WARNING, approved("fact"))
    assert checked(database_url, tmp_path) == 1
    assert not Heartbeat(store).run()
    age = db.read(stats.collect).controller_age
    assert age is not None and age >= 0
    assert services.check_controller(settings, embedded=None).status is Status.OK
    assert checked(database_url, tmp_path) == 0
    old = update(Service).values(controller_seen_at=now_us() - MINUTES_US)
    db.write(lambda session: session.execute(old))
    found = services.check_controller(settings, embedded=None)
    assert found.status is Status.WARNING and found.fact == approved("none has done")
    assert "python -P -m controller" in (found.advice or "")
    assert checked(database_url, tmp_path) == 1
    embedded = Settings(data_dir=tmp_path, database_url=database_url)
    assert services.check_controller(embedded, embedded=None).status is Status.OK, "torchyard up starts it"

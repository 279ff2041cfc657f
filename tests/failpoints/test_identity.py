"""A program is killed while it gives the database and the folder of blobs the id of their service."""

from contextlib import closing
from pathlib import Path

import pytest

from store.db.database import Database
from store.settings import Settings
from store.store import Store
from tests.databases import quick_on_sqlite
from tests.failpoints.armed import started

POINTS = ["store.identify.before", "store.identify.after"]


def identify(settings: Settings) -> None:
    with closing(Store.of(settings, program="test")) as store:
        store.service()


@quick_on_sqlite
@pytest.mark.parametrize("hit", [1, pytest.param(2, marks=pytest.mark.thorough)])
@pytest.mark.parametrize("point", POINTS)
def test_the_next_program_completes_the_id_of_a_service(
    database: Database, tmp_path: Path, point: str, hit: int
) -> None:
    url = database.engine.url.render_as_string(hide_password=False)
    settings = Settings(data_dir=tmp_path, database_url=url, redis_url="unix:///nowhere")
    with started(identify, settings, plan=f"{point}=kill@{hit}", log=tmp_path / "log") as killed:
        assert killed.wait() < 0
    for _ in range(2):
        with closing(Store.of(settings, program="test")) as store:
            assert store.service() == store.blobs.owner

"""The columns of a record are selected by the names of its fields, and a time of the store is read as one."""

from dataclasses import dataclass
from datetime import UTC, datetime

import pytest

from store.db import columns
from store.db.database import Database
from store.team.tables import User
from torchyard.contract.wire.view import View


class Shown(View):
    name: str
    created_at: datetime
    disabled_at: datetime | None


@dataclass(frozen=True)
class Stored:
    name: str
    created_at: int
    disabled_at: datetime | None


@pytest.mark.parametrize(
    "record",
    [
        Shown(name="ada", created_at=datetime(2026, 1, 2, 3, 4, 5, 600, UTC), disabled_at=None),
        Stored("ada", 1_767_323_045_000_600, None),
    ],
    ids=["view", "dataclass"],
)
def test_a_record_is_read_from_the_columns_of_its_table(database: Database, record: Shown | Stored) -> None:
    with database.write() as session:
        session.add(User(name="ada", role="member", created_at=1_767_323_045_000_600))
    with database.read() as session:
        rows = session.execute(columns.select(type(record), User).where(User.name == "ada"))
        assert columns.views(type(record), rows) == [record]
        assert columns.read(type(record), session.get_one(User, "ada")) == record

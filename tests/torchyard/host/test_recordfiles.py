"""A record that several programs create at once."""

from dataclasses import dataclass
import os
from pathlib import Path

import pytest

from tests.store.fixture import run_together
from torchyard.contract.wire.codec import Record
from torchyard.host.recordfiles import create_record, read_record


@dataclass(frozen=True, kw_only=True)
class Named(Record):
    name: str


def test_of_many_records_at_one_place_the_first_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    run_together(*(lambda name=name: create_record(path, Named(name=name)) for name in "abcdefgh"))
    first = read_record(path, Named)
    create_record(path, Named(name="later"))
    assert first is not None
    assert read_record(path, Named) == first
    assert [entry.name for entry in tmp_path.iterdir()] == [path.name]


def test_a_record_is_created_where_files_have_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def link(*_: object, **__: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "link", link)
    create_record(tmp_path / "record.json", Named(name="one"))
    assert read_record(tmp_path / "record.json", Named) == Named(name="one")
    assert [entry.name for entry in tmp_path.iterdir()] == ["record.json"]

"""What all programs know about the data directory."""

from pathlib import Path

import pytest

from store.settings import Settings
from tests.approved import Approved
from torchyard.contract.errors import ConfigError
from torchyard.host import datadir


@pytest.mark.parametrize(
    ("allowed", "how"),
    [
        (".", "contains"),
        ("data", "contains"),
        ("data/runs", "lies in"),
        ("link", "contains"),
        ("code/in", "lies in"),
    ],
)
def test_a_folder_around_or_in_the_data_directory_is_refused(tmp_path: Path, allowed: str, how: str) -> None:
    data = tmp_path / "data"
    (data / "runs").mkdir(parents=True)
    (tmp_path / "code").mkdir()
    (tmp_path / "link").symlink_to(tmp_path)
    (tmp_path / "code" / "in").symlink_to(data / "runs")
    datadir.check_allowed_paths(data, dict.fromkeys([tmp_path / "code", tmp_path / "data-of-jobs"], False))
    with pytest.raises(ConfigError, match=f" {how} the data directory {data},") as caught:
        datadir.check_allowed_paths(data, dict.fromkeys([tmp_path / "code", tmp_path / allowed], False))
    assert str(tmp_path / allowed) in caught.value.message
    with pytest.raises(ConfigError):
        datadir.check_allowed_paths(tmp_path / "link" / "data", {tmp_path / allowed: False})


@pytest.mark.parametrize("inside", ["shared/deep", "link", "shared/away", "shared/away/deeper", "by-way"])
def test_a_folder_in_one_that_jobs_may_write_is_refused(tmp_path: Path, inside: str, approved: Approved) -> None:
    (tmp_path / "shared" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deeper").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "shared" / "deep")
    (tmp_path / "shared" / "away").symlink_to("../elsewhere")
    (tmp_path / "by-way").symlink_to("shared/away/deeper")
    shared, nested = tmp_path / "shared", tmp_path / inside
    datadir.check_allowed_paths(tmp_path / "data", {shared: False, nested: False})
    datadir.check_allowed_paths(tmp_path / "data", {shared: True, tmp_path / "shared-too": True})
    with pytest.raises(ConfigError) as caught:
        datadir.check_allowed_paths(tmp_path / "data", {shared: True, nested: False})
    assert str(caught.value) == approved.of_row("message", tmp_path=tmp_path)
    assert str(nested) in caught.value.message


def test_the_address_of_the_embedded_redis_has_its_password(tmp_path: Path, approved: Approved) -> None:
    folder = tmp_path / "redis"
    assert Settings(data_dir=tmp_path).redis == f"unix://{folder}/redis.sock"
    folder.mkdir()
    datadir.redis_password_file(folder).write_text("s3cret\n")
    assert Settings(data_dir=tmp_path).redis == f"unix://torchyard:s3cret@{folder}/redis.sock"
    assert Settings(data_dir=tmp_path, redis_url="redis://box").redis == "redis://box"
    datadir.redis_password_file(folder).unlink()
    datadir.redis_password_file(folder).mkdir()
    with pytest.raises(ConfigError) as raised:
        _ = Settings(data_dir=tmp_path).redis
    assert str(raised.value) == approved("message", tmp_path=tmp_path)
